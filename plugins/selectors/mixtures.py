"""Mixtures of recovered failures and solved problems."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, Register, Stream, hookimpl
from gapft_harness.plugins.selectors.search_depth import Share


def gapft_with_replay(pool: Pool, n: int, rng: Stream, share: Share = 0.25) -> Sequence[Evidence]:
    """Give a share of the slots to solved problems, and the others to recovered failures.

    Recovered failures and solved problems are each a prefix of one draw, so the sets of two shares
    differ only in the additional problems of either kind.

    Args:
        pool: the pool.
        n: slots.
        rng: the arm's stream.
        share: share of the slots for solved problems, rounded to whole slots.
    """
    solved_count = round(share * n)
    return [
        *pool.draw(pool.recovered, n - solved_count, rng),
        *pool.draw(pool.solved, solved_count, rng),
    ]


@hookimpl
def register_selectors(register: Register) -> None:
    """Register the selector."""
    register("gapft_with_replay", gapft_with_replay)
