"""Compute the findings for each model after: differences, intervals, tests, terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import Decomposition, by_state
from gapft_harness.analysis.estimate import Estimate, estimate_mean, estimate_paired_difference
from gapft_harness.analysis.paired import adjust_p_values, flip_signs, mcnemar
from gapft_harness.analysis.pass_at_k import k_equivalent
from gapft_harness.analysis.resampling import draw_seed_weights, resample_means
from gapft_harness.compare.choice import PERMUTATIONS, REPLICATES
from gapft_harness.core.streams import Stream
from gapft_harness.core.text import natural_sort_key
from gapft_harness.outcomes.verdicts import Verdicts

#: Every random draw derives from this seed and its purpose, so a comparison is reproducible.
_SEED = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the compared items.

    Attributes:
        before: shape (P,).
        after: by model, shape (S, P).
        clusters: shape (P,), the number of each item's cluster; None: items are independent.
        groups: shape (P,), each item's group; None: no groups.
        strata: shape (P,), the number of each item's task, for means over tasks with equal
            weights; None: means are over items.
    """

    before: NDArray[np.float64]
    after: dict[str, NDArray[np.float64]]
    clusters: NDArray[np.int64] | None = None
    groups: NDArray[np.str_] | None = None
    strata: NDArray[np.int64] | None = None

    def is_binary(self, *models: str) -> bool:
        """Return whether all numbers before, and of these models or of all, are 0 or 1."""
        return _are_binary(self.before, *(self.after[name] for name in models or self.after))

    def select(self, members: NDArray[np.bool_]) -> Numbers:
        """Select items, without strata; clusters are renumbered.

        Args:
            members: shape (P,), whether an item is selected.
        """
        clusters = None
        if self.clusters is not None:
            clusters = np.unique(self.clusters[members], return_inverse=True)[1]
        after = {name: numbers[:, members] for name, numbers in self.after.items()}
        return Numbers(self.before[members], after, clusters)

    def compute_weights(self) -> NDArray[np.float64]:
        """Return each item's weight in a mean, shape (P,), with mean 1."""
        if self.strata is None:
            return np.ones(len(self.before))
        sizes = np.bincount(self.strata)
        weights: NDArray[np.float64] = len(self.before) / (len(sizes) * sizes[self.strata])
        return weights


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A group of tasks whose mean lm_eval reports.

    Attributes:
        name: the group's name.
        tasks: the tasks in the mean.
        weighted: whether tasks are weighted by their numbers of documents; else equally.
    """

    name: str
    tasks: tuple[str, ...]
    weighted: bool


@dataclass(frozen=True, slots=True)
class Paired:
    """A model compared with the model before, on some items.

    Attributes:
        items: number of items.
        units: number of units resampled for the interval: clusters, or items if independent.
        seeds: number of training seeds of the model.
        before: mean of the model before.
        after: mean of this model, over seeds and items.
        estimate: mean of the paired differences, with its interval over seeds and units (none with
            one unit), and the p value of the test.
        test: ``mcnemar`` or ``sign_flip``.
        gained: number of items whose number rose, summed over seeds.
        lost: number of items whose number fell, summed over seeds.
        is_binary: whether all numbers are 0 or 1.
        p_holm: p-value adjusted for all tests of the table (for ``CompareFindings.pairs``, for all
            pairs); None if it has only one test.
    """

    items: int
    units: int
    seeds: int
    before: float
    after: float
    estimate: Estimate
    test: str
    gained: int
    lost: int
    is_binary: bool
    p_holm: float | None = None


@dataclass(frozen=True, slots=True)
class ByState:
    """The terms of a model's difference by the state before (Equation 9).

    Attributes:
        counts: the decomposition, pooled over seeds.
        k_eq: the largest number of source samples that one decode of the model is worth.
    """

    counts: Decomposition
    k_eq: int


Key = TypeVar("Key")

#: Two models: the second is compared with the first; None: the model before.
ModelPair = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class CompareFindings:
    """All findings of a comparison.

    Attributes:
        models: findings by model's name; empty if the tasks' numbers have no common mean.
        groups: findings by group, then by model's name.
        aggregates: findings by lm_eval's group of tasks, then by model's name.
        pairs: findings of every pair of models on all items, where ``before`` is the first model of
            the pair; empty with one model after, or if the numbers have no common mean.
        states: shape (P,), G, S or U; None without the source's samples.
        by_state: terms by model's name; empty without the source's samples.
    """

    models: dict[str, Paired]
    groups: dict[str, dict[str, Paired]] = field(default_factory=dict)
    aggregates: dict[str, dict[str, Paired]] = field(default_factory=dict)
    pairs: dict[ModelPair, Paired] = field(default_factory=dict)
    states: NDArray[np.str_] | None = None
    by_state: dict[str, ByState] = field(default_factory=dict)


def compare_numbers(
    table: Numbers,
    samples: Verdicts | None = None,
    *,
    tasks: NDArray[np.str_] | None = None,
    aggregates: Sequence[Aggregate] = (),
    has_common_mean: bool = True,
) -> CompareFindings:
    """Compute all findings.

    Args:
        table: the numbers.
        samples: the source's samples, if given.
        tasks: shape (P,), each item's task; needed for ``aggregates``.
        aggregates: groups of tasks.
        has_common_mean: whether a mean over all items is meaningful.
    """
    models = _adjust_tables({"": compare_models(table, "all")})[""] if has_common_mean else {}
    pairs = compare_pairs(table, models) if len(models) > 1 else {}
    groups = {}
    if table.groups is not None:
        for name in sorted(set(table.groups.tolist()), key=natural_sort_key):
            groups[name] = compare_models(table.select(table.groups == name), f"group/{name}")
    groups = _adjust_tables(groups)
    aggregate_findings = {}
    for aggregate in aggregates:
        assert tasks is not None
        members = np.isin(tasks, aggregate.tasks)
        part = table.select(members)
        _, strata, sizes = np.unique(tasks[members], return_inverse=True, return_counts=True)
        if not aggregate.weighted and len({*sizes.tolist()}) > 1:
            part = replace(part, strata=strata)
        aggregate_findings[aggregate.name] = compare_models(part, f"aggregate/{aggregate.name}")
    aggregate_findings = _adjust_tables(aggregate_findings)
    if samples is None:
        return CompareFindings(models, groups, aggregate_findings, pairs)
    states, terms = samples.states, {}
    for name, numbers in table.after.items():
        counts = by_state(states, numbers == 1)
        k_eq = k_equivalent(samples.passing, samples.k, counts.pass_at_1)
        terms[name] = ByState(counts, k_eq)
    return CompareFindings(models, groups, aggregate_findings, pairs, states, terms)


def compare_models(table: Numbers, purpose: str) -> dict[str, Paired]:
    """Compare every model with the one before; each result is independent of the other models."""
    stream = Stream(_SEED, f"compare/{purpose}")
    return {
        name: _contrast(table, table.before[None], numbers, stream)
        for name, numbers in table.after.items()
    }


def compare_pairs(table: Numbers, models: dict[str, Paired]) -> dict[ModelPair, Paired]:
    """Compare every pair of models, with p-values adjusted for all pairs (Holm).

    Args:
        table: the numbers, without strata.
        models: each model after compared with the one before.

    Returns:
        First the pairs with the model before, then those of two models after.
    """
    stream = Stream(_SEED, "compare/pairs")
    pairs: dict[ModelPair, Paired] = {(None, name): pair for name, pair in models.items()}
    for first, second in combinations(models, 2):
        pairs[first, second] = _contrast(
            table, table.after[first], table.after[second], stream, independent=True
        )
    return _adjust_p_values(pairs)


def _contrast(
    table: Numbers,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    stream: Stream,
    *,
    independent: bool = False,
) -> Paired:
    """Compare two models on the items of a table.

    Args:
        table: clusters and strata of the items.
        before: shape (S, P) or (1, P).
        after: shape (S, P).
        stream: the random stream.
        independent: whether the training seeds of the two models are independent of each other.
            Then an item is gained or lost if its mean over seeds rose or fell.
    """
    clusters = np.arange(after.shape[1]) if table.clusters is None else table.clusters
    if independent:
        differences = (after.mean(axis=0) - before.mean(axis=0))[None]
        rows = np.concatenate([before, after])
        means = _resample_means(rows.T, clusters, table.strata, stream)
        replicates = _average_seeds(means[:, len(before) :], stream.child("after"))
        replicates = replicates - _average_seeds(means[:, : len(before)], stream.child("before"))
    else:
        differences = after - before
        means = _resample_means(differences.T, clusters, table.strata, stream)
        replicates = _average_seeds(means, stream)
    weights = table.compute_weights()
    is_binary = _are_binary(before, after)
    is_single = len(before) == len(after) == 1
    test, p = _compute_test(differences * weights, table, is_binary and is_single, stream)
    estimate = Estimate(float((differences * weights).mean()), p=p)
    units = int(clusters.max()) + 1
    groups = 1 if table.strata is None else int(table.strata.max()) + 1
    if units > groups:
        estimate = replace(estimate_mean(estimate.value, replicates), p=p)
    item_means = before.mean(axis=0), after.mean(axis=0)
    if estimate.low == estimate.high and is_binary and _are_binary(*item_means):
        # Resampling shows no variation, but finite data leave some.
        estimate = replace(estimate_paired_difference(estimate.value, *item_means, units), p=p)
    return Paired(
        items=after.shape[1],
        units=units,
        seeds=max(len(before), len(after)),
        before=float((before * weights).mean()),
        after=float((after * weights).mean()),
        estimate=estimate,
        test=test,
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        is_binary=is_binary,
    )


def _are_binary(*numbers: NDArray[np.float64]) -> bool:
    return all(bool(((array == 0) | (array == 1)).all()) for array in numbers)


def _average_seeds(means: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Average replicates, shape (B, S), over seeds drawn with replacement."""
    seeds = means.shape[1]
    averages: NDArray[np.float64] = (means * draw_seed_weights(seeds, REPLICATES, stream)).sum(
        axis=1
    ) / seeds
    return averages


def _resample_means(
    columns: NDArray[np.float64],
    clusters: NDArray[np.int64],
    strata: NDArray[np.int64] | None,
    stream: Stream,
) -> NDArray[np.float64]:
    """Resample the columns' means; with strata, within each stratum, with equal weights.

    Returns:
        Shape (replicates, columns).
    """
    if strata is None:
        return resample_means(columns, clusters, replicates=REPLICATES, stream=stream)
    means = []
    for number in range(int(strata.max()) + 1):
        inside = strata == number
        task_clusters = np.unique(clusters[inside], return_inverse=True)[1]
        task_stream = stream.child(f"task/{number}")
        means.append(
            resample_means(
                columns[inside], task_clusters, replicates=REPLICATES, stream=task_stream
            )
        )
    mean: NDArray[np.float64] = np.mean(means, axis=0)
    return mean


def _compute_test(
    difference: NDArray[np.float64], table: Numbers, is_binary: bool, stream: Stream
) -> tuple[str, float]:
    """Use McNemar's exact test for independent binary items of one seed; else sign flips.

    Returns:
        The test's name, and its two-sided p-value.
    """
    is_simple = table.clusters is None and table.strata is None
    if len(difference) == 1 and is_simple and is_binary:
        return "mcnemar", mcnemar(int((difference > 0).sum()), int((difference < 0).sum()))
    sums = difference.sum(axis=0)
    if table.clusters is not None:
        sums = np.bincount(table.clusters, weights=sums)
    flipped = flip_signs(sums, flips=PERMUTATIONS, stream=stream.child("signs"))
    return "sign_flip", flipped.p_value


def _adjust_tables(tables: dict[str, dict[str, Paired]]) -> dict[str, dict[str, Paired]]:
    """Adjust the p-values of several tables together, if they have several tests."""
    tests = {(table, name): pair for table, pairs in tables.items() for name, pair in pairs.items()}
    if len(tests) < 2:
        return tables
    adjusted = _adjust_p_values(tests)
    return {
        table: {name: adjusted[table, name] for name in pairs} for table, pairs in tables.items()
    }


def _adjust_p_values(pairs: dict[Key, Paired]) -> dict[Key, Paired]:
    """Adjust p-values for all tests (Holm)."""
    p_values = [pair.estimate.p for pair in pairs.values() if pair.estimate.p is not None]
    adjusted = adjust_p_values(p_values)
    return {
        key: replace(pair, p_holm=p_holm)
        for (key, pair), p_holm in zip(pairs.items(), adjusted, strict=True)
    }
