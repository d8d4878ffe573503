"""The online control: compare GRPO with offline training at equal updates (Table 13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pydantic import Field

from gapft_harness import api
from gapft_harness.api import layout
from gapft_harness.run_directory.tables import ProblemState, read_states
from gapft_harness.stages.experiment.comparable import require_conditions
from gapft_harness.training.groups import Group, group_facts, read_groups

_NOTE = (
    "Difference: Pass@1 minus that of the reference, the first row, in percentage points; the "
    "report's section on another rule has both rules. Conditions have equal updates, not equal "
    "tokens; updates and tokens are of one seed. Over all seeds: Empty: updates whose groups were "
    "all flat. No reward: responses that the reward's verifier could not judge."
)
_COLUMNS = (
    api.Column("condition", "condition"),
    api.Column("pass_at_1", "Pass@1", "share"),
    api.Column("difference", "difference", "points"),
    api.Column("updates", "updates", "count"),
    api.Column("empty_draws", "empty", "count"),
    api.Column("unjudged", "no reward", "count"),
    api.Column("completion_tokens", "completion tokens", "count"),
    api.Column("processed_tokens", "processed tokens", "count"),
)
_DRAWN_NOTE = (
    "Drawn groups, over all seeds. Flat: all rewards of a group are equal, so its advantage is 0, "
    "masked or not. G of the flat: the share of G among flat groups, which masking drops. G of G "
    "and U: the share of G if all groups of G and U were dropped instead. Flatness depends on the "
    "policy during training, at sampling temperature; the states are the source's."
)
_DRAWN_COLUMNS = (
    api.Column("condition", "condition"),
    api.Column("groups", "groups", "count"),
    api.Column("flat", "flat", "count"),
    *(api.Column(f"flat_{state}", f"flat {state}", "count") for state in "GSU"),
    api.Column("masked", "masked", "count"),
    api.Column("flat_solved_share", "G of the flat", "share"),
    api.Column("rule_solved_share", "G of G and U", "share"),
)
_SEARCH_NOTE = (
    "The K samples of each pool problem as one group, by the audit's rule. Groups of U are flat by "
    "definition."
)
_SEARCH_COLUMNS = (
    api.Column("state", "state"),
    api.Column("groups", "problems", "count"),
    api.Column("solved", "all pass", "count"),
    api.Column("failed", "none pass", "count"),
    api.Column("flat", "flat", "share"),
)


class OnlineSettings(api.RecipeSection):
    """The settings ``experiments.online``."""

    reference: str = Field(
        "gapft", description="the condition with which conditions of the trainer grpo are compared"
    )


class OnlineExperiment(api.Experiment):
    """Compares GRPO with a reference: Pass@1, tokens, and flat groups."""

    name = "online"
    title = "Online training at equal updates"
    after = "Where the change comes from"
    section = OnlineSettings

    def check(self, recipe: api.Recipe, settings: OnlineSettings) -> None:
        """Require the reference, and a condition of the trainer grpo."""
        require_conditions(recipe, f"experiments.{self.name}.reference", [settings.reference])
        if not _list_online_conditions(recipe, settings.reference):
            raise self.recipe_error(
                recipe,
                "no condition besides the reference is trained by grpo; add one, such as grpo_all: "
                "{selector: gapft, training: {trainer: grpo}}",
            )

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the reference, and the conditions of the trainer grpo."""
        reference = self.settings(recipe).reference
        return [reference, *_list_online_conditions(recipe, reference)]

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> OnlineRead | None:
        """Read the groups of arms that drew any, and the samples of the pool."""
        groups_by_condition: dict[str, list[Sequence[Group]]] = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if groups := list(read_groups(run.file(layout.adapter_path(arm)))):
                groups_by_condition.setdefault(arm.condition, []).append(groups)
        states = list(read_states(run.path / layout.states_path("pool")))
        search_groups = [
            _count_searched(state, [e for e in states if e.state == state]) for state in "GSU"
        ]
        reference = self.settings(run.recipe).reference
        if not groups_by_condition or reference not in {arm.condition for arm in arms}:
            return None
        return OnlineRead(reference, groups_by_condition, search_groups)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: OnlineRead
    ) -> Iterator[api.Table]:
        """Return costs by condition, drawn groups by condition, and the search's by state."""
        groups = read.groups_by_condition
        reference = read.reference
        names = [name for name in inputs.conditions if name in groups and name != reference]
        costs: list[api.Row] = []
        for name in (reference, *names):
            budgets = [trained.budget for trained in inputs.find_arms(name)]
            row = {
                "condition": name,
                "pass_at_1": findings.conditions[name].mean.pass_at_1,
                "updates": budgets[0].steps,
            }
            if name != reference:
                row["difference"] = findings.find_contrast(name, reference).estimate
            if name in groups:
                facts = _sum_facts(groups[name])
                row |= {key: facts[key] for key in ("empty_draws", "unjudged")}
                row["completion_tokens"] = Fraction(facts["completion_tokens"], len(budgets))
            else:
                row["processed_tokens"] = Fraction(sum(b.tokens for b in budgets), len(budgets))
            costs.append(row)
        yield api.Table(self.name, _COLUMNS, costs, _NOTE)
        drawn = [_count_drawn(name, groups[name]) for name in (reference, *names) if name in groups]
        yield api.Table(f"{self.name}_drawn", _DRAWN_COLUMNS, drawn, _DRAWN_NOTE)
        yield api.Table(f"{self.name}_search", _SEARCH_COLUMNS, read.search_groups, _SEARCH_NOTE)


def _list_online_conditions(recipe: api.Recipe, reference: str) -> list[str]:
    return [
        name
        for name in recipe.conditions
        if name != reference and recipe.resolve_training(name).trainer == "grpo"
    ]


@dataclass(frozen=True, slots=True)
class OnlineRead:
    """The inputs of the part.

    Attributes:
        reference: the condition that others are compared with.
        groups_by_condition: by condition, the groups that each of its arms drew, by ascending seed.
        search_groups: a row for each state: the groups of the pool's K samples.
    """

    reference: str
    groups_by_condition: Mapping[str, Sequence[Sequence[Group]]]
    search_groups: Sequence[api.Row]


def _count_searched(state: str, problems: Sequence[ProblemState]) -> api.Row:
    """Count the problems of a state whose samples all pass, and those of which none passes."""
    solved = sum(evidence.passing_samples == evidence.samples for evidence in problems)
    failed = sum(evidence.passing_samples == 0 for evidence in problems)
    return {
        "state": state,
        "groups": len(problems),
        "solved": solved,
        "failed": failed,
        "flat": Fraction(solved + failed, len(problems)) if problems else None,
    }


def _sum_facts(arms: Sequence[Sequence[Group]]) -> dict[str, int]:
    """Sum the trainer's counts over the arms of a condition."""
    facts = [group_facts(groups) for groups in arms]
    return {key: sum(arm_facts[key] for arm_facts in facts) for key in facts[0]}


def _count_drawn(name: str, arms: Sequence[Sequence[Group]]) -> api.Row:
    """Count the drawn groups of a condition, flat ones by the source's state."""
    facts = _sum_facts(arms)
    groups = [group for arm_groups in arms for group in arm_groups]
    states = Counter[str](group.state for group in groups)
    flat = Counter[str](group.state for group in groups if group.is_flat)
    dropped = states["G"] + states["U"]
    return {
        "condition": name,
        **{key: facts[key] for key in ("groups", "flat", "masked")},
        **{f"flat_{state}": flat[state] for state in "GSU"},
        "flat_solved_share": Fraction(flat["G"], flat.total()) if flat else None,
        "rule_solved_share": Fraction(states["G"], dropped) if dropped else None,
    }


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("online", OnlineExperiment)
