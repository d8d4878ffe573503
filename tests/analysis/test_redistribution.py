"""Answer redistribution: the null rates against enumeration."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations as orders
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.redistribution import compute_null_rates


def draw_answers(rng, seeds=2, items=12, options=4):
    """Answers by chance, some right for a reason; states and source answers too."""
    golds = rng.integers(options, size=items)
    answers = rng.integers(-1, options, size=(seeds, items))
    answers[rng.random((seeds, items)) < 0.4] = -2
    answers = np.where(answers == -2, golds, answers)
    return answers, golds, rng.integers(-1, options, size=items), rng.choice([*"GSU"], size=items)


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
def test_null_matches_enumeration(number):
    answers, golds, source, states = draw_answers(np.random.default_rng(number), items=9)
    rates = compute_null_rates(answers, golds, source, states)
    assert rates.keys() == {*states.tolist()} - {"G"}
    for group, rate in rates.items():
        counts = enumerate_right_counts(answers, golds, source, states, group)
        decisions = int((states == group).sum()) * len(answers)
        assert rate == Fraction(sum(counts), len(counts) * decisions)
