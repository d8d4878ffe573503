"""The online control: GRPO against offline training at equal updates, under both rules."""

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
    """What a recipe says under ``experiments.online``."""

    reference: str = Field(
        "gapft", description="the condition that those of the trainer grpo are compared with"
    )


class Online(api.Experiment):
    """GRPO's conditions against a reference: under both rules, by tokens, by what was flat."""

    name = "online"
    section = OnlineSettings

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe lacks the reference, or a condition of the trainer grpo.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        api.require_conditions(recipe, f"experiments.{self.name}.reference", [found.reference])
        if not _online(recipe, found.reference):
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': no condition besides the "
                "reference is trained by grpo, such as grpo_all: {selector: gapft, training: "
                "{trainer: grpo}}"
            )
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """The reference, and those of the trainer grpo."""
        reference = self.settings(recipe).reference
        return [reference, *_online(recipe, reference)]

    def part(self) -> OnlinePart:
        """Its section and tables."""
        return OnlinePart()


def _online(recipe: api.Recipe, reference: str) -> list[str]:
    return [
        name
        for name in recipe.conditions
        if name != reference and recipe.training_of(name).trainer == "grpo"
    ]


@dataclass(frozen=True, slots=True)
class OnlineRead:
    """What the part is made of.

    Attributes:
        reference: the condition that is compared with.
        drawn: by condition, what each of its arms drew, by ascending seed.
        sampled: groups of the pool's K samples, by state.
    """

    reference: str
    drawn: Mapping[str, Sequence[Sequence[api.Group]]]
    sampled: tuple[FlatGroups, ...]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A model under both rules.

    Attributes:
        name: the condition; empty: the source.
        run: Pass@1 by the run's rule.
        other: by the other; None: there is none.
        run_change: minus the reference, with its interval; None: of the reference and the source.
        other_change: the same by the other rule.
        invalid: share of responses without an answer by the run's rule; None where that is not
            told.
        opens: of these, the share that opens with the right letter.
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
    """What a condition cost and drew, its seeds together.

    Attributes:
        name: the condition.
        updates: optimizer updates of a seed.
        processed: tokens that supervised training processes, a seed's mean; None: it is online.
        facts: as the trainer counts them, summed over seeds; None: it is not online.
        flat: drawn groups by state; of no problem where it is not online.
        seeds: how many.
    """

    name: str
    updates: int
    processed: Fraction | None
    facts: Mapping[str, int] | None
    flat: tuple[FlatGroups, ...]
    seeds: int

    def count(self, key: str) -> int | None:
        """One of the facts."""
        return None if self.facts is None else self.facts[key]

    @property
    def completion_tokens(self) -> Fraction | None:
        """Return the new tokens of a seed, the mean; None where it is not online."""
        return None if self.facts is None else Fraction(self.facts["completion_tokens"], self.seeds)

    @property
    def rule(self) -> Fraction | None:
        """What dropping every group of G and of U would drop: the share that is of G."""
        groups = {of.state: of.groups for of in self.flat}
        dropped = groups.get("G", 0) + groups.get("U", 0)
        return Fraction(groups["G"], dropped) if dropped else None


@dataclass(frozen=True, slots=True)
class OnlineFindings:
    """What was drawn, the reference first; the table of rules is of the report's own contrasts."""

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
_MINUS = "minus the reference, in points, with the interval of joint replicates"
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
        "Pass@1 by the permissive (or stricter) rule that the verifier declares",
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
        "responses in which the audit's verifier reads no answer",
        lambda row: row.invalid,
        "invalid",
        percent,
    ),
    api.Column(
        "invalid_opening_right",
        "of the invalid ones, those that open with the right letter; a dash where the task has no "
        "letters",
        lambda row: row.opens,
        "open right",
        percent,
    ),
)


def _fact(key: str, title: str, meaning: str) -> api.Column[DrawnRow]:
    return api.Column(key, meaning, lambda row: row.count(key), title, _whole)


def _flat(state: str) -> api.Column[DrawnRow]:
    """Flat groups of a state."""

    def value(row: DrawnRow) -> int | None:
        return next((of.flat for of in row.flat if of.state == state), None)

    return api.Column(f"flat_{state}", _FLAT, value, f"flat {state}", _whole)


_FLAT = "groups whose rewards are all equal, in all and by the source's state, over all seeds"
_NAME: api.Column[DrawnRow] = api.Column(
    "condition", "", lambda row: row.name, "condition", condition_name
)
_FLATNESS: tuple[api.Column[DrawnRow], ...] = (
    _fact("groups", "groups", "prompts drawn for, over all seeds"),
    _fact("flat", "flat", _FLAT),
    _flat("G"),
    _flat("S"),
    _flat("U"),
    _fact("masked", "masked", "flat groups that were left out of the loss"),
    api.Column(
        "flat_solved_share",
        "of the flat groups, those of problems that the source solves in one decode",
        lambda row: solved_share(row.flat),
        "G of the flat",
        percent,
    ),
    api.Column(
        "rule_solved_share",
        "the same share if every drawn group of G and of U were dropped, and no other",
        lambda row: row.rule,
        "G of G and U",
        percent,
    ),
)
_COST: tuple[api.Column[DrawnRow], ...] = (
    api.Column(
        "updates", "optimizer updates of a seed", lambda row: row.updates, "updates", _whole
    ),
    _fact("empty_draws", "empty", "draws all of whose groups were flat; their updates count"),
    _fact("unjudged", "no reward", "responses that the reward's verifier raised or hung on"),
    api.Column(
        "completion_tokens",
        "new tokens that a seed drew",
        lambda row: row.completion_tokens,
        "completion tokens",
        _whole,
    ),
    api.Column(
        "processed_tokens",
        "tokens of prompts and responses that a seed's supervised training processed",
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
    api.Column("failed", "none of them does", lambda row: row.failed, "none pass", _whole),
    api.Column("flat", "share of the state's problems", lambda row: row.share, "flat", percent),
)


class OnlinePart(api.Part):
    """The paper's table of the online control, and what was drawn."""

    name = "online"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> OnlineRead | None:
        """The groups of every arm that has any, and the pool's samples."""
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
        """What was drawn."""
        names = [read.reference, *(name for name in inputs.conditions if name in read.drawn)]
        drawn = tuple(_drawn_row(inputs, name, read.drawn.get(name, ())) for name in names)
        return OnlineFindings(read.reference, drawn, read.sampled)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: OnlineFindings
    ) -> Iterator[api.Section]:
        """The paper's table, what was drawn, and which groups of the search are flat."""
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
        """All three, unrounded."""
        yield "online.csv", api.Frame(CONTROL, _rule_rows(inputs, findings, found)).csv()
        yield "online_drawn.csv", api.Frame(DRAWN, found.drawn).csv()
        yield "online_search.csv", api.Frame(SAMPLED, found.sampled).csv()

    def results(self, found: OnlineFindings) -> dict[str, Any]:
        """What was drawn; Pass@1 and differences stand under contrasts and verifier_audit."""
        return {
            "reference": found.reference,
            "drawn": api.Frame(DRAWN, found.drawn).entries(),
            "search": api.Frame(SAMPLED, found.sampled).entries(),
        }


def _drawn_row(
    inputs: api.ReportInputs, name: str, arms: Sequence[Sequence[api.Group]]
) -> DrawnRow:
    """A condition's; without groups it is the reference, which trains on its examples."""
    budgets = [trained.budget for trained in inputs.of(name)]
    if not arms:
        processed = Fraction(sum(of.tokens for of in budgets), len(budgets))
        return DrawnRow(name, budgets[0].steps, processed, None, (), len(budgets))
    counted = [api.group_facts(groups) for groups in arms]
    facts = {key: sum(of[key] for of in counted) for key in counted[0]}
    flat = flat_groups(_rewarded(group) for groups in arms for group in groups)
    return DrawnRow(name, budgets[0].steps, None, facts, flat, len(arms))


def _rewarded(group: api.Group) -> tuple[api.State, int, int]:
    """Its state, the responses that have a reward, and those that have the highest."""
    given = [reward for reward in group.rewards if reward is not None]
    return group.state, len(given), sum(reward > 0 for reward in given)


def _rule_rows(
    inputs: api.ReportInputs, findings: api.ReportFindings, found: OnlineFindings
) -> list[RuleRow]:
    """The source's, the reference's, and every online condition's."""
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
    """A contrast under the other rule, whichever way round it is reported."""
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
        return f"{run} No other rule: {other.why if other else 'nobody judged by one'}."
    return (
        f"{run} Other rule: {other.name} {dict(other.params)}. Invalid: the audit's verifier reads "
        "no answer. Open right: of these, with the right letter."
    )


_FLAT_NOTE = (
    "Groups that were drawn. Flat: all rewards of a group are equal, which gives it advantage 0 "
    "whether or not it is masked. G of the flat: what masking flat groups drops; G of G and U: "
    "what dropping every drawn group of G and of U would drop. Flatness is of the policy as it is "
    "trained, at sampling temperature; the states are the source's."
)
_COST_NOTE = (
    "Equal are the updates, not the tokens. Empty: updates all of whose groups were flat. Tokens: "
    "of a seed."
)


def _sampled_note(inputs: api.ReportInputs, found: OnlineFindings) -> str:
    return (
        f"The pool's K = {inputs.k} samples of the search, each problem's as one group, by the "
        f"audit's rule. Of the flat ones {percent(solved_share(found.sampled))} are of G. U is "
        "flat by definition."
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("online", Online)
