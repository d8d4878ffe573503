"""Coverage against repetition: hand-worked cases, exact laws, and properties of replicates."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gapft_harness.analysis import resampling
from gapft_harness.analysis.allocation import (
    Successes,
    average_successes,
    compute_successes,
    replicate_successes,
)
from gapft_harness.analysis.estimate import estimate_mean
from gapft_harness.core.errors import GapftError
from gapft_harness.core.streams import Stream

NAMES = ("a_1", "a_2", "b_0", "b_1")


def parse_flags(text):
    return np.array([c == "1" for c in text])


def split_letters(text):
    return np.array(list(text))


def draw_replicates(halves, diffuse, concentrated, ids=None, seeds=None, replicates=300, number=0):
    n_seeds, items = halves.shape
    return replicate_successes(
        halves,
        diffuse,
        concentrated,
        item_ids=np.array([f"q{i:03}" for i in range(items)]) if ids is None else ids,
        seeds=np.arange(n_seeds) if seeds is None else seeds,
        replicates=replicates,
        stream=Stream(number, "test"),
    )


def sample_halves(number, n_seeds=3, half=6, items=20):
    """Draw every seed's halves from the same items, with random decisions."""
    rng = np.random.default_rng(number)
    halves = np.full((n_seeds, items), "", dtype="U1")
    for row in halves:
        chosen = rng.permutation(items)[: 2 * half]
        row[chosen[:half]], row[chosen[half:]] = "A", "B"
    return halves, rng.random(halves.shape) < 0.7, rng.random(halves.shape) < 0.5


def test_rates_match_hand_calculation():
    """A: 3 of 4 once, 2 of 4 twice. B: 1 of 4 unseen, 4 of 4 once. The last two are outside."""
    successes = compute_successes(
        split_letters("AAAABBBB.."), parse_flags("1110111111"), parse_flags("1010010000")
    )
    assert (successes.a_1, successes.a_2) == (Fraction(3, 4), Fraction(2, 4))
    assert (successes.b_0, successes.b_1) == (Fraction(1, 4), Fraction(4, 4))
    assert successes.coverage_gain == Fraction(3, 4)
    assert successes.repetition_loss == Fraction(-1, 4)
    assert successes.contrast == Fraction(1, 2) * Fraction(3, 4) - Fraction(1, 2) * Fraction(-1, 4)
    assert successes.contrast == Fraction(1, 2)


def test_mean_weights_seeds_equally():
    """Halves of 1 and of 3: the mean of 1 and 1/3, not 2 of 4."""
    first = compute_successes(split_letters("AB"), parse_flags("10"), parse_flags("00"))
    second = compute_successes(
        split_letters("AAABBB"), parse_flags("100000"), parse_flags("000111")
    )
    mean = average_successes([first, second])
    assert mean.a_1 == Fraction(2, 3)
    assert mean.b_0 == Fraction(1, 2)
    assert mean.contrast == (first.contrast + second.contrast) / 2


decisions = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@given(decisions, st.data())
def test_equal_halves_contrast_is_mean_difference(half_a, data):
    size = len(half_a)
    half_b = data.draw(
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=size, max_size=size)
    )
    pairs = [*half_a, *half_b]
    diffuse, concentrated = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    successes = compute_successes(split_letters("A" * size + "B" * size), diffuse, concentrated)
    difference = diffuse.astype(int) - concentrated.astype(int)
    assert successes.contrast == Fraction(int(difference.sum()), 2 * size)


@given(st.integers(0, 2**32 - 1))
def test_swapping_conditions_flips_sign(number):
    halves, diffuse, concentrated = (array[0] for array in sample_halves(number))
    forward = compute_successes(halves, diffuse, concentrated)
    backward = compute_successes(halves, concentrated, diffuse)
    assert backward.contrast == -forward.contrast


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_replicates_ignore_order_of_problems_and_seeds(number):
    arrays = sample_halves(number)
    rng = np.random.default_rng(number)
    n_seeds, items = arrays[0].shape
    ids, seeds = np.array([f"q{i}" for i in range(items)]), np.array([42, 13, 21])
    first = draw_replicates(*arrays, ids, seeds, replicates=60)
    rows, order = rng.permutation(n_seeds), rng.permutation(items)
    moved = [array[rows][:, order] for array in arrays]
    other = draw_replicates(*moved, ids[order], seeds[rows], replicates=60)
    for name in NAMES:
        assert (getattr(other, name) == getattr(first, name)).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_replicates_ignore_decisions_outside_halves(number):
    halves, diffuse, concentrated = sample_halves(number)
    outside = halves == ""
    first = draw_replicates(halves, diffuse, concentrated, replicates=60)
    other = draw_replicates(halves, diffuse ^ outside, concentrated ^ outside, replicates=60)
    for name in NAMES:
        assert (getattr(other, name) == getattr(first, name)).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_identical_models_give_exactly_zero(number):
    """Gain and loss are 0 in every replicate, to the last bit."""
    halves, diffuse, _ = sample_halves(number)
    replicates = draw_replicates(halves, diffuse, diffuse, replicates=60)
    for values in (replicates.coverage_gain, replicates.repetition_loss, replicates.contrast):
        assert (values == 0).all()


def compute_replicate_by_hand(arrays, item_weights, seed_weights):
    """Compute one replicate's rates with fractions and loops; None if a half has no weight."""
    halves, diffuse, concentrated = arrays
    sources = {"a_1": ("A", diffuse), "a_2": ("A", concentrated)}
    sources |= {"b_0": ("B", concentrated), "b_1": ("B", diffuse)}
    means = {}
    for name, (half, passed) in sources.items():
        rates = []
        for s in range(len(halves)):
            weights = [
                int(w) if h == half else 0 for w, h in zip(item_weights, halves[s], strict=True)
            ]
            if not sum(weights):
                return None
            correct = sum(w for w, v in zip(weights, passed[s], strict=True) if v)
            rates.append(Fraction(correct, sum(weights)))
        total = sum(r * int(w) for r, w in zip(rates, seed_weights, strict=True))
        means[name] = total / len(halves)
    return Successes(**means)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_replicates_skip_draws_with_empty_half(number):
    """Halves of 2: some draws miss a half entirely; the next draw replaces them."""
    arrays = sample_halves(number, half=2, items=12)
    n_seeds, items = arrays[0].shape
    count = 20
    replicates = draw_replicates(*arrays, replicates=count, number=number)
    stream = Stream(number, "test")
    seed_weights = resampling.draw_seed_weights(n_seeds, count, stream)
    generator = stream.child("items").generator()
    expected, refused = [], 0
    while len(expected) < count:
        (weights,) = resampling._draw_weights(items, 1, generator)
        by_hand = compute_replicate_by_hand(arrays, weights[0], seed_weights[len(expected)])
        if by_hand is None:
            refused += 1
        else:
            expected.append(by_hand)
    assume(refused)
    for name in NAMES:
        by_hand = [float(getattr(successes, name)) for successes in expected]
        assert getattr(replicates, name) == pytest.approx(by_hand, abs=1e-12)


def test_chunk_size_does_not_change_draws(monkeypatch):
    arrays = sample_halves(
        3, half=2, items=12
    )  # small halves: some draws are discarded in every chunk
    whole = draw_replicates(*arrays)
    monkeypatch.setattr(resampling, "_CHUNK_VALUES", 12 * 7)
    chunked = draw_replicates(*arrays)
    for name in NAMES:
        assert (getattr(chunked, name) == getattr(whole, name)).all()


def test_spread_matches_difference_of_means():
    """One seed, independent decisions: the variances of the halves give the contrast's sd."""
    rng = np.random.default_rng(5)
    half = 400
    halves = np.array([["A"] * half + ["B"] * half])
    diffuse, concentrated = rng.random((2, 1, 2 * half)) < np.array([[[0.7]], [[0.5]]])
    replicates = draw_replicates(halves, diffuse, concentrated, replicates=4000)
    by_half = (diffuse.astype(float) - concentrated)[0].reshape(2, half)
    expected = np.sqrt((by_half.var(axis=1) / half).sum()) / 2
    assert replicates.contrast.std() == pytest.approx(expected, rel=0.05)
    exact = float(compute_successes(halves[0], diffuse[0], concentrated[0]).contrast)
    assert replicates.contrast.mean() == pytest.approx(exact, abs=4 * expected / np.sqrt(4000))
    interval = estimate_mean(0, replicates.contrast)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * expected, rel=0.06)


def test_seeds_share_problem_weights():
    """Both seeds have the same problems, so averaging over them does not reduce the variance.

    If items were drawn separately for each seed, the variance would be half.
    """
    rng = np.random.default_rng(6)
    halves = np.array([["A"] * 100 + ["B"] * 100] * 2)
    diffuse = np.repeat(rng.random((1, 200)) < 0.5, 2, axis=0)
    concentrated = np.zeros_like(diffuse)
    both = draw_replicates(halves, diffuse, concentrated, replicates=4000)
    single = draw_replicates(halves[:1], diffuse[:1], concentrated[:1], replicates=4000)
    assert both.contrast.std() == pytest.approx(single.contrast.std(), rel=0.05)


def test_rejects_halves_too_small_to_resample():
    """12 seeds with halves of one problem each: a draw almost never includes all 24."""
    halves = np.full((12, 24), "", dtype="U1")
    for seed, row in enumerate(halves):
        row[2 * seed], row[2 * seed + 1] = "A", "B"
    decided = np.ones(halves.shape, dtype=bool)
    with pytest.raises(GapftError, match="too small to resample"):
        draw_replicates(halves, decided, decided, replicates=3)


@pytest.mark.parametrize("half", ["A", "B"])
def test_rejects_empty_half(half):
    halves = np.array([[half] * 4])
    with pytest.raises(ValueError, match="has no problem"):
        compute_successes(halves[0], np.ones(4, dtype=bool), np.ones(4, dtype=bool))
    with pytest.raises(ValueError, match="has no problem"):
        draw_replicates(halves, np.ones((1, 4), dtype=bool), np.ones((1, 4), dtype=bool))


def test_rejects_bad_shapes_ids_and_seeds():
    halves, diffuse, concentrated = sample_halves(1)
    with pytest.raises(ValueError, match="one half and two decisions"):
        compute_successes(halves[0], diffuse[0, 1:], concentrated[0])
    with pytest.raises(ValueError, match="shapes"):
        draw_replicates(halves, diffuse[:, 1:], concentrated)
    with pytest.raises(ValueError, match="distinct"):
        draw_replicates(halves, diffuse, concentrated, seeds=np.array([1, 1, 2]))
    with pytest.raises(ValueError, match="distinct"):
        draw_replicates(halves, diffuse, concentrated, ids=np.array(["q"] * halves.shape[1]))
