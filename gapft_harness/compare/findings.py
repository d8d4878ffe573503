"""Contrast models on the compared documents: differences, intervals, tests, and terms by state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.estimate import Estimate, estimate_mean, estimate_paired_difference
from gapft_harness.analysis.paired import adjust_p_values, flip_signs, mcnemar
from gapft_harness.analysis.resampling import draw_seed_weights, resample_means
from gapft_harness.compare.groups import Aggregate
from gapft_harness.core.streams import Stream

#: Number of bootstrap replicates for every interval.
_REPLICATES = 2_000
#: Number of random sign flips if there are too many to enumerate.
_FLIPS = 10_000
#: Every random draw derives from this seed and its purpose, so a comparison is reproducible.
_SEED = 0

Key = TypeVar("Key")
#: Two models: the second is compared with the first; None: the model before.
ModelPair = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the P compared documents.

    Attributes:
        before: shape (P,).
        after: by model, shape (S, P).
        clusters: shape (P,), the number of each document's cluster; None: they are independent.
        strata: shape (P,), the number of each document's task, for means over tasks with equal
            weights; None: means are over documents.
    """

    before: NDArray[np.float64]
    after: dict[str, NDArray[np.float64]]
    clusters: NDArray[np.int64] | None = None
    strata: NDArray[np.int64] | None = None

    @property
    def is_binary(self) -> bool:
        """Whether all numbers are 0 or 1."""
        return _are_binary(self.before, *self.after.values())

    @property
    def weights(self) -> NDArray[np.float64]:
        """Each document's weight in a mean, shape (P,), with mean 1."""
        if self.strata is None:
            return np.ones(len(self.before))
        sizes = np.bincount(self.strata)
        weights: NDArray[np.float64] = len(self.before) / (len(sizes) * sizes[self.strata])
        return weights

    def select(self, members: NDArray[np.bool_]) -> Numbers:
        """Select documents, without strata; clusters are renumbered.

        Args:
            members: shape (P,), whether a document is selected.
        """
        clusters = None
        if self.clusters is not None:
            clusters = np.unique(self.clusters[members], return_inverse=True)[1]
        after = {name: numbers[:, members] for name, numbers in self.after.items()}
        return Numbers(self.before[members], after, clusters)


@dataclass(frozen=True, slots=True)
class Paired:
    """A model compared with another one on some documents.

    Attributes:
        items: number of documents.
        units: number of units resampled for the interval: clusters, or independent documents.
        seeds: number of training seeds of the model.
        before: mean of the other model.
        after: mean of this model, over seeds and documents.
        estimate: mean of the paired differences, with its interval over seeds and units (none with
            one unit), and the p value of the test.
        test: ``mcnemar`` or ``sign_flip``.
        gained: number of documents whose number rose, summed over seeds.
        lost: number of documents whose number fell, summed over seeds.
        is_binary: whether all numbers are 0 or 1.
        p_holm: p value adjusted for all tests of the table (Holm); None if it has only one test.
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


def select_tasks(numbers: Numbers, tasks: NDArray[np.str_], aggregate: Aggregate) -> Numbers:
    """Select the documents of a group of tasks, with the group's weights."""
    members = np.isin(tasks, aggregate.tasks)
    selected = numbers.select(members)
    _, strata, sizes = np.unique(tasks[members], return_inverse=True, return_counts=True)
    if aggregate.weighted or len({*sizes.tolist()}) == 1:
        return selected
    return replace(selected, strata=strata)


def contrast_models(numbers: Numbers, purpose: str) -> dict[str, Paired]:
    """Compare every model with the one before; each result is independent of the other models."""
    stream = Stream(_SEED, f"compare/{purpose}")
    return {
        name: contrast(numbers, numbers.before[None], after, stream)
        for name, after in numbers.after.items()
    }


def contrast_pairs(numbers: Numbers, models: Mapping[str, Paired]) -> dict[ModelPair, Paired]:
    """Compare every pair of models: first with the model before, then two models after."""
    stream = Stream(_SEED, "compare/pairs")
    pairs: dict[ModelPair, Paired] = {(None, name): pair for name, pair in models.items()}
    for first, second in combinations(models, 2):
        pairs[first, second] = contrast(
            numbers, numbers.after[first], numbers.after[second], stream, independent=True
        )
    return adjust_together({"": pairs})[""]


def contrast(
    numbers: Numbers,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    stream: Stream,
    *,
    independent: bool = False,
) -> Paired:
    """Compare two models on the same documents.

    Args:
        numbers: clusters and strata of the documents.
        before: shape (S, P) or (1, P).
        after: shape (S, P).
        stream: the random stream.
        independent: whether the training seeds of the two models are independent of each other.
            Then a document is gained or lost if its mean over seeds rose or fell.
    """
    # Resample items, with the seeds of both sides paired or apart
    clusters = np.arange(after.shape[1]) if numbers.clusters is None else numbers.clusters
    item_means = before.mean(axis=0), after.mean(axis=0)
    if independent:
        differences = (item_means[1] - item_means[0])[None]
        means = _resample_means(np.concatenate([before, after]), clusters, numbers.strata, stream)
        replicates = _average_seeds(means[:, len(before) :], stream.child("after"))
        replicates = replicates - _average_seeds(means[:, : len(before)], stream.child("before"))
    else:
        differences = after - before
        means = _resample_means(differences, clusters, numbers.strata, stream)
        replicates = _average_seeds(means, stream)
    # Estimate the difference
    weights = numbers.weights
    is_binary = _are_binary(before, after)
    value = float((differences * weights).mean())
    units = int(clusters.max()) + 1
    strata = 1 if numbers.strata is None else int(numbers.strata.max()) + 1
    estimate = estimate_mean(value, replicates) if units > strata else Estimate(value)
    if estimate.low == estimate.high and is_binary and _are_binary(*item_means):
        # Resampling shows no variation, but finite data leave some.
        estimate = _estimate_without_variation(value, *item_means, clusters, numbers.strata)
    # Test it: McNemar for two single decodes, else by sign flips of clusters
    gained = int((differences > 0).sum())
    lost = int((differences < 0).sum())
    is_simple = numbers.clusters is None and numbers.strata is None
    if is_simple and is_binary and len(before) == len(after) == 1:
        test = "mcnemar"
        p_value = mcnemar(gained, lost)
    else:
        sums = (differences * weights).sum(axis=0)
        if numbers.clusters is not None:
            sums = np.bincount(numbers.clusters, weights=sums)
        flipped = flip_signs(sums, flips=_FLIPS, stream=stream.child("signs"))
        test = "sign_flip"
        p_value = flipped.p_value
    return Paired(
        items=after.shape[1],
        units=units,
        seeds=max(len(before), len(after)),
        before=float((before * weights).mean()),
        after=float((after * weights).mean()),
        estimate=replace(estimate, p=p_value),
        test=test,
        gained=gained,
        lost=lost,
        is_binary=is_binary,
    )


def _estimate_without_variation(
    value: float,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    clusters: NDArray[np.int64],
    strata: NDArray[np.int64] | None,
) -> Estimate:
    """Estimate a difference by Newcombe's intervals, with strata by one of each task.

    Tasks are independent, so the squared distances of the ends from the tasks' differences add up.

    Args:
        value: the difference; with strata, the mean of the tasks' differences.
        before: shape (P,), 0 or 1.
        after: shape (P,), 0 or 1.
        clusters: shape (P,), the number of each document's cluster.
        strata: shape (P,), the number of each document's task, or None.
    """
    if strata is None:
        return estimate_paired_difference(value, before, after, int(clusters.max()) + 1)
    below = []
    above = []
    for number in range(int(strata.max()) + 1):
        inside = strata == number
        difference = float((after[inside] - before[inside]).mean())
        units = len(np.unique(clusters[inside]))
        task = estimate_paired_difference(difference, before[inside], after[inside], units)
        below.append(difference - task.low)
        above.append(task.high - difference)
    return Estimate(
        value, value - math.hypot(*below) / len(below), value + math.hypot(*above) / len(above)
    )


def _are_binary(*numbers: NDArray[np.float64]) -> bool:
    return all(bool(((array == 0) | (array == 1)).all()) for array in numbers)


def _average_seeds(means: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Average replicates, shape (B, S), over seeds drawn with replacement."""
    seeds = means.shape[1]
    averages: NDArray[np.float64] = (means * draw_seed_weights(seeds, _REPLICATES, stream)).sum(
        axis=1
    ) / seeds
    return averages


def _resample_means(
    rows: NDArray[np.float64],
    clusters: NDArray[np.int64],
    strata: NDArray[np.int64] | None,
    stream: Stream,
) -> NDArray[np.float64]:
    """Resample the means of rows, shape (M, P); with strata, within each, with equal weights.

    Returns:
        Shape (B, M).
    """
    if strata is None:
        return resample_means(rows.T, clusters, replicates=_REPLICATES, stream=stream)
    means = []
    for number in range(int(strata.max()) + 1):
        inside = strata == number
        task_clusters = np.unique(clusters[inside], return_inverse=True)[1]
        task_stream = stream.child(f"task/{number}")
        means.append(
            resample_means(
                rows.T[inside], task_clusters, replicates=_REPLICATES, stream=task_stream
            )
        )
    mean: NDArray[np.float64] = np.mean(means, axis=0)
    return mean


def adjust_together(tables: Mapping[str, dict[Key, Paired]]) -> dict[str, dict[Key, Paired]]:
    """Adjust the p values of several tables together (Holm), if they have several tests."""
    tests = [pair for table in tables.values() for pair in table.values()]
    if len(tests) < 2:
        return dict(tables)
    p_values = [pair.estimate.p for pair in tests if pair.estimate.p is not None]
    adjusted = iter(adjust_p_values(p_values))
    return {
        name: {key: replace(pair, p_holm=next(adjusted)) for key, pair in table.items()}
        for name, table in tables.items()
    }
