"""States that rest on a window of a search's samples: laws, files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Response, Verdict
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import JudgedResponse, ProblemState, read_states
from gapft_harness.stages.search.states import (
    Window,
    compute_state,
    compute_states,
    write_split_states,
)
from tests.test_states import OUTCOMES, searched

K = 8
outcomes = st.tuples(
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=K, max_size=K),
)
rules = st.sampled_from(["shortest", "first"])


def judged(greedy: bool, samples: list[tuple[bool, int]]) -> list[JudgedResponse]:
    """A problem's responses; a sample is whether it passed, and its tokens."""
    return [
        JudgedResponse(
            Response("p", index, "", tuple(range(tokens)), "stop", 0),
            Verdict("pass" if passed else "fail"),
        )
        for index, (passed, tokens) in enumerate([(greedy, 1), *samples], start=GREEDY)
    ]


def state(of: Any, rule: str, window: Window | None, *, stop: bool = False) -> ProblemState:
    return compute_state(
        "p", judged(*of), K, stop, load_plugins().get("response rule", rule), window
    )


@given(outcomes, rules)
def test_the_window_of_all_samples_has_the_states_of_the_search(of: Any, rule: str) -> None:
    assert state(of, rule, Window(0, K)) == state(of, rule, None)


@given(outcomes, rules, st.integers(0, K - 1), st.data())
def test_a_window_is_a_search_of_its_samples_alone(
    of: Any, rule: str, offset: int, data: Any
) -> None:
    k = data.draw(st.integers(1, K - offset))
    found = state(of, rule, Window(offset, k))
    alone = compute_state(
        "p",
        judged(of[0], of[1][offset : offset + k]),
        k,
        False,
        load_plugins().get("response rule", rule),
    )
    assert (found.state, found.samples) == (alone.state, k)
    assert found.passing_samples == alone.passing_samples
    moved = None if alone.first_success is None else alone.first_success + offset
    assert found.first_success == moved
    if found.state == "S":
        assert alone.kept_index is not None
        assert found.kept_index == alone.kept_index + offset
    else:
        assert found.kept_index == alone.kept_index


@given(outcomes, st.integers(1, K - 1), st.integers(0, K - 2), st.data())
def test_nested_windows_keep_what_is_solved_and_recovered(
    of: Any, k: int, offset: int, data: Any
) -> None:
    k = min(k, K - offset - 1)
    smaller, larger = (state(of, "first", Window(offset, size)) for size in (k, k + 1))
    assert (smaller.state == "G") == (larger.state == "G") == of[0]
    assert smaller.state != "S" or larger.state == "S"
    if offset == 0 and smaller.state == "S":
        assert smaller.kept_index == larger.kept_index  # the first success stays the first


@given(outcomes, st.integers(0, K - 2), st.data())
def test_adjacent_windows_recover_together_what_their_union_recovers(
    of: Any, offset: int, data: Any
) -> None:
    both = data.draw(st.integers(2, K - offset))
    first = data.draw(st.integers(1, both - 1))
    parts = [
        state(of, "first", Window(offset, first)),
        state(of, "first", Window(offset + first, both - first)),
    ]
    whole = state(of, "first", Window(offset, both))
    assert (whole.state == "S") == ("S" in {part.state for part in parts})
    assert (whole.state == "G") == all(part.state == "G" for part in parts)
    assert whole.passing_samples == sum(part.passing_samples for part in parts)


@given(outcomes)
def test_a_search_that_stops_early_has_the_states_of_its_nested_budgets(of: Any) -> None:
    """Whatever was left out: budgets that begin at sample 0 need no more than was drawn."""
    solved = [of[0], *(passed for passed, _ in of[1])]
    drawn = of[1][: solved.index(True)] if True in solved else of[1]
    for k in range(1, K + 1):
        early = state((of[0], drawn), "first", Window(0, k), stop=True)
        whole = state(of, "first", Window(0, k))
        assert early.state == whole.state
        if whole.state != "G":
            assert (early.kept_index, early.first_success) == (
                whole.kept_index,
                whole.first_success,
            )


def test_samples_that_an_early_stop_left_out_are_refused_by_name() -> None:
    of = (False, [(False, 1), (True, 1)])
    with pytest.raises(UserError, match=r"problem p: samples 5–8 are not available: search "):
        state(of, "first", Window(4, 4), stop=True)
    with pytest.raises(UserError, match=r"stopped after 2 \(search\.stop: first_pass\)"):
        state(of, "first", Window(1, 2), stop=True)
    assert state(of, "first", Window(1, 1), stop=True).state == "S"


def test_the_states_of_a_window_have_a_table_of_their_own(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", "shortest", OUTCOMES)
    write_split_states(str(run.path), "pool")
    whole = (run.path / layout.states_path("pool")).read_bytes()
    counts = write_split_states(str(run.path), "pool", window=Window(2, 2))
    assert counts == {"states": {"G": 2, "S": 3, "U": 1}}
    found = [*read_states(run.path / "pool/states/2-2.parquet")]
    assert found == [*compute_states(run, "pool", Window(2, 2))]
    kept = {of.problem_id: (of.state, of.first_success, of.kept_index) for of in found}
    assert kept == {
        "early": ("S", 2, 2),
        "late": ("S", 3, 3),
        "tie": ("S", 2, 2),
        "solved": ("G", 2, GREEDY),
        "solved once": ("G", None, GREEDY),
        "missed": ("U", None, None),
    }
    assert (run.path / layout.states_path("pool")).read_bytes() == whole
    assert [*compute_states(run, "pool")] == [*compute_states(run, "pool", Window(0, 4))]


def test_a_window_beyond_the_samples_is_refused(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", "first", OUTCOMES)
    with pytest.raises(UserError, match=r"samples 3–6 are not available: the search drew 4 "):
        write_split_states(str(run.path), "pool", window=Window(2, 4))
    assert not (run.path / "pool/states/2-4.parquet").exists()


@pytest.mark.parametrize("numbers", [(-1, 4), (0, 0), (3, -1)])
def test_what_is_no_window_is_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=r"expected OFFSET-K"):
        Window(*numbers)
