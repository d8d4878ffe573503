"""Diffuse and concentrated: the laws of their halves, and that their budgets match."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Evidence, Pool
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.plugins.selectors.allocation import draw_halves
from gapft_harness.stages.selection.choosing import build_example, group_by_state, run_selector
from gapft_harness.training.plan import budget
from tests.pools import evidence
from tests.training.examples import settings

#: Response tokens of recovered problems; few values, so that ties are common.
LENGTHS = st.lists(st.integers(1, 12) | st.integers(1, 2000), min_size=2, max_size=30)
SEEDS = st.sampled_from([13, 21, 42])


def recovered(lengths: list[int]) -> Pool:
    solved = [evidence(f"G{i}", "G") for i in range(3)]
    return group_by_state(solved + [evidence(f"S{i}", "S", n) for i, n in enumerate(lengths)])


def arm(condition: str, of: Pool, n: int, seed: int = 13) -> list[Evidence]:
    return run_selector(*load_plugins().find_selector(condition), of, n, Arm(condition, seed))


def ids(chosen: list[Evidence] | tuple[Evidence, ...]) -> Counter[str]:
    return Counter(e.problem_id for e in chosen)


def supervised(chosen: list[Evidence] | tuple[Evidence, ...]) -> int:
    fits = settings(max_length=3000)
    return budget([build_example(e) for e in chosen], fits).supervised_tokens


@given(LENGTHS, st.data(), SEEDS)
def test_both_see_half_a_and_diffuse_alone_half_b(
    lengths: list[int], data: st.DataObject, seed: int
) -> None:
    source = recovered(lengths)
    n = 2 * data.draw(st.integers(1, len(lengths) // 2))
    diffuse, concentrated = (arm(c, source, n, seed) for c in ("diffuse", "concentrated"))
    once, twice = ids(diffuse), ids(concentrated)
    assert len(diffuse) == len(concentrated) == n
    assert set(once.values()) == {1}
    assert set(twice.values()) == {2}
    assert set(twice) < set(once)
    assert len(twice) == n // 2
    assert {e.state for e in diffuse} == {"S"}


@given(LENGTHS, st.data(), SEEDS)
def test_halves_differ_in_tokens_by_at_most_the_largest_gap_between_neighbours(
    lengths: list[int], data: st.DataObject, seed: int
) -> None:
    source = recovered(lengths)
    n = 2 * data.draw(st.integers(1, len(lengths) // 2))
    split = draw_halves(source, n, seed)
    assert not ids(split.shared) & ids(split.new)
    drawn = sorted(len(e.response.token_ids) for e in split.shared + split.new if e.response)
    gap = max(y - x for x, y in zip(drawn[::2], drawn[1::2], strict=True))
    apart = abs(supervised(split.shared) - supervised(split.new))
    assert apart <= gap
    diffuse, concentrated = (arm(c, source, n, seed) for c in ("diffuse", "concentrated"))
    assert abs(supervised(diffuse) - supervised(concentrated)) == apart


@given(LENGTHS, st.randoms(use_true_random=False), SEEDS)
def test_order_of_the_pool_changes_nothing(lengths: list[int], random: object, seed: int) -> None:
    source = recovered(lengths)
    shuffled = list(source.recovered)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    n = len(lengths) // 2 * 2
    assert draw_halves(group_by_state([*source.solved, *shuffled]), n, seed) == draw_halves(
        source, n, seed
    )


def test_small_gaps_even_out_what_a_large_one_left() -> None:
    """Gaps of 4, 6 and 10: decided as they stand, they would leave 8."""
    source = recovered([1, 5, 100, 106, 200, 210])
    for seed in range(30):
        split = draw_halves(source, 6, seed)
        assert supervised(split.shared) == supervised(split.new)


def test_a_problem_is_in_half_a_as_often_as_not() -> None:
    """2,000 seeds give each problem 1,000 times, within 5 sd of 22, whatever its length."""
    source = recovered([1, 2, 2, 2, 40, 41, 700, 1536])
    found = Counter[str]()
    for seed in range(2000):
        found += ids(draw_halves(source, 8, seed).shared)
    assert all(abs(found[f"S{i}"] - 1000) < 5 * 22.4 for i in range(8)), found


def test_problems_of_one_length_are_not_tied_to_one_partner() -> None:
    source = recovered([5] * 6)
    splits = {frozenset(ids(draw_halves(source, 6, seed).shared)) for seed in range(400)}
    assert len(splits) == 20  # all ways to choose three of six


def test_seeds_split_differently_and_adding_a_problem_draws_no_other_anew() -> None:
    source = recovered([7 * i % 31 + 1 for i in range(20)])
    drawn = [ids(arm("diffuse", source, 10, seed)) for seed in (13, 21, 42)]
    assert len({frozenset(d) for d in drawn}) == 3
    larger = recovered([7 * i % 31 + 1 for i in range(21)])
    assert len(set(ids(arm("diffuse", larger, 10))) - set(drawn[0])) <= 1


def test_a_response_that_was_cut_has_no_end_token_to_count() -> None:
    """Of two with 100 tokens one was cut: a gap of 1, which evens out that of 200 and 201."""
    cut = evidence("cut", "S", 100)
    assert cut.response
    cut = replace(cut, response=replace(cut.response, finish_reason="length"))
    source = group_by_state([cut, *recovered([100, 200, 201]).recovered])
    for seed in range(30):
        split = draw_halves(source, 4, seed)
        assert supervised(split.shared) == supervised(split.new)


@pytest.mark.parametrize("condition", ["diffuse", "concentrated"])
def test_an_odd_budget_names_an_even_one(condition: str) -> None:
    with pytest.raises(UserError, match=r"n = 5 is odd.*budget.n .* such as 4$"):
        arm(condition, recovered([3] * 8), 5)
    with pytest.raises(UserError, match=r"such as 2$"):
        arm(condition, recovered([3] * 8), 1)


@pytest.mark.parametrize("condition", ["diffuse", "concentrated"])
def test_too_few_recovered_problems_say_by_how_many(condition: str) -> None:
    """Concentrated trains on four of them alone, but must draw what diffuse draws."""
    with pytest.raises(UserError, match=rf"'{condition}' cannot fill .* 8 examples.*2 too few"):
        arm(condition, recovered([3] * 6), 8)
