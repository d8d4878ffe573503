"""Recovered failures in place of replay: search depth and randomized inclusion (Section 5).

Both keep some slots of GapFT's own training set and fill the others with the first draws of solved
replay: a condition differs from GapFT and from replay only in the problems that fill the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl


def search_depth(pool: Pool, n: int, rng: Stream, k: int) -> Sequence[Evidence]:
    """Select failures that the first k samples recover (S), with GapFT's response; else replay (G).

    k = 0 equals ``replay`` and k = K equals ``gapft``, example by example.

    Args:
        k: number of the K samples that the search may use.

    Raises:
        UserError: k is not an integer from 0 to the number of drawn samples.
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    check_depth(pool, k, "search_depth")
    recovered_ids = {e.problem_id for e in select_recovered_within(pool.recovered, k)}
    return _fill_with_replay(pool, n, rng.seed, recovered_ids)


def randomized_inclusion(
    pool: Pool, n: int, rng: Stream, share: float, within: int = 4
) -> Sequence[Evidence]:
    """Select early failures and a random share of late ones (S), with GapFT's response, or replay.

    The share is drawn from the late failures among GapFT's own by the arm's seed; a smaller share
    is a subset of a larger one. share = 1 equals ``gapft``, example by example.

    Args:
        share: share of the late failures, from 0 to 1; their number is rounded, halves up.
        within: a failure is early if one of its first ``within`` samples passes.

    Raises:
        UserError: ``share`` is not a number from 0 to 1, or ``within`` is not an integer from 0.
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(
            f"selector 'randomized_inclusion': share is {share!r}, expected a number from 0 to 1"
        )
    check_integer("within", within, 0, "randomized_inclusion")
    slots = _draw_gapft_slots(pool, n, rng.seed)
    early = {e.problem_id for e in select_recovered_within(slots, within)}
    late = [e for e in slots if e.problem_id not in early]
    count = int(Fraction(str(share)) * len(late) + Fraction(1, 2))
    included = {e.problem_id for e in pool.draw(late, count, rng)}
    return _fill_with_replay(pool, n, rng.seed, early | included)


def check_depth(pool: Pool, k: int, selector: str) -> None:
    """Check that a depth is within the samples of the search.

    Raises:
        UserError: k is not an integer from 0 to the number of drawn samples.
    """
    sample_count = max((e.samples for e in pool.missed if e.samples is not None), default=None)
    upper = "" if sample_count is None else f" to {sample_count}, the number of drawn samples"
    check_integer("k", k, 0, selector, sample_count, upper)


def check_integer(
    key: str,
    value: object,
    least: int,
    selector: str,
    most: int | None = None,
    upper_text: str = "",
) -> None:
    """Check that a parameter is an integer within bounds; ``upper_text`` describes the upper bound.

    Raises:
        UserError: it is not such an integer.
    """
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise UserError(
            f"selector {selector!r}: {key} is {value!r}, "
            f"expected an integer from {least}{upper_text}"
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
