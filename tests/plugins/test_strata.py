"""Selections matched by strata and supervised tokens, and repetition within strata."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Evidence, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.plugins.selectors.exchange import (
    count_supervised_tokens,
)
from gapft_harness.plugins.selectors.strata import divide_counts, match_counts
from gapft_harness.stages.selection.choosing import build_pool
from tests.kit.searched_pool import choose
from tests.pools import build_evidence

SEEDS = st.sampled_from([13, 21, 42])
STREAM = Stream(13, "test")
COUNTS = st.dictionaries(st.sampled_from([("a",), ("b",), ("c",), ("d",)]), st.integers(0, 4))


def match_strata(pool: Pool, n: int, seed: int, **params: Any) -> list[Evidence]:
    return choose(pool, "matched_strata", n, seed, 0, params)


def largest_difference(first: Counter[Any], second: Counter[Any]) -> int:
    return max((abs(first[stratum] - second[stratum]) for stratum in first | second), default=0)


@given(COUNTS, COUNTS)
@settings(max_examples=200)
def test_matches_strata_exactly_where_possible(target: Any, available: Any) -> None:
    size = sum(target.values())
    ranges = [
        [c for c in range(available.get(x, 0) + 1) if abs(c - target.get(x, 0)) <= 1]
        for x in {*target, *available}
    ]
    if not any(sum(counts) == size for counts in product(*ranges)):
        with pytest.raises(UserError):
            match_counts(target, available, STREAM, "s")
        return
    matched = match_counts(target, available, STREAM, "s")
    assert sum(matched.values()) == size
    assert all(0 <= count <= available.get(label, 0) for label, count in matched.items())
    assert largest_difference(Counter(target), Counter(matched)) <= 1
    if all(available.get(label, 0) >= count for label, count in target.items()):
        assert matched == target
    reversed_counts = [dict(reversed(counts.items())) for counts in (target, available)]
    assert match_counts(*reversed_counts, STREAM, "s") == matched


@given(COUNTS, st.integers(1, 4))
def test_divides_strata_evenly(counts: Any, times: int) -> None:
    counts = {**counts, ("e",): -sum(counts.values()) % times}
    shares = divide_counts(counts, times, STREAM)
    assert times * sum(shares.values()) == sum(counts.values())
    assert all(abs(times * shares[stratum] - count) < times for stratum, count in counts.items())


def build_searched(name: str, greedy: list[int], passing: dict[int, list[int]]) -> Evidence:
    """Build a recovered failure from the token ids of its greedy and passing responses."""
    responses = [
        Response(name, i, "t", tuple(ids), "stop", 0)
        for i, ids in {GREEDY: greedy, **passing}.items()
    ]
    evidence = replace(build_evidence(name, "S"), response=responses[1])
    rows = [
        (response, evidence.prompt_ids, "fail" if response.index == GREEDY else "pass")
        for response in responses
    ]
    return replace(evidence, read_responses=lambda _: rows)


def test_nearest_response_shares_longest_prefix() -> None:
    problem = build_searched(
        "S0", [1, 2, 3, 4], {2: [9], 4: [1, 2, 9], 5: [1, 2, 8], 7: [2, 2, 3, 4]}
    )
    pool = build_pool([problem])
    (example,) = match_strata(pool, 1, 13, states="S", responses="nearest", tokens=None)
    assert example.response is not None
    assert example.response.index == 4  # the first of two with the same shared prefix
    unknown = build_pool([build_evidence("S0", "S")])
    with pytest.raises(UserError, match="S0"):
        match_strata(unknown, 1, 13, states="S", responses="nearest")


def test_drawn_responses_keep_gapft_problems() -> None:
    pool = build_pool([build_searched(f"S{i}", [1], {0: [1], 3: [2], 6: [3]}) for i in range(30)])
    selection = match_strata(pool, 20, 13, states="S", responses="drawn")
    assert {e.response.index for e in selection if e.response} == {0, 3, 6}, "each of one token"
    gapft = choose(pool, "gapft", 20)
    assert [e.problem_id for e in selection] == [e.problem_id for e in gapft]
    assert selection != match_strata(pool, 20, 13, states="S")


@given(
    st.lists(st.lists(st.integers(1, 60), min_size=2, max_size=4), min_size=12, max_size=30),
    SEEDS,
    st.sampled_from(["drawn", "nearest"]),
    st.booleans(),
)
def test_exchanges_responses_before_problems(
    lengths: list[list[int]], seed: int, responses: str, spare: bool
) -> None:
    pool = build_pool(
        [
            build_searched(f"S{i}", [1] * 60, {index: [1] * (tokens - 1) + [index + 2]
                                         for index, tokens in enumerate(problem_lengths)})
            for i, problem_lengths in enumerate(lengths)
        ]
    )  # fmt: skip
    n = len(lengths) - 2 * spare
    options: dict[str, Any] = {"states": "S", "responses": responses}
    gapft = choose(pool, "gapft", n, seed)
    drawn = match_strata(pool, n, seed, **options, tokens=None)
    target, first = (
        sum(count_supervised_tokens(e) for e in selection) for selection in (gapft, drawn)
    )
    wide = max(abs(first - target) / target, 0.01)
    same = match_strata(pool, n, seed, **options, tokens=min(2.01 * wide, 0.99))
    assert wide > 0.49 or same == drawn, "no exchange without need"
    try:
        selection = match_strata(pool, n, seed, **options, tokens=0.5)
    except UserError:
        reject()  # where each single exchange is worse and only two at once would do; rare
    assert abs(sum(count_supervised_tokens(e) for e in selection) - target) <= 0.25 * target
    assert [e.problem_id for e in selection] == [e.problem_id for e in gapft]
