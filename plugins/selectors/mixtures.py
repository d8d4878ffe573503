"""Mixtures of recovered failures and solved problems, and coverage before repetition."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl


def gapft_with_replay(pool: Pool, n: int, rng: Stream, share: float = 0.25) -> Sequence[Evidence]:
    """GapFT with a share of its slots given to solved problems; 0 is gapft, 1 is replay.

    Recovered failures and solved problems are each a prefix of one draw, so the sets of two shares
    differ in what one has more of.

    Args:
        pool: the pool.
        n: slots.
        rng: the arm's stream.
        share: of the slots, rounded to whole ones.

    Raises:
        UserError: ``share`` is not between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(f"gapft_with_replay: share must be from 0 to 1, found {share!r}")
    solved = round(share * n)
    return [*pool.draw(pool.recovered, n - solved, rng), *pool.draw(pool.solved, solved, rng)]


def coverage_first(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Every recovered failure before any comes again; then again in the same order, until n.

    With n up to their number it is gapft; beyond it ``uniform_with_replacement`` is its twin.
    """
    found = list(pool.draw(pool.recovered, min(n, len(pool.recovered)), rng))
    if not found:
        return pool.draw(pool.recovered, n, rng)  # which says that there are none
    return [found[slot % len(found)] for slot in range(n)]


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the two."""
    register("gapft_with_replay", gapft_with_replay)
    register("coverage_first", coverage_first, repeats=True)
