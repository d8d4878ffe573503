"""Bound K_eq from a few points of the Pass@k curve, as the paper prints them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise


def k_equivalent_bounds(
    points: Mapping[int, Fraction], samples: int, pass_at_1: Fraction
) -> tuple[int, int]:
    """Bound K_eq where the source's curve is known only at some k.

    Pass@k is concave in k and 0 at k = 0. So between two known points it is on or above their
    chord, and beyond them on or below the chord's extension.

    Args:
        points: Pass@k by k, for some k within 1..K.
        samples: K.
        pass_at_1: the condition's Pass@1.

    Returns:
        The smallest and largest K_eq that such a curve can give.

    Raises:
        ValueError: a k is outside 1..K, or no such curve goes through the points.
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
    """Return the lowest and highest Pass@k of a curve through known points, the first at 0."""
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
