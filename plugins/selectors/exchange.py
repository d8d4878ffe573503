"""Match supervised tokens to a target by exchanging problems within strata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from gapft_harness.api import Evidence, UserError

Label = TypeVar("Label", bound=Hashable)


def supervised_tokens(evidence: Evidence) -> int:
    """Count the tokens supervised by default: the response's, and an end token if it ended."""
    response = evidence.response
    return len(response.token_ids) + evidence.ended if response is not None else 0


def exchanged(
    ordered: Sequence[tuple[Label, Evidence]],
    counts: Mapping[Label, int],
    target: int,
    tolerance: float | None,
    who: str,
    times: int = 1,
    *,
    must: bool = True,
) -> list[Evidence]:
    """Select the first problems of each stratum, and exchange some to match the target tokens.

    Until the tokens are within the margin, iterate over the unused problems in their order,
    repeatedly. Each replaces the last problem of its stratum whose removal brings the tokens nearer
    to the target. The number of exchanges is minimal in this order, and the same draw always gives
    the same set.

    Two sets that each miss one target by at most half the tolerance t differ by less than t of the
    larger set: in units of the target, their difference is at most t, and the larger set is 1 or
    more.

    Args:
        ordered: problems with their strata, in the order of a draw.
        counts: number of problems to select per stratum.
        target: number of supervised tokens to match.
        tolerance: twice the allowed distance from the target, as a share of it; None: no limit.
        times: slots per problem.
        is_required: whether to raise if the tokens cannot be matched; otherwise the nearest
            selection found is returned.

    Raises:
        UserError: the tolerance is not a share, or the tokens cannot be matched.
    """
    chosen: dict[Label, list[Evidence]] = defaultdict(list)
    left: list[tuple[Label, Evidence]] = []
    for stratum, evidence in ordered:
        if len(chosen[stratum]) < counts.get(stratum, 0):
            chosen[stratum].append(evidence)
        else:
            left.append((stratum, evidence))
    if tolerance is not None:
        _check(tolerance, who)
        drawn = _tokens(chosen, times)
        off, room = drawn - target, tolerance / 2 * target
        least, most = _reach(chosen, left, times)
        nearer = not must or (least <= target + room and most >= target - room)
        while abs(off) > room and nearer:
            before = off
            for place, (stratum, new) in enumerate(left):
                if abs(off) <= room:
                    break
                there = chosen[stratum]
                for slot in reversed(range(len(there))):
                    gain = times * (supervised_tokens(new) - supervised_tokens(there[slot]))
                    if abs(off + gain) < abs(off):
                        left[place], there[slot] = (stratum, there[slot]), new
                        off += gain
                        break
            nearer = off != before
        if must and abs(off) > room:
            raise UserError(
                f"selector {who}: cannot match supervised tokens: GapFT's slots have {target}, the "
                f"first problems drawn from the same strata {drawn} (possible: {least} to "
                f"{most}), and the nearest selection found {target + off}; expected within "
                f"{tolerance / 2:.2%} of GapFT's (half of tokens: {tolerance:g}). Provide more "
                "problems to choose from (a larger pool, a smaller budget.n, fewer fields in by), "
                "or raise tokens"
            )
    return [evidence for there in chosen.values() for evidence in there]


def _check(tolerance: object, who: str) -> None:
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not 0 < tolerance < 1:  # type: ignore[operator]
        raise UserError(
            f"selector {who}: tokens is {tolerance!r}, expected a share between 0 and 1, or null"
        )


def _tokens(chosen: Mapping[Label, Sequence[Evidence]], times: int) -> int:
    return times * sum(supervised_tokens(e) for there in chosen.values() for e in there)


def _reach(
    chosen: Mapping[Label, Sequence[Evidence]],
    left: Sequence[tuple[Label, Evidence]],
    times: int,
) -> tuple[int, int]:
    """Find the fewest and most tokens of equally many problems from the same strata."""
    whole = {of: [supervised_tokens(e) for e in there] for of, there in chosen.items()}
    for stratum, evidence in left:
        whole[stratum].append(supervised_tokens(evidence))
    ends = [0, 0]
    for of, there in chosen.items():
        lengths, count = sorted(whole[of]), len(there)
        ends[0] += sum(lengths[:count])
        ends[1] += sum(lengths[len(lengths) - count :])
    return times * ends[0], times * ends[1]
