"""Mixtures of states, coverage before repetition, and a twin of the same solve rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PoolTooSmallError, UserError
from gapft_harness.core.records import Pool
from gapft_harness.core.streams import Stream
from gapft_harness.plugins.selectors.evidence_states import gapft, replay
from gapft_harness.plugins.selectors.mixtures import (
    coverage_first,
    even_solve_rates,
    gapft_with_replay,
    solve_rate_twin,
)
from tests.pools import pool

RNG = Stream(13, "select/x")


@given(st.integers(0, 20), st.floats(0, 1))
def test_replay_has_its_share_of_the_slots(n: int, share: float) -> None:
    of = pool(20, 20)
    found = gapft_with_replay(of, n, RNG, share)
    states = Counter(e.state for e in found)
    assert states["G"] == round(share * n)
    assert len(found) == n == len({e.problem_id for e in found})


def test_its_ends_are_gapft_and_replay() -> None:
    of = pool(20, 20)
    assert list(gapft_with_replay(of, 7, RNG, 0)) == list(gapft(of, 7, RNG))
    assert list(gapft_with_replay(of, 7, RNG, 1)) == list(replay(of, 7, RNG))


@pytest.mark.parametrize("share", [-0.1, 1.1, "half", True])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(UserError, match="share must be from 0 to 1"):
        gapft_with_replay(pool(2, 2), 2, RNG, share)


@given(st.integers(1, 9), st.integers(1, 40))
def test_no_failure_comes_again_before_all_have_come(recovered: int, n: int) -> None:
    found = coverage_first(pool(3, recovered), n, RNG)
    counts = Counter(e.problem_id for e in found)
    assert len(found) == n
    assert len(counts) == min(n, recovered)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {e.state for e in found} == {"S"}


def rated(solved: list[int], recovered: list[int]) -> Pool:
    of = pool(len(solved), len(recovered))
    return Pool(
        solved=tuple(replace(e, passing_samples=c) for e, c in zip(of.solved, solved, strict=True)),
        recovered=tuple(
            replace(e, passing_samples=c) for e, c in zip(of.recovered, recovered, strict=True)
        ),
        missed=of.missed,
    )


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), st.data())
def test_the_twin_has_the_same_rates_where_the_solved_have_them(
    recovered: list[int], data: st.DataObject
) -> None:
    more = data.draw(st.lists(st.integers(0, 8), max_size=6))
    of = rated([*recovered, *more], recovered)
    n = data.draw(st.integers(1, len(recovered)))
    found, matched = solve_rate_twin(of, n, RNG), gapft(of, n, RNG)
    assert [e.passing_samples for e in found] == [e.passing_samples for e in matched]
    assert {e.state for e in found} == {"G"}
    assert len({e.problem_id for e in found}) == n


def test_the_nearest_rate_stands_in_and_too_few_solved_problems_are_told() -> None:
    assert [e.passing_samples for e in solve_rate_twin(rated([1, 4, 8], [5]), 1, RNG)] == [4]
    assert [e.passing_samples for e in solve_rate_twin(rated([3, 7], [5]), 1, RNG)] == [3]
    with pytest.raises(PoolTooSmallError):
        solve_rate_twin(rated([1], [1, 1]), 2, RNG)
    with pytest.raises(PoolTooSmallError):
        coverage_first(pool(3, 0), 1, RNG)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=30),
    st.lists(st.integers(1, 8), min_size=1, max_size=30),
    st.data(),
)
def test_even_solve_rates_leave_no_rate_behind(
    solved: list[int], recovered: list[int], data: st.DataObject
) -> None:
    of = rated(solved, recovered)
    there = Counter([*solved, *recovered])
    n = data.draw(st.integers(1, len(solved) + len(recovered)))
    found = even_solve_rates(of, n, RNG)
    slots = Counter(e.passing_samples for e in found)
    assert len(found) == n == len({e.problem_id for e in found})
    left = [rate for rate in there if slots[rate] < there[rate]]
    for rate in left:
        assert slots[rate] >= max(slots.values()) - 1, "who has problems left has as many"
    for rate in left:
        later = [other for other in left if other > rate]
        assert all(slots[rate] >= slots[other] for other in later), "the rarest come first"


def test_even_solve_rates_are_a_prefix_of_those_for_more_slots() -> None:
    of = rated([1, 1, 5, 8, 8, 8], [1, 2, 5])
    whole = [e.problem_id for e in even_solve_rates(of, 9, RNG)]
    assert [[e.problem_id for e in even_solve_rates(of, n, RNG)] for n in range(10)] == [
        whole[:n] for n in range(10)
    ]
    with pytest.raises(PoolTooSmallError):
        even_solve_rates(of, 10, RNG)
