"""States over a window of a search's samples."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import GREEDY, Response, Verdict
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory.tables import JudgedResponse, ProblemState
from gapft_harness.stages.search.states import (
    Window,
    compute_state,
)

K = 8
outcomes = st.tuples(
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=K, max_size=K),
)
rules = st.sampled_from(["shortest", "first"])


def build_judged(greedy: bool, samples: list[tuple[bool, int]]) -> list[JudgedResponse]:
    """Build a problem's responses; a sample is (passed, number of tokens)."""
    return [
        JudgedResponse(
            Response("p", index, "", tuple(range(tokens)), "stop", 0),
            Verdict("pass" if passed else "fail"),
        )
        for index, (passed, tokens) in enumerate([(greedy, 1), *samples], start=GREEDY)
    ]


def build_state(problem_outcomes: Any, rule: str, window: Window) -> ProblemState:
    return compute_state(
        "p",
        build_judged(*problem_outcomes),
        K,
        load_plugins().get("response rule", rule),
        window,
    )


@given(outcomes, rules, st.integers(0, K - 1), st.data())
def test_window_equals_search_of_its_samples(
    problem_outcomes: Any, rule: str, offset: int, data: Any
) -> None:
    k = data.draw(st.integers(1, K - offset))
    window_state = build_state(problem_outcomes, rule, Window(offset, k))
    alone = compute_state(
        "p",
        build_judged(problem_outcomes[0], problem_outcomes[1][offset : offset + k]),
        k,
        load_plugins().get("response rule", rule),
        Window(0, k),
    )
    assert (window_state.state, window_state.samples) == (alone.state, k)
    assert window_state.passing_samples == alone.passing_samples
    moved = None if alone.first_success is None else alone.first_success + offset
    assert window_state.first_success == moved
    if window_state.state == "S":
        assert alone.kept_index is not None
        assert window_state.kept_index == alone.kept_index + offset
    else:
        assert window_state.kept_index == alone.kept_index
