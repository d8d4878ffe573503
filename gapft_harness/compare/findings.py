"""What is found between the model before and each model after: differences, tests, terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import (
    Interval,
    percentile_interval,
    resampled_means,
    seed_weights,
)
from gapft_harness.analysis.decomposition import Decomposition, decompose, pool
from gapft_harness.analysis.paired import holm, mcnemar, sign_flips
from gapft_harness.analysis.pass_at_k import k_equivalent
from gapft_harness.compare.choice import PERMUTATIONS, REPLICATES
from gapft_harness.core.streams import Stream
from gapft_harness.core.text import natural
from gapft_harness.verdicts.table import Verdicts

#: Every draw derives from this one and its purpose, so that a comparison can be repeated.
_SEED = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the compared items.

    Attributes:
        before: shape (P,).
        after: by model, shape (S, P).
        clusters: shape (P,), the number of each item's cluster; None: each item is one.
        groups: shape (P,), each item's group; None: nothing to compare by.
        strata: shape (P,), each item's task, where means are over tasks that count alike; None:
            where they are over items.
    """

    before: NDArray[np.float64]
    after: dict[str, NDArray[np.float64]]
    clusters: NDArray[np.int64] | None = None
    groups: NDArray[np.str_] | None = None
    strata: NDArray[np.int64] | None = None

    def binary(self, *models: str) -> bool:
        """Whether every number before, and of these models or of all, is 0 or 1."""
        after = [self.after[name] for name in models or self.after]
        return all(bool(((of == 0) | (of == 1)).all()) for of in (self.before, *after))

    def part(self, members: NDArray[np.bool_]) -> Numbers:
        """Some of the items, without strata; clusters are numbered anew."""
        clusters = None
        if self.clusters is not None:
            clusters = np.unique(self.clusters[members], return_inverse=True)[1]
        after = {name: of[:, members] for name, of in self.after.items()}
        return Numbers(self.before[members], after, clusters)

    def weights(self) -> NDArray[np.float64]:
        """Shape (P,), of mean 1: what each item counts in a mean."""
        if self.strata is None:
            return np.ones(len(self.before))
        sizes = np.bincount(self.strata)
        weights: NDArray[np.float64] = len(self.before) / (len(sizes) * sizes[self.strata])
        return weights


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Tasks whose mean lm_eval reports as a group's.

    Attributes:
        name: the group's.
        tasks: those it is a mean of.
        weighted: by their numbers of documents; else each task counts alike.
    """

    name: str
    tasks: tuple[str, ...]
    weighted: bool


@dataclass(frozen=True, slots=True)
class Paired:
    """One model against the one before, on some items.

    Attributes:
        items: how many.
        units: what is drawn for the interval: clusters, or items where these are independent.
        seeds: training seeds of the model.
        before: mean of the model before.
        after: mean of this one, over seeds and items.
        difference: mean of the paired differences.
        interval: its 95% interval over seeds and units; None where there is one unit.
        test: ``mcnemar`` or ``sign_flip``.
        p_value: of the test, two-sided.
        gained: items, summed over seeds, whose number rose.
        lost: whose number fell.
        binary: whether every number is 0 or 1.
        p_holm: adjusted for all tests of the same table; None where it is the only one.
    """

    items: int
    units: int
    seeds: int
    before: float
    after: float
    difference: float
    interval: Interval | None
    test: str
    p_value: float
    gained: int
    lost: int
    binary: bool
    p_holm: float | None = None


@dataclass(frozen=True, slots=True)
class ByState:
    """Where a model's difference comes from, by the state before (Equation 9).

    Attributes:
        counts: pooled over seeds.
        k_eq: the most source samples that one decode of it is worth.
    """

    counts: Decomposition
    k_eq: int


@dataclass(frozen=True, slots=True)
class CompareFindings:
    """All that is found.

    Attributes:
        models: by name; none where the tasks' numbers have no mean in common.
        groups: by group, then by model's name.
        aggregates: by lm_eval's group of tasks, then by model's name.
        states: shape (P,), G, S and U, if the source's samples are there.
        by_state: by model's name, likewise.
    """

    models: dict[str, Paired]
    groups: dict[str, dict[str, Paired]] = field(default_factory=dict)
    aggregates: dict[str, dict[str, Paired]] = field(default_factory=dict)
    states: NDArray[np.str_] | None = None
    by_state: dict[str, ByState] = field(default_factory=dict)


def find(
    table: Numbers,
    samples: Verdicts | None = None,
    *,
    tasks: NDArray[np.str_] | None = None,
    aggregates: Sequence[Aggregate] = (),
    whole: bool = True,
) -> CompareFindings:
    """Computes everything.

    Args:
        table: the numbers.
        samples: the source's samples, if they are there.
        tasks: shape (P,), each item's task; with ``aggregates``.
        aggregates: groups of tasks.
        whole: whether all items together have a mean that says something.
    """
    models = _adjusted({"": paired(table, "all")})[""] if whole else {}
    groups = {}
    if table.groups is not None:
        for name in sorted(set(table.groups.tolist()), key=natural):
            groups[name] = paired(table.part(table.groups == name), f"group/{name}")
    groups = _adjusted(groups)
    together = {}
    for one in aggregates:
        assert tasks is not None
        members = np.isin(tasks, one.tasks)
        part = table.part(members)
        _, strata, sizes = np.unique(tasks[members], return_inverse=True, return_counts=True)
        if not one.weighted and len({*sizes.tolist()}) > 1:
            part = replace(part, strata=strata)
        together[one.name] = paired(part, f"aggregate/{one.name}")
    together = _adjusted(together)
    if samples is None:
        return CompareFindings(models, groups, together)
    states = samples.states
    by_state = {name: _by_state(states, of == 1, samples) for name, of in table.after.items()}
    return CompareFindings(models, groups, together, states, by_state)


def paired(table: Numbers, purpose: str) -> dict[str, Paired]:
    """Every model against the one before; what is found of one does not rest on the others."""
    items = len(table.before)
    clusters = np.arange(items) if table.clusters is None else table.clusters
    units = int(clusters.max()) + 1
    weights = table.weights()
    drawn_from = 1 if table.strata is None else int(table.strata.max()) + 1
    differences = {name: of - table.before for name, of in table.after.items()}
    stream = Stream(_SEED, f"compare/{purpose}")
    found = {}
    for name, difference in differences.items():
        seeds = len(difference)
        drawn = _means(difference.T, clusters, table.strata, stream)
        drawn = drawn * seed_weights(seeds, REPLICATES, stream)
        test, p_value = _test(difference * weights, table, table.binary(name), stream)
        found[name] = Paired(
            items=items,
            units=units,
            seeds=seeds,
            before=float((table.before * weights).mean()),
            after=float((table.after[name] * weights).mean()),
            difference=float((difference * weights).mean()),
            interval=percentile_interval(drawn.sum(axis=1) / seeds) if units > drawn_from else None,
            test=test,
            p_value=p_value,
            gained=int((difference > 0).sum()),
            lost=int((difference < 0).sum()),
            binary=table.binary(name),
        )
    return found


def _means(
    columns: NDArray[np.float64],
    clusters: NDArray[np.int64],
    strata: NDArray[np.int64] | None,
    stream: Stream,
) -> NDArray[np.float64]:
    """Replicates of the columns' means; with strata drawn within each, and these count alike."""
    if strata is None:
        return resampled_means(columns, clusters, replicates=REPLICATES, stream=stream)
    means = []
    for number in range(int(strata.max()) + 1):
        inside = strata == number
        own = np.unique(clusters[inside], return_inverse=True)[1]
        of = stream.child(f"task/{number}")
        means.append(resampled_means(columns[inside], own, replicates=REPLICATES, stream=of))
    mean: NDArray[np.float64] = np.mean(means, axis=0)
    return mean


def _test(
    difference: NDArray[np.float64], table: Numbers, binary: bool, stream: Stream
) -> tuple[str, float]:
    """McNemar's exact test of one seed's independent items; else signs of sums are flipped."""
    alike = table.clusters is None and table.strata is None
    if len(difference) == 1 and alike and binary:
        return "mcnemar", mcnemar(int((difference > 0).sum()), int((difference < 0).sum()))
    sums = difference.sum(axis=0)
    if table.clusters is not None:
        sums = np.bincount(table.clusters, weights=sums)
    flipped = sign_flips(sums, flips=PERMUTATIONS, stream=stream.child("signs"))
    return "sign_flip", flipped.p_value


def _by_state(states: NDArray[np.str_], passed: NDArray[np.bool_], samples: Verdicts) -> ByState:
    counts = pool([decompose(states, seed) for seed in passed])
    return ByState(counts, k_equivalent(samples.passing, samples.k, Fraction(counts.pass_at_1)))


def _adjusted(table: dict[str, dict[str, Paired]]) -> dict[str, dict[str, Paired]]:
    """The same with p-values adjusted for all tests of the table, where it has several."""
    tests = [one.p_value for of in table.values() for one in of.values()]
    if len(tests) < 2:
        return table
    adjusted = iter(holm(tests))
    return {
        group: {name: replace(one, p_holm=next(adjusted)) for name, one in of.items()}
        for group, of in table.items()
    }
