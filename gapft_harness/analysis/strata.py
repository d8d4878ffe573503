"""Training sets that agree in their strata, to at most one problem each.

The paper's table "MATH Matched-Diversity Control": failures and deployed successes are chosen so
that "subject and difficulty strata differ by at most one problem".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from gapft_harness.core.errors import PoolTooSmallError
from gapft_harness.core.streams import Stream

Label = TypeVar("Label", bound=Hashable)

#: By how many problems a stratum may differ.
TOLERANCE = 1


def largest_difference(one: Iterable[Label], other: Iterable[Label]) -> int:
    """By how many problems two sets differ in the stratum where they differ most.

    Args:
        one: the stratum of each of its problems.
        other: the same of the other set.
    """
    a, b = Counter(one), Counter(other)
    return max((abs(a[label] - b[label]) for label in a | b), default=0)


def matched_counts(
    wanted: Mapping[Label, int], available: Mapping[Label, int], stream: Stream
) -> dict[Label, int]:
    """How many problems to take of each stratum, so that a set matches another of the same size.

    A stratum that has enough gives as many as the other set has. For each that lacks one, a stratum
    drawn from those that have one to spare gives one more.

    Args:
        wanted: problems of each stratum in the other set.
        available: problems of each stratum to choose from.
        stream: draws which strata give one more.

    Returns:
        By stratum, those of no problem left out; the sum is that of ``wanted``.

    Raises:
        ValueError: a count below 0.
        PoolTooSmallError: no such set exists; the message names the strata.
    """
    if any(count < 0 for count in (*wanted.values(), *available.values())):
        raise ValueError("a stratum cannot have fewer problems than 0")
    taken = {of: min(count, available.get(of, 0)) for of, count in wanted.items()}
    short = {of: count - taken[of] for of, count in wanted.items() if taken[of] < count}
    if poor := [of for of, missing in short.items() if missing > TOLERANCE]:
        told = ", ".join(
            f"{of}: {available.get(of, 0)} of {wanted[of]}" for of in sorted(poor, key=str)
        )
        raise PoolTooSmallError(
            f"strata may differ by at most {TOLERANCE} problem, and some have too few ({told})"
        )
    spare = [of for of, count in available.items() if count > wanted.get(of, 0)]
    if len(spare) < len(short):
        raise PoolTooSmallError(
            f"{len(short)} strata lack a problem and only {len(spare)} others have one to spare: "
            f"{len(short) - len(spare)} too few"
        )
    for of in sorted(spare, key=lambda of: stream.key(str(of)))[: len(short)]:
        taken[of] = wanted.get(of, 0) + 1
    return {of: count for of, count in taken.items() if count}
