"""Diffuse and concentrated: properties of their halves, and equal budgets."""

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
from tests.pools import build_evidence
from tests.training.examples import settings

#: Response tokens of recovered problems; few values, so that ties are common.
LENGTHS = st.lists(st.integers(1, 12) | st.integers(1, 2000), min_size=2, max_size=30)
SEEDS = st.sampled_from([13, 21, 42])


def build_recovered_pool(lengths: list[int]) -> Pool:
    solved = [build_evidence(f"G{i}", "G") for i in range(3)]
    return group_by_state(solved + [build_evidence(f"S{i}", "S", n) for i, n in enumerate(lengths)])


def select_arm(condition: str, pool: Pool, n: int, seed: int = 13) -> list[Evidence]:
    return run_selector(*load_plugins().find_selector(condition), pool, n, Arm(condition, seed))


def count_problems(chosen: list[Evidence] | tuple[Evidence, ...]) -> Counter[str]:
    return Counter(e.problem_id for e in chosen)


def count_supervised(chosen: list[Evidence] | tuple[Evidence, ...]) -> int:
    fits = settings(max_length=3000)
    return budget([build_example(e) for e in chosen], fits).supervised_tokens


@given(LENGTHS, st.data(), SEEDS)
def test_concentrated_repeats_half_of_diffuse(
    lengths: list[int], data: st.DataObject, seed: int
) -> None:
    source = build_recovered_pool(lengths)
    n = 2 * data.draw(st.integers(1, len(lengths) // 2))
    diffuse, concentrated = (select_arm(c, source, n, seed) for c in ("diffuse", "concentrated"))
    once, twice = count_problems(diffuse), count_problems(concentrated)
    assert len(diffuse) == len(concentrated) == n
    assert set(once.values()) == {1}
    assert set(twice.values()) == {2}
    assert set(twice) < set(once)
    assert len(twice) == n // 2
    assert {e.state for e in diffuse} == {"S"}


@given(LENGTHS, st.data(), SEEDS)
def test_half_tokens_differ_by_at_most_largest_gap(
    lengths: list[int], data: st.DataObject, seed: int
) -> None:
    source = build_recovered_pool(lengths)
    n = 2 * data.draw(st.integers(1, len(lengths) // 2))
    split = draw_halves(source, n, seed)
    assert not count_problems(split.shared) & count_problems(split.new)
    drawn = sorted(len(e.response.token_ids) for e in split.shared + split.new if e.response)
    gap = max(y - x for x, y in zip(drawn[::2], drawn[1::2], strict=True))
    apart = abs(count_supervised(split.shared) - count_supervised(split.new))
    assert apart <= gap
    diffuse, concentrated = (select_arm(c, source, n, seed) for c in ("diffuse", "concentrated"))
    assert abs(count_supervised(diffuse) - count_supervised(concentrated)) == apart


@given(LENGTHS, st.randoms(use_true_random=False), SEEDS)
def test_pool_order_does_not_matter(lengths: list[int], random: object, seed: int) -> None:
    source = build_recovered_pool(lengths)
    shuffled = list(source.recovered)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    n = len(lengths) // 2 * 2
    assert draw_halves(group_by_state([*source.solved, *shuffled]), n, seed) == draw_halves(
        source, n, seed
    )


def test_small_gaps_balance_a_large_gap() -> None:
    """Gaps of 4, 6 and 10: assigned in this order they would leave a difference of 8."""
    source = build_recovered_pool([1, 5, 100, 106, 200, 210])
    for seed in range(30):
        split = draw_halves(source, 6, seed)
        assert count_supervised(split.shared) == count_supervised(split.new)


def test_each_problem_is_in_half_a_half_the_time() -> None:
    """Over 2,000 seeds each problem is drawn 1,000 times, within 5 standard deviations of 22."""
    source = build_recovered_pool([1, 2, 2, 2, 40, 41, 700, 1536])
    counts = Counter[str]()
    for seed in range(2000):
        counts += count_problems(draw_halves(source, 8, seed).shared)
    assert all(abs(counts[f"S{i}"] - 1000) < 5 * 22.4 for i in range(8)), counts


def test_equal_lengths_allow_all_splits() -> None:
    source = build_recovered_pool([5] * 6)
    splits = {frozenset(count_problems(draw_halves(source, 6, seed).shared)) for seed in range(400)}
    assert len(splits) == 20  # all ways to choose three of six


def test_split_depends_on_seed_not_on_added_problems() -> None:
    source = build_recovered_pool([7 * i % 31 + 1 for i in range(20)])
    drawn = [count_problems(select_arm("diffuse", source, 10, seed)) for seed in (13, 21, 42)]
    assert len({frozenset(d) for d in drawn}) == 3
    larger = build_recovered_pool([7 * i % 31 + 1 for i in range(21)])
    assert len(set(count_problems(select_arm("diffuse", larger, 10))) - set(drawn[0])) <= 1


def test_cut_response_has_no_end_token() -> None:
    """One of two responses of 100 tokens is cut: its gap of 1 offsets that of 200 and 201."""
    cut = build_evidence("cut", "S", 100)
    assert cut.response
    cut = replace(cut, response=replace(cut.response, finish_reason="length"))
    source = group_by_state([cut, *build_recovered_pool([100, 200, 201]).recovered])
    for seed in range(30):
        split = draw_halves(source, 4, seed)
        assert count_supervised(split.shared) == count_supervised(split.new)


@pytest.mark.parametrize("condition", ["diffuse", "concentrated"])
def test_rejects_odd_budget(condition: str) -> None:
    with pytest.raises(UserError, match=r"n = 5 is odd.*budget.n .* such as 4$"):
        select_arm(condition, build_recovered_pool([3] * 8), 5)
    with pytest.raises(UserError, match=r"such as 2$"):
        select_arm(condition, build_recovered_pool([3] * 8), 1)


@pytest.mark.parametrize("condition", ["diffuse", "concentrated"])
def test_rejects_too_few_recovered_problems(condition: str) -> None:
    """Concentrated trains on only four problems, but must draw as many as diffuse."""
    with pytest.raises(UserError, match=rf"'{condition}' cannot fill .* 8 examples.*2 too few"):
        select_arm(condition, build_recovered_pool([3] * 6), 8)
