"""Compute all numbers of a report as typed findings; results.json, tables and pages read these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from gapft_harness.analysis.decomposition import (
    Decomposition,
    Terms,
    by_state,
    find_unstable_states,
)
from gapft_harness.analysis.estimate import Estimate
from gapft_harness.analysis.pass_at_k import k_equivalent
from gapft_harness.analysis.resampling import Resampled, Scores, resample
from gapft_harness.core.records import SOURCE, Arm, Budget, State
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.findings.replicates import RepeatedCondition, compare_replicates
from gapft_harness.report.reading.columns import count_codes
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording

#: Marks a contrast of conditions that differ in a declared setting, version or device.
UNMATCHED_MARK = "‡"

#: The message in results.json and on the page of a run that trained nothing.
NOTHING_TO_TRAIN_ON = (
    "The search found nothing to train on: no pool problem that the source failed in one decode "
    "was solved by any of its samples."
)


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """The source model on the audit.

    Attributes:
        n: audit problems.
        pass_at_1: of the deployment decodes.
        curve: unbiased Pass@k of the samples, for every k from 1 to K.
        states: audit problems in G, S and U.
        verdicts: deployment decodes by status.
        majority: maj@K of the samples (``analysis.majority``); None with a ``voting_fault``.
        voting_fault: the reason why there is no majority vote, in words; may be empty.
        deployment: how the deployment decodes are sampled; None: one greedy decode.
    """

    n: int
    pass_at_1: Fraction
    curve: Mapping[int, Fraction]
    states: Mapping[State, int]
    verdicts: Mapping[str, int]
    majority: float | None = None
    voting_fault: str = ""
    deployment: Deployment | None = None

    @property
    def unstable_states(self) -> tuple[State, ...]:
        """The states with too few problems for a stable rate."""
        return find_unstable_states(self.states["G"], self.states["S"], self.states["U"])


@dataclass(frozen=True, slots=True)
class SeedFindings:
    """The results of one trained model.

    Attributes:
        decomposition: its outcomes by the source's states.
        budget: the budget of its training set.
        problems: distinct problems in its budget's n slots.
        verdicts: deployment decodes by status.
        trained_as: the arm whose adapter it reuses, because both have the same training set; else
            empty.
        unverified: examples of its training set whose response did not pass.
    """

    decomposition: Decomposition
    budget: Budget
    problems: int
    verdicts: Mapping[str, int]
    trained_as: str = ""
    unverified: int = 0


@dataclass(frozen=True, slots=True)
class ConditionFindings:
    """One condition over its seeds.

    Attributes:
        name: the condition's name.
        matched: whether its budget is matched; see ``is_budget_matched``.
        k_eq: see ``k_equivalent``.
        estimate: its mean Pass@1.
        mean: counts pooled over seeds, so that rates, terms and Pass@1 are means over seeds.
        seeds: findings by seed, ascending.
        own: its settings that differ from the run's (``find_own_settings``).
        label: its displayed name, with these settings.
    """

    name: str
    matched: bool
    k_eq: int
    estimate: Estimate
    mean: Decomposition
    seeds: Mapping[int, SeedFindings]
    own: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of its seeds."""
        return [seed_findings.budget for seed_findings in self.seeds.values()]

    @property
    def unstable_states(self) -> tuple[State, ...]:
        """The states with too few problems for a stable rate, by the problems of one seed."""
        seed_counts = next(iter(self.seeds.values())).decomposition
        return find_unstable_states(seed_counts.n_g, seed_counts.n_s, seed_counts.n_u)


def is_budget_matched(*conditions: ConditionFindings) -> bool:
    """Return whether conditions have the same n, N and J, and no condition has its own budget.

    Conditions that differ in a declared setting are never matched.
    """
    budgets = [budget for condition in conditions for budget in condition.budgets]
    sizes = {(budget.n, budget.exposures, budget.steps) for budget in budgets}
    return (
        len(sizes) == 1
        and all(condition.matched for condition in conditions)
        and not find_differing_settings(*conditions)
    )


def find_differing_settings(*conditions: ConditionFindings) -> tuple[str, ...]:
    """Find the settings in which conditions differ: ``k``, ``training.trainer``, …"""
    keys = dict.fromkeys(key for condition in conditions for key in condition.own)
    run_value = object()  # a condition without its own value has the run's
    return tuple(
        key
        for key in keys
        if any(
            condition_findings.own.get(key, run_value) != conditions[0].own.get(key, run_value)
            for condition_findings in conditions
        )
    )


@dataclass(frozen=True, slots=True)
class Contrast:
    """Condition ``a`` minus condition ``b`` (or the source), paired by seed and item.

    Attributes:
        a: a condition's name.
        b: another condition's name, or ``SOURCE``.
        terms: the parts of the difference by the source's state G, S and U.
        estimate: the difference of their Pass@1, from -1 to 1; the mean over seeds.
    """

    a: str
    b: str
    terms: Terms
    estimate: Estimate

    @property
    def delta(self) -> Fraction:
        """The difference, exactly: the sum of its terms."""
        return self.terms.total

    def reverse(self) -> Contrast:
        """Return the contrast ``b`` minus ``a``."""
        zero = Terms(Fraction(0), Fraction(0), Fraction(0))
        return Contrast(self.b, self.a, zero - self.terms, -self.estimate)


@dataclass(frozen=True, slots=True)
class PartFindings:
    """An experiment's part of the report (``report.part.Part``) with its findings."""

    part: Any
    findings: Any


@dataclass(frozen=True, slots=True)
class Findings:
    """All results of a run.

    Attributes:
        source: the source model's findings.
        pool_states: pool problems in each state.
        conditions: by name, in the recipe's order.
        contrasts: conditions in pairs, and each condition minus the source.
        lead: the main condition of the report: ``gapft``, else the first that an experiment names,
            else the recipe's first; empty without conditions.
        parts: the experiments with their findings.
        replicates: conditions that repeat the training of another condition.
    """

    source: SourceFindings
    pool_states: Mapping[State, int]
    conditions: Mapping[str, ConditionFindings]
    contrasts: tuple[Contrast, ...]
    lead: str
    parts: tuple[PartFindings, ...] = ()
    replicates: tuple[RepeatedCondition, ...] = ()

    def is_replicate(self, a: str, b: str) -> bool:
        """Return whether two conditions repeat the same training."""
        originals = {replicate.condition: replicate.original for replicate in self.replicates}
        return a != b and originals.get(a, a) == originals.get(b, b)

    @property
    def distinct(self) -> dict[str, ConditionFindings]:
        """The conditions, except those whose models are all shared with another condition."""
        arms = {
            Arm(name, seed).name for name, entry in self.conditions.items() for seed in entry.seeds
        }
        return {
            name: condition
            for name, condition in self.conditions.items()
            if not all(entry.trained_as in arms for entry in condition.seeds.values())
        }

    @property
    def groups(self) -> list[list[ConditionFindings]]:
        """The conditions with matched budgets, grouped by budget."""
        groups: list[list[ConditionFindings]] = []
        for condition in self.conditions.values():
            group = next(
                (candidate for candidate in groups if is_budget_matched(candidate[0], condition)),
                None,
            )
            if group is not None:
                group.append(condition)
            elif condition.matched:
                groups.append([condition])
        return groups

    def list_sides(self, contrast: Contrast) -> list[ConditionFindings]:
        """Return the conditions of a contrast, without the source."""
        return [self.conditions[name] for name in (contrast.a, contrast.b) if name != SOURCE]

    def describe_marks(self, contrasts: Sequence[Contrast]) -> str:
        """Explain the marks of contrasts; empty if no contrast is marked."""
        marks = "".join(map(self.format_marks, contrasts))
        labels = [
            *dict.fromkeys(
                side.label
                for contrast in contrasts
                for side in self.list_sides(contrast)
                if side.own
            )
        ]
        text = " * Not budget-matched." if "*" in marks else ""
        if UNMATCHED_MARK in marks:
            text += (
                f" {UNMATCHED_MARK} Not matched: the two differ in a declared setting "
                f"({'; '.join(labels)}; the others are as in the run)."
            )
        return text

    def format_marks(self, contrast: Contrast) -> str:
        """Return the marks for unequal budgets and unequal settings; none if b is the source."""
        sides = self.list_sides(contrast)
        if len(sides) == 1:
            return ""
        sizes = {(b.n, b.exposures, b.steps) for side in sides for b in side.budgets}
        has_other_budgets = len(sizes) > 1 or not all(side.matched for side in sides)
        has_other_settings = bool(find_differing_settings(*sides))
        return " *" * has_other_budgets + f" {UNMATCHED_MARK}" * has_other_settings

    def is_matched(self, contrast: Contrast) -> bool:
        """Return whether a contrast has matched budgets; True for one with the source."""
        sides = self.list_sides(contrast)
        return len(sides) == 1 or is_budget_matched(*sides)

    def find_contrast(self, a: str, b: str) -> Contrast:
        """Return the contrast a minus b; it may be stored in either order.

        Raises:
            KeyError: it was not computed.
        """
        for contrast in self.contrasts:
            if (contrast.a, contrast.b) == (a, b):
                return contrast
            if (contrast.a, contrast.b) == (b, a):
                return contrast.reverse()
        raise KeyError(f"{a} minus {b}")


def compute_findings(inputs: ReportInputs, ordered: Sequence[str] = ()) -> Findings:
    """Compute all findings.

    Args:
        inputs: the result of ``read_inputs``.
        ordered: the conditions, main ones first; default: the order of ``_order_conditions``.
    """
    audit = inputs.audit
    names = inputs.conditions
    ordered = ordered or _order_conditions(inputs)
    lead = ordered[0] if ordered else ""
    votes = audit.verdicts.compute_majority()
    source = SourceFindings(
        n=len(audit.ids),
        pass_at_1=audit.verdicts.pass_at_1,
        curve={k: audit.verdicts.compute_pass_at(k) for k in range(1, inputs.k + 1)},
        states=audit.verdicts.sizes,
        verdicts=count_codes(audit.deployed.statuses),
        majority=None if votes is None else float(votes.mean()),
        voting_fault=audit.verdicts.voting_fault,
        deployment=inputs.deployment,
    )
    if not names:
        return Findings(source, inputs.pool_states, {}, (), lead)
    statistics = inputs.recipe["statistics"]
    resampled = resample(
        stack_scores(inputs, names),
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    conditions = {
        name: _compute_condition(inputs, name, resampled.estimate_mean(name)) for name in names
    }
    contrasts = _compute_contrasts(conditions, resampled, ordered)
    parts = tuple(
        PartFindings(entry.part, entry.part.compute(inputs, entry.data)) for entry in inputs.parts
    )
    repeated_conditions = compare_replicates(inputs)
    return Findings(
        source, inputs.pool_states, conditions, contrasts, lead, parts, repeated_conditions
    )


def stack_scores(inputs: ReportInputs, conditions: Sequence[str]) -> Scores:
    """Stack the audit decisions of conditions and of the source (the row ``SOURCE``)."""
    audit, seeds = inputs.audit, np.array(inputs.seeds, dtype=np.int64)
    rows = {
        name: np.array([arm.deployed.passed for arm in inputs.find_arms(name)])
        for name in conditions
    }
    source = np.broadcast_to(audit.deployed.passed, (len(seeds), len(audit.ids)))
    return Scores({**rows, SOURCE: source}, seeds, audit.ids)


def _order_conditions(inputs: ReportInputs) -> list[str]:
    """Order conditions, main ones first; a contrast subtracts a later condition from an earlier."""
    first = ["gapft", *(name for loaded in inputs.parts for name in loaded.part.leads(loaded.data))]
    return list(dict.fromkeys(n for n in (*first, *inputs.conditions) if n in inputs.conditions))


def _compute_condition(inputs: ReportInputs, name: str, estimate: Estimate) -> ConditionFindings:
    arms = inputs.find_arms(name)
    seeds = {
        trained.arm.seed: SeedFindings(
            by_state(inputs.audit.states, trained.deployed.passed),
            trained.budget,
            trained.problems,
            count_codes(trained.deployed.statuses),
            inputs.training.get(trained.arm.name, {}).get("trained_as", ""),
            trained.unverified,
        )
        for trained in arms
    }
    passed = np.array([trained.deployed.passed for trained in arms])
    mean = by_state(inputs.audit.states, passed)
    own = find_own_settings(inputs.recipe)[name]
    return ConditionFindings(
        name=name,
        matched=all(trained.matched for trained in arms),
        k_eq=k_equivalent(inputs.audit.verdicts.passing, inputs.k, mean.pass_at_1),
        estimate=estimate,
        mean=mean,
        seeds=seeds,
        own=own,
        label=wording.format_condition_label(name, own, inputs.k),
    )


def _compute_contrasts(
    conditions: Mapping[str, ConditionFindings], resampled: Resampled, ordered: Sequence[str]
) -> tuple[Contrast, ...]:
    """Compute contrasts: lead minus each other, other pairs, then each minus the source."""
    terms = {name: condition.mean.terms for name, condition in conditions.items()}
    between = [
        Contrast(a, b, terms[a] - terms[b], resampled.contrast(a, b))
        for a, b in combinations(ordered, 2)
    ]
    gains = [
        Contrast(name, SOURCE, terms[name], resampled.contrast(name, SOURCE)) for name in ordered
    ]
    return (*between, *gains)
