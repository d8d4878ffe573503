"""Groups of K responses to one problem whose rewards are all equal: they teach GRPO nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class FlatGroups:
    """The groups of one state of the source, of which some are flat.

    Attributes:
        state: G, S or U.
        groups: all of them.
        solved: those in which every response passed.
        failed: those in which none did.
    """

    state: State
    groups: int
    solved: int
    failed: int

    @property
    def flat(self) -> int:
        """Flat groups."""
        return self.solved + self.failed

    @property
    def share(self) -> Fraction | None:
        """The share of the groups that is flat; None without a group."""
        return Fraction(self.flat, self.groups) if self.groups else None


def flat_groups(found: Iterable[tuple[State, int, int]]) -> tuple[FlatGroups, ...]:
    """Counts groups by state.

    Args:
        found: of each group its problem's state, how many responses it has, how many passed.

    Returns:
        One for each of G, S and U, in this order.
    """
    counts: dict[State, list[int]] = {"G": [0, 0, 0], "S": [0, 0, 0], "U": [0, 0, 0]}
    for state, size, passed in found:
        of = counts[state]
        of[0] += 1
        of[1] += passed == size > 0
        of[2] += passed == 0
    return tuple(FlatGroups(state, *of) for state, of in counts.items())


def solved_share(groups: Iterable[FlatGroups]) -> Fraction | None:
    """Of the flat groups the share that is of G, which one decode solves; None without any."""
    by_state = {of.state: of.flat for of in groups}
    flat = sum(by_state.values())
    return Fraction(by_state["G"], flat) if flat else None
