"""Every figure of a report, computed once and typed; results.json, tables and pages print these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from gapft_harness.analysis.bootstrap import Difference, Interval, Replicates, replicate
from gapft_harness.analysis.decomposition import (
    Decomposition,
    Terms,
    decompose,
    pool,
    unstable_states,
)
from gapft_harness.analysis.pass_at_k import k_equivalent
from gapft_harness.core.records import SOURCE, Arm, Budget, State
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.conditions import own_settings
from gapft_harness.report.findings.replicates import RepeatedCondition, compare_replicates
from gapft_harness.report.findings.versions import VERSIONS, find_own_versions
from gapft_harness.report.reading.columns import count_codes
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording

#: Marks a contrast of conditions that differ in a declared setting.
DIFFERS = "‡"

#: Said in results.json and on the page where there was nothing to train on.
NOTHING_TO_TRAIN_ON = (
    "Search exposed nothing to train on: no pool problem that the source missed in one decode "
    "was solved by any of its samples."
)


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """The source model on the audit.

    Attributes:
        pass_at_1: of the greedy decode.
        curve: unbiased Pass@k of the samples for every k from 1 to K.
        states: audit problems in G, S and U.
        verdicts: greedy decodes by status.
    """

    n: int
    pass_at_1: Fraction
    curve: Mapping[int, Fraction]
    states: Mapping[State, int]
    verdicts: Mapping[str, int]

    @property
    def unstable(self) -> tuple[State, ...]:
        """States too small for a stable rate."""
        return unstable_states(self.states["G"], self.states["S"], self.states["U"])


@dataclass(frozen=True, slots=True)
class SeedFindings:
    """One trained model.

    Attributes:
        problems: the distinct ones in its budget's n slots.
        trained_as: the arm that it is, where its training set is that arm's, which was trained
            once for both; else empty.
        taken: of a training set of another run where it comes from (``TrainedArm.taken``).
    """

    decomposition: Decomposition
    budget: Budget
    problems: int
    verdicts: Mapping[str, int]
    trained_as: str = ""
    taken: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ConditionFindings:
    """One condition over its seeds.

    Attributes:
        matched: whether its budget is a matched one; see ``budget_matched``.
        own: what it has of its own in place of the run's settings (``own_settings``).
        label: its name for people, with these.
        k_eq: see ``k_equivalent``.
        mean: counts pooled over seeds: its rates, terms and Pass@1 are means over seeds.
        seeds: by seed, ascending.
    """

    name: str
    matched: bool
    k_eq: int
    interval: Interval
    mean: Decomposition
    seeds: Mapping[int, SeedFindings]
    own: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def budgets(self) -> list[Budget]:
        """Those of its seeds."""
        return [of.budget for of in self.seeds.values()]

    @property
    def unstable(self) -> tuple[State, ...]:
        """States too small for a stable rate, by the problems of one seed."""
        one = next(iter(self.seeds.values())).decomposition
        return unstable_states(one.n_g, one.n_s, one.n_u)


def budget_matched(*conditions: ConditionFindings) -> bool:
    """Whether conditions have one n, N and J, and none is a reference with a budget of its own.

    Conditions that differ in a declared setting are not matched, whatever their budgets are.
    """
    budgets = [of for condition in conditions for of in condition.budgets]
    sizes = {(of.n, of.exposures, of.steps) for of in budgets}
    return (
        len(sizes) == 1
        and all(condition.matched for condition in conditions)
        and not differs(*conditions)
    )


def differs(*conditions: ConditionFindings) -> tuple[str, ...]:
    """The settings that not all of some conditions have alike: ``k``, ``training.trainer``, …"""
    keys = dict.fromkeys(key for condition in conditions for key in condition.own)
    told = object()  # the run's
    return tuple(
        key
        for key in keys
        if any(of.own.get(key, told) != conditions[0].own.get(key, told) for of in conditions)
    )


@dataclass(frozen=True, slots=True)
class Contrast:
    """Condition ``a`` minus condition ``b`` (or the source), paired by seed and item.

    Attributes:
        a: a condition's name.
        b: another one, or ``SOURCE``.
        delta: the difference of their Pass@1, a fraction; the mean over seeds.
        terms: its parts by the source's state G, S and U, which add up to it.
        resampled: its 95% interval and p value, from the bootstrap.
    """

    a: str
    b: str
    delta: Fraction
    terms: Terms
    resampled: Difference

    @property
    def interval(self) -> Interval:
        """The 95% interval of ``delta``."""
        return self.resampled.interval

    def turned(self) -> Contrast:
        """The same as ``b`` minus ``a``."""
        ends = self.interval
        # subtracted, so that a 0 has no sign
        turned = Difference(Interval(0 - ends.high, 0 - ends.low), self.resampled.p_value)
        nothing = Terms(Fraction(0), Fraction(0), Fraction(0))
        return Contrast(self.b, self.a, -self.delta, nothing - self.terms, turned)


@dataclass(frozen=True, slots=True)
class PartFindings:
    """An experiment's part of the report (``report.part.Part``) with its findings."""

    part: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Findings:
    """All results of a run.

    Attributes:
        source: of the source model.
        pool_states: how many problems of the pool are in each state.
        conditions: by name, in the recipe's order.
        contrasts: between conditions, and of each condition against the source.
        lead: the condition the report is about: ``gapft``, else the first that an experiment
            names, else the recipe's first; empty if none.
        parts: the experiments with their findings; ``found(name)`` gives those of one.
        further: the same on other problems, by the names of the recipe's ``audits``.
        replicates: conditions that repeat the training of another.
    """

    source: SourceFindings
    pool_states: Mapping[State, int]
    conditions: Mapping[str, ConditionFindings]
    contrasts: tuple[Contrast, ...]
    lead: str
    parts: tuple[PartFindings, ...] = ()
    further: Mapping[str, Findings] = field(default_factory=dict)
    replicates: tuple[RepeatedCondition, ...] = ()

    def is_replicate(self, a: str, b: str) -> bool:
        """Whether one of two conditions repeats the training of the other, or both of a third."""
        originals = {of.condition: of.original for of in self.replicates}
        return a != b and originals.get(a, a) == originals.get(b, b)

    def found(self, name: str) -> Any:
        """An experiment's findings; None if the run has none of that name."""
        return next((of.found for of in self.parts if of.part.name == name), None)

    @property
    def distinct(self) -> dict[str, ConditionFindings]:
        """The conditions but for those whose models are all another's of these."""
        arms = {Arm(name, seed).name for name, of in self.conditions.items() for seed in of.seeds}
        return {
            name: condition
            for name, condition in self.conditions.items()
            if not all(of.trained_as in arms for of in condition.seeds.values())
        }

    @property
    def groups(self) -> list[list[ConditionFindings]]:
        """The conditions whose budgets match, apart by budget."""
        groups: list[list[ConditionFindings]] = []
        for condition in self.conditions.values():
            group = next((of for of in groups if budget_matched(of[0], condition)), None)
            if group is not None:
                group.append(condition)
            elif condition.matched:
                groups.append([condition])
        return groups

    def sides(self, contrast: Contrast) -> list[ConditionFindings]:
        """A contrast's conditions; the source was never trained."""
        return [self.conditions[name] for name in (contrast.a, contrast.b) if name != SOURCE]

    def remark(self, contrasts: Sequence[Contrast]) -> str:
        """What the marks of some contrasts' names mean; empty where none is marked."""
        marks = "".join(map(self.marks, contrasts))
        labels = [*dict.fromkeys(s.label for of in contrasts for s in self.sides(of) if s.own)]
        said = " * Not budget-matched." if "*" in marks else ""
        if DIFFERS in marks:
            said += (
                f" {DIFFERS} Not matched: the two differ in a declared setting, or in "
                f"what made them "
                f"({'; '.join(labels)}; the others as the run)."
            )
        return said

    def marks(self, contrast: Contrast) -> str:
        """The marks of a contrast: of other budgets, and of other settings or versions."""
        sides = self.sides(contrast)
        # the source was decoded by the run's own versions
        other = differs(*sides) if len(sides) > 1 else VERSIONS in sides[0].own
        sizes = {(b.n, b.exposures, b.steps) for of in sides for b in of.budgets}
        alone = len(sides) > 1 and (len(sizes) > 1 or not all(of.matched for of in sides))
        return " *" * alone + f" {DIFFERS}" * bool(other)

    def fair(self, contrast: Contrast) -> bool:
        """Whether a contrast's conditions are budget-matched and have the same settings."""
        sides = self.sides(contrast)
        return len(sides) == 1 or budget_matched(*sides)

    def contrast(self, a: str, b: str) -> Contrast:
        """The contrast of a minus b, whichever way round it is reported.

        Raises:
            KeyError: it was not computed.
        """
        for found in self.contrasts:
            if (found.a, found.b) == (a, b):
                return found
            if (found.a, found.b) == (b, a):
                return found.turned()
        raise KeyError(f"{a} minus {b}")


def compute(inputs: ReportInputs, ordered: Sequence[str] = ()) -> Findings:
    """Computes everything.

    Args:
        inputs: as ``read_inputs`` gives them.
        ordered: the conditions, those that the report is about first; default: ``_ordered``.
    """
    audit = inputs.audit
    names = inputs.conditions
    ordered = ordered or _ordered(inputs)
    lead = ordered[0] if ordered else ""
    source = SourceFindings(
        n=len(audit.ids),
        pass_at_1=Fraction(int(audit.verdicts.greedy.sum()), len(audit.ids)),
        curve={k: audit.verdicts.pass_at(k) for k in range(1, inputs.k + 1)},
        states=audit.verdicts.sizes,
        verdicts=count_codes(audit.greedy),
    )
    further = {of.name: compute(of.inputs, ordered) for of in inputs.further}
    if not names:
        return Findings(source, inputs.pool_states, {}, (), lead, further=further)
    passed = np.array([[arm.passed for arm in inputs.of(name)] for name in names])
    statistics = inputs.recipe["statistics"]
    replicates = replicate(
        passed,
        audit.verdicts.greedy,
        item_ids=audit.ids,
        seeds=np.array(inputs.seeds, dtype=np.int64),
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    conditions = {
        name: _condition(inputs, name, replicates.pass_at_1(index))
        for index, name in enumerate(names)
    }
    contrasts = _contrasts(conditions, replicates, ordered)
    parts = tuple(PartFindings(of.part, of.part.compute(inputs, of.read)) for of in inputs.parts)
    again = compare_replicates(inputs)
    return Findings(source, inputs.pool_states, conditions, contrasts, lead, parts, further, again)


def _ordered(inputs: ReportInputs) -> list[str]:
    """The conditions with those the report is about first: a contrast is earlier minus later."""
    first = ["gapft", *(name for of in inputs.parts for name in of.part.leads(of.read))]
    return list(dict.fromkeys(n for n in (*first, *inputs.conditions) if n in inputs.conditions))


def _condition(inputs: ReportInputs, name: str, interval: Interval) -> ConditionFindings:
    arms = inputs.of(name)
    seeds = {
        trained.arm.seed: SeedFindings(
            decompose(inputs.audit.states, trained.passed),
            trained.budget,
            trained.problems,
            count_codes(trained.statuses),
            inputs.training.get(trained.arm.name, {}).get("trained_as", ""),
            trained.taken,
        )
        for trained in arms
    }
    mean = pool([seed.decomposition for seed in seeds.values()])
    taken = next((trained.taken for trained in arms if trained.taken), None)
    own = own_settings(inputs.recipe, {name: taken} if taken else None)[name]
    own |= find_own_versions(inputs).get(name, {})
    return ConditionFindings(
        name=name,
        matched=all(trained.matched for trained in arms),
        k_eq=k_equivalent(inputs.audit.verdicts.passing, inputs.k, mean.pass_at_1),
        interval=interval,
        mean=mean,
        seeds=seeds,
        own=own,
        label=wording.condition_label(name, own, inputs.k),
    )


def _contrasts(
    conditions: Mapping[str, ConditionFindings], replicates: Replicates, ordered: Sequence[str]
) -> tuple[Contrast, ...]:
    """The lead condition against every other, the others in pairs, then each against the source."""
    index = {name: number for number, name in enumerate(conditions)}
    mean = {name: condition.mean for name, condition in conditions.items()}
    between = [
        Contrast(
            a,
            b,
            mean[a].pass_at_1 - mean[b].pass_at_1,
            mean[a].terms - mean[b].terms,
            replicates.contrast(index[a], index[b]),
        )
        for a, b in combinations(ordered, 2)
    ]
    gains = [
        Contrast(
            name, SOURCE, mean[name].terms.total, mean[name].terms, replicates.gain(index[name])
        )
        for name in ordered
    ]
    return (*between, *gains)
