"""What K_eq can be where some points of the curve alone are known, as the paper prints them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise


def k_equivalent_bounds(
    points: Mapping[int, Fraction], samples: int, pass_at_1: Fraction
) -> tuple[int, int]:
    """What K_eq can be where the source's curve is known at some k alone.

    Pass@k rises with k by less and less, from 0 at k = 0. So between two known points it is on
    their chord or above, and beyond them on the chord's extension or below.

    Args:
        points: Pass@k by k, of some k within 1..K.
        samples: K.
        pass_at_1: the condition's Pass@1.

    Returns:
        The least and the largest K_eq that some such curve gives.

    Raises:
        ValueError: a k outside 1..K, or points that no such curve goes through.
    """
    curve = sorted({0: Fraction(0), **points}.items())
    if not all(0 <= k <= samples for k, _ in curve):
        raise ValueError(f"k must be within 1..{samples}, found {sorted(points)}")
    slopes = [(b - a) / (k - j) for (j, a), (k, b) in pairwise(curve)]
    if any(slope < 0 for slope in slopes) or any(a < b for a, b in pairwise(slopes)):
        raise ValueError(f"Pass@k rises by less and less with k, found {points}")
    least = most = 0
    for k in range(1, samples + 1):
        lowest, highest = _interpolate(curve, slopes, k)
        least = k if highest <= pass_at_1 else least
        most = k if lowest <= pass_at_1 else most
    return least, most


def _interpolate(
    curve: list[tuple[int, Fraction]], slopes: list[Fraction], k: int
) -> tuple[Fraction, Fraction]:
    """The lowest and highest Pass@k of a curve through known points, the first at 0."""
    index = max(place for place, (j, _) in enumerate(curve) if j <= k)
    j, value = curve[index]
    if j == k:
        return value, value
    highest = value + slopes[index - 1] * (k - j) if index else Fraction(1)
    if index + 1 == len(curve):
        return value, min(highest, Fraction(1))
    after, ahead = curve[index + 1]
    highest = min(highest, ahead)
    if index + 1 < len(slopes):
        highest = min(highest, ahead - slopes[index + 1] * (after - k))
    return value + slopes[index] * (k - j), highest
