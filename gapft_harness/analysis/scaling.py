"""The scale of an adapter by a calibration constraint (the paper's appendix on adapter scaling).

u_α is a one-sided Wilson upper bound for ρ_G(α), the share of the problems that the source solves
that the adapter at scale α fails. The chosen scale is the largest that is safe, and every smaller
one with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The nonzero scales of the paper, ascending. Scale 0 is the source.
SCALES = (0.25, 0.5, 0.75, 1.0)

#: The fixed scale that the chosen ones are compared with.
FIXED = 0.75


def upper_bound(regressed: int, solved: int, level: float) -> float:
    """The one-sided Wilson upper bound of a regression rate.

    Args:
        regressed: of the solved problems, how many are wrong now.
        solved: problems that the source solves.
        level: the chance that the bound is allowed to lie below the true rate.

    Returns:
        The bound; 1 where ``solved`` is 0, since nothing then speaks against any rate.

    Raises:
        ValueError: counts that are none, or a level outside (0, 1).
    """
    if not 0 <= regressed <= solved:
        raise ValueError(f"{regressed} of {solved} solved problems cannot be wrong")
    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, found {level}")
    if not solved:
        return 1.0
    from scipy.stats import binomtest

    test = binomtest(regressed, solved, alternative="less")
    interval = test.proportion_ci(confidence_level=1 - level, method="wilson")
    return float(interval.high)


def simultaneous_bounds(regressed: Sequence[int], solved: int, level: float) -> tuple[float, ...]:
    """Upper bounds of several rates that hold together, by Bonferroni's correction.

    Args:
        regressed: a count for each scale.
        solved: problems that the source solves.
        level: of the whole family; each bound gets an equal part.
    """
    return tuple(upper_bound(count, solved, level / len(regressed)) for count in regressed)


def choose_scale(bounds: Mapping[float, float], tolerance: float) -> float:
    """The largest scale that is safe for every smaller scale; 0 if none is.

    Args:
        bounds: u_α by nonzero scale α, in any order.
        tolerance: the highest bound that counts as safe.

    Returns:
        The largest α with max over 0 < β ≤ α of u_β at most ``tolerance``, else 0.
    """
    chosen = 0.0
    for scale in sorted(bounds):
        if not bounds[scale] <= tolerance:
            break
        chosen = scale
    return chosen
