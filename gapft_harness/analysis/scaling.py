"""Choose an adapter's scale by a calibration constraint (the paper's appendix on adapter scaling).

u_α is a one-sided Wilson upper bound for ρ_G(α): the share of the problems solved by the source
that the adapter at scale α fails. A scale is chosen if it and all smaller scales are safe, and it
is the largest such scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The nonzero scales of the paper, ascending. Scale 0 is the source.
SCALES = (0.25, 0.5, 0.75, 1.0)

#: The fixed scale that chosen scales are compared with.
FIXED = 0.75


def compute_upper_bound(regressed: int, solved: int, level: float) -> float:
    """Compute the one-sided Wilson upper bound of a regression rate.

    Args:
        regressed: the number of solved problems that the adapter fails.
        solved: the number of problems that the source solves.
        level: the allowed probability that the bound is below the true rate.

    Returns:
        The bound; 1 if ``solved`` is 0, since there is no evidence against any rate.

    Raises:
        ValueError: ``regressed`` is outside 0..``solved``, or the level is outside (0, 1).
    """
    if not 0 <= regressed <= solved:
        raise ValueError(f"regressed must be within 0..{solved}, found {regressed}")
    if not 0 < level < 1:
        raise ValueError(f"the level must be between 0 and 1, found {level}")
    if not solved:
        return 1.0
    from scipy.stats import binomtest

    test = binomtest(regressed, solved, alternative="less")
    interval = test.proportion_ci(confidence_level=1 - level, method="wilson")
    return float(interval.high)


def compute_simultaneous_bounds(
    regressed: Sequence[int], solved: int, level: float
) -> tuple[float, ...]:
    """Compute simultaneous upper bounds of several rates, with Bonferroni's correction.

    Args:
        regressed: the number of regressed problems at each scale.
        solved: the number of problems that the source solves.
        level: the allowed error probability of all bounds together, divided equally among them.
    """
    return tuple(compute_upper_bound(count, solved, level / len(regressed)) for count in regressed)


def choose_scale(bounds: Mapping[float, float], tolerance: float) -> float:
    """Choose the largest scale such that it and every smaller scale are safe; 0 if there is none.

    Args:
        bounds: nonzero scale α -> u_α, in any order.
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
