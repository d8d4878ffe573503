"""Recovered failures in place of replay: search depth and randomized inclusion (Section 5).

Both take slots of GapFT's own training set and give the others to the first draws of solved
replay: every condition differs from GapFT and from replay only in which problems fill the budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl


def search_depth(pool: Pool, n: int, rng: Stream, k: int) -> Sequence[Evidence]:
    """Failures that the first k samples recover (S), with GapFT's response; else replay (G).

    k = 0 is ``replay`` and k = K is ``gapft``, example for example.

    Args:
        k: how many of the K samples search may use.

    Raises:
        UserError: k is no whole number from 0 to the samples that were drawn.
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    check_depth(pool, k, "search_depth")
    found = {e.problem_id for e in recovered_within(pool.recovered, k)}
    return _kept_or_replay(pool, n, rng.seed, found)


def randomized_inclusion(
    pool: Pool, n: int, rng: Stream, share: float, within: int = 4
) -> Sequence[Evidence]:
    """Early failures and a random share of the late ones (S), with GapFT's response; else replay.

    The share is drawn from the late failures among GapFT's own by the arm's seed; a smaller share
    is a part of a larger one. share = 1 is ``gapft``, example for example.

    Args:
        share: of the late failures, from 0 to 1; their number is rounded, halves up.
        within: a failure is early if one of so many first samples passes.

    Raises:
        UserError: a share or a number that is none.
        PoolTooSmallError: too few recovered failures, or too few solved problems for the rest.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(
            f"selector 'randomized_inclusion': share is {share!r}, expected a number from 0 to 1"
        )
    check_whole("within", within, 0, "randomized_inclusion")
    slots = _slots_of_gapft(pool, n, rng.seed)
    early = {e.problem_id for e in recovered_within(slots, within)}
    late = [e for e in slots if e.problem_id not in early]
    count = int(Fraction(str(share)) * len(late) + Fraction(1, 2))
    included = {e.problem_id for e in pool.draw(late, count, rng)}
    return _kept_or_replay(pool, n, rng.seed, early | included)


def check_depth(pool: Pool, k: int, selector: str) -> None:
    """Holds a depth to the samples of the search.

    Raises:
        UserError: k is no whole number from 0 to the samples that were drawn.
    """
    drawn = max((e.samples for e in pool.missed if e.samples is not None), default=None)
    upper = "" if drawn is None else f" to {drawn}, the samples that were drawn"
    check_whole("k", k, 0, selector, drawn, upper)


def check_whole(
    key: str, value: object, least: int, selector: str, most: int | None = None, upper: str = ""
) -> None:
    """Holds a parameter to be a whole number within bounds; ``upper`` tells the upper one.

    Raises:
        UserError: it is none.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise UserError(
            f"selector {selector!r}: {key} is {value!r}, expected a whole number from {least}"
            f"{upper}"
        )


def recovered_within(candidates: Sequence[Evidence], k: int) -> list[Evidence]:
    """Those that one of the first k samples recovers."""
    return [e for e in candidates if e.first_success is not None and e.first_success < k]


def _slots_of_gapft(pool: Pool, n: int, seed: int) -> list[Evidence]:
    return pool.draw(pool.recovered, n, Stream(seed, "select/gapft"))


def _kept_or_replay(pool: Pool, n: int, seed: int, kept: set[str]) -> list[Evidence]:
    """GapFT's slots of some problems, and the first draws of solved replay for the others."""
    if not kept:  # then it is no matter how many failures there are
        return pool.draw(pool.solved, n, Stream(seed, "select/replay"))
    slots = [e for e in _slots_of_gapft(pool, n, seed) if e.problem_id in kept]
    return [*slots, *pool.draw(pool.solved, n - len(slots), Stream(seed, "select/replay"))]


def depth_as(params: Mapping[str, Any], k: int) -> tuple[str, Mapping[str, Any]] | None:
    """Name the selector that a search depth is: replay at 0, GapFT at K."""
    if params.get("k") == 0:
        return "replay", {}
    return ("gapft", {}) if params.get("k") == k else None


def inclusion_as(params: Mapping[str, Any], k: int) -> tuple[str, Mapping[str, Any]] | None:
    """Name the selector that a randomized inclusion is: GapFT, where every failure is included."""
    return ("gapft", {}) if params.get("share") == 1 else None


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers both."""
    register("search_depth", search_depth, same_as=depth_as)
    register("randomized_inclusion", randomized_inclusion, same_as=inclusion_as)
