"""The partition into G, S and U (Section 3.2), of all samples of a search and of a window."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import GREEDY, Response, Verdict
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory.tables import JudgedResponse, ProblemState
from gapft_harness.stages.search.states import Window, compute_state

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


def build_state(
    greedy: bool, samples: list[tuple[bool, int]], rule: str, window: Window
) -> ProblemState:
    entry = load_plugins().get("response rule", rule)
    return compute_state("p", build_judged(greedy, samples), len(samples), entry, window)


@given(outcomes, rules)
def test_state_follows_from_the_verdicts(outcome: Any, rule: str) -> None:
    greedy, samples = outcome
    state = build_state(greedy, samples, rule, Window(0, K))
    passing = [index for index, (passed, _) in enumerate(samples) if passed]
    assert state.state == ("G" if greedy else "S" if passing else "U")
    assert state.passing_samples == len(passing)
    assert state.first_success == min(passing, default=None)
    shortest = min(passing, key=lambda index: samples[index][1], default=None)
    kept = {"first": state.first_success, "shortest": shortest}[rule]
    assert state.kept_index == (GREEDY if greedy else kept)


@given(outcomes, rules, st.integers(0, K - 1), st.data())
def test_window_equals_search_of_its_samples(
    outcome: Any, rule: str, offset: int, data: st.DataObject
) -> None:
    greedy, samples = outcome
    k = data.draw(st.integers(1, K - offset))
    in_window = build_state(greedy, samples, rule, Window(offset, k))
    alone = build_state(greedy, samples[offset : offset + k], rule, Window(0, k))
    assert (in_window.state, in_window.samples) == (alone.state, k)
    assert in_window.passing_samples == alone.passing_samples
    moved = None if alone.first_success is None else alone.first_success + offset
    assert in_window.first_success == moved
    if alone.state == "S":
        assert alone.kept_index is not None
        assert in_window.kept_index == alone.kept_index + offset
    else:
        assert in_window.kept_index == alone.kept_index
