"""The online control: compare GRPO with offline training at equal updates, by both rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.flat_groups import FlatGroups, flat_groups, solved_share
from gapft_harness.api import condition_name, layout, percent, points, wording


class OnlineSettings(api.RecipeSection):
    """The settings ``experiments.online``."""

    reference: str = Field(
        "gapft", description="the condition with which conditions of the trainer grpo are compared"
    )


class Online(api.Experiment):
    """Compares GRPO with a reference: Pass@1 by both rules, tokens, and flat groups."""

    name = "online"
    section = OnlineSettings

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has no such reference, or no condition of the trainer grpo.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        api.require_conditions(recipe, f"experiments.{self.name}.reference", [found.reference])
        if not _online(recipe, found.reference):
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': no condition besides the "
                "reference is trained by grpo; add one, such as grpo_all: {selector: gapft, "
                "training: {trainer: grpo}}"
            )
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the reference, and the conditions of the trainer grpo."""
        reference = self.settings(recipe).reference
        return [reference, *_online(recipe, reference)]

    def part(self) -> OnlinePart:
        """Return the part of the report."""
        return OnlinePart()


def _online(recipe: api.Recipe, reference: str) -> list[str]:
    return [
        name
        for name in recipe.conditions
        if name != reference and recipe.training_of(name).trainer == "grpo"
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
    drawn: Mapping[str, Sequence[Sequence[api.Group]]]
    sampled: tuple[FlatGroups, ...]


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
    """

    name: str
    run: Fraction
    other: Fraction | None = None
    run_change: tuple[Fraction, Interval] | None = None
    other_change: tuple[Fraction, Interval] | None = None
    invalid: Fraction | None = None
    opens: Fraction | None = None


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
    processed: Fraction | None
    facts: Mapping[str, int] | None
    flat: tuple[FlatGroups, ...]
    seeds: int

    def count(self, key: str) -> int | None:
        """Return one of the trainer's counts; None: it is not online."""
        return None if self.facts is None else self.facts[key]

    @property
    def completion_tokens(self) -> Fraction | None:
        """The new tokens of a seed, mean over seeds; None: it is not online."""
        return None if self.facts is None else Fraction(self.facts["completion_tokens"], self.seeds)

    @property
    def rule(self) -> Fraction | None:
        """The share of G among all drawn groups of G and U; None: there are none."""
        groups = {of.state: of.groups for of in self.flat}
        dropped = groups.get("G", 0) + groups.get("U", 0)
        return Fraction(groups["G"], dropped) if dropped else None


@dataclass(frozen=True, slots=True)
class OnlineFindings:
    """The drawn groups; the table of rules uses contrasts of the report.

    Attributes:
        reference: the condition that others are compared with.
        rows: a row for each condition, the reference first.
        search_groups: counts of groups of the pool's K samples, by state.
    """

    reference: str
    drawn: tuple[DrawnRow, ...]
    sampled: tuple[FlatGroups, ...]


Change = tuple[Fraction, Interval] | None


def _change(change: Change) -> str:
    return "–" if change is None else f"{points(change[0])} {api.points_interval(change[1])}"


def _plain_change(change: Change) -> tuple[Fraction, float, float] | None:
    return None if change is None else (change[0], change[1].low, change[1].high)


_whole = wording.rounded
_ENDS = ("", "_ci95_low", "_ci95_high")
_MINUS = "difference from the reference in points, with an interval of joint replicates"
CONTROL: tuple[api.Column[RuleRow], ...] = (
    api.Column(
        "condition",
        "",
        lambda row: row.name or api.SOURCE,
        "condition",
        lambda name: "source, greedy" if name == api.SOURCE else condition_name(name),
    ),
    api.Column(
        "run_rule", "Pass@1 by the audit's verifier", lambda row: row.run, "Pass@1", percent
    ),
    api.Column("", _MINUS, lambda row: row.run_change, "Δ vs REFERENCE", _change),
    api.Column(
        "run_rule_change",
        "",
        lambda row: _plain_change(row.run_change),
        names=tuple(f"run_rule_change{end}" for end in _ENDS),
    ),
    api.Column(
        "other_rule",
        "Pass@1 by the more permissive (or stricter) rule that the verifier declares",
        lambda row: row.other,
        "other rule",
        percent,
    ),
    api.Column("", _MINUS, lambda row: row.other_change, "Δ by it", _change),
    api.Column(
        "other_rule_change",
        "",
        lambda row: _plain_change(row.other_change),
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
        lambda row: row.opens,
        "open right",
        percent,
    ),
)


def _fact(key: str, title: str, meaning: str) -> api.Column[DrawnRow]:
    return api.Column(key, meaning, lambda row: row.count(key), title, _whole)


def _flat(state: str) -> api.Column[DrawnRow]:
    """Build the column of flat groups of a state."""

    def value(row: DrawnRow) -> int | None:
        return next((of.flat for of in row.flat if of.state == state), None)

    return api.Column(f"flat_{state}", _FLAT, value, f"flat {state}", _whole)


_FLAT = "groups with equal rewards, in total and by the source's state, over all seeds"
_NAME: api.Column[DrawnRow] = api.Column(
    "condition", "", lambda row: row.name, "condition", condition_name
)
_FLATNESS: tuple[api.Column[DrawnRow], ...] = (
    _fact("groups", "groups", "groups drawn, one for each prompt of an update, over all seeds"),
    _fact("flat", "flat", _FLAT),
    _flat("G"),
    _flat("S"),
    _flat("U"),
    _fact("masked", "masked", "flat groups left out of the loss"),
    api.Column(
        "flat_solved_share",
        "share of the flat groups whose problems the source solves in one decode",
        lambda row: solved_share(row.flat),
        "G of the flat",
        percent,
    ),
    api.Column(
        "rule_solved_share",
        "the same share of all drawn groups of G and U",
        lambda row: row.rule,
        "G of G and U",
        percent,
    ),
)
_COST: tuple[api.Column[DrawnRow], ...] = (
    api.Column(
        "updates", "optimizer updates of a seed", lambda row: row.updates, "updates", _whole
    ),
    _fact("empty_draws", "empty", "updates whose groups were all flat; they count as updates"),
    _fact(
        "unjudged", "no reward", "responses on which the reward's verifier raised an error or hung"
    ),
    api.Column(
        "completion_tokens",
        "generated tokens of a seed",
        lambda row: row.completion_tokens,
        "completion tokens",
        _whole,
    ),
    api.Column(
        "processed_tokens",
        "tokens of prompts and responses that supervised training of a seed processed",
        lambda row: row.processed,
        "processed tokens",
        _whole,
    ),
)
DRAWN = (_NAME, *_FLATNESS, *_COST)
SAMPLED: tuple[api.Column[FlatGroups], ...] = (
    api.Column("state", "the source's", lambda row: row.state, "state"),
    api.Column("groups", "problems of the pool", lambda row: row.groups, "problems", _whole),
    api.Column("solved", "all K samples pass", lambda row: row.solved, "all pass", _whole),
    api.Column("failed", "no sample passes", lambda row: row.failed, "none pass", _whole),
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
        said = manifest["recipe"].get("experiments", {}).get(self.name)
        if said is None:
            return None
        run = api.RunDirectory.open(run_path)
        drawn: dict[str, list[Sequence[api.Group]]] = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if groups := list(api.read_groups(run.sealed(layout.adapter(arm)))):
                drawn.setdefault(arm.condition, []).append(groups)
        states = api.read_states(run_path / layout.states("pool"))
        sampled = flat_groups((of.state, of.samples, of.passing_samples) for of in states)
        reference = OnlineSettings.model_validate(said).reference
        shown = {arm.condition for arm in arms}
        return OnlineRead(reference, drawn, sampled) if reference in shown and drawn else None

    def compute(self, inputs: api.ReportInputs, read: OnlineRead) -> OnlineFindings:
        """Count the drawn groups of each condition."""
        names = [read.reference, *(name for name in inputs.conditions if name in read.drawn)]
        drawn = tuple(_drawn_row(inputs, name, read.drawn.get(name, ())) for name in names)
        return OnlineFindings(read.reference, drawn, read.sampled)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: OnlineFindings
    ) -> Iterator[api.Section]:
        """Return the section: the paper's table, drawn groups, costs, and groups of the search."""
        rows, name = _rule_rows(inputs, findings, found), condition_name(found.reference)
        yield api.Section(
            "Online training at equal updates",
            [
                api.Text(_result(rows[1:], found)),
                api.Frame(CONTROL, rows).table(_rule_note(inputs), fill={"REFERENCE": name}),
                api.Frame((_NAME, *_FLATNESS), found.drawn[1:]).table(_FLAT_NOTE),
                api.Frame((_NAME, *_COST), found.drawn).table(_COST_NOTE),
                api.Frame(SAMPLED, found.sampled).table(_sampled_note(inputs, found)),
            ],
        )

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: OnlineFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the three CSV tables, not rounded."""
        yield "online.csv", api.Frame(CONTROL, _rule_rows(inputs, findings, found)).csv()
        yield "online_drawn.csv", api.Frame(DRAWN, found.drawn).csv()
        yield "online_search.csv", api.Frame(SAMPLED, found.sampled).csv()

    def results(self, found: OnlineFindings) -> dict[str, Any]:
        """Return the drawn groups; Pass@1 is under ``contrasts`` and ``verifier_audit``."""
        return {
            "reference": found.reference,
            "drawn": api.Frame(DRAWN, found.drawn).entries(),
            "search": api.Frame(SAMPLED, found.sampled).entries(),
        }


def _drawn_row(
    inputs: api.ReportInputs, name: str, arms: Sequence[Sequence[api.Group]]
) -> DrawnRow:
    """Build the row of a condition.

    Args:
        inputs: the inputs of the report.
        name: the condition.
        arms: the groups of each of its arms; empty: it is the reference, trained on examples.
    """
    budgets = [trained.budget for trained in inputs.of(name)]
    if not arms:
        processed = Fraction(sum(of.tokens for of in budgets), len(budgets))
        return DrawnRow(name, budgets[0].steps, processed, None, (), len(budgets))
    counted = [api.group_facts(groups) for groups in arms]
    facts = {key: sum(of[key] for of in counted) for key in counted[0]}
    flat = flat_groups(_rewarded(group) for groups in arms for group in groups)
    return DrawnRow(name, budgets[0].steps, None, facts, flat, len(arms))


def _rewarded(group: api.Group) -> tuple[api.State, int, int]:
    """Return a group's state, its number of responses with a reward, and with one above 0."""
    given = [reward for reward in group.rewards if reward is not None]
    return group.state, len(given), sum(reward > 0 for reward in given)


def _rule_rows(
    inputs: api.ReportInputs, findings: api.ReportFindings, found: OnlineFindings
) -> list[RuleRow]:
    """Build the rows of the source, the reference, and every online condition."""
    other = inputs.other_rule
    if other is not None and other.why:
        other = None
    both = api.under_both(inputs, findings, other) if other else ()
    by_names = {(was.a, was.b): now for _, was, now in both}
    told = {one.name: one for one in api.agreements(inputs, other)} if other else {}
    rows = []
    for name in ("", *(of.name for of in found.drawn)):
        run = findings.conditions[name].mean.pass_at_1 if name else findings.source.pass_at_1
        row = RuleRow(name, run)
        if other:
            codes = [other.arms[of.arm.name] for of in inputs.of(name)] if name else [other.source]
            passed = sum(int((each == api.PASS).sum()) for each in codes)
            row = replace(row, other=Fraction(passed, sum(map(len, codes))))
        if name in told and (invalid := told[name].invalid) is not None:
            right = told[name].right
            opens = Fraction(right, invalid) if right is not None and invalid else None
            row = replace(row, invalid=Fraction(invalid, told[name].all), opens=opens)
        if name not in ("", found.reference):
            contrast = findings.contrast(name, found.reference)
            row = replace(row, run_change=(contrast.delta, contrast.interval))
            row = replace(row, other_change=_other_change(by_names, name, found.reference))
        rows.append(row)
    return rows


def _other_change(
    by_names: Mapping[tuple[str, str], api.Contrast], name: str, reference: str
) -> Change:
    """Return a contrast by the other rule, which may be reported in the other direction."""
    if (as_is := by_names.get((name, reference))) is not None:
        return as_is.delta, as_is.interval
    if (turned := by_names.get((reference, name))) is not None:
        return -turned.delta, Interval(-turned.interval.high, -turned.interval.low)
    return None


def _result(rows: Sequence[RuleRow], found: OnlineFindings) -> str:
    told = [row for row in rows if row.run_change is not None]
    alike = all(row.run_change == row.other_change for row in told)
    rule = "either" if alike else "the audit's"
    said = []
    for row in told:
        said.append(f"{condition_name(row.name)} {_change(row.run_change)}")
        if not alike and row.other_change is not None:
            said[-1] += f", by the other {_change(row.other_change)}"
    return (
        f"Pass@1 minus that of {condition_name(found.reference)}, in points by "
        f"{rule} rule: {'; '.join(said)}."
    )


def _rule_note(inputs: api.ReportInputs) -> str:
    other, task = inputs.other_rule, inputs.task
    run = f"Pass@1: by the audit's verifier, {task['verifier']} {task.get('verifier_params', {})}."
    if other is None or other.why:
        return f"{run} No other rule: {other.why if other else 'none was computed'}."
    return (
        f"{run} Other rule: {other.name} {dict(other.params)}. Invalid: the audit's verifier reads "
        "no answer. Open right: share of these that open with the right letter."
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


def _sampled_note(inputs: api.ReportInputs, found: OnlineFindings) -> str:
    return (
        f"The K = {inputs.k} samples of each pool problem as one group, by the audit's rule. Of "
        f"the flat groups, {percent(solved_share(found.sampled))} are in G. Groups of U are flat "
        "by definition."
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("online", Online)
