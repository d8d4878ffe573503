"""Distinct paths, difficulty-weighted draws, random twins, and repetition at one budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Evidence, Pool, Response
from gapft_harness.stages.selection.choosing import group_by_state
from tests.plugins.test_replacing_replay import chosen
from tests.pools import evidence
from tests.pools import pool as plain

K = 8
SEEDS = st.sampled_from([13, 21, 73])
#: The texts of each problem's passing samples, by number: few, so that some are the same.
TEXTS = st.lists(st.sampled_from(["a", "b", "a b", "a  b", "c"]), min_size=1, max_size=5)


def problem(name: str, state: Any, texts: list[str], samples: int | None = K) -> Evidence:
    """With passing samples of these texts; of a solved one the first is the greedy response."""
    start = GREEDY if state == "G" else 0
    made = [Response(name, start + i, text, (1, 2 + i), "stop", 0) for i, text in enumerate(texts)]
    each = [replace(evidence(name, state), response=response) for response in made]
    passing = len(texts) - (state == "G")
    kept = replace(each[0], passing_samples=passing, samples=samples)
    each = [replace(kept, response=of.response) for of in each]
    return replace(kept, read_verified=lambda _: tuple(each))


def pool(solved: list[list[str]], recovered: list[list[str]]) -> Pool:
    found = [problem(f"G{i:02}", "G", texts) for i, texts in enumerate(solved)]
    found += [problem(f"S{i:02}", "S", texts) for i, texts in enumerate(recovered)]
    return group_by_state([*found, replace(evidence("U0", "U"), samples=K)])


def text(of: Evidence) -> str:
    assert of.response is not None
    return " ".join(of.response.text.split())


def variety(texts: list[str]) -> int:
    return len({" ".join(t.split()) for t in texts})


@given(
    st.lists(TEXTS, max_size=6), st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 4),
    SEEDS, st.data(),
)  # fmt: skip
def test_distinct_paths_fills_slots_with_different_responses_of_few_problems(
    solved: list[list[str]], recovered: list[list[str]], paths: int, seed: int, data: Any
) -> None:
    of = pool(solved, recovered)
    most = sum(min(paths, variety(texts)) for texts in (*solved, *recovered))
    n = data.draw(st.integers(1, most))
    found = chosen(of, "distinct_paths", n, seed, paths=paths)
    assert len(found) == n
    of_each = Counter(e.problem_id for e in found)
    assert max(of_each.values()) <= paths
    assert len({(e.problem_id, text(e)) for e in found}) == n
    whole = {e.problem_id: min(paths, variety([r.text for r in e.verified])) for e in of.verified}
    short = [i for i, count in of_each.items() if count < whole[i]]
    assert len(short) <= 1, "only the last problem may have paths left"
    assert chosen(of, "distinct_paths", most, seed, paths=paths)[:n] == found
    with pytest.raises(UserError, match=f"cannot draw {most + 1} examples"):
        chosen(of, "distinct_paths", most + 1, seed, paths=paths)


def test_paths_of_one_state_and_another_draw_under_each_seed() -> None:
    of = pool([["a", "b", "c"]] * 9, [["a", "b", "c"]] * 9)
    assert {e.state for e in chosen(of, "distinct_paths", 9, 13, states="S")} == {"S"}
    drawn = {
        tuple(sorted({e.problem_id for e in chosen(of, "distinct_paths", 9, seed, paths=3)}))
        for seed in range(20)
    }
    assert len(drawn) > 15


def test_difficulty_weighted_draws_in_proportion_to_the_fail_rate() -> None:
    """The first of a draw by weights 7, 6, 4 and 0 eighths, under 3,000 seeds."""
    of = pool([], [["a"], ["a"] * 2, ["a"] * 4, ["a"] * 8])
    first = Counter(chosen(of, "difficulty_weighted", 1, s)[0].problem_id for s in range(3000))
    for name, weight in (("S00", 7), ("S01", 6), ("S02", 4)):
        right = 3000 * weight / 17
        sd = (right * (1 - weight / 17)) ** 0.5
        assert abs(first[name] - right) < 5 * sd, first
    assert "S03" not in first, "all of its samples pass"
    assert len(chosen(of, "difficulty_weighted", 3, 13)) == 3
    with pytest.raises(UserError, match=r"cannot draw 4 examples.* 1 too few"):
        chosen(of, "difficulty_weighted", 4, 13)


def test_the_second_draw_goes_by_the_weights_that_are_left() -> None:
    """Without replacement: P(pair) by the weights 7, 6 and 4, in either order."""
    of = pool([], [["a"], ["a"] * 2, ["a"] * 4])
    weight = {"S00": 7, "S01": 6, "S02": 4}
    drawn = Counter(
        frozenset(e.problem_id for e in chosen(of, "difficulty_weighted", 2, seed))
        for seed in range(3000)
    )
    for a, b in combinations(weight, 2):
        p, q = weight[a], weight[b]
        right = 3000 * (p / 17 * q / (17 - p) + q / 17 * p / (17 - q))
        assert abs(drawn[frozenset((a, b))] - right) < 5 * 28, drawn


@pytest.mark.parametrize("samples", [None, 0, 3])
def test_fail_rates_need_every_sample(samples: int | None) -> None:
    solved = problem("G0", "G", ["a"], samples)
    of = group_by_state(
        [solved, problem("S0", "S", ["a"]), replace(evidence("U0", "U"), samples=K)]
    )
    with pytest.raises(UserError, match=r"needs the same number of samples.*stop: never"):
        chosen(of, "difficulty_weighted", 1, 13)


@given(st.integers(0, 9), st.integers(1, 9), SEEDS, st.data())
def test_a_random_twin_draws_as_many_from_the_states_it_is_told(
    solved: int, recovered: int, seed: int, data: Any
) -> None:
    of = plain(solved, recovered)
    states = data.draw(st.sampled_from(["S", "GS", "SG"] + (["G"] if solved else [])))
    most = sum({"G": solved, "S": recovered}[state] for state in states)
    n = data.draw(st.integers(1, most))
    found = chosen(of, "random_twin", n, seed, states=states)
    assert len({e.problem_id for e in found}) == len(found) == n
    assert {e.state for e in found} <= set(states)
    assert len(chosen(of, "random_twin", 3 * most, seed, states=states, repeats=True)) == 3 * most
    with pytest.raises(UserError, match="1 too few"):
        chosen(of, "random_twin", most + 1, seed, states=states)


def test_the_twin_of_distinct_paths_has_every_different_response_as_a_candidate() -> None:
    of = pool([["a", "a"]], [["b", "c", "d"]])
    found = chosen(of, "random_twin", 4, 13, responses="verified")
    assert {(e.problem_id, text(e)) for e in found} == {
        ("G00", "a"), ("S00", "b"), ("S00", "c"), ("S00", "d")
    }  # fmt: skip
    first = Counter(
        text(chosen(of, "random_twin", 1, s, responses="verified")[0]) for s in range(2000)
    )
    assert all(abs(first[t] - 500) < 5 * 20 for t in "abcd"), first


@given(st.integers(1, 20), st.integers(1, 4), SEEDS, st.data())
def test_repeated_fills_the_same_slots_with_fewer_of_gapfts_problems(
    recovered: int, times: int, seed: int, data: Any
) -> None:
    of = plain(2, recovered)
    problems = data.draw(st.integers(1, recovered))
    found = chosen(of, "repeated", problems * times, seed, times=times)
    assert Counter(e.problem_id for e in found) == {
        e.problem_id: times for e in chosen(of, "gapft", problems, seed)
    }
    if times > 1:
        with pytest.raises(UserError, match=f"set budget.n .* multiple of {times}"):
            chosen(of, "repeated", problems * times + 1, seed, times=times)


@pytest.mark.parametrize(
    ("selector", "params", "expected"),
    [
        ("distinct_paths", {"paths": 0}, "paths is 0, expected an integer from 1"),
        ("distinct_paths", {"states": "GU"}, "states is 'GU', expected 'G', 'S' or 'GS'"),
        ("difficulty_weighted", {"states": ""}, "states is '', expected"),
        ("random_twin", {"states": ["S"]}, r"states is \['S'\], expected"),
        ("random_twin", {"responses": "all"}, "responses is 'all', expected 'kept' or 'verified'"),
        ("repeated", {"times": 0}, "times is 0, expected an integer from 1"),
        ("repeated", {"times": True}, "times is True, expected"),
    ],
)
def test_a_parameter_that_is_none(selector: str, params: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        chosen(pool([["a"]], [["b"]]), selector, 1, 13, **params)
