"""Search depth and randomized inclusion: what they keep, and what they equal at their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Evidence, Pool
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.stages.selection.budgets import require_matched
from gapft_harness.stages.selection.choosing import build_example, fill_slots, group_by_state
from gapft_harness.training.plan import budget
from tests.pools import evidence
from tests.test_conditions import recipe
from tests.training.examples import settings

K = 8
SEEDS = st.sampled_from([13, 21, 73])
#: The first passing sample of every recovered failure.
FIRST = st.lists(st.integers(0, K - 1), min_size=1, max_size=30)


def pool(first: list[int], solved: int) -> Pool:
    """Recovered failures whose kept response is not always the first that passed."""
    found = [evidence(f"G{i:02}", "G", 2 + i % 5) for i in range(solved)]
    found += [
        replace(evidence(f"S{i:02}", "S", 2 + i % 3, min(at + 1, K - 1)), first_success=at)
        for i, at in enumerate(first)
    ]
    return group_by_state([*found, replace(evidence("U0", "U"), samples=K)])


def chosen(
    of: Pool, selector: str, n: int, seed: int, replay: int = 0, **params: Any
) -> list[Evidence]:
    named = recipe({"c": {"selector": selector, **({"params": params} if params else {})}})
    return fill_slots(*find_selector(named, "c", load_plugins()), of, n, replay, Arm("c", seed))


@given(FIRST, st.integers(0, 9), st.integers(0, 4), SEEDS, st.data())
def test_depth_0_is_replay_and_depth_k_is_gapft_example_for_example(
    first: list[int], more: int, replay: int, seed: int, data: st.DataObject
) -> None:
    of = pool(first, len(first) + replay + more)
    n = data.draw(st.integers(1, len(first)))
    none, all_ = (chosen(of, "search_depth", n, seed, replay, k=k) for k in (0, K))
    assert none == chosen(of, "replay", n, seed, replay)
    assert all_ == chosen(of, "gapft", n, seed, replay)


@given(FIRST, st.integers(0, 9), SEEDS, st.data())
def test_a_depth_keeps_gapfts_response_of_what_it_recovers_and_replays_the_first_draws(
    first: list[int], more: int, seed: int, data: st.DataObject
) -> None:
    of = pool(first, len(first) + more)
    n = data.draw(st.integers(1, len(first)))
    gapft, replay = (chosen(of, name, n, seed) for name in ("gapft", "replay"))
    before: set[str] = set()
    for k in range(K + 1):
        found = chosen(of, "search_depth", n, seed, k=k)
        kept = [e for e in found if e.state == "S"]
        assert kept == [e for e in gapft if (e.first_success or 0) < k]
        assert found[len(kept) :] == replay[: n - len(kept)]
        now = {e.problem_id for e in kept}
        assert before <= now, "a deeper search recovers what a shallower one does"
        before = now


@given(FIRST, st.integers(0, 9), SEEDS, st.data())
def test_inclusion_of_all_is_gapft_and_of_none_is_the_depth_of_the_early_ones(
    first: list[int], more: int, seed: int, data: st.DataObject
) -> None:
    of = pool(first, len(first) + more)
    n, within = data.draw(st.integers(1, len(first))), data.draw(st.integers(0, K))

    def included(share: float) -> list[Evidence]:
        return chosen(of, "randomized_inclusion", n, seed, share=share, within=within)

    assert included(1) == chosen(of, "gapft", n, seed)
    assert included(0) == chosen(of, "search_depth", n, seed, k=within)


@given(FIRST, st.integers(0, 9), SEEDS, st.lists(st.integers(0, 20), min_size=2, max_size=2))
def test_a_share_of_the_late_failures_joins_and_a_smaller_one_is_a_part_of_it(
    first: list[int], more: int, seed: int, twentieths: list[int]
) -> None:
    of, n = pool(first, len(first) + more), len(first)
    late = sum(at >= 4 for at in first)
    found = []
    for number in sorted(twentieths):
        ids = [
            e.problem_id
            for e in chosen(of, "randomized_inclusion", n, seed, share=number / 20)
            if e.state == "S"
        ]
        assert len(ids) == n - late + (2 * number * late + 20) // 40
        found.append(set(ids))
    assert found[0] <= found[1]


def test_every_late_failure_is_as_likely_to_join_and_seeds_draw_apart() -> None:
    """8 of 16, under 1,000 seeds: 500 of each, within 5 standard deviations of 16."""
    of = pool([7] * 16, 16)
    counts = dict.fromkeys((e.problem_id for e in of.recovered), 0)
    for seed in range(1000):
        for e in chosen(of, "randomized_inclusion", 16, seed, share=0.5):
            if e.state == "S":
                counts[e.problem_id] += 1
    assert all(abs(count - 500) < 5 * 16 for count in counts.values()), counts


@given(FIRST, st.integers(0, 3), st.integers(1, 3), SEEDS)
def test_all_of_them_have_the_same_budget(
    first: list[int], replay: int, repetitions: int, seed: int
) -> None:
    of, n = pool(first, len(first) + replay), len(first)
    sets = [chosen(of, "search_depth", n, seed, replay, k=k) for k in (0, 1, K)]
    sets += [
        chosen(of, "randomized_inclusion", n, seed, replay, share=share) for share in (0, 0.5, 1)
    ]
    require_matched(
        {
            Arm(str(i), seed): budget(
                [build_example(e) for e in one], settings(repetitions=repetitions)
            )
            for i, one in enumerate(sets)
        }
    )


@pytest.mark.parametrize(
    ("selector", "params", "expected"),
    [
        ("search_depth", {"k": 9}, "k is 9, expected an integer from 0 to 8"),
        ("search_depth", {"k": -1}, "k is -1, expected"),
        ("search_depth", {"k": 1.5}, "k is 1.5, expected"),
        ("search_depth", {"k": True}, "k is True, expected"),
        ("randomized_inclusion", {"share": 50}, "share is 50, expected a number from 0 to 1"),
        ("randomized_inclusion", {"share": "half"}, "share is 'half', expected"),
        ("randomized_inclusion", {"share": 0.5, "within": -1}, "within is -1, expected"),
        ("search_depth", {}, "'k'"),
        ("search_depth", {"depth": 1}, "'depth'"),
    ],
)
def test_a_parameter_that_is_none(selector: str, params: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        chosen(pool([0, 5], 2), selector, 2, 13, **params)


def test_too_few_solved_problems_are_told_by_how_many() -> None:
    of = pool([0, 5, 6], 1)
    assert len(chosen(of, "search_depth", 3, 13, k=6)) == 3
    with pytest.raises(UserError, match=r"cannot draw 2 examples.* 1 too few"):
        chosen(of, "search_depth", 3, 13, k=1)
