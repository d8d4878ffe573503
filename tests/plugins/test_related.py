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
from tests.plugins.test_replacing_replay import select_examples
from tests.pools import build_evidence
from tests.pools import build_pool as plain

K = 8
SEEDS = st.sampled_from([13, 21, 73])
#: Texts of each problem's passing samples; few values, so that some are equal.
TEXTS = st.lists(st.sampled_from(["a", "b", "a b", "a  b", "c"]), min_size=1, max_size=5)


def build_problem(name: str, state: Any, texts: list[str], samples: int | None = K) -> Evidence:
    """Build a problem with passing samples; a solved problem's first is the greedy response."""
    start = GREEDY if state == "G" else 0
    responses = [
        Response(name, start + i, text, (1, 2 + i), "stop", 0) for i, text in enumerate(texts)
    ]
    verified = [replace(build_evidence(name, state), response=response) for response in responses]
    passing = len(texts) - (state == "G")
    evidence_ = replace(verified[0], passing_samples=passing, samples=samples)
    verified = [replace(evidence_, response=problem.response) for problem in verified]
    return replace(evidence_, read_verified=lambda _: tuple(verified))


def build_pool(solved: list[list[str]], recovered: list[list[str]]) -> Pool:
    problems = [build_problem(f"G{i:02}", "G", texts) for i, texts in enumerate(solved)]
    problems += [build_problem(f"S{i:02}", "S", texts) for i, texts in enumerate(recovered)]
    return group_by_state([*problems, replace(build_evidence("U0", "U"), samples=K)])


def normalize_text(example: Evidence) -> str:
    assert example.response is not None
    return " ".join(example.response.text.split())


def count_distinct(texts: list[str]) -> int:
    return len({" ".join(t.split()) for t in texts})


@given(
    st.lists(TEXTS, max_size=6), st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 4),
    SEEDS, st.data(),
)  # fmt: skip
def test_distinct_paths_draws_distinct_responses(
    solved: list[list[str]], recovered: list[list[str]], paths: int, seed: int, data: Any
) -> None:
    pool = build_pool(solved, recovered)
    most = sum(min(paths, count_distinct(texts)) for texts in (*solved, *recovered))
    n = data.draw(st.integers(1, most))
    selection = select_examples(pool, "distinct_paths", n, seed, paths=paths)
    assert len(selection) == n
    counts = Counter(e.problem_id for e in selection)
    assert max(counts.values()) <= paths
    assert len({(e.problem_id, normalize_text(e)) for e in selection}) == n
    most_paths = {
        e.problem_id: min(paths, count_distinct([r.text for r in e.verified]))
        for e in pool.verified
    }
    short = [i for i, count in counts.items() if count < most_paths[i]]
    assert len(short) <= 1, "only the last problem may have paths left"
    assert select_examples(pool, "distinct_paths", most, seed, paths=paths)[:n] == selection
    with pytest.raises(UserError, match=f"cannot draw {most + 1} examples"):
        select_examples(pool, "distinct_paths", most + 1, seed, paths=paths)


def test_distinct_paths_follows_states_and_seed() -> None:
    pool = build_pool([["a", "b", "c"]] * 9, [["a", "b", "c"]] * 9)
    assert {e.state for e in select_examples(pool, "distinct_paths", 9, 13, states="S")} == {"S"}
    drawn = {
        tuple(
            sorted(
                {e.problem_id for e in select_examples(pool, "distinct_paths", 9, seed, paths=3)}
            )
        )
        for seed in range(20)
    }
    assert len(drawn) > 15


def test_difficulty_weighted_follows_fail_rates() -> None:
    """First draws under 3,000 seeds follow the weights 7/8, 6/8, 4/8 and 0."""
    pool = build_pool([], [["a"], ["a"] * 2, ["a"] * 4, ["a"] * 8])
    first = Counter(
        select_examples(pool, "difficulty_weighted", 1, s)[0].problem_id for s in range(3000)
    )
    for name, weight in (("S00", 7), ("S01", 6), ("S02", 4)):
        right = 3000 * weight / 17
        sd = (right * (1 - weight / 17)) ** 0.5
        assert abs(first[name] - right) < 5 * sd, first
    assert "S03" not in first, "all of its samples pass"
    assert len(select_examples(pool, "difficulty_weighted", 3, 13)) == 3
    with pytest.raises(UserError, match=r"cannot draw 4 examples.* 1 too few"):
        select_examples(pool, "difficulty_weighted", 4, 13)


def test_difficulty_weighted_draws_without_replacement() -> None:
    """P(pair) follows the weights 7, 6 and 4, in either order."""
    pool = build_pool([], [["a"], ["a"] * 2, ["a"] * 4])
    weight = {"S00": 7, "S01": 6, "S02": 4}
    drawn = Counter(
        frozenset(e.problem_id for e in select_examples(pool, "difficulty_weighted", 2, seed))
        for seed in range(3000)
    )
    for a, b in combinations(weight, 2):
        p, q = weight[a], weight[b]
        right = 3000 * (p / 17 * q / (17 - p) + q / 17 * p / (17 - q))
        assert abs(drawn[frozenset((a, b))] - right) < 5 * 28, drawn


@pytest.mark.parametrize("samples", [None, 0, 3])
def test_fail_rates_require_complete_samples(samples: int | None) -> None:
    solved = build_problem("G0", "G", ["a"], samples)
    pool = group_by_state(
        [solved, build_problem("S0", "S", ["a"]), replace(build_evidence("U0", "U"), samples=K)]
    )
    with pytest.raises(UserError, match=r"needs the same number of samples.*stop: never"):
        select_examples(pool, "difficulty_weighted", 1, 13)


@given(st.integers(0, 9), st.integers(1, 9), SEEDS, st.data())
def test_random_twin_draws_from_given_states(
    solved: int, recovered: int, seed: int, data: Any
) -> None:
    pool = plain(solved, recovered)
    states = data.draw(st.sampled_from(["S", "GS", "SG"] + (["G"] if solved else [])))
    most = sum({"G": solved, "S": recovered}[state] for state in states)
    n = data.draw(st.integers(1, most))
    selection = select_examples(pool, "random_twin", n, seed, states=states)
    assert len({e.problem_id for e in selection}) == len(selection) == n
    assert {e.state for e in selection} <= set(states)
    assert (
        len(select_examples(pool, "random_twin", 3 * most, seed, states=states, repeats=True))
        == 3 * most
    )
    with pytest.raises(UserError, match="1 too few"):
        select_examples(pool, "random_twin", most + 1, seed, states=states)


def test_random_twin_draws_from_distinct_responses() -> None:
    pool = build_pool([["a", "a"]], [["b", "c", "d"]])
    selection = select_examples(pool, "random_twin", 4, 13, responses="verified")
    assert {(e.problem_id, normalize_text(e)) for e in selection} == {
        ("G00", "a"), ("S00", "b"), ("S00", "c"), ("S00", "d")
    }  # fmt: skip
    first = Counter(
        normalize_text(select_examples(pool, "random_twin", 1, s, responses="verified")[0])
        for s in range(2000)
    )
    assert all(abs(first[t] - 500) < 5 * 20 for t in "abcd"), first


@given(st.integers(1, 20), st.integers(1, 4), SEEDS, st.data())
def test_repeated_repeats_fewer_gapft_problems(
    recovered: int, times: int, seed: int, data: Any
) -> None:
    pool = plain(2, recovered)
    problems = data.draw(st.integers(1, recovered))
    selection = select_examples(pool, "repeated", problems * times, seed, times=times)
    assert Counter(e.problem_id for e in selection) == {
        e.problem_id: times for e in select_examples(pool, "gapft", problems, seed)
    }
    if times > 1:
        with pytest.raises(UserError, match=f"set budget.n .* multiple of {times}"):
            select_examples(pool, "repeated", problems * times + 1, seed, times=times)


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
def test_rejects_invalid_parameter(selector: str, params: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        select_examples(build_pool([["a"]], [["b"]]), selector, 1, 13, **params)
