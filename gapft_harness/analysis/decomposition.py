"""The exact decomposition of a Pass@1 change by source state (Equation 9 of the paper).

A(post) - A(source) = p_S κ_S + p_U κ_U - p_G ρ_G is computed from counts in rational arithmetic, so
it holds exactly on any audit. With r sampled deployment decodes of each problem, Pass@1 is the mean
success probability, and κ and ρ are mean changes of that probability within a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State, count_required_passes

#: Rates over fewer items than this are marked as unstable.
STABLE_ITEMS = 30


@dataclass(frozen=True, slots=True)
class Terms:
    """The three summands of a Pass@1 change, as exact fractions of the audit.

    Attributes:
        s: p_S κ_S, the gain on failures that search recovered.
        u: p_U κ_U, the gain on failures that search missed.
        g: -p_G ρ_G, the loss on problems that the source solved; with one decode never positive.
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
class StateCounts:
    """Deployment decodes that passed, by the source's state of their problems."""

    g: int
    s: int
    u: int

    @property
    def total(self) -> int:
        """The count over all states."""
        return self.g + self.s + self.u


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Changes by source state, for one trained model or summed over several.

    A change counts deployment decodes: those that pass after training minus those that passed
    before, of each problem's r. With r = 1 it counts problems and is not negative.

    Attributes:
        n_g: problems that the source solves.
        n_s: problems that search recovered.
        n_u: problems that search missed.
        regressed_g: the loss on ``n_g``: passing decodes before minus after.
        corrected_s: the gain on ``n_s``: passing decodes after minus before.
        corrected_u: the gain on ``n_u``, likewise.
        repeats: r, the deployment decodes of each problem.
        before: the source's passing decodes, once for each model; None only where r = 1, for those
            of ``n_g``.
    """

    n_g: int
    n_s: int
    n_u: int
    regressed_g: int
    corrected_s: int
    corrected_u: int
    repeats: int = 1
    before: StateCounts | None = None

    def __post_init__(self) -> None:
        if self.before is None and self.repeats == 1:
            object.__setattr__(self, "before", StateCounts(self.n_g, 0, 0))
        after = self.after
        pairs = (
            (self.source.g, after.g, self.n_g),
            (self.source.s, after.s, self.n_s),
            (self.source.u, after.u, self.n_u),
        )
        if any(not 0 <= count <= self.repeats * total for *both, total in pairs for count in both):
            raise ValueError(f"a state has more changed problems than problems: {self}")

    @property
    def source(self) -> StateCounts:
        """The source's passing decodes.

        Raises:
            ValueError: they are not given.
        """
        if self.before is None:
            raise ValueError(f"with {self.repeats} repeats, the source's passes must be given")
        return self.before

    @property
    def after(self) -> StateCounts:
        """The passing decodes of the trained model."""
        return StateCounts(
            self.source.g - self.regressed_g,
            self.source.s + self.corrected_s,
            self.source.u + self.corrected_u,
        )

    @property
    def n(self) -> int:
        """The number of audit problems."""
        return self.n_g + self.n_s + self.n_u

    @property
    def correct(self) -> int:
        """The number of decodes of the trained model that pass."""
        return self.after.total

    @property
    def pass_at_1(self) -> Fraction:
        """A(post)."""
        return Fraction(self.correct, self.repeats * self.n)

    @property
    def kappa_s(self) -> Fraction | None:
        """κ_S, the correction rate on recovered failures; None if there are none."""
        return self._divide(self.corrected_s, self.n_s)

    @property
    def kappa_u(self) -> Fraction | None:
        """κ_U, the correction rate on missed failures; None if there are none."""
        return self._divide(self.corrected_u, self.n_u)

    @property
    def rho_g(self) -> Fraction | None:
        """ρ_G, the regression rate on solved problems; None if there are none."""
        return self._divide(self.regressed_g, self.n_g)

    @property
    def terms(self) -> Terms:
        """The terms, from counts: an empty state contributes 0 although its rate is undefined."""
        return Terms(
            Fraction(self.corrected_s, self.repeats * self.n),
            Fraction(self.corrected_u, self.repeats * self.n),
            Fraction(-self.regressed_g, self.repeats * self.n),
        )

    def _divide(self, changed: int, problems: int) -> Fraction | None:
        return Fraction(changed, self.repeats * problems) if problems else None


def partition(
    repeats_passed: NDArray[np.bool_],
    samples_passed: NDArray[np.bool_],
    solved: float | Fraction = Fraction(1, 2),
) -> NDArray[np.str_]:
    """Partition problems by their source state (Equations 3 to 5); see ``classify_state``.

    Args:
        repeats_passed: shape (P,), V of the source's greedy decode; or (P, r), V of each sampled
            repeat of its deployment decode.
        samples_passed: shape (P, K), V of the search samples.
        solved: the share of the repeats that must pass in state G.

    Returns:
        Shape (P,): ``G`` if enough deployment decodes passed, else ``S`` if a sample passed, else
        ``U``.

    Raises:
        ValueError: shapes do not match.
    """
    repeats = repeats_passed[:, None] if repeats_passed.ndim == 1 else repeats_passed
    if samples_passed.ndim != 2 or repeats.ndim != 2 or len(samples_passed) != len(repeats):
        raise ValueError(
            f"shapes do not match: samples {samples_passed.shape}, deployment decodes "
            f"{repeats_passed.shape}"
        )
    is_solved = repeats.sum(axis=1) >= count_required_passes(repeats.shape[1], solved)
    return np.where(is_solved, "G", np.where(samples_passed.any(axis=1), "S", "U"))


def decompose(
    states: NDArray[np.str_],
    passed: NDArray[np.bool_],
    source_passed: NDArray[np.bool_] | None = None,
) -> Decomposition:
    """Count the changes of one trained model by source state.

    Args:
        states: shape (P,), ``G``, ``S`` or ``U`` under the source model.
        passed: shape (P,), V of the trained model's decode; or (P, r), V of each repeat.
        source_passed: the same for the source; None with one decode: it passed in state G.

    Raises:
        ValueError: there is no problem, shapes differ, or a state is unknown.
    """
    if source_passed is None and passed.shape == states.shape:
        source_passed = states == "G"
    if source_passed is None or states.shape != passed.shape[:1] or not passed.size:
        raise ValueError(
            f"expected one state and one decision per problem, found shapes {states.shape} and "
            f"{passed.shape}"
        )
    if source_passed.shape != passed.shape:
        raise ValueError(
            f"shapes do not match: decisions {passed.shape}, source {source_passed.shape}"
        )
    members = {name: states == name for name in ("G", "S", "U")}
    if sum(int(mask.sum()) for mask in members.values()) != states.size:
        raise ValueError(f"states must be G, S or U, found {sorted(set(states.tolist()))}")
    before = StateCounts(*(int(source_passed[mask].sum()) for mask in members.values()))
    after = StateCounts(*(int(passed[mask].sum()) for mask in members.values()))
    return Decomposition(
        n_g=int(members["G"].sum()),
        n_s=int(members["S"].sum()),
        n_u=int(members["U"].sum()),
        regressed_g=before.g - after.g,
        corrected_s=after.s - before.s,
        corrected_u=after.u - before.u,
        repeats=passed.size // states.size,
        before=before,
    )


def pool_counts(parts: Sequence[Decomposition]) -> Decomposition:
    """Sum counts over the seeds of a condition, so that rates and terms become their means.

    Raises:
        ValueError: the parts have different numbers of repeats, or there is no part.
    """
    repeats = {part.repeats for part in parts}
    if len(repeats) != 1:
        raise ValueError(f"expected parts with the same number of repeats, found {sorted(repeats)}")
    return Decomposition(
        sum(part.n_g for part in parts),
        sum(part.n_s for part in parts),
        sum(part.n_u for part in parts),
        sum(part.regressed_g for part in parts),
        sum(part.corrected_s for part in parts),
        sum(part.corrected_u for part in parts),
        repeats.pop(),
        StateCounts(
            sum(part.source.g for part in parts),
            sum(part.source.s for part in parts),
            sum(part.source.u for part in parts),
        ),
    )


def find_unstable_states(n_g: int, n_s: int, n_u: int) -> tuple[State, ...]:
    """Find the states whose rates are based on fewer than ``STABLE_ITEMS`` audit problems."""
    sizes: tuple[tuple[State, int], ...] = (("G", n_g), ("S", n_s), ("U", n_u))
    return tuple(name for name, size in sizes if size < STABLE_ITEMS)
