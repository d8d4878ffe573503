"""The exact decomposition of a Pass@1 change by source state (Equation 9 of the paper).

A(post) - A(source) = p_S κ_S + p_U κ_U - p_G ρ_G is computed from counts in rational arithmetic, so
it holds exactly on any audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State

#: Rates over fewer items than this are marked as unstable.
STABLE_ITEMS = 30


@dataclass(frozen=True, slots=True)
class Terms:
    """The three summands of a Pass@1 change, as exact fractions of the audit.

    Attributes:
        s: p_S κ_S, the gain on failures that search recovered.
        u: p_U κ_U, the gain on failures that search missed.
        g: -p_G ρ_G, the loss on problems that the source solved; never positive.
    """

    s: Fraction
    u: Fraction
    g: Fraction

    @property
    def total(self) -> Fraction:
        """The Pass@1 change."""
        return self.s + self.u + self.g

    def __sub__(self, other: Terms) -> Terms:
        """Subtract term by term, to compare two conditions by state."""
        return Terms(self.s - other.s, self.u - other.u, self.g - other.g)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Problems whose outcome changed, by source state, of one trained model or summed over several.

    Attributes:
        n_g: problems that the source solves.
        n_s: problems that search recovered.
        n_u: problems that search missed.
        regressed_g: those of ``n_g`` that fail after training.
        corrected_s: those of ``n_s`` that pass after training.
        corrected_u: those of ``n_u`` that pass after training.
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
        if any(not 0 <= changed <= total for changed, total in pairs):
            raise ValueError(f"a state has more changed problems than problems: {self}")

    @property
    def n(self) -> int:
        """The number of audit problems."""
        return self.n_g + self.n_s + self.n_u

    @property
    def correct(self) -> int:
        """The number of decodes of the trained model that pass."""
        return self.n_g - self.regressed_g + self.corrected_s + self.corrected_u

    @property
    def pass_at_1(self) -> Fraction:
        """A(post)."""
        return Fraction(self.correct, self.n)

    @property
    def kappa_s(self) -> Fraction | None:
        """κ_S, the correction rate on recovered failures; None if there are none."""
        return Fraction(self.corrected_s, self.n_s) if self.n_s else None

    @property
    def kappa_u(self) -> Fraction | None:
        """κ_U, the correction rate on missed failures; None if there are none."""
        return Fraction(self.corrected_u, self.n_u) if self.n_u else None

    @property
    def rho_g(self) -> Fraction | None:
        """ρ_G, the regression rate on solved problems; None if there are none."""
        return Fraction(self.regressed_g, self.n_g) if self.n_g else None

    @property
    def terms(self) -> Terms:
        """The terms, from counts: an empty state contributes 0 although its rate is undefined."""
        return Terms(
            Fraction(self.corrected_s, self.n),
            Fraction(self.corrected_u, self.n),
            Fraction(-self.regressed_g, self.n),
        )

    def list_rates(self) -> dict[str, Fraction | None]:
        """List the rates within each state, and the terms of the change (Equations 8 and 9)."""
        return {
            "kappa_S": self.kappa_s,
            "kappa_U": self.kappa_u,
            "rho_G": self.rho_g,
            "term_S": self.terms.s,
            "term_U": self.terms.u,
            "term_G": self.terms.g,
        }


def partition(
    deployment_passed: NDArray[np.bool_], samples_passed: NDArray[np.bool_]
) -> NDArray[np.str_]:
    """Partition problems by their source state (Equations 3 to 5); see ``classify_state``.

    Args:
        deployment_passed: shape (P,), V of the source's deployment decode.
        samples_passed: shape (P, K), V of the search samples.

    Returns:
        Shape (P,): ``G`` if the deployment decode passed, else ``S`` if a sample passed, else
        ``U``.

    Raises:
        ValueError: shapes do not match.
    """
    if samples_passed.ndim != 2 or deployment_passed.shape != samples_passed.shape[:1]:
        raise ValueError(
            f"shapes do not match: samples {samples_passed.shape}, deployment decodes "
            f"{deployment_passed.shape}"
        )
    return np.where(deployment_passed, "G", np.where(samples_passed.any(axis=1), "S", "U"))


def by_state(states: NDArray[np.str_], passed: NDArray[np.bool_]) -> Decomposition:
    """Count the changes of a trained model by source state; over seeds, the counts are summed.

    Args:
        states: shape (P,), ``G``, ``S`` or ``U`` under the source model.
        passed: shape (P,) or (S, P), V of the trained model's decode under each seed.

    Raises:
        ValueError: there is no problem, shapes differ, or a state is unknown.
    """
    if passed.ndim > 2 or states.shape != passed.shape[-1:] or not passed.size:
        raise ValueError(
            f"expected one state and one decision per problem, found shapes {states.shape} and "
            f"{passed.shape}"
        )
    if unknown := {*states.tolist()} - {"G", "S", "U"}:
        raise ValueError(f"states must be G, S or U, found {sorted(unknown)}")
    solved, recovered, missed = (
        np.broadcast_to(states == state, passed.shape) for state in ("G", "S", "U")
    )
    return Decomposition(
        n_g=int(solved.sum()),
        n_s=int(recovered.sum()),
        n_u=int(missed.sum()),
        regressed_g=int((solved & ~passed).sum()),
        corrected_s=int((recovered & passed).sum()),
        corrected_u=int((missed & passed).sum()),
    )


def find_unstable_states(n_g: int, n_s: int, n_u: int) -> tuple[State, ...]:
    """Find the states whose rates are based on fewer than ``STABLE_ITEMS`` audit problems."""
    sizes: tuple[tuple[State, int], ...] = (("G", n_g), ("S", n_s), ("U", n_u))
    return tuple(name for name, size in sizes if size < STABLE_ITEMS)


def compute_gain_share(gain: Fraction, full: Fraction) -> Fraction | None:
    """Compute a gain over the source as a share of the gain of a larger budget.

    Args:
        gain: the gain of the smaller budget.
        full: the gain of the larger budget.

    Returns:
        The share, which may be negative or above 1; None if the larger budget has no gain.
    """
    return gain / full if full > 0 else None
