"""Selections matched by strata and supervised tokens, and repetition within strata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Evidence, Pool, Response
from gapft_harness.stages.selection.choosing import group_by_state
from tests.kit.searched_pool import choose
from tests.pools import build_evidence


def match_strata(pool: Pool, n: int, seed: int, **params: Any) -> list[Evidence]:
    return choose(pool, "matched_strata", n, seed, 0, params)


def build_searched(name: str, greedy: list[int], passing: dict[int, list[int]]) -> Evidence:
    """Build a recovered failure from the token ids of its greedy and passing responses."""
    responses = [Response(name, i, "t", tuple(ids), "stop", 0) for i, ids in passing.items()]
    first = replace(build_evidence(name, "S"), response=responses[0])
    failed = Response(name, GREEDY, "t", tuple(greedy), "stop", 0)
    verified = tuple(replace(first, response=response) for response in responses)
    return replace(first, read_verified=lambda _: verified, read_greedy=lambda _: failed)


def test_nearest_response_shares_longest_prefix() -> None:
    problem = build_searched(
        "S0", [1, 2, 3, 4], {2: [9], 4: [1, 2, 9], 5: [1, 2, 8], 7: [2, 2, 3, 4]}
    )
    pool = group_by_state([problem])
    (example,) = match_strata(pool, 1, 13, states="S", responses="nearest", tokens=None)
    assert example.response is not None
    assert example.response.index == 4  # the first of two with the same shared prefix
    unknown = group_by_state([build_evidence("S0", "S")])
    with pytest.raises(UserError, match="S0"):
        match_strata(unknown, 1, 13, states="S", responses="nearest")


def test_drawn_responses_keep_gapft_problems() -> None:
    pool = group_by_state(
        [build_searched(f"S{i}", [1], {0: [1], 3: [2], 6: [3]}) for i in range(30)]
    )
    selection = match_strata(pool, 20, 13, states="S", responses="drawn")
    assert {e.response.index for e in selection if e.response} == {0, 3, 6}, "each of one token"
    gapft = choose(pool, "gapft", 20)
    assert [e.problem_id for e in selection] == [e.problem_id for e in gapft]
    assert selection != match_strata(pool, 20, 13, states="S")
