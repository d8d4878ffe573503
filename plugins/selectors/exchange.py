"""Match supervised tokens to a target by exchanging problems within strata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from gapft_harness.api import Evidence, UserError

Label = TypeVar("Label", bound=Hashable)


def count_supervised_tokens(evidence: Evidence) -> int:
    """Count the tokens supervised by default: the response's, and an end token if it ended."""
    response = evidence.response
    return len(response.token_ids) + evidence.ended if response is not None else 0


def match_tokens(
    ordered: Sequence[tuple[Label, Evidence]],
    counts: Mapping[Label, int],
    target: int,
    tolerance: float | None,
    subject: str,
    times: int = 1,
    *,
    is_required: bool = True,
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
    unused: list[tuple[Label, Evidence]] = []
    for stratum, evidence in ordered:
        if len(chosen[stratum]) < counts.get(stratum, 0):
            chosen[stratum].append(evidence)
        else:
            unused.append((stratum, evidence))
    if tolerance is not None:
        _check_tolerance(tolerance, subject)
        first_tokens = _count_tokens(chosen, times)
        offset, margin = first_tokens - target, tolerance / 2 * target
        least, most = _find_token_range(chosen, unused, times)
        can_improve = not is_required or (least <= target + margin and most >= target - margin)
        while abs(offset) > margin and can_improve:
            previous_offset = offset
            for place, (stratum, candidate) in enumerate(unused):
                if abs(offset) <= margin:
                    break
                members = chosen[stratum]
                for slot in reversed(range(len(members))):
                    gain = times * (
                        count_supervised_tokens(candidate) - count_supervised_tokens(members[slot])
                    )
                    if abs(offset + gain) < abs(offset):
                        unused[place], members[slot] = (stratum, members[slot]), candidate
                        offset += gain
                        break
            can_improve = offset != previous_offset
        if is_required and abs(offset) > margin:
            raise UserError(
                f"selector {subject}: cannot match supervised tokens: GapFT's slots have {target}, "
                f"the first problems drawn from the same strata {first_tokens} (possible: {least} "
                f"to {most}), and the nearest selection found {target + offset}; expected within "
                f"{tolerance / 2:.2%} of GapFT's (half of tokens: {tolerance:g}). Provide more "
                "problems to choose from (a larger pool, a smaller budget.n, fewer fields in by), "
                "or raise tokens"
            )
    return [evidence for members in chosen.values() for evidence in members]


def _check_tolerance(tolerance: object, subject: str) -> None:
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not is_number or not 0 < tolerance < 1:  # type: ignore[operator]
        raise UserError(
            f"selector {subject}: tokens is {tolerance!r}, expected a share between 0 and 1, "
            "or null"
        )


def _count_tokens(chosen: Mapping[Label, Sequence[Evidence]], times: int) -> int:
    return times * sum(count_supervised_tokens(e) for members in chosen.values() for e in members)


def _find_token_range(
    chosen: Mapping[Label, Sequence[Evidence]],
    unused: Sequence[tuple[Label, Evidence]],
    times: int,
) -> tuple[int, int]:
    """Find the fewest and most tokens of equally many problems from the same strata."""
    lengths_by_stratum = {
        label: [count_supervised_tokens(e) for e in members] for label, members in chosen.items()
    }
    for stratum, evidence in unused:
        lengths_by_stratum[stratum].append(count_supervised_tokens(evidence))
    totals = [0, 0]
    for label, members in chosen.items():
        lengths, count = sorted(lengths_by_stratum[label]), len(members)
        totals[0] += sum(lengths[:count])
        totals[1] += sum(lengths[len(lengths) - count :])
    return times * totals[0], times * totals[1]
