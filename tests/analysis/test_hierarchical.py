"""Replicates of a mean over environments: invariance to order, and their spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.resampling import Scores, resample_environments
from gapft_harness.core.streams import Stream

STREAM = Stream(0, "test")


def build_environment(values: np.ndarray) -> Scores:
    seeds, items = values.shape
    return Scores(
        {"chosen": values, "one": np.zeros_like(values), "two": 2 * values},
        np.arange(seeds, dtype=np.int64),
        np.array([f"q{i:04}" for i in range(items)]),
    )


def resample_differences(environments: list[Scores], replicates: int) -> dict[str, np.ndarray]:
    named = {f"e{i}": scores for i, scores in enumerate(environments)}
    return resample_environments(
        named, "chosen", ("one", "two"), replicates=replicates, stream=STREAM
    )


def draw_environments(rng: np.random.Generator, environments: int) -> list[Scores]:
    return [
        build_environment(rng.integers(-1, 2, (int(rng.integers(1, 4)), int(rng.integers(1, 9)))))
        for i in range(environments)
    ]


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_ignores_order(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    environments = draw_environments(rng, count)
    shuffled = {}
    for i in rng.permutation(count):
        scores = environments[i]
        rows, columns = rng.permutation(len(scores.seeds)), rng.permutation(len(scores.items))
        moved = {name: values[rows][:, columns] for name, values in scores.rows.items()}
        shuffled[f"e{i}"] = Scores(moved, scores.seeds[rows], scores.items[columns])
    before = resample_differences(environments, 50)
    after = resample_environments(shuffled, "chosen", ("one", "two"), replicates=50, stream=STREAM)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_all_differences_are_drawn_together(seed: int, count: int) -> None:
    """The second difference is the negated first one, in every replicate too."""
    replicates = resample_differences(draw_environments(np.random.default_rng(seed), count), 50)
    np.testing.assert_allclose(replicates["one"], -replicates["two"], atol=1e-15)
    assert np.all(np.abs(replicates["one"]) <= 1)


#: Rows of seeds, the number of environments with these rows, and the variance of the mean.
SPREADS = {
    "items of one environment": ([[1] * 30 + [0] * 60 + [-1] * 10], 1, 0.36 / 100),
    # reusing the resample of an environment that is drawn twice would give 3/4 of one's variance
    "equal environments": ([[1] * 5 + [0] * 5], 2, 0.25 / 10 / 2),
    # separate draws of items would give a third
    "identical seeds": ([[1] * 40 + [0] * 60] * 3, 1, 0.24 / 100),
    "different seeds": ([[1] * 20, [0] * 20, [0] * 20, [0] * 20], 1, 0.1875 / 4),
}


@pytest.mark.parametrize("name", SPREADS)
def test_variance_has_its_closed_form(name: str) -> None:
    rows, environments, variance = SPREADS[name]
    values = np.array(rows)
    replicates = resample_differences([build_environment(values)] * environments, 20_000)["one"]
    assert replicates.mean() == pytest.approx(values.mean(), abs=4 * (variance / 20_000) ** 0.5)
    assert replicates.var() == pytest.approx(variance, rel=0.05)
