"""The exact decomposition of a Pass@1 change by source state (Equation 9 of the paper).

A(post) - A(source) = p_S κ_S + p_U κ_U - p_G ρ_G, from counts and in rational arithmetic, so that
it holds to the last bit on any audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State

#: A rate over fewer items than this is marked unstable.
STABLE_ITEMS = 30


@dataclass(frozen=True, slots=True)
class Terms:
    """The three summands of a Pass@1 change, as exact fractions of the audit.

    Attributes:
        s: p_S κ_S, gained on failures that search recovered.
        u: p_U κ_U, gained on failures that search missed.
        g: -p_G ρ_G, lost on problems the source already solved; never positive.
    """

    s: Fraction
    u: Fraction
    g: Fraction

    @property
    def total(self) -> Fraction:
        """The Pass@1 change."""
        return self.s + self.u + self.g

    def __sub__(self, other: Terms) -> Terms:
        """Term by term: how two conditions differ in each state."""
        return Terms(self.s - other.s, self.u - other.u, self.g - other.g)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """What one trained model (or several, pooled) did to the problems of each source state.

    Attributes:
        n_g: problems the source solved in one decode.
        n_s: problems that search recovered.
        n_u: problems that search missed.
        regressed_g: of ``n_g``, how many are wrong now.
        corrected_s: of ``n_s``, how many are right now.
        corrected_u: of ``n_u``, how many are right now.
    """

    n_g: int
    n_s: int
    n_u: int
    regressed_g: int
    corrected_s: int
    corrected_u: int

    def __post_init__(self) -> None:
        pairs = (
            (self.regressed_g, self.n_g),
            (self.corrected_s, self.n_s),
            (self.corrected_u, self.n_u),
        )
        if any(not 0 <= changed <= of for changed, of in pairs):
            raise ValueError(f"a state has more changed problems than problems: {self}")

    @property
    def n(self) -> int:
        """Audit problems."""
        return self.n_g + self.n_s + self.n_u

    @property
    def correct(self) -> int:
        """Problems that are right now."""
        return self.n_g - self.regressed_g + self.corrected_s + self.corrected_u

    @property
    def pass_at_1(self) -> Fraction:
        """A(post)."""
        return Fraction(self.correct, self.n)

    @property
    def kappa_s(self) -> Fraction | None:
        """κ_S, correction rate on recovered failures; None where there are none."""
        return _rate(self.corrected_s, self.n_s)

    @property
    def kappa_u(self) -> Fraction | None:
        """κ_U, correction rate on missed failures; None where there are none."""
        return _rate(self.corrected_u, self.n_u)

    @property
    def rho_g(self) -> Fraction | None:
        """ρ_G, regression rate on solved problems; None where there are none."""
        return _rate(self.regressed_g, self.n_g)

    @property
    def terms(self) -> Terms:
        """The summands, from counts: an empty state contributes 0 though its rate is undefined."""
        return Terms(
            Fraction(self.corrected_s, self.n),
            Fraction(self.corrected_u, self.n),
            Fraction(-self.regressed_g, self.n),
        )


def partition(
    greedy_passed: NDArray[np.bool_], samples_passed: NDArray[np.bool_]
) -> NDArray[np.str_]:
    """The source state of every problem (Equations 3 to 5).

    Args:
        greedy_passed: shape (P,), V of the source's greedy decode.
        samples_passed: shape (P, K), V of the samples that search drew.

    Returns:
        Shape (P,): ``G`` where the greedy decode passed, else ``S`` where a sample did, else ``U``.

    Raises:
        ValueError: shapes that do not fit.
    """
    if samples_passed.ndim != 2 or samples_passed.shape[:1] != greedy_passed.shape:
        raise ValueError(
            f"samples of shape {samples_passed.shape} do not fit {greedy_passed.shape} problems"
        )
    return np.where(greedy_passed, "G", np.where(samples_passed.any(axis=1), "S", "U"))


def decompose(states: NDArray[np.str_], passed: NDArray[np.bool_]) -> Decomposition:
    """Counts what one trained model did to each state.

    Args:
        states: shape (P,), ``G``, ``S`` or ``U`` under the source model.
        passed: shape (P,), V of the trained model's greedy decode.

    Raises:
        ValueError: no problem, shapes that differ, or another state.
    """
    if states.shape != passed.shape or not states.size:
        raise ValueError(
            f"expected one state and one decision a problem, found shapes {states.shape} and "
            f"{passed.shape}"
        )
    members = {name: states == name for name in ("G", "S", "U")}
    if sum(int(of.sum()) for of in members.values()) != states.size:
        raise ValueError(f"states must be G, S or U, found {sorted(set(states.tolist()))}")
    return Decomposition(
        n_g=int(members["G"].sum()),
        n_s=int(members["S"].sum()),
        n_u=int(members["U"].sum()),
        regressed_g=int((members["G"] & ~passed).sum()),
        corrected_s=int((members["S"] & passed).sum()),
        corrected_u=int((members["U"] & passed).sum()),
    )


def pool(parts: Sequence[Decomposition]) -> Decomposition:
    """Adds up counts: over the seeds of a condition, rates and terms become their means."""
    return Decomposition(
        sum(part.n_g for part in parts),
        sum(part.n_s for part in parts),
        sum(part.n_u for part in parts),
        sum(part.regressed_g for part in parts),
        sum(part.corrected_s for part in parts),
        sum(part.corrected_u for part in parts),
    )


def unstable_states(n_g: int, n_s: int, n_u: int) -> tuple[State, ...]:
    """The states whose rates rest on fewer than ``STABLE_ITEMS`` audit problems."""
    sizes: tuple[tuple[State, int], ...] = (("G", n_g), ("S", n_s), ("U", n_u))
    return tuple(name for name, size in sizes if size < STABLE_ITEMS)


def _rate(changed: int, total: int) -> Fraction | None:
    return Fraction(changed, total) if total else None
