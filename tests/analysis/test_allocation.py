"""Coverage against repetition: replicates against hand calculation, and exact laws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gapft_harness.analysis import resampling
from gapft_harness.analysis.allocation import (
    RATES,
    estimate_allocation,
    replicate_allocation,
)
from gapft_harness.analysis.estimate import estimate_share
from gapft_harness.analysis.resampling import Scores
from gapft_harness.core.errors import GapftError
from gapft_harness.core.streams import Stream

NUMBERS = st.integers(0, 2**32 - 1)
STREAM = Stream(0, "test")


def stack(halves, diffuse, concentrated, seeds=None, ids=None):
    """Build scores from arrays of shape (S, P)."""
    rows = {"A": halves == "A", "B": halves == "B"}
    rows |= {"diffuse": diffuse, "concentrated": concentrated}
    n_seeds, items = halves.shape
    return Scores(
        rows,
        np.arange(n_seeds) if seeds is None else seeds,
        np.array([f"q{i:03}" for i in range(items)]) if ids is None else ids,
    )


def sample_arrays(number, n_seeds=3, half=6, items=20):
    """Draw every seed's halves from the same items, with random decisions."""
    rng = np.random.default_rng(number)
    halves = np.full((n_seeds, items), "", dtype="U1")
    for row in halves:
        chosen = rng.permutation(items)[: 2 * half]
        row[chosen[:half]], row[chosen[half:]] = "A", "B"
    return halves, rng.random(halves.shape) < 0.7, rng.random(halves.shape) < 0.5


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert (first[name] == second[name]).all()


@given(NUMBERS)
@settings(max_examples=25, deadline=None)
def test_replicates_ignore_order_of_problems_and_seeds(number):
    arrays = sample_arrays(number)
    rng = np.random.default_rng(number)
    n_seeds, items = arrays[0].shape
    ids, seeds = np.array([f"q{i}" for i in range(items)]), np.array([42, 13, 21])
    rows, order = rng.permutation(n_seeds), rng.permutation(items)
    moved = [array[rows][:, order] for array in arrays]
    assert_same(
        replicate_allocation(stack(*arrays, seeds, ids), 60, STREAM),
        replicate_allocation(stack(*moved, seeds[rows], ids[order]), 60, STREAM),
    )


@given(NUMBERS)
@settings(max_examples=25, deadline=None)
def test_identical_models_give_exactly_zero(number):
    """Gain and loss are 0 in every replicate, to the last bit."""
    halves, diffuse, _ = sample_arrays(number)
    drawn = replicate_allocation(stack(halves, diffuse, diffuse), 60, STREAM)
    for name in drawn.keys() - RATES.keys():
        assert (drawn[name] == 0).all()


def compute_replicate_by_hand(arrays, item_weights, seed_weights):
    """Compute one replicate's rates with fractions and loops; None if a half has no weight."""
    halves, *models = arrays
    passed_by_model = dict(zip(("diffuse", "concentrated"), models, strict=True))
    means = {}
    for name, (half, model) in RATES.items():
        total = Fraction(0)
        for s, row in enumerate(halves):
            weights = [int(w) * (h == half) for w, h in zip(item_weights, row, strict=True)]
            if not sum(weights):
                return None
            passed = passed_by_model[model][s]
            correct = sum(w for w, v in zip(weights, passed, strict=True) if v)
            total += Fraction(correct, sum(weights)) * int(seed_weights[s])
        means[name] = total / len(halves)
    return means


@given(NUMBERS)
@settings(max_examples=15, deadline=None)
def test_replicates_match_hand_calculation(number):
    """Halves of 2: some draws miss a half entirely; the next draw replaces them."""
    arrays = sample_arrays(number, half=2, items=12)
    n_seeds, items = arrays[0].shape
    count, stream = 20, Stream(number, "test")
    drawn = replicate_allocation(stack(*arrays), count, stream)
    seed_weights = resampling.draw_seed_weights(n_seeds, count, stream)
    generator = stream.child("items").generator()
    expected, refused = [], 0
    while len(expected) < count:
        weights = np.bincount(generator.integers(items, size=items), minlength=items)
        by_hand = compute_replicate_by_hand(arrays, weights, seed_weights[len(expected)])
        if by_hand is None:
            refused += 1
        else:
            expected.append(by_hand)
    assume(refused)
    for name in RATES:
        assert drawn[name] == pytest.approx([float(means[name]) for means in expected], abs=1e-12)
    contrasts = [
        (means["a_B_1"] - means["a_B_0"] - means["a_A_2"] + means["a_A_1"]) / 2
        for means in expected
    ]
    assert drawn["contrast"] == pytest.approx([*map(float, contrasts)], abs=1e-12)


def test_intervals_have_a_width_without_variation():
    """Six problems of each half and seed, all right after any exposure; 12 of them in all."""
    halves = np.array([list("AAABBB" + "......"), list("......" + "AAABBB")])
    solved = np.ones(halves.shape, dtype=bool)
    estimates = estimate_allocation(stack(halves, solved, halves == "A"), 50, STREAM)
    assert {name: float(estimate.value) for name, estimate in estimates.items()} == {
        "a_A_1": 1, "a_A_2": 1, "a_B_0": 0, "a_B_1": 1,
        "coverage_gain": 1, "repetition_loss": 0, "contrast": 0.5,
    }  # fmt: skip
    assert all(estimate.low < estimate.high for estimate in estimates.values())
    share = estimate_share(1, 6)
    assert (estimates["a_A_1"].low, estimates["a_A_1"].high) == (share.low, share.high)
    gain, loss = estimates["coverage_gain"], estimates["repetition_loss"]
    assert estimates["contrast"].low == (gain.low - loss.high) / 2


def test_rejects_halves_too_small_to_resample():
    """12 seeds with halves of one problem each: a draw almost never includes all 24."""
    halves = np.full((12, 24), "", dtype="U1")
    for seed, row in enumerate(halves):
        row[2 * seed], row[2 * seed + 1] = "A", "B"
    solved = np.ones(halves.shape, dtype=bool)
    with pytest.raises(GapftError, match="too small to resample"):
        estimate_allocation(stack(halves, solved, solved), 3, STREAM)
