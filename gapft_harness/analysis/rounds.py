"""The decomposition of a Pass@1 change over several rounds, by the states of the first source.

A round replaces a source by a trained model, which is the source of the next round. With the states
of the first source, A(last) - A(first) is the sum over all steps of the mean change within G, S and
U, weighted by the state's share: the terms of consecutive steps telescope. In rational arithmetic
the sum is exact. Within G a later step may also gain, so these terms have either sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import Terms


@dataclass(frozen=True, slots=True)
class Decodes:
    """The deployment decodes of one model, or of the models of several seeds together.

    Attributes:
        passes: shape (P,), the number of each problem's decodes that pass.
        count: decodes of each problem.
    """

    passes: NDArray[np.int64]
    count: int

    @property
    def pass_at_1(self) -> Fraction:
        """A, the mean share of passing decodes."""
        return Fraction(int(self.passes.sum()), self.count * self.passes.size)

    @classmethod
    def pool(cls, parts: Sequence[Decodes]) -> Decodes:
        """Pool the decodes of several models, so that shares become means over models.

        Raises:
            ValueError: they have different numbers of decodes.
        """
        if len({part.count for part in parts}) != 1:
            raise ValueError(f"expected equal numbers of decodes: {[part.count for part in parts]}")
        passes: NDArray[np.int64] = np.sum([part.passes for part in parts], axis=0)
        return cls(passes, sum(part.count for part in parts))


def decompose_step(states: NDArray[np.str_], before: Decodes, after: Decodes) -> Terms:
    """Decompose the change between two models by fixed states.

    Args:
        states: shape (P,), ``G``, ``S`` or ``U`` under the first source.
        before: the decodes of the earlier model.
        after: the decodes of the later model.

    Raises:
        ValueError: there is no problem, shapes differ, or a state is unknown.
    """
    if not states.size or not states.shape == before.passes.shape == after.passes.shape:
        raise ValueError(
            f"expected one state and decodes per problem, found shapes {states.shape}, "
            f"{before.passes.shape} and {after.passes.shape}"
        )
    if unknown := set(states.tolist()) - {"G", "S", "U"}:
        raise ValueError(f"states must be G, S or U, found {sorted(unknown)}")

    def mean(decodes: Decodes, state: str) -> Fraction:
        passing = int(decodes.passes[states == state].sum())
        return Fraction(passing, decodes.count * states.size)

    s, u, g = (mean(after, state) - mean(before, state) for state in ("S", "U", "G"))
    return Terms(s, u, g)


def decompose_chain(states: NDArray[np.str_], models: Sequence[Decodes]) -> list[Terms]:
    """Decompose every step of a chain of models; the sum of all terms is the complete change."""
    return [decompose_step(states, before, after) for before, after in pairwise(models)]
