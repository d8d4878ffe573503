"""Paired tests against scipy, enumeration and definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gapft_harness.analysis.paired import adjust_p_values, flip_signs, mcnemar
from gapft_harness.analysis.resampling import resample_means
from gapft_harness.core.streams import Stream

STREAM = Stream(7, "test")


@given(st.lists(st.sampled_from([-2.0, -0.3, 0.0, 0.1, 0.2, 1.0, 3.0]), min_size=1, max_size=10))
def test_enumerates_few_sign_flips(values: list[float]) -> None:
    flipped = flip_signs(np.array(values), flips=2**10, stream=STREAM)
    totals = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in product((1, -1), repeat=len(values))
    ]
    expected = np.mean([abs(t) >= abs(sum(values)) - 1e-9 for t in totals])
    assert flipped.exhaustive
    assert flipped.p_value == pytest.approx(expected)
    assert flip_signs(-np.array(values), flips=2**10, stream=STREAM) == flipped


def test_drawn_sign_flips_approximate_exact_p_value() -> None:
    """30 gained and 14 lost items of one seed: McNemar's test is exact."""
    values = np.array([1] * 30 + [-1] * 14 + [0] * 100)
    drawn = flip_signs(values, flips=20_000, stream=STREAM)
    assert not drawn.exhaustive
    assert drawn.p_value == pytest.approx(mcnemar(30, 14), abs=0.003)
    assert drawn == flip_signs(-values, flips=20_000, stream=STREAM)
    with pytest.raises(ValueError, match="at least one"):
        flip_signs(values, flips=0, stream=STREAM)


def test_drawn_p_value_is_positive_and_uniform_under_null() -> None:
    assert flip_signs(np.full(200, 3), flips=99, stream=STREAM).p_value == 1 / 100
    random = np.random.default_rng(5)
    drawn = [
        flip_signs(
            random.integers(-2, 3, size=60), flips=199, stream=STREAM.child(str(number))
        ).p_value
        for number in range(400)
    ]
    assert 0.02 < np.mean(np.array(drawn) <= 0.05) < 0.09


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_matches_step_down_procedure(p_values: list[float]) -> None:
    adjusted = adjust_p_values(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected, left = set(), sorted(range(len(p_values)), key=lambda i: p_values[i])
        while left and p_values[left[0]] * len(left) <= level:
            rejected.add(left.pop(0))
        ties = {i for i in range(len(p_values)) if adjusted[i] <= level}
        assert ties == rejected


def resample_naively(columns: np.ndarray, clusters: np.ndarray, replicates: int) -> np.ndarray:
    """Draw clusters one by one in loops."""
    random, names = np.random.default_rng(1), sorted(set(clusters.tolist()))
    means = []
    for _ in range(replicates):
        rows: list[int] = []
        for name in random.choice(names, size=len(names)):
            rows += np.flatnonzero(clusters == name).tolist()
        means.append(columns[rows].mean(axis=0))
    return np.array(means)


@pytest.mark.parametrize("decimals", [0, 6], ids=["few kinds", "all different"])
def test_resampled_means_match_naive_cluster_bootstrap(decimals: int) -> None:
    random = np.random.default_rng(3)
    columns = random.normal(0.4, 1, size=(96, 2)).round(decimals).clip(-1, 1)
    clusters = np.repeat(np.arange(48), 2) if decimals else np.arange(96)
    kinds = len(np.unique(columns, axis=0))
    assert (kinds * 8 <= 96) == (decimals == 0)
    drawn = resample_means(columns, clusters, replicates=4000, stream=STREAM)
    expected = resample_naively(columns, clusters, 4000)
    assert drawn.shape == (4000, 2)
    for column in range(2):
        assert stats.ks_2samp(drawn[:, column], expected[:, column]).pvalue > 1e-3
    # one draw for both columns
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(np.corrcoef(expected.T)[0, 1], abs=0.08)
    assert (resample_means(-columns, clusters, replicates=40, stream=STREAM) == -drawn[:40]).all()
