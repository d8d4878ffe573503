"""The choice of an adapter's scale: its bounds by hand, and its laws."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.scaling import (
    SCALES,
    choose_scale,
    compute_simultaneous_bounds,
    compute_upper_bound,
)

counts = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
levels = st.floats(0.001, 0.3)
bounds = st.lists(st.floats(0, 0.3), min_size=4, max_size=4).map(
    lambda found: dict(zip(SCALES, found, strict=True))
)


@settings(deadline=None, max_examples=60)
@given(counts, levels)
def test_simultaneous_bounds_share_level(count: tuple[int, int], level: float) -> None:
    k, n = count
    assert compute_simultaneous_bounds([k, 0, n, k], n, level) == (
        compute_upper_bound(k, n, level / 4),
        compute_upper_bound(0, n, level / 4),
        compute_upper_bound(n, n, level / 4),
        compute_upper_bound(k, n, level / 4),
    )


def test_ten_percent_needs_46_solved_problems() -> None:
    """docs/training.md says so: with no loss at all the bound is z^2 / (n + z^2)."""
    assert compute_upper_bound(0, 45, 0.05 / 4) > 0.10 >= compute_upper_bound(0, 46, 0.05 / 4)


@settings(deadline=None, max_examples=60)
@given(bounds, st.floats(0, 0.3), st.randoms())
def test_choice_matches_definition(
    bound_by_scale: dict[float, float], tolerance: float, rng: random.Random
) -> None:
    """The definition word for word: max over 0 < beta <= alpha of u_beta at most the tolerance."""
    safe = [
        alpha
        for alpha in SCALES
        if max(bound_by_scale[beta] for beta in SCALES if beta <= alpha) <= tolerance
    ]
    pairs = list(bound_by_scale.items())
    rng.shuffle(pairs)
    assert choose_scale(dict(pairs), tolerance) == max(safe, default=0)


def test_nan_bounds_are_unsafe() -> None:
    assert choose_scale(dict.fromkeys(SCALES, math.nan), 0.10) == 0
