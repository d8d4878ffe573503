"""Answer redistribution: the null against enumeration, what it depends on, and its p value."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations as orders
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis import redistribution
from gapft_harness.analysis.redistribution import NO_ANSWER, compute_null_rates, redistribute
from gapft_harness.core.streams import Stream


def draw_answers(rng, seeds=2, items=12, options=4):
    """Answers by chance, some right for a reason; states and source answers too."""
    golds = rng.integers(options, size=items)
    answers = rng.integers(-1, options, size=(seeds, items))
    answers[rng.random((seeds, items)) < 0.4] = -2
    answers = np.where(answers == -2, golds, answers)
    return answers, golds, rng.integers(-1, options, size=items), rng.choice([*"GSU"], size=items)


def run_redistribution(answers, golds, source, states, *, ids=None, permutations=200, number=0):
    names = np.array([f"q{i:05}" for i in range(len(golds))]) if ids is None else ids
    return redistribute(
        np.atleast_2d(answers),
        np.asarray(golds),
        np.asarray(source),
        np.asarray(states),
        item_ids=names,
        permutations=permutations,
        stream=Stream(number, "test"),
    )


def enumerate_right_counts(answers, golds, source, states, group):
    """Right answers in a group under every combination of permutations within strata."""
    members = np.flatnonzero(states == group)
    strata = [members[source[members] == answer] for answer in np.unique(source[members])]
    return [
        sum(
            int((answers[:, np.array(order)] == golds[stratum]).sum())
            for stratum, order in zip(strata, chosen, strict=True)
        )
        for chosen in product(*(orders(stratum) for stratum in strata))
    ]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_null_and_observed_match_enumeration(number):
    answers, golds, source, states = draw_answers(np.random.default_rng(number), items=9)
    results = run_redistribution(answers, golds, source, states, permutations=1)
    assert compute_null_rates(answers, golds, source, states) == {
        g: result.null for g, result in results.items()
    }
    for group, result in results.items():
        counts = enumerate_right_counts(answers, golds, source, states, group)
        decisions = result.items * len(answers)
        assert result.null == Fraction(sum(counts), len(counts) * decisions)
        assert result.observed == Fraction(
            int((answers == golds)[:, states == group].sum()), decisions
        )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
def test_p_value_matches_enumeration(number):
    answers, golds, source, states = draw_answers(np.random.default_rng(number), items=9)
    for group, result in run_redistribution(
        answers, golds, source, states, permutations=4000
    ).items():
        counts = enumerate_right_counts(answers, golds, source, states, group)
        right = result.observed * result.items * len(answers)
        share = sum(count >= right for count in counts) / len(counts)
        assert float(result.p_value) == pytest.approx(share, abs=0.04)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_ignores_order_and_answer_names(number):
    rng = np.random.default_rng(number)
    answers, golds, source, states = draw_answers(rng, seeds=3)
    ids = np.array([f"q{i:03}" for i in range(len(golds))])
    first = run_redistribution(answers, golds, source, states, ids=ids)
    items, seeds = rng.permutation(len(golds)), rng.permutation(3)
    moved = answers[seeds][:, items]
    assert (
        run_redistribution(moved, golds[items], source[items], states[items], ids=ids[items])
        == first
    )
    renamed = np.where(answers == NO_ANSWER, NO_ANSWER, answers + 7)
    assert (
        run_redistribution(renamed, golds + 7, np.where(source < 0, source, source + 7), states)
        == first
    )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_constant_answers_and_lone_problems_are_uninformative(number):
    rng = np.random.default_rng(number)
    _, golds, source, states = draw_answers(rng)
    constant = np.full((2, len(golds)), 1)
    lone = np.arange(len(golds))
    for result in (
        *run_redistribution(constant, golds, source, states).values(),
        *run_redistribution(rng.integers(4, size=(2, len(golds))), golds, lone, states).values(),
    ):
        assert result.null == result.observed
        assert result.p_value == 1
        assert result.fixed == result.items


def test_null_matches_hand_calculation():
    """Ten problems, one stratum, five A and five B, all answered right: the null is a half."""
    golds = np.array([0] * 5 + [1] * 5)
    results = run_redistribution(golds, golds, np.zeros(10), ["S"] * 10, permutations=20_000)
    assert set(results) == {"S"}
    assert (results["S"].observed, results["S"].null, results["S"].fixed) == (1, Fraction(1, 2), 0)
    assert float(results["S"].p_value) == pytest.approx(1 / comb(10, 5), rel=0.25)


def test_redistributes_within_state_and_source_answer():
    """Each stratum answers one letter; redistributed over all, half would be wrong."""
    golds = np.array([0, 0, 1, 1, 2, 2])
    assert run_redistribution(golds, golds, [0, 0, 1, 1, 2, 2], ["S"] * 6)["S"].null == 1
    results = run_redistribution(golds, golds, np.zeros(6), ["S", "S", "S", "S", "U", "U"])
    assert (results["S"].null, results["U"].null) == (Fraction(1, 2), 1)


def test_seeds_are_permuted_together():
    """Seeds that agree are one piece of evidence: the p value is that of one of them."""
    rng = np.random.default_rng(5)
    golds = rng.integers(4, size=40)
    single = np.where(rng.random(40) < 0.3, golds, rng.integers(4, size=40))
    source, states = np.zeros(40), ["U"] * 40
    alone = run_redistribution(single, golds, source, states, permutations=2000)["U"]
    assert (
        run_redistribution(np.stack([single] * 5), golds, source, states, permutations=2000)["U"]
        == alone
    )
    assert 0.001 < float(alone.p_value) < 0.9


def test_missing_answer_is_wrong_and_redistributed():
    result = run_redistribution([0, NO_ANSWER], [0, 0], [0, 0], ["S", "S"])["S"]
    assert (result.observed, result.null, result.p_value) == (Fraction(1, 2), Fraction(1, 2), 1)


def test_chunk_size_does_not_change_draws(monkeypatch):
    rng = np.random.default_rng(2)
    answers = draw_answers(rng, items=60)
    answers = (
        rng.integers(4, size=(2, 60)),
        *answers[1:],
    )  # by chance alone, so that p is no extreme
    whole = run_redistribution(*answers)
    monkeypatch.setattr(redistribution, "_CHUNK_VALUES", 7)
    assert run_redistribution(*answers) == whole
    assert run_redistribution(*answers, number=1) != whole


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"states": np.array([*"SSUUU"])}, "shapes"),
        ({"answers": np.zeros((0, 4), dtype=int)}, "shapes"),
        ({"ids": np.array([*"aabc"])}, "distinct"),
        ({"golds": np.zeros(5, dtype=int)}, "shapes"),
        ({"permutations": 0}, "at least one permutation"),
    ],
)
def test_rejects_bad_shapes_and_ids(change, why):
    four = {"answers": np.zeros((1, 4), dtype=int), "golds": np.zeros(4, dtype=int)}
    arguments = {**four, "source": np.zeros(4, dtype=int), "states": np.array([*"SSUU"])} | change
    with pytest.raises(ValueError, match=why):
        run_redistribution(**arguments)
