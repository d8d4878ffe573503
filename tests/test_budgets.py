"""Properties of matched budgets: shared replay and permitted differences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Arm, Budget, Evidence, Pool
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.sections import BudgetChoice
from gapft_harness.stages.selection.budgets import (
    require_matched,
    require_similar_tokens,
    set_replay_aside,
)
from gapft_harness.stages.selection.choosing import fill_slots, group_by_state
from tests.pools import build_pool

BUDGET = Budget(4, 8, 32, 900, 100, 2)
MATCHED = ["gapft", "uniform", "replay", "diffuse", "concentrated"]


def select_arm(source: Pool, condition: str, n: int, replay: int, seed: int = 13) -> list[Evidence]:
    return fill_slots(
        *load_plugins().find_selector(condition), source, n, replay, Arm(condition, seed)
    )


@given(st.integers(0, 12), st.integers(1, 6), st.sampled_from([13, 21, 42]))
def test_matched_conditions_share_separate_replay(replay: int, half: int, seed: int) -> None:
    source, n = build_pool(24, 12), 2 * half
    shared, rest = set_replay_aside(source, replay, seed)
    assert len({e.problem_id for e in shared}) == replay
    assert {e.state for e in shared} <= {"G"}
    assert sorted([*shared, *rest.solved], key=lambda e: e.problem_id) == list(source.solved)
    assert (rest.recovered, rest.missed) == (source.recovered, source.missed)
    for condition in MATCHED:
        chosen = select_arm(source, condition, n, replay, seed)
        assert len(chosen) == n + replay
        assert chosen[n:] == shared
        assert not {e.problem_id for e in chosen[:n]} & {e.problem_id for e in shared}


@given(st.integers(0, 12), st.integers(0, 12), st.permutations(range(24)))
def test_smaller_replay_is_a_prefix_in_any_order(less: int, more: int, order: list[int]) -> None:
    source = build_pool(24, 3)
    less, more = sorted((less, more))
    shuffled = group_by_state([*(source.solved[i] for i in order), *source.recovered])
    few, _ = set_replay_aside(source, less, 13)
    assert set_replay_aside(shuffled, more, 13)[0][:less] == few


def test_replay_condition_continues_shared_replay() -> None:
    """n slots and g shared ones are the same draw as n + g slots of solved replay."""
    source = build_pool(24, 12)
    assert set(map(id, select_arm(source, "replay", 6, 5))) == set(
        map(id, select_arm(source, "replay", 11, 0))
    )


def test_seeds_draw_different_replay() -> None:
    source = build_pool(40, 3)
    draws = {tuple(e.problem_id for e in set_replay_aside(source, 8, s)[0]) for s in (13, 21, 42)}
    assert len(draws) == 3


def test_reference_uses_whole_pool_without_replay() -> None:
    source = build_pool(10, 6)
    chosen = select_arm(source, "all_verified", 4, 5)
    assert sorted(e.problem_id for e in chosen) == [e.problem_id for e in source.verified]


def test_reports_how_many_replay_problems_are_missing() -> None:
    with pytest.raises(
        UserError, match=r"budget.replay asks for 9 solved .* only 5 .*: 4 too few. Lower"
    ):
        select_arm(build_pool(5, 6), "gapft", 4, 9)


def test_selector_cannot_use_shared_replay() -> None:
    """The error names the remaining pool if it is too small."""
    with pytest.raises(UserError, match=r"3 too few \(available: 1 G, 6 S, 2 U\)"):
        select_arm(build_pool(5, 6), "replay", 4, 4)


def test_rejects_unmatched_budgets() -> None:
    a, b = Arm("a", 13), Arm("b", 13)
    require_matched({a: BUDGET, b: replace(BUDGET, tokens=950)})
    for key in ("n", "exposures", "steps"):
        other = replace(BUDGET, **{key: 99})
        with pytest.raises(GapftError, match=f"arms a-seed13 and b-seed13 differ in {key}"):
            require_matched({a: BUDGET, b: other})


#: Each limited count of a budget: its key in the recipe, and the words of the error.
LIMITS = {
    "supervised_tokens": ("token_tolerance", "supervised tokens"),
    "tokens": ("position_tolerance", "processed tokens"),
}


@pytest.mark.parametrize("field", [*LIMITS])
@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 300)), min_size=1, max_size=8),
    st.floats(0, 0.99),
)
def test_tokens_may_differ_by_the_tolerance_within_a_seed(
    field: str, token_counts: list[tuple[int, int]], tolerance: float
) -> None:
    key, kind = LIMITS[field]
    choice = BudgetChoice.model_validate({key: tolerance})
    budgets = {
        Arm(f"c{i}", seed): replace(BUDGET, **{field: tokens})
        for i, (seed, tokens) in enumerate(token_counts)
    }
    fine = all(
        abs(x - y) / max(x, y) <= tolerance
        for s, x in token_counts
        for other, y in token_counts
        if s == other
    )
    if fine:
        require_similar_tokens(budgets, choice)
    else:
        with pytest.raises(UserError, match=f"differ too much in {kind}"):
            require_similar_tokens(budgets, choice)
    require_similar_tokens(budgets, BudgetChoice())


@pytest.mark.parametrize("field", [*LIMITS])
def test_token_error_names_arms_and_limit(field: str) -> None:
    key = LIMITS[field][0]
    tokens = {Arm("a", 13): 1000, Arm("b", 13): 960, Arm("c", 13): 990, Arm("b", 21): 1}
    budgets = {a: replace(BUDGET, **{field: count}) for a, count in tokens.items()}
    with pytest.raises(
        UserError,
        match=r"arms b-seed13 and a-seed13 .*: 960 and 1000, 4.00% of the larger, .* is 2.00%",
    ):
        require_similar_tokens(budgets, BudgetChoice.model_validate({key: 0.02}))
    require_similar_tokens(budgets, BudgetChoice.model_validate({key: 0.04}))


def test_the_papers_math_budgets_are_within_its_tolerance() -> None:
    """Table 6: 270,912 and 269,980 supervised tokens, below 2%; they differ by 0.34%."""
    budgets = {
        Arm("diffuse", 13): replace(BUDGET, supervised_tokens=270_912),
        Arm("replay", 13): replace(BUDGET, supervised_tokens=269_980),
    }
    require_similar_tokens(budgets, BudgetChoice(token_tolerance=0.02))
    with pytest.raises(UserError, match=r"0\.34%"):
        require_similar_tokens(budgets, BudgetChoice(token_tolerance=0.003))
