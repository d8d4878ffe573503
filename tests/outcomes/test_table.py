"""The table of verdicts gives the states of the states stage, for all or some samples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import classify_state
from gapft_harness.outcomes.verdicts import Verdicts

K = 4
problems = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=K, max_size=K)), min_size=1
)


@given(problems, st.integers(0, K - 1), st.integers(1, K))
def test_window_uses_only_its_samples(
    problem_verdicts: list[tuple[bool, list[bool]]], first: int, k: int
) -> None:
    greedy, passed = map(np.array, zip(*problem_verdicts, strict=True))
    table = Verdicts.of(greedy, passed).select_samples(first, k)
    states = [
        classify_state(greedy_passed, samples[first : first + k])
        for greedy_passed, samples in problem_verdicts
    ]
    assert table.states.tolist() == states
    assert table.sizes == {state: states.count(state) for state in ("G", "S", "U")}
    assert table.compute_pass_at(table.k) == Fraction(
        sum(any(samples[first : first + k]) for _, samples in problem_verdicts),
        len(problem_verdicts),
    )
