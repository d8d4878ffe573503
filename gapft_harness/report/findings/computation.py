"""Compute all numbers of a report as typed findings, from which the sections are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import numpy as np

from gapft_harness.analysis.decomposition import Decomposition, Terms, by_state
from gapft_harness.analysis.estimate import (
    Estimate,
    estimate_share,
)
from gapft_harness.analysis.pass_at_k import k_equivalent
from gapft_harness.analysis.resampling import Resampled, Scores, resample
from gapft_harness.core.records import SOURCE, Arm, Budget
from gapft_harness.core.streams import Stream
from gapft_harness.outcomes.searches import SearchFindings, compute_search
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.presentation.content import Row
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.report.findings.replicates import compare_replicates
from gapft_harness.report.names import condition_name, format_condition_label
from gapft_harness.report.reading.audits import TrainedArm
from gapft_harness.report.reading.inputs import ReportInputs

#: Marks a contrast of conditions with unequal budgets, or a condition with its own budget.
OWN_BUDGET_MARK = "*"
#: Marks a contrast of conditions that differ in a declared setting.
OWN_SETTINGS_MARK = "‡"


@dataclass(frozen=True, slots=True)
class SeedFindings:
    """The results of one trained model.

    Attributes:
        trained: the model.
        decomposition: its outcomes by the source's states.
        trained_as: the arm whose adapter it reuses, because both have the same training set; else
            empty.
    """

    trained: TrainedArm
    decomposition: Decomposition
    trained_as: str = ""


@dataclass(frozen=True, slots=True)
class ConditionFindings:
    """One condition over its seeds.

    Attributes:
        name: the condition's name.
        matched: whether its budget is matched; see ``is_budget_matched``.
        k_eq: see ``k_equivalent``; None where the source's Pass@k is the same for all k up to it.
        estimate: its mean Pass@1.
        mean: counts pooled over seeds, so that rates, terms and Pass@1 are means over seeds.
        seeds: findings by seed, ascending.
        own: its settings that differ from the run's (``find_own_settings``).
        label: its displayed name, with these settings.
    """

    name: str
    matched: bool
    k_eq: int | None
    estimate: Estimate
    mean: Decomposition
    seeds: Mapping[int, SeedFindings]
    own: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of its seeds."""
        return [seed_findings.trained.budget for seed_findings in self.seeds.values()]


def is_budget_matched(*conditions: ConditionFindings) -> bool:
    """Return whether conditions have the same n, N and J, and no condition has its own budget.

    Conditions that differ in a declared setting are never matched.
    """
    return has_equal_budgets(*conditions) and not find_differing_settings(*conditions)


def has_equal_budgets(*conditions: ConditionFindings) -> bool:
    """Return whether conditions have the same n, N and J, and no condition has its own budget."""
    budgets = [budget for condition in conditions for budget in condition.budgets]
    sizes = {(budget.n, budget.exposures, budget.steps) for budget in budgets}
    return len(sizes) == 1 and all(condition.matched for condition in conditions)


def find_differing_settings(*conditions: ConditionFindings) -> tuple[str, ...]:
    """Find the settings in which conditions differ: ``k``, ``training.trainer``, …"""
    keys = dict.fromkeys(key for condition in conditions for key in condition.own)
    run_value = object()  # a condition without its own value has the run's

    def is_different(key: str) -> bool:
        first, *others = (condition.own.get(key, run_value) for condition in conditions)
        return any(value != first for value in others)

    return tuple(filter(is_different, keys))


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
class Findings:
    """All results of a run.

    Attributes:
        source: the source model's deployment decodes and samples of the audit: Pass@k, states,
            majority vote.
        conditions: by name, in the recipe's order.
        contrasts: conditions in pairs, and each condition minus the source.
        lead: the main condition of the report: ``gapft``, else the first that an experiment names,
            else the recipe's first; empty without conditions.
        replicates: rows of arms that repeat another condition's training (``compare_replicates``).
        other_rule: the findings under the verifier's other rule, from the same replicates; None
            where it has none, or where nothing was trained.
    """

    source: SearchFindings
    conditions: Mapping[str, ConditionFindings]
    contrasts: tuple[Contrast, ...]
    lead: str
    replicates: Sequence[Row] = ()
    other_rule: Findings | None = None

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

    def list_sides(self, contrast: Contrast) -> list[ConditionFindings]:
        """Return the conditions of a contrast, without the source."""
        return [self.conditions[name] for name in (contrast.a, contrast.b) if name != SOURCE]

    def is_matched(self, contrast: Contrast) -> bool:
        """Return whether a contrast has matched budgets; True for one with the source."""
        sides = self.list_sides(contrast)
        return len(sides) == 1 or is_budget_matched(*sides)

    def format_label(self, contrast: Contrast) -> str:
        """Format a contrast's name: ``GapFT − uniform``, marked where it is not matched."""
        label = " \N{MINUS SIGN} ".join(map(condition_name, (contrast.a, contrast.b)))
        sides = self.list_sides(contrast)
        if len(sides) > 1 and not has_equal_budgets(*sides):
            label += f" {OWN_BUDGET_MARK}"
        return f"{label} {OWN_SETTINGS_MARK}" if find_differing_settings(*sides) else label

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
    names = inputs.conditions
    ordered = ordered or _order_conditions(inputs)
    lead = ordered[0] if ordered else ""
    source = compute_search(inputs.audit.verdicts)
    if not names:
        return Findings(source, {}, (), lead)
    statistics = inputs.recipe["statistics"]
    resampled = resample(
        stack_scores(inputs, names),
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    conditions = {
        name: _compute_condition(inputs, name, _estimate_mean(resampled, name)) for name in names
    }
    return Findings(
        source,
        conditions,
        _compute_contrasts(conditions, resampled, ordered),
        lead,
        compare_replicates(inputs),
        _compute_other_rule(inputs, ordered),
    )


def stack_scores(inputs: ReportInputs, conditions: Sequence[str]) -> Scores:
    """Stack the audit decisions of conditions and of the source (the row ``SOURCE``)."""
    audit = inputs.audit
    seeds = np.array(inputs.seeds, dtype=np.int64)
    rows = {
        name: np.array([arm.deployed.passed for arm in inputs.find_arms(name)])
        for name in conditions
    }
    source = np.broadcast_to(audit.deployed.passed, (len(seeds), len(audit.ids)))
    return Scores({**rows, SOURCE: source}, seeds, audit.ids)


def _order_conditions(inputs: ReportInputs) -> list[str]:
    """Order conditions, main ones first; a contrast subtracts a later condition from an earlier."""
    leads = (loaded.experiment.leads(loaded.data) for loaded in inputs.experiments)
    first = ["gapft", *chain.from_iterable(leads)]
    return list(dict.fromkeys(n for n in (*first, *inputs.conditions) if n in inputs.conditions))


def _compute_condition(inputs: ReportInputs, name: str, estimate: Estimate) -> ConditionFindings:
    arms = inputs.find_arms(name)
    seeds = {
        trained.arm.seed: SeedFindings(
            trained,
            by_state(inputs.audit.states, trained.deployed.passed),
            inputs.training.get(trained.arm.name, {}).get("trained_as", ""),
        )
        for trained in arms
    }
    passed = np.array([trained.deployed.passed for trained in arms])
    mean = by_state(inputs.audit.states, passed)
    own = find_own_settings(inputs.recipe)[name]
    return ConditionFindings(
        name=name,
        matched=all(trained.matched for trained in arms),
        k_eq=_find_k_eq(inputs.audit.verdicts, mean.pass_at_1),
        estimate=estimate,
        mean=mean,
        seeds=seeds,
        own=own,
        label=format_condition_label(name, own, inputs.k),
    )


def _estimate_mean(resampled: Resampled, name: str) -> Estimate:
    """Estimate a Pass@1, with Wilson's interval where resampling shows no variation."""
    estimate = resampled.estimate_mean(name)
    if estimate.low < estimate.high:
        return estimate
    return estimate_share(estimate.value, len(resampled.scores.items))


def _find_k_eq(verdicts: Verdicts, pass_at_1: Fraction) -> int | None:
    """Find K_eq; None where it says nothing, since more samples do not help the source."""
    k_eq = k_equivalent(verdicts.passing, verdicts.k, pass_at_1)
    is_flat = k_eq > 1 and verdicts.compute_pass_at(1) == verdicts.compute_pass_at(k_eq)
    return None if is_flat else k_eq


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


def _compute_other_rule(inputs: ReportInputs, ordered: Sequence[str]) -> Findings | None:
    """Compute the findings under the verdicts of the other rule, without experiments."""
    rule = inputs.other_rule
    if rule is None or rule.reason:
        return None
    arms = tuple(
        replace(item, deployed=replace(item.deployed, statuses=rule.statuses[item.arm.name]))
        for item in inputs.arms
    )
    audit = replace(
        inputs.audit, deployed=replace(inputs.audit.deployed, statuses=rule.statuses[SOURCE])
    )
    judged = replace(inputs, audit=audit, arms=arms, experiments=(), other_rule=None)
    return compute_findings(judged, ordered)
