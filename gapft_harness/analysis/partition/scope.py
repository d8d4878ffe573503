"""A fixed trained model's decomposition at several search budgets.

It has the columns of the paper's table "Logic Scope Matrix and Answer-Redistribution Control", but
there each K has models of its own, trained at that K. Here budgets are nested: the first K samples
of one search, which the trained model does not depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import Decomposition, decompose, pool, unstable_states
from gapft_harness.core.records import State


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
