"""Does the split of source failures into S and U hold under other samples of the source?

The paper's appendix "Stability Across Independent Source Samples": the partition is made from
several independent sample sets, while the greedy decodes of the source and of the trained models
stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import Decomposition, decompose, pool, unstable_states
from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far partitions agree on the problems that the source gets wrong.

    Attributes:
        failures: how many these are.
        unstable: the share of them that is in S under one partition and in U under another.
        same: the share that two partitions put into one state, mean over pairs of partitions.
        jaccard: |S_i ∩ S_j| / |S_i ∪ S_j|, mean over pairs; 1 for a pair without S.
    """

    failures: int
    unstable: Fraction
    same: Fraction
    jaccard: Fraction


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity under every partition.

    Attributes:
        values: in the order of the partitions; None where it is undefined.
    """

    values: tuple[Fraction | None, ...]

    @property
    def mean(self) -> Fraction | None:
        """Over all partitions; None where one has no value."""
        known = self._known
        return None if known is None else sum(known, Fraction(0)) / len(known)

    @property
    def range(self) -> Fraction | None:
        """The largest minus the smallest; None where a partition has no value."""
        known = self._known
        return None if known is None else max(known) - min(known)

    @property
    def _known(self) -> list[Fraction] | None:
        known = [value for value in self.values if value is not None]
        return known if len(known) == len(self.values) else None


#: What is followed over partitions. The first three do not depend on the samples.
QUANTITIES: dict[str, Callable[[Decomposition], Fraction | None]] = {
    "total_gain": lambda of: of.terms.total,
    "G_regression": lambda of: -of.terms.g,
    "combined_correction": lambda of: of.terms.s + of.terms.u,
    "S_flow": lambda of: of.terms.s,
    "U_flow": lambda of: of.terms.u,
    "kappa_S": lambda of: of.kappa_s,
    "kappa_U": lambda of: of.kappa_u,
}


def agreement(states: NDArray[np.str_]) -> Agreement | None:
    """How far partitions of the same problems agree.

    Args:
        states: shape (W, P), W >= 2; ``G`` is the same in all, as it rests on no sample.

    Returns:
        None where the source gets no problem wrong.

    Raises:
        ValueError: one partition alone, or partitions that differ in G.
    """
    if states.ndim != 2 or len(states) < 2:
        raise ValueError(f"expected two partitions or more, found shape {states.shape}")
    solved = states == "G"
    if (solved != solved[0]).any():
        raise ValueError("the partitions differ in G, and so are not of one source")
    recovered = states[:, ~solved[0]] == "S"
    failures = recovered.shape[1]
    if not failures:
        return None
    pairs = [*combinations(recovered, 2)]
    same = sum(int((a == b).sum()) for a, b in pairs)
    return Agreement(
        failures=failures,
        unstable=Fraction(int((recovered != recovered[0]).any(axis=0).sum()), failures),
        same=Fraction(same, failures * len(pairs)),
        jaccard=sum((_jaccard(a, b) for a, b in pairs), Fraction(0)) / len(pairs),
    )


def flows(states: NDArray[np.str_], passed: NDArray[np.bool_]) -> list[list[Decomposition]]:
    """What each trained model did to each state, under every partition.

    Args:
        states: shape (W, P).
        passed: shape (S, P), V of each seed's greedy decode.

    Returns:
        By partition, then by seed.
    """
    return [[decompose(of, seed) for seed in passed] for of in states]


def spreads(by_partition: Sequence[Sequence[Decomposition]]) -> dict[str, Spread]:
    """Every quantity of ``QUANTITIES`` over partitions, of the mean over seeds.

    Args:
        by_partition: as ``flows`` gives it.
    """
    pooled = [pool(seeds) for seeds in by_partition]
    return {
        name: Spread(tuple(quantity(of) for of in pooled)) for name, quantity in QUANTITIES.items()
    }


def _jaccard(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Fraction:
    either = int((a | b).sum())
    return Fraction(int((a & b).sum()), either) if either else Fraction(1)


# A fixed trained model's decomposition at several search budgets.
#
# It has the columns of the paper's table "Logic Scope Matrix and Answer-Redistribution Control",
# but there each K has models of its own, trained at that K. Here budgets are nested: the first K
# samples of one search, which the trained model does not depend on.


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """One model at one search budget.

    Attributes:
        k: K.
        sizes: audit problems in G, S and U.
        mean: counts pooled over seeds: its rates and terms are means over seeds.
    """

    k: int
    sizes: tuple[int, int, int]
    mean: Decomposition

    @property
    def p_s(self) -> Fraction:
        """The share of audit problems that search recovers; no correction of S gains more."""
        return Fraction(self.sizes[1], sum(self.sizes))

    @property
    def net_gain(self) -> Fraction:
        """Pass@1 minus the source's; of a fixed model the same at every K."""
        return self.mean.terms.total

    @property
    def unstable(self) -> tuple[State, ...]:
        """States whose rates rest on few problems, to be marked."""
        return unstable_states(*self.sizes)


def scope_row(k: int, states: NDArray[np.str_], passed: NDArray[np.bool_]) -> ScopeRow:
    """The row of one search budget.

    Args:
        k: K.
        states: shape (P,), the source states by the first K samples.
        passed: shape (S, P), V of each seed's greedy decode.
    """
    g, s, u = (int((states == name).sum()) for name in ("G", "S", "U"))
    return ScopeRow(k, (g, s, u), pool([decompose(states, of_seed) for of_seed in passed]))
