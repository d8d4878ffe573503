"""The table of verdicts: its states are those of the states stage, by all samples or by some."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import classify_state
from gapft_harness.verdicts.table import Verdicts

K = 4
problems = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=K, max_size=K)), min_size=1
)


@given(problems, st.integers(0, K - 1), st.integers(1, K))
def test_window_uses_only_its_samples(
    drawn: list[tuple[bool, list[bool]]], first: int, k: int
) -> None:
    greedy, passed = map(np.array, zip(*drawn, strict=True))
    found = Verdicts.of(greedy, passed).select_samples(first, k)
    states = [classify_state(one, samples[first : first + k]) for one, samples in drawn]
    assert found.states.tolist() == states
    assert found.sizes == {state: states.count(state) for state in ("G", "S", "U")}
    assert found.compute_pass_at(found.k) == Fraction(
        sum(any(samples[first : first + k]) for _, samples in drawn), len(drawn)
    )
