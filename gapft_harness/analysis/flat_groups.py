"""Count flat groups: K responses to one problem with equal rewards, which give GRPO no signal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class FlatGroups:
    """Counts of groups in one source state.

    Attributes:
        state: G, S or U.
        groups: all groups.
        solved: groups in which every response passed.
        failed: groups in which no response passed.
    """

    state: State
    groups: int
    solved: int
    failed: int

    @property
    def flat(self) -> int:
        """The number of flat groups."""
        return self.solved + self.failed

    @property
    def share(self) -> Fraction | None:
        """The share of groups that are flat; None if there is no group."""
        return Fraction(self.flat, self.groups) if self.groups else None


def count_flat_groups(groups: Iterable[tuple[State, int, int]]) -> tuple[FlatGroups, ...]:
    """Count groups and flat groups by state.

    Args:
        groups: for each group its problem's state, its number of responses, and the number of
            responses that passed.

    Returns:
        The counts of G, S and U, in this order.
    """
    counts: dict[State, list[int]] = {"G": [0, 0, 0], "S": [0, 0, 0], "U": [0, 0, 0]}
    for state, size, passed in groups:
        state_counts = counts[state]
        state_counts[0] += 1
        state_counts[1] += passed == size > 0
        state_counts[2] += passed == 0
    return tuple(FlatGroups(state, *state_counts) for state, state_counts in counts.items())


def compute_solved_share(groups: Iterable[FlatGroups]) -> Fraction | None:
    """Compute the share of flat groups that are in G; None if there is no flat group."""
    by_state = {group.state: group.flat for group in groups}
    flat = sum(by_state.values())
    return Fraction(by_state["G"], flat) if flat else None
