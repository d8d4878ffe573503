"""Replicates of a mean over environments: invariance to order, and their spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.across_runs import Environment, draw_mean_replicates
from gapft_harness.core.streams import Stream

STREAM = Stream(0, "test")


def build_environment(
    name: str, values: np.ndarray, other: np.ndarray | None = None
) -> Environment:
    seeds, items = values.shape
    return Environment(
        name,
        np.arange(seeds, dtype=np.int64),
        np.array([f"{name}-{i:04}" for i in range(items)]),
        {"one": values, "two": -values if other is None else other},
    )


def draw_environments(rng: np.random.Generator, environments: int) -> list[Environment]:
    return [
        build_environment(
            f"e{i}", rng.integers(-1, 2, (int(rng.integers(1, 4)), int(rng.integers(1, 9))))
        )
        for i in range(environments)
    ]


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_ignores_order(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    environments = draw_environments(rng, count)
    shuffled = []
    for i in rng.permutation(count):
        environment = environments[i]
        rows, columns = (
            rng.permutation(len(environment.seeds)),
            rng.permutation(len(environment.item_ids)),
        )
        moved = {name: values[rows][:, columns] for name, values in environment.differences.items()}
        shuffled.append(
            replace(
                environment,
                seeds=environment.seeds[rows],
                item_ids=environment.item_ids[columns],
                differences=moved,
            )
        )
    before = draw_mean_replicates(environments, replicates=50, stream=STREAM)
    after = draw_mean_replicates(shuffled, replicates=50, stream=STREAM)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_all_differences_are_drawn_together(seed: int, count: int) -> None:
    """The second difference is the negated first one, in every replicate too."""
    replicates = draw_mean_replicates(
        draw_environments(np.random.default_rng(seed), count), replicates=50, stream=STREAM
    )
    np.testing.assert_allclose(replicates["one"], -replicates["two"], atol=1e-15)
    assert np.all(np.abs(replicates["one"]) <= 1)


def test_environments_have_equal_weight() -> None:
    """With constant environments of different sizes, a replicate is the mean of those drawn."""
    values = [1, 0, -1, 1]
    environments = [
        build_environment(f"e{i}", np.full((1 + i % 3, 5 + 40 * i), value))
        for i, value in enumerate(values)
    ]
    replicates = draw_mean_replicates(environments, replicates=20_000, stream=STREAM)["one"]
    assert set(np.round(replicates * 4, 12)) <= set(range(-4, 5))
    assert replicates.mean() == pytest.approx(np.mean(values), abs=0.01)
    assert replicates.var() == pytest.approx(np.var(values) / 4, rel=0.05)


def test_single_environment_spreads_as_its_items() -> None:
    values = np.array([[1] * 30 + [0] * 60 + [-1] * 10])
    replicates = draw_mean_replicates(
        [build_environment("e", values)], replicates=20_000, stream=STREAM
    )["one"]
    assert replicates.mean() == pytest.approx(0.2, abs=0.002)
    assert replicates.var() == pytest.approx(values.var() / 100, rel=0.05)


def test_environment_drawn_twice_is_resampled_twice() -> None:
    """Equal environments have half the variance of one; reusing a resample would give 3/4."""
    values = np.array([[1] * 5 + [0] * 5])
    environments = [build_environment(name, values) for name in ("e", "f")]
    replicates = draw_mean_replicates(environments, replicates=20_000, stream=STREAM)["one"]
    assert replicates.var() == pytest.approx(0.25 / 10 / 2, rel=0.05)


def test_seeds_share_item_draws() -> None:
    """Identical seeds do not reduce the variance; separate draws would give a third of it."""
    values = np.tile(np.array([1] * 40 + [0] * 60), (3, 1))
    replicates = draw_mean_replicates(
        [build_environment("e", values)], replicates=20_000, stream=STREAM
    )["one"]
    assert replicates.var() == pytest.approx(0.24 / 100, rel=0.05)


def test_seeds_are_drawn() -> None:
    values = np.repeat(np.array([[1], [0], [0], [0]]), 20, axis=1)
    replicates = draw_mean_replicates(
        [build_environment("e", values)], replicates=20_000, stream=STREAM
    )["one"]
    assert replicates.var() == pytest.approx(0.1875 / 4, rel=0.05)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([], "at least one environment"),
        ([build_environment("e", np.zeros((1, 2)))] * 2, "distinct names"),
        ([build_environment("e", np.zeros((1, 2)), np.zeros((2, 2)))], "shape"),
        ([build_environment("e", np.zeros((0, 2)))], "distinct"),
        (
            [replace(build_environment("e", np.zeros((2, 1))), seeds=np.array([13, 13]))],
            "distinct",
        ),
    ],
)
def test_rejects_invalid_environments(wrong: list[Environment], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        draw_mean_replicates(wrong, replicates=5, stream=STREAM)
