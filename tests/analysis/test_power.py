"""The power of paired tests, by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gapft_harness.analysis.power import (
    compute_data_factor,
    compute_power,
    find_detectable_effect,
)


def test_power_matches_hand_calculation() -> None:
    """z = 1.959964 and 0.841621; Connor's formula, solved for the effect."""
    pi, items = 331 / 1367, 1367
    effect = find_detectable_effect(seeds=1, items=items, discordance=pi)
    assert effect == pytest.approx(0.0373, abs=2e-4)
    needed = (1.959964 * math.sqrt(pi) + 0.841621 * math.sqrt(pi - effect**2)) ** 2 / effect**2
    assert needed == pytest.approx(items, rel=1e-5)
    three = find_detectable_effect(seeds=3, items=items, discordance=pi)
    as_items = find_detectable_effect(seeds=1, items=3 * items, discordance=pi)
    assert three == pytest.approx(as_items), "a seed is as good as items"
    assert find_detectable_effect(seeds=1, items=5, discordance=0.2) is None
    assert compute_power(three, seeds=3, items=items, discordance=pi) == pytest.approx(
        0.8, abs=1e-6
    )
    with pytest.raises(ValueError, match="seeds"):
        compute_power(0.1, seeds=0, items=10, discordance=0.2)
    with pytest.raises(ValueError, match="within"):
        compute_power(0.3, seeds=1, items=10, discordance=0.2)


def test_seeds_average_out_their_differences() -> None:
    """Differences of +1, 0, -1, independent under every seed."""
    items, pi, seeds = 400, 0.25, 4
    effect = find_detectable_effect(seeds=seeds, items=items, discordance=pi)
    assert effect is not None
    rng = np.random.default_rng(3)
    signs = [1, -1, 0]
    chance = [(pi + effect) / 2, (pi - effect) / 2, 1 - pi]
    d = rng.choice(signs, (1500, items, seeds), p=chance).mean(axis=2)
    z = d.mean(axis=1) / (d.std(axis=1, ddof=1) / math.sqrt(items))
    assert np.mean(z > 1.96) == pytest.approx(0.8, abs=0.05)


@given(pi=st.floats(0.05, 0.6), share=st.floats(0.05, 0.3), items=st.integers(50, 5_000))
def test_data_factor_reaches_power(pi: float, share: float, items: int) -> None:
    """Compare with the power of McNemar's test; both are approximations for small effects."""
    effect = share * pi
    width = 2 * float(stats.norm.ppf(0.975)) * math.sqrt((pi - effect**2) / items)
    times = compute_data_factor(effect, width)
    assert times is not None
    needed = math.ceil(times * items)
    assert compute_power(effect, seeds=1, items=needed, discordance=pi) == pytest.approx(
        0.8, abs=0.03
    )
    assert compute_data_factor(effect, 2 * width) == pytest.approx(4 * times)
    assert compute_data_factor(0.0, width) is None
