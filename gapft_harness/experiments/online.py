"""The online control: compare GRPO with offline training at equal updates, by both rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.estimate import Estimate
from gapft_harness.analysis.flat_groups import FlatGroups, compute_solved_share, count_flat_groups
from gapft_harness.api import condition_name, layout, percent, points, wording


class OnlineSettings(api.RecipeSection):
    """The settings ``experiments.online``."""

    reference: str = Field(
        "gapft", description="the condition with which conditions of the trainer grpo are compared"
    )


class OnlineExperiment(api.Experiment):
    """Compares GRPO with a reference: Pass@1 by both rules, tokens, and flat groups."""

    name = "online"
    section = OnlineSettings

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has no such reference, or no condition of the trainer grpo.
        """
        settings = super().settings(recipe, options)
        if settings is None:
            return None
        api.require_conditions(recipe, f"experiments.{self.name}.reference", [settings.reference])
        if not _list_online_conditions(recipe, settings.reference):
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': no condition besides the "
                "reference is trained by grpo; add one, such as grpo_all: {selector: gapft, "
                "training: {trainer: grpo}}"
            )
        return settings

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the reference, and the conditions of the trainer grpo."""
        reference = self.settings(recipe).reference
        return [reference, *_list_online_conditions(recipe, reference)]

    def part(self) -> OnlinePart:
        """Return the part of the report."""
        return OnlinePart()


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
        search_groups: counts of groups of the pool's K samples, by state.
    """

    reference: str
    groups_by_condition: Mapping[str, Sequence[Sequence[api.Group]]]
    search_groups: tuple[FlatGroups, ...]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """The results of a model by both rules.

    Attributes:
        name: the condition; empty: the source.
        pass_at_1: Pass@1 by the run's rule.
        other_pass_at_1: Pass@1 by the other rule; None: there is no other rule.
        run_change: Pass@1 minus the reference's, with its interval; None: the reference, or the
            source.
        other_change: the same by the other rule.
        invalid: share of responses without an answer by the run's rule; None: unknown.
        opening_right: share of these responses that open with the right letter; None: unknown.
        source_name: the source's name for people.
    """

    name: str
    pass_at_1: Fraction
    other_pass_at_1: Fraction | None = None
    run_change: Estimate | None = None
    other_change: Estimate | None = None
    invalid: Fraction | None = None
    opening_right: Fraction | None = None
    source_name: str = "source, greedy"

    @property
    def label(self) -> str:
        """The model's name for people."""
        return condition_name(self.name) if self.name else self.source_name


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """The cost and the drawn groups of a condition over all seeds.

    Attributes:
        name: the condition.
        updates: optimizer updates of a seed.
        processed_tokens: tokens that supervised training processes, mean over seeds; None: it is
            online.
        facts: counts of the trainer, summed over seeds; None: it is not online.
        flat_groups: counts of drawn groups by state; empty: it is not online.
        n_seeds: the number of seeds.
    """

    name: str
    updates: int
    processed_tokens: Fraction | None
    facts: Mapping[str, int] | None
    flat_groups: tuple[FlatGroups, ...]
    n_seeds: int

    def find_fact(self, key: str) -> int | None:
        """Return one of the trainer's counts; None: it is not online."""
        return None if self.facts is None else self.facts[key]

    @property
    def completion_tokens(self) -> Fraction | None:
        """The new tokens of a seed, mean over seeds; None: it is not online."""
        return (
            None if self.facts is None else Fraction(self.facts["completion_tokens"], self.n_seeds)
        )

    @property
    def solved_share_of_rule(self) -> Fraction | None:
        """The share of G among all drawn groups of G and U; None: there are none."""
        groups_by_state = {flatness.state: flatness.groups for flatness in self.flat_groups}
        dropped = groups_by_state.get("G", 0) + groups_by_state.get("U", 0)
        return Fraction(groups_by_state["G"], dropped) if dropped else None


@dataclass(frozen=True, slots=True)
class OnlineFindings:
    """The drawn groups; the table of rules uses contrasts of the report.

    Attributes:
        reference: the condition that others are compared with.
        rows: a row for each condition, the reference first.
        search_groups: counts of groups of the pool's K samples, by state.
    """

    reference: str
    rows: tuple[DrawnRow, ...]
    search_groups: tuple[FlatGroups, ...]


def _format_change(change: Estimate | None) -> str:
    return "–" if change is None else f"{points(change.value)} {api.points_interval(change)}"


def _flatten_change(change: Estimate | None) -> tuple[Fraction | float, float, float] | None:
    return None if change is None else (change.value, change.low, change.high)


_format_count = wording.format_rounded
_ENDS = ("", "_ci95_low", "_ci95_high")
_CHANGE_MEANING = "difference from the reference in points, with an interval of joint replicates"
CONTROL: tuple[api.Column[RuleRow], ...] = (
    api.Column("condition", "", lambda row: row.name or api.SOURCE),
    api.Column("", "", lambda row: row.label, "condition"),
    api.Column(
        "run_rule", "Pass@1 by the audit's verifier", lambda row: row.pass_at_1, "Pass@1", percent
    ),
    api.Column("", _CHANGE_MEANING, lambda row: row.run_change, "Δ vs REFERENCE", _format_change),
    api.Column(
        "run_rule_change",
        "",
        lambda row: _flatten_change(row.run_change),
        names=tuple(f"run_rule_change{end}" for end in _ENDS),
    ),
    api.Column(
        "other_rule",
        "Pass@1 by the more permissive (or stricter) rule that the verifier declares",
        lambda row: row.other_pass_at_1,
        "other rule",
        percent,
    ),
    api.Column("", _CHANGE_MEANING, lambda row: row.other_change, "Δ by it", _format_change),
    api.Column(
        "other_rule_change",
        "",
        lambda row: _flatten_change(row.other_change),
        names=tuple(f"other_rule_change{end}" for end in _ENDS),
    ),
    api.Column(
        "invalid",
        "responses in which the audit's verifier finds no answer",
        lambda row: row.invalid,
        "invalid",
        percent,
    ),
    api.Column(
        "invalid_opening_right",
        "share of the invalid responses that open with the right letter; a dash: the task has no "
        "letters",
        lambda row: row.opening_right,
        "open right",
        percent,
    ),
)


def _build_fact_column(key: str, title: str, meaning: str) -> api.Column[DrawnRow]:
    return api.Column(key, meaning, lambda row: row.find_fact(key), title, _format_count)


def _build_flat_column(state: str) -> api.Column[DrawnRow]:
    """Build the column of flat groups of a state."""

    def count_flat(row: DrawnRow) -> int | None:
        return next(
            (flatness.flat for flatness in row.flat_groups if flatness.state == state), None
        )

    return api.Column(f"flat_{state}", _FLAT_MEANING, count_flat, f"flat {state}", _format_count)


_FLAT_MEANING = "groups with equal rewards, in total and by the source's state, over all seeds"
_NAME: api.Column[DrawnRow] = api.Column(
    "condition", "", lambda row: row.name, "condition", condition_name
)
_FLATNESS: tuple[api.Column[DrawnRow], ...] = (
    _build_fact_column(
        "groups", "groups", "groups drawn, one for each prompt of an update, over all seeds"
    ),
    _build_fact_column("flat", "flat", _FLAT_MEANING),
    _build_flat_column("G"),
    _build_flat_column("S"),
    _build_flat_column("U"),
    _build_fact_column("masked", "masked", "flat groups left out of the loss"),
    api.Column(
        "flat_solved_share",
        "share of the flat groups whose problems the source solves in one decode",
        lambda row: compute_solved_share(row.flat_groups),
        "G of the flat",
        percent,
    ),
    api.Column(
        "rule_solved_share",
        "the same share of all drawn groups of G and U",
        lambda row: row.solved_share_of_rule,
        "G of G and U",
        percent,
    ),
)
_COST: tuple[api.Column[DrawnRow], ...] = (
    api.Column(
        "updates", "optimizer updates of a seed", lambda row: row.updates, "updates", _format_count
    ),
    _build_fact_column(
        "empty_draws", "empty", "updates whose groups were all flat; they count as updates"
    ),
    _build_fact_column(
        "unjudged", "no reward", "responses on which the reward's verifier raised an error or hung"
    ),
    api.Column(
        "completion_tokens",
        "generated tokens of a seed",
        lambda row: row.completion_tokens,
        "completion tokens",
        _format_count,
    ),
    api.Column(
        "processed_tokens",
        "tokens of prompts and responses that supervised training of a seed processed",
        lambda row: row.processed_tokens,
        "processed tokens",
        _format_count,
    ),
)
DRAWN = (_NAME, *_FLATNESS, *_COST)
SAMPLED: tuple[api.Column[FlatGroups], ...] = (
    api.Column("state", "the source's", lambda row: row.state, "state"),
    api.Column("groups", "problems of the pool", lambda row: row.groups, "problems", _format_count),
    api.Column("solved", "all K samples pass", lambda row: row.solved, "all pass", _format_count),
    api.Column("failed", "no sample passes", lambda row: row.failed, "none pass", _format_count),
    api.Column("flat", "share of the state's problems", lambda row: row.share, "flat", percent),
)


class OnlinePart(api.Part):
    """The part of the report: the paper's table of the online control, and drawn groups."""

    name = "online"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> OnlineRead | None:
        """Read the groups of arms that drew any, and the samples of the pool."""
        settings = manifest["recipe"].get("experiments", {}).get(self.name)
        if settings is None:
            return None
        run = api.RunDirectory.open(run_path)
        groups_by_condition: dict[str, list[Sequence[api.Group]]] = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if groups := list(api.read_groups(run.sealed(layout.adapter_path(arm)))):
                groups_by_condition.setdefault(arm.condition, []).append(groups)
        states = api.read_states(run_path / layout.states_path("pool"))
        search_groups = count_flat_groups(
            (evidence.state, evidence.samples, evidence.passing_samples) for evidence in states
        )
        reference = OnlineSettings.model_validate(settings).reference
        condition_names = {arm.condition for arm in arms}
        return (
            OnlineRead(reference, groups_by_condition, search_groups)
            if reference in condition_names and groups_by_condition
            else None
        )

    def compute(self, inputs: api.ReportInputs, read: OnlineRead) -> OnlineFindings:
        """Count the drawn groups of each condition."""
        names = [
            read.reference,
            *(name for name in inputs.conditions if name in read.groups_by_condition),
        ]
        rows = tuple(
            _build_drawn_row(inputs, name, read.groups_by_condition.get(name, ())) for name in names
        )
        return OnlineFindings(read.reference, rows, read.search_groups)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: OnlineFindings
    ) -> Iterator[api.Section]:
        """Return the section: the paper's table, drawn groups, costs, and groups of the search."""
        rows, name = (
            _build_rule_rows(inputs, findings, part_findings),
            condition_name(part_findings.reference),
        )
        yield api.Section(
            "Online training at equal updates",
            [
                api.Text(_describe_result(rows[1:], part_findings)),
                api.Frame(CONTROL, rows).table(_write_rule_note(inputs), fill={"REFERENCE": name}),
                api.Frame((_NAME, *_FLATNESS), part_findings.rows[1:]).table(_FLAT_NOTE),
                api.Frame((_NAME, *_COST), part_findings.rows).table(_COST_NOTE),
                api.Frame(SAMPLED, part_findings.search_groups).table(
                    _write_search_note(inputs, part_findings)
                ),
            ],
        )

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: OnlineFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the three CSV tables, not rounded."""
        yield (
            "online.csv",
            api.Frame(CONTROL, _build_rule_rows(inputs, findings, part_findings)).csv(),
        )
        yield "online_drawn.csv", api.Frame(DRAWN, part_findings.rows).csv()
        yield "online_search.csv", api.Frame(SAMPLED, part_findings.search_groups).csv()

    def results(self, part_findings: OnlineFindings) -> dict[str, Any]:
        """Return the drawn groups; Pass@1 is under ``contrasts`` and ``verifier_audit``."""
        return {
            "reference": part_findings.reference,
            "drawn": api.Frame(DRAWN, part_findings.rows).entries(),
            "search": api.Frame(SAMPLED, part_findings.search_groups).entries(),
        }


def _build_drawn_row(
    inputs: api.ReportInputs, name: str, arms: Sequence[Sequence[api.Group]]
) -> DrawnRow:
    """Build the row of a condition.

    Args:
        inputs: the inputs of the report.
        name: the condition.
        arms: the groups of each of its arms; empty: it is the reference, trained on examples.
    """
    budgets = [trained.budget for trained in inputs.find_arms(name)]
    if not arms:
        processed = Fraction(sum(entry.tokens for entry in budgets), len(budgets))
        return DrawnRow(name, budgets[0].steps, processed, None, (), len(budgets))
    facts_by_arm = [api.group_facts(groups) for groups in arms]
    facts = {key: sum(entry[key] for entry in facts_by_arm) for key in facts_by_arm[0]}
    flatness = count_flat_groups(_count_rewards(group) for groups in arms for group in groups)
    return DrawnRow(name, budgets[0].steps, None, facts, flatness, len(arms))


def _count_rewards(group: api.Group) -> tuple[api.State, int, int]:
    """Return a group's state, its number of responses with a reward, and with one above 0."""
    rewards = [reward for reward in group.rewards if reward is not None]
    return group.state, len(rewards), sum(reward > 0 for reward in rewards)


def _build_rule_rows(
    inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: OnlineFindings
) -> list[RuleRow]:
    """Build the rows of the source, the reference, and every online condition."""
    other = inputs.other_rule
    if other is not None and other.reason:
        other = None
    contrast_pairs = api.under_both(inputs, findings, other) if other else ()
    by_names = {
        (run_contrast.a, run_contrast.b): other_contrast
        for _, run_contrast, other_contrast in contrast_pairs
    }
    agreements = (
        {agreement.name: agreement for agreement in api.agreements(inputs, other)} if other else {}
    )
    rows = []
    for name in ("", *(entry.name for entry in part_findings.rows)):
        run = findings.conditions[name].mean.pass_at_1 if name else findings.source.pass_at_1
        row = RuleRow(name, run, source_name=wording.name_source(inputs.deployment))
        if other:
            codes = (
                [other.arms[entry.arm.name] for entry in inputs.find_arms(name)]
                if name
                else [other.source]
            )
            passed = sum(int((arm_codes == api.PASS).sum()) for arm_codes in codes)
            decodes = sum(arm_codes.size for arm_codes in codes)
            row = replace(row, other_pass_at_1=Fraction(passed, decodes))
        if name in agreements and (invalid := agreements[name].invalid) is not None:
            right = agreements[name].right
            opens = Fraction(right, invalid) if right is not None and invalid else None
            row = replace(
                row, invalid=Fraction(invalid, agreements[name].total), opening_right=opens
            )
        if name not in ("", part_findings.reference):
            contrast = findings.find_contrast(name, part_findings.reference)
            row = replace(row, run_change=contrast.estimate)
            row = replace(
                row, other_change=_find_other_change(by_names, name, part_findings.reference)
            )
        rows.append(row)
    return rows


def _find_other_change(
    by_names: Mapping[tuple[str, str], api.Contrast], name: str, reference: str
) -> Estimate | None:
    """Return a contrast by the other rule, which may be reported in the other direction."""
    if (contrast := by_names.get((name, reference))) is not None:
        return contrast.estimate
    if (reverse_contrast := by_names.get((reference, name))) is not None:
        return -reverse_contrast.estimate
    return None


def _describe_result(rows: Sequence[RuleRow], part_findings: OnlineFindings) -> str:
    compared_rows = [row for row in rows if row.run_change is not None]
    is_equal = all(row.run_change == row.other_change for row in compared_rows)
    rule_text = "either" if is_equal else "the audit's"
    change_texts = []
    for row in compared_rows:
        change_texts.append(f"{condition_name(row.name)} {_format_change(row.run_change)}")
        if not is_equal and row.other_change is not None:
            change_texts[-1] += f", by the other {_format_change(row.other_change)}"
    return (
        f"Pass@1 minus that of {condition_name(part_findings.reference)}, in points by "
        f"{rule_text} rule: {'; '.join(change_texts)}."
    )


def _write_rule_note(inputs: api.ReportInputs) -> str:
    other, task = inputs.other_rule, inputs.task
    rule_text = (
        f"Pass@1: by the audit's verifier, {task['verifier']} {task.get('verifier_params', {})}."
    )
    if other is None or other.reason:
        return f"{rule_text} No other rule: {other.reason if other else 'none was computed'}."
    return (
        f"{rule_text} Other rule: {other.name} {dict(other.params)}. Invalid: the audit's verifier "
        "reads no answer. Open right: share of these that open with the right letter."
    )


_FLAT_NOTE = (
    "Drawn groups. Flat: all rewards of a group are equal, so its advantage is 0, masked or not. G "
    "of the flat: the share of G among flat groups, which masking drops. G of G and U: the share "
    "of G if all groups of G and U were dropped instead. Flatness depends on the policy during "
    "training, at sampling temperature; the states are the source's."
)
_COST_NOTE = (
    "Conditions have equal updates, not equal tokens. Empty: updates whose groups were all flat. "
    "Tokens: of one seed."
)


def _write_search_note(inputs: api.ReportInputs, part_findings: OnlineFindings) -> str:
    return (
        f"The K = {inputs.k} samples of each pool problem as one group, by the audit's rule. Of "
        f"the flat groups, {percent(compute_solved_share(part_findings.search_groups))} are in G. "
        "Groups of U are flat by definition."
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("online", OnlineExperiment)
