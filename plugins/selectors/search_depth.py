"""Recovered failures in place of replay: search depth and randomized inclusion (Section 5).

Both keep some slots of GapFT's own training set and fill the others with the first draws of solved
replay: a condition differs from GapFT and from replay only in the problems that fill the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl

#: A number of samples, and a share.
Depth = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


def search_depth(pool: Pool, n: int, rng: Stream, k: Depth) -> Sequence[Evidence]:
    """Select failures that the first k samples recover (S), with GapFT's response; else replay (G).

    k = 0 equals ``replay`` and k = K equals ``gapft``, example by example.

    Args:
        k: number of the K samples that the search may use.

    Raises:
        UserError: k exceeds the number of drawn samples.
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    check_depth(pool, k, "search_depth")
    recovered_ids = {e.problem_id for e in select_recovered_within(pool.recovered, k)}
    return _fill_with_replay(pool, n, rng.seed, recovered_ids)


def randomized_inclusion(
    pool: Pool, n: int, rng: Stream, share: Share, within: Depth = 4
) -> Sequence[Evidence]:
    """Select early failures and a random share of late ones (S), with GapFT's response, or replay.

    The share is drawn from the late failures among GapFT's own by the arm's seed; a smaller share
    is a subset of a larger one. share = 1 equals ``gapft``, example by example.

    Args:
        share: share of the late failures, from 0 to 1; their number is rounded, halves up.
        within: a failure is early if one of its first ``within`` samples passes.

    Raises:
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    slots = _draw_gapft_slots(pool, n, rng.seed)
    early = {e.problem_id for e in select_recovered_within(slots, within)}
    late = [e for e in slots if e.problem_id not in early]
    count = int(Fraction(str(share)) * len(late) + Fraction(1, 2))
    included = {e.problem_id for e in pool.draw(late, count, rng)}
    return _fill_with_replay(pool, n, rng.seed, early | included)


def check_depth(pool: Pool, k: int, selector: str) -> None:
    """Check that a depth is within the samples of the search.

    Raises:
        UserError: k exceeds the number of drawn samples.
    """
    evidence = (*pool.solved, *pool.recovered, *pool.missed)
    drawn = max((e.samples for e in evidence if e.samples is not None), default=None)
    if drawn is not None and k > drawn:
        raise UserError(
            f"selector {selector!r}: k is {k}, expected at most {drawn}, the number of drawn "
            "samples"
        )


def select_recovered_within(candidates: Sequence[Evidence], k: int) -> list[Evidence]:
    """Return the candidates that one of the first k samples recovers."""
    return [e for e in candidates if e.first_success is not None and e.first_success < k]


def _draw_gapft_slots(pool: Pool, n: int, seed: int) -> list[Evidence]:
    return pool.draw(pool.recovered, n, Stream(seed, "select/gapft"))


def _fill_with_replay(pool: Pool, n: int, seed: int, kept_ids: set[str]) -> list[Evidence]:
    """Return GapFT's slots of some problems, and fill the others with the first draws of replay."""
    if not kept_ids:  # independent of the number of failures
        return pool.draw(pool.solved, n, Stream(seed, "select/replay"))
    slots = [e for e in _draw_gapft_slots(pool, n, seed) if e.problem_id in kept_ids]
    return [*slots, *pool.draw(pool.solved, n - len(slots), Stream(seed, "select/replay"))]


@hookimpl
def register_selectors(register: Register) -> None:
    """Register both selectors."""
    register("search_depth", search_depth)
    register("randomized_inclusion", randomized_inclusion)
