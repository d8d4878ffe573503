"""Bootstrap intervals: invariances, and their spread where a closed form is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis import resampling
from gapft_harness.analysis.estimate import (
    compute_p_value,
    estimate_difference,
)
from gapft_harness.analysis.resampling import Scores, average_contrasts, resample
from gapft_harness.core.streams import Stream


def draw_with_defaults(passed, source=None, ids=None, seeds=None, replicates=400, nested=False):
    _, n_seeds, items = passed.shape
    rows = dict(zip("abcd", passed, strict=False))
    source = np.zeros(items, dtype=bool) if source is None else source
    rows["source"] = np.broadcast_to(source, (n_seeds, len(source)))
    scores = Scores(
        rows,
        seeds=np.arange(n_seeds) if seeds is None else seeds,
        items=np.array([f"q{i:04}" for i in range(items)]) if ids is None else ids,
    )
    return resample(scores, replicates=replicates, stream=Stream(0, "test"), nested=nested)


def require_no_difference(resampled, a, b):
    """Require equal sums in every replicate, and an interval that finite data leave."""
    assert not resampled.subtract(a, b).any()
    estimate = resampled.contrast(a, b)
    assert (estimate.value, estimate.p) == (0, 1.0)
    assert -estimate.low == estimate.high > 0


def stack_sums(resampled):
    return np.stack([*resampled.sums.values()])


def test_nested_draws_are_paired_by_seed():
    rng = np.random.default_rng(0)
    first = rng.random((1, 3, 17)) < 0.5
    replicates = draw_with_defaults(np.concatenate([first, first]), nested=True)
    require_no_difference(replicates, "a", "b")
    second = rng.random((1, 3, 17)) < 0.5
    original = draw_with_defaults(np.concatenate([first, second]), nested=True)
    shuffled = draw_with_defaults(
        np.concatenate([first, second])[:, ::-1], seeds=np.array([2, 1, 0]), nested=True
    )
    assert (stack_sums(original) == stack_sums(shuffled)).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_replicates_ignore_order(number):
    rng = np.random.default_rng(number)
    passed, source = rng.random((3, 4, 23)) < 0.6, rng.random(23) < 0.5
    ids, seeds = np.array([f"q{i}" for i in range(23)]), np.array([13, 21, 73, 5])
    first = draw_with_defaults(passed, source, ids, seeds, replicates=50)
    items, order, arms = rng.permutation(23), rng.permutation(4), rng.permutation(3)
    other = draw_with_defaults(
        passed[arms][:, order][:, :, items], source[items], ids[items], seeds[order], replicates=50
    )
    assert (stack_sums(other) == stack_sums(first)[[*arms, 3]]).all()
    assert other.contrast("a", "b") == first.contrast("abc"[arms[0]], "abc"[arms[1]])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_condition_against_its_copy_is_zero(number):
    rng = np.random.default_rng(number)
    outcomes = rng.random((1, 3, 17)) < 0.5
    replicates = draw_with_defaults(np.concatenate([outcomes, outcomes]))
    require_no_difference(replicates, "a", "a")
    require_no_difference(replicates, "a", "b")


def test_equal_conditions_in_all_cells_leave_the_mean_of_the_intervals():
    rng = np.random.default_rng(3)
    cells = []
    for items in (40, 10):
        source = rng.random(items) < 0.5
        cells.append(draw_with_defaults(np.broadcast_to(source, (1, 3, items)), source))
    mean = average_contrasts(cells, "a", "source")
    highs = [cell.contrast("a", "source").high for cell in cells]
    assert (mean.value, mean.p) == (0, 1.0)
    assert -mean.low == mean.high == pytest.approx(sum(highs) / 2)
    assert 0 < highs[0] < mean.high < highs[1]


def test_difference_without_variation_has_no_p_value():
    """All problems became right: the fixed lower limit of p would ignore how few they are."""
    cells = [draw_with_defaults(np.ones((1, 1, items), bool)) for items in (1, 50)]
    for estimate in (*(cell.contrast("a", "source") for cell in cells),
                     average_contrasts(cells, "a", "source")):  # fmt: skip
        assert (estimate.value, estimate.p) == (1, None)
    assert not cells[0].contrast("a", "source").excludes_zero
    assert cells[1].contrast("a", "source").excludes_zero


def test_chunk_size_does_not_change_draws(monkeypatch):
    rng = np.random.default_rng(2)
    passed = rng.random((2, 3, 31)) < 0.5
    whole = draw_with_defaults(passed)
    monkeypatch.setattr(resampling, "_CHUNK_VALUES", 31 * 7)
    assert (stack_sums(draw_with_defaults(passed)) == stack_sums(whole)).all()


#: The share of items that each seed solves, the number of items, whether items are drawn for each
#: seed, and the variance of the mean rate.
SPREADS = {
    "one seed": ([0.3], 200, False, 0.3 * 0.7 / 200),
    "one seed all wrong, one all right": ([0, 1], 50, False, 0.25 / 2),
    # separate draws of items would give a fifth
    "identical seeds": ([0.5] * 5, 100, False, 0.25 / 100),
    # drawn for each seed, 200 items of four seeds look like 800
    "identical seeds, nested": ([0.5] * 4, 200, True, 0.25 / 200 / 4),
}


@pytest.mark.parametrize("name", SPREADS)
def test_variance_has_its_closed_form(name):
    shares, items, nested, variance = SPREADS[name]
    passed = np.array([[np.arange(items) < round(items * share) for share in shares]])
    replicates = draw_with_defaults(passed, replicates=20_000, nested=nested)
    rates = replicates.sums["a"] / replicates.scores.decisions
    assert rates.var() == pytest.approx(variance, rel=0.05)


@given(st.lists(st.integers(-3, 3) | st.integers(-10_000, 10_000), min_size=1, max_size=200))
def test_p_value_agrees_with_interval(counts):
    """Includes interpolated bounds of exactly zero, as between -39 and 1 of 2,000 replicates."""
    values = np.array(counts)
    for scattered in (values, np.concatenate([np.repeat(values, 40), np.full(1999, 7)])):
        p_value, per = compute_p_value(scattered), 7_001
        if len(scattered) < 40:
            assert p_value is None
        else:
            assert (p_value < 0.05) == estimate_difference(0, scattered, per).excludes_zero
            assert p_value == compute_p_value(-scattered) == compute_p_value(scattered / 8)


def test_p_value_is_twice_tail_share():
    rng = np.random.default_rng(3)
    values = rng.normal(1.3, 1, 20_000)
    assert compute_p_value(values) == pytest.approx(2 * (values <= 0).mean(), abs=2e-4)
    assert compute_p_value(np.abs(values)) == 2 / 20_001
    assert compute_p_value(np.zeros(100)) == 1
