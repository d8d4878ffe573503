"""The noise of two runs of one model."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.noise import RunNoise

ITEMS = st.integers(1, 2_000)


@cache
def compute_limit(measured: int, changed: int, items: int, seeds: int) -> float:
    return RunNoise(measured, changed, 1.0).compute_limit(items, seeds=seeds)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
@pytest.mark.parametrize(("measured", "items"), [(50, 1_000), (200, 200), (1_000, 50)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_noise_is_rarely_exceeded_by_noise(
    share: float, measured: int, items: int, seeds: int
) -> None:
    """Two runs of one model: an item is right with a probability that is the same in both."""
    generator = np.random.default_rng(0)
    right = (1 - np.sqrt(1 - 2 * share)) / 2  # two draws differ with probability ``share``
    exceeded, studies = 0, 2_000
    for _ in range(studies):
        first, second = generator.random((2, measured)) < right
        limit = compute_limit(measured, int((first != second).sum()), items, seeds)
        before = generator.random(items) < right
        after = (generator.random((seeds, items)) < right).mean(axis=0)
        difference = float((after - before).mean())
        exceeded += abs(difference) > limit
    assert exceeded / studies <= 0.05


@given(ITEMS, ITEMS, st.floats(0.01, 100), st.data())
def test_limit_scales_with_metric_and_shrinks_with_items(
    measured: int, items: int, scale: float, data: st.DataObject
) -> None:
    changed = data.draw(st.integers(0, measured))
    noise = RunNoise(measured, changed, 1.0)
    limit = noise.compute_limit(items)
    assert limit > 0
    scaled = RunNoise(measured, changed, scale**2).compute_limit(items)
    assert scaled == pytest.approx(scale * limit)
    assert noise.compute_limit(4 * items) == pytest.approx(limit / 2)
    assert noise.compute_limit(items, seeds=2) < limit
    if changed < measured:
        assert RunNoise(measured, changed + 1, 1.0).compute_limit(items) >= limit
    unchanged = RunNoise(measured, 0, None)
    assert unchanged.compute_limit(items) == unchanged.compute_limit(items, mean_square=1.0)
