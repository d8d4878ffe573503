"""Match supervised and processed tokens to a target by exchanging problems within strata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from gapft_harness.api import Evidence, UserError

Label = TypeVar("Label", bound=Hashable)


def count_supervised_tokens(evidence: Evidence) -> int:
    """Count the tokens supervised by default: the response's, and an end token if it ended."""
    response = evidence.response
    return len(response.token_ids) + evidence.ended if response is not None else 0


def count_processed_tokens(evidence: Evidence) -> int:
    """Count the tokens that the model processes: the prompt's and the supervised ones."""
    return len(evidence.prompt_ids) + count_supervised_tokens(evidence)


#: The numbers of tokens that are matched (Table 6: supervised tokens, and model positions).
_COUNTS: dict[str, Callable[[Evidence], int]] = {
    "supervised tokens": count_supervised_tokens,
    "processed tokens": count_processed_tokens,
}


def match_tokens(
    ordered: Sequence[tuple[Label, Evidence]],
    counts: Mapping[Label, int],
    slots: Sequence[Evidence],
    tolerance: float | None,
    subject: str,
    times: int = 1,
    *,
    is_required: bool = True,
) -> list[Evidence]:
    """Select the first problems of each stratum, and exchange some to match the target's tokens.

    Until supervised and processed tokens are within the margin, iterate over the unused problems in
    their order, repeatedly. Each replaces the last problem of its stratum whose removal lowers the
    sum of the two relative distances beyond the margin. The number of exchanges is minimal in this
    order, and the same draw always gives the same set.

    Two sets that each miss one target by at most half the tolerance t differ by at most t of the
    target.

    Args:
        ordered: problems with their strata, in the order of a draw.
        counts: number of problems to select per stratum.
        slots: the examples whose tokens are the target.
        tolerance: twice the allowed distance from the target, as a share of it; None: no limit.
        times: slots per problem.
        is_required: whether to raise if the tokens cannot be matched; otherwise the nearest
            selection found is returned.

    Raises:
        UserError: the tokens cannot be matched.
    """
    # Fill each stratum with the first problems of the order
    chosen: dict[Label, list[Evidence]] = defaultdict(list)
    unused: list[tuple[Label, Evidence]] = []
    for stratum, evidence in ordered:
        if len(chosen[stratum]) < counts.get(stratum, 0):
            chosen[stratum].append(evidence)
        else:
            unused.append((stratum, evidence))
    if tolerance is not None:
        # How far totals are from their targets, and how far exchanges can move them
        targets = [sum(map(count, slots)) for count in _COUNTS.values()]
        first_totals = [
            times * sum(count(e) for members in chosen.values() for e in members)
            for count in _COUNTS.values()
        ]

        totals = first_totals
        margin = tolerance / 2

        def measure_excess(totals: Sequence[int]) -> float:
            pairs = zip(totals, targets, strict=True)
            return sum(max(0.0, abs(total - target) / target - margin) for total, target in pairs)

        ranges = [_find_token_range(chosen, unused, times, count) for count in _COUNTS.values()]
        can_improve = not is_required or all(
            least <= target * (1 + margin) and most >= target * (1 - margin)
            for (least, most), target in zip(ranges, targets, strict=True)
        )
        # Exchange problems within strata as long as this brings totals nearer
        while measure_excess(totals) and can_improve:
            previous_totals = totals
            for place, (stratum, candidate) in enumerate(unused):
                if not measure_excess(totals):
                    break
                members = chosen[stratum]
                for slot in reversed(range(len(members))):
                    new_totals = [
                        total + times * (count(candidate) - count(members[slot]))
                        for total, count in zip(totals, _COUNTS.values(), strict=True)
                    ]
                    if measure_excess(new_totals) < measure_excess(totals):
                        unused[place], members[slot] = (stratum, members[slot]), candidate
                        totals = new_totals
                        break
            can_improve = totals != previous_totals
        # Refuse totals that stay too far away
        if is_required and measure_excess(totals):
            matches = "; ".join(
                f"{name}: GapFT's slots have {target}, the first problems drawn from the same "
                f"strata {first} (possible: {least} to {most}), the nearest selection found {total}"
                for name, target, first, (least, most), total in zip(
                    _COUNTS, targets, first_totals, ranges, totals, strict=True
                )
            )
            raise UserError(
                f"selector {subject}: cannot match tokens. {matches}; expected within "
                f"{tolerance / 2:.2%} of GapFT's (half of tokens: {tolerance:g}). Provide more "
                "problems to choose from (a larger pool, a smaller budget.n, fewer fields in by), "
                "or raise tokens"
            )
    return [evidence for members in chosen.values() for evidence in members]


def _find_token_range(
    chosen: Mapping[Label, Sequence[Evidence]],
    unused: Sequence[tuple[Label, Evidence]],
    times: int,
    count: Callable[[Evidence], int],
) -> tuple[int, int]:
    """Find the fewest and most tokens of equally many problems from the same strata."""
    lengths_by_stratum = {label: list(map(count, members)) for label, members in chosen.items()}
    for stratum, evidence in unused:
        lengths_by_stratum[stratum].append(count(evidence))
    totals = [0, 0]
    for label, members in chosen.items():
        lengths = sorted(lengths_by_stratum[label])
        number = len(members)
        totals[0] += sum(lengths[:number])
        totals[1] += sum(lengths[len(lengths) - number :])
    return times * totals[0], times * totals[1]
