"""Search depth and randomized inclusion: their selections and their limiting cases."""

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
from tests.pools import build_evidence
from tests.test_conditions import build_recipe
from tests.training.examples import settings

K = 8
SEEDS = st.sampled_from([13, 21, 73])
#: The first passing sample of every recovered failure.
FIRST = st.lists(st.integers(0, K - 1), min_size=1, max_size=30)


def build_pool(first: list[int], solved: int) -> Pool:
    """Build recovered failures whose kept response is not always the first that passed."""
    problems = [build_evidence(f"G{i:02}", "G", 2 + i % 5) for i in range(solved)]
    problems += [
        replace(build_evidence(f"S{i:02}", "S", 2 + i % 3, min(at + 1, K - 1)), first_success=at)
        for i, at in enumerate(first)
    ]
    return group_by_state([*problems, replace(build_evidence("U0", "U"), samples=K)])


def select_examples(
    pool: Pool, selector: str, n: int, seed: int, replay: int = 0, **params: Any
) -> list[Evidence]:
    named_recipe = build_recipe(
        {"c": {"selector": selector, **({"params": params} if params else {})}}
    )
    return fill_slots(
        *find_selector(named_recipe, "c", load_plugins()), pool, n, replay, Arm("c", seed)
    )


@given(FIRST, st.integers(0, 9), st.integers(0, 4), SEEDS, st.data())
def test_depth_0_is_replay_and_depth_k_is_gapft(
    first: list[int], more: int, replay: int, seed: int, data: st.DataObject
) -> None:
    pool = build_pool(first, len(first) + replay + more)
    n = data.draw(st.integers(1, len(first)))
    none, all_ = (select_examples(pool, "search_depth", n, seed, replay, k=k) for k in (0, K))
    assert none == select_examples(pool, "replay", n, seed, replay)
    assert all_ == select_examples(pool, "gapft", n, seed, replay)


@given(FIRST, st.integers(0, 9), SEEDS, st.data())
def test_depth_replaces_first_replay_draws_with_gapft(
    first: list[int], more: int, seed: int, data: st.DataObject
) -> None:
    pool = build_pool(first, len(first) + more)
    n = data.draw(st.integers(1, len(first)))
    gapft, replay = (select_examples(pool, name, n, seed) for name in ("gapft", "replay"))
    previous_ids: set[str] = set()
    for k in range(K + 1):
        selection = select_examples(pool, "search_depth", n, seed, k=k)
        recovered = [e for e in selection if e.state == "S"]
        assert recovered == [e for e in gapft if (e.first_success or 0) < k]
        assert selection[len(recovered) :] == replay[: n - len(recovered)]
        recovered_ids = {e.problem_id for e in recovered}
        assert previous_ids <= recovered_ids, "a deeper search recovers what a shallower one does"
        previous_ids = recovered_ids


@given(FIRST, st.integers(0, 9), SEEDS, st.data())
def test_inclusion_ends_are_gapft_and_search_depth(
    first: list[int], more: int, seed: int, data: st.DataObject
) -> None:
    pool = build_pool(first, len(first) + more)
    n, within = data.draw(st.integers(1, len(first))), data.draw(st.integers(0, K))

    def included(share: float) -> list[Evidence]:
        return select_examples(pool, "randomized_inclusion", n, seed, share=share, within=within)

    assert included(1) == select_examples(pool, "gapft", n, seed)
    assert included(0) == select_examples(pool, "search_depth", n, seed, k=within)


@given(FIRST, st.integers(0, 9), SEEDS, st.lists(st.integers(0, 20), min_size=2, max_size=2))
def test_inclusion_shares_are_nested(
    first: list[int], more: int, seed: int, twentieths: list[int]
) -> None:
    pool, n = build_pool(first, len(first) + more), len(first)
    late = sum(at >= 4 for at in first)
    id_sets = []
    for number in sorted(twentieths):
        ids = [
            e.problem_id
            for e in select_examples(pool, "randomized_inclusion", n, seed, share=number / 20)
            if e.state == "S"
        ]
        assert len(ids) == n - late + (2 * number * late + 20) // 40
        id_sets.append(set(ids))
    assert id_sets[0] <= id_sets[1]


def test_inclusion_draws_late_failures_uniformly() -> None:
    """8 of 16 failures under 1,000 seeds: 500 draws each, within 5 sd of 16."""
    pool = build_pool([7] * 16, 16)
    counts = dict.fromkeys((e.problem_id for e in pool.recovered), 0)
    for seed in range(1000):
        for e in select_examples(pool, "randomized_inclusion", 16, seed, share=0.5):
            if e.state == "S":
                counts[e.problem_id] += 1
    assert all(abs(count - 500) < 5 * 16 for count in counts.values()), counts


@given(FIRST, st.integers(0, 3), st.integers(1, 3), SEEDS)
def test_all_selectors_have_same_budget(
    first: list[int], replay: int, repetitions: int, seed: int
) -> None:
    pool, n = build_pool(first, len(first) + replay), len(first)
    selections = [select_examples(pool, "search_depth", n, seed, replay, k=k) for k in (0, 1, K)]
    selections += [
        select_examples(pool, "randomized_inclusion", n, seed, replay, share=share)
        for share in (0, 0.5, 1)
    ]
    require_matched(
        {
            Arm(str(i), seed): budget(
                [build_example(e) for e in selection], settings(repetitions=repetitions)
            )
            for i, selection in enumerate(selections)
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
def test_rejects_invalid_parameter(selector: str, params: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        select_examples(build_pool([0, 5], 2), selector, 2, 13, **params)


def test_rejects_too_few_solved_problems() -> None:
    pool = build_pool([0, 5, 6], 1)
    assert len(select_examples(pool, "search_depth", 3, 13, k=6)) == 3
    with pytest.raises(UserError, match=r"cannot draw 2 examples.* 1 too few"):
        select_examples(pool, "search_depth", 3, 13, k=1)
