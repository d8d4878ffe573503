"""Mixtures of recovered failures and solved problems."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl


def gapft_with_replay(pool: Pool, n: int, rng: Stream, share: float = 0.25) -> Sequence[Evidence]:
    """Select as GapFT, but give a share of the slots to solved problems; 0: gapft, 1: replay.

    Recovered failures and solved problems are each a prefix of one draw, so the sets of two shares
    differ only in the additional problems of either kind.

    Args:
        pool: the pool.
        n: slots.
        rng: the arm's stream.
        share: share of the slots for solved problems, rounded to whole slots.

    Raises:
        UserError: ``share`` is not between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(
            f"selector 'gapft_with_replay': share is {share!r}, expected a number from 0 to 1"
        )
    solved_count = round(share * n)
    return [
        *pool.draw(pool.recovered, n - solved_count, rng),
        *pool.draw(pool.solved, solved_count, rng),
    ]


@hookimpl
def register_selectors(register: Register) -> None:
    """Register the selector."""
    register("gapft_with_replay", gapft_with_replay)
