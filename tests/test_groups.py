"""Comparison groups of different n in one run, and draws with replacement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Budget, Example, Pool
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.plugins.selectors.evidence_states import draw_with_replacement
from gapft_harness.recipe.called_plugins import check_names, find_selector
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import Training
from gapft_harness.stages.selection.budgets import group_by_budget
from gapft_harness.stages.selection.choosing import (
    build_example,
    count_condition_slots,
    count_slots,
    fill_slots,
    group_by_state,
)
from gapft_harness.training.plan import budget
from tests.kit.tampering import change_manifest
from tests.pools import build_pool
from tests.test_changed_recipe import SELECTED, write_task
from tests.test_conditions import SELECTORS, SelectorLetters, build_recipe

SELECTS = ["gapft", "uniform", "uniform_with_replacement", "replay", "all_verified"]
SLOTS = st.one_of(st.none(), st.integers(1, 9), st.sampled_from(["recovered", "verified"]))


def select_examples(
    parsed: Recipe, source: Pool, seeds: tuple[int, ...]
) -> dict[Arm, list[Example]]:
    slots = count_condition_slots(parsed, lambda _: source)
    examples: dict[Arm, list[Example]] = {}
    for condition in parsed.conditions:
        select, entry = find_selector(parsed, condition, load_plugins())
        for seed in seeds:
            arm = Arm(condition, seed)
            chosen = fill_slots(select, entry, source, slots[condition], parsed.budget.replay, arm)
            examples[arm] = [build_example(e) for e in chosen]
    return examples


@given(
    st.lists(st.tuples(st.sampled_from(SELECTS[1:3]), SLOTS), min_size=1, max_size=5),
    st.integers(0, 6),
    st.integers(1, 6),
    st.integers(0, 3),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 3)),
)
def test_budgets_are_equal_within_a_group(
    choices: list[tuple[str, Any]],
    solved: int,
    recovered: int,
    replay: int,
    repetitions: int,
    groups: int | None,
) -> None:
    """n, N and J are equal for any conditions; a draw that cannot fill its slots is an error."""
    source = build_pool(solved, recovered)
    conditions = {
        f"c{number}": {"selector": selector, **({"n": n} if n else {})}
        for number, (selector, n) in enumerate(choices)
    }
    parsed = build_recipe(conditions).model_copy(
        update={"budget": build_recipe(conditions).budget.model_copy(update={"replay": replay})}
    )
    training = Training(repetitions=repetitions, micro_batch=2, accumulation=1)
    training = training.model_copy(update={"update_groups": groups})
    slot_counts = {name: count_slots(parsed.find_slots(name), source) for name in conditions}
    without = [n for name, n in slot_counts.items() if conditions[name]["selector"] == "uniform"]
    if replay > solved or max(without, default=0) > solved + recovered - replay:
        with pytest.raises(UserError, match="too few"):
            select_examples(parsed, source, (13, 21))
        return
    assume((groups or 0) <= repetitions * (min(slot_counts.values()) + replay))
    examples = select_examples(parsed, source, (13, 21))
    slots = count_condition_slots(parsed, lambda _: source)
    budgets: dict[Arm, Budget] = {arm: budget(chosen, training) for arm, chosen in examples.items()}
    split = group_by_budget(budgets, slots, parsed, {})
    assert sum(map(len, split)) == len(budgets)
    for group in split:
        sizes = {(b.n, b.exposures, b.steps) for b in group.values()}
        n = slots[next(iter(group)).condition]
        steps = groups or -(-repetitions * (n + replay) // 2)
        assert sizes == {(n + replay, repetitions * (n + replay), steps)}
    assert len({slots[next(iter(group)).condition] for group in split}) == len(split)


@given(st.integers(0, 6), st.integers(1, 6))
def test_slots_are_counted_from_the_pool(solved: int, recovered: int) -> None:
    source = build_pool(solved, recovered)
    parsed = build_recipe({"a": {"n": "verified"}, "b": {"n": 7}, "c": {}, "d": {"n": "recovered"}})
    expected = {"a": solved + recovered, "b": 7, "c": recovered, "d": recovered}
    assert count_condition_slots(parsed, lambda _: source) == expected


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 40), st.randoms())
def test_replacement_draws_are_prefixes_in_any_order(
    size: int, few: int, more: int, random: Any
) -> None:
    candidates = list(build_pool(size, 0).solved)
    rng = Stream(13, "select/x")
    drawn = draw_with_replacement(candidates, few + more, rng)
    random.shuffle(candidates)
    assert draw_with_replacement(candidates, few, rng) == drawn[:few]
    assert {e.problem_id for e in drawn} <= {e.problem_id for e in candidates}


def test_replacement_draws_are_uniform_and_independent() -> None:
    """Expect 500 draws of each of 8 problems (sd 21) and 62.5 of each pair (sd 8), within 5 sd."""
    source = build_pool(4, 4).verified
    counts = dict.fromkeys((e.problem_id for e in source), 0)
    pairs: dict[tuple[str, str], int] = {}
    for seed in range(4000):
        a, b = draw_with_replacement(source, 2, Stream(seed, "select/x"))
        counts[a.problem_id] += 1
        pair = (a.problem_id, b.problem_id)
        pairs[pair] = pairs.get(pair, 0) + 1
    assert all(abs(count - 500) < 5 * 21 for count in counts.values()), counts
    assert len(pairs) == 64
    assert all(abs(count - 62.5) < 5 * 8 for count in pairs.values()), pairs
    with pytest.raises(UserError, match="cannot fill the budget of 3 examples"):
        select_examples(
            build_recipe({"c": {"selector": "uniform_with_replacement", "n": 3}}),
            build_pool(0, 0),
            (13,),
        )


def test_whole_pool_and_as_many_draws() -> None:
    source = build_pool(9, 4)
    conditions = {
        "once": {"selector": "uniform"},
        "again": {"selector": "uniform_with_replacement"},
    }
    parsed = build_recipe(
        {name: {**settings, "n": "verified"} for name, settings in conditions.items()}
    )
    examples = select_examples(parsed, source, (13,))
    once, again = ([e.problem_id for e in examples[Arm(name, 13)]] for name in conditions)
    assert sorted(once) == [e.problem_id for e in source.verified]
    assert len(again) == 13
    assert len(set(again)) < 13


@pytest.mark.parametrize(
    ("conditions", "budget_n", "expected"),
    [
        ({"a": {"n": 0}}, 4, "key 'conditions.a.n': must be at least 1, `recovered` or `verified`"),
        ({"a": {"n": "all"}}, 4, "key 'conditions.a.n'"),
        ({"a": {}}, 0, "key 'budget.n': must be at least 1, `recovered` or `verified`"),
    ],
)
def test_rejects_invalid_slot_number(conditions: Any, budget_n: Any, expected: str) -> None:
    from gapft_harness.recipe.reading import Setting

    with pytest.raises(UserError, match=expected):
        build_recipe(conditions, Setting("budget.n", budget_n, "test: budget"))


def test_rejects_n_of_reference_and_empty_recovered() -> None:
    with pytest.raises(UserError, match=r"conditions\.r\.n.*all_verified"):
        check_names(build_recipe({"r": {"selector": "all_verified", "n": 4}}), load_plugins())
    parsed = build_recipe({"r": {"selector": "gapft", "n": "recovered"}})
    with pytest.raises(UserError, match=r"'conditions\.r\.n': n is recovered, and search rec"):
        count_condition_slots(parsed, lambda _: group_by_state(build_pool(3, 0).solved))


@pytest.fixture
def task(tmp_path: Path) -> SelectorLetters:
    (tmp_path / "mine.py").write_text(SELECTORS)
    return SelectorLetters(write_task(tmp_path).folder)


GROUPS = {
    "gapft": {},
    "uniform": {},
    "all_verified": {},
    "once": {"selector": "uniform", "n": "verified"},
    "again": {"selector": "uniform_with_replacement", "n": "verified"},
}


def test_report_separates_two_groups(task: SelectorLetters) -> None:
    run = task.change(conditions=GROUPS, budget={"n": 4, "token_tolerance": 0.99})
    budgets = run.manifest()["budgets"]
    assert {name: b["n"] for name, b in budgets.items() if name.endswith("13")} == {
        "gapft-seed13": 4, "uniform-seed13": 4, "all_verified-seed13": 60, "once-seed13": 60,
        "again-seed13": 60,
    }  # fmt: skip
    results = task.results()
    fair = {(c["a"], c["b"]) for c in results["contrasts"] if c["matched_budget"]}
    assert fair == {("gapft", "uniform"), ("once", "again")}
    report = (run.path / "report/report.md").read_text("utf-8").replace("\\", "")
    assert "| GapFT − uniform |" in report
    for pair in ("GapFT − once", "GapFT − again", "GapFT − all verified", "all verified − once"):
        assert f"| {pair} * |" in report
    assert "| once − again |" in report
    assert "* Not budget-matched." in report
    assert "within each of these groups: GapFT and uniform; once and again." in report
    assert "GapFT and uniform: matched with each other; their tokens L" in report
    assert "Against uniform at the same training budget" in report
    assert "Against once at the same training budget" not in report
    assert task.find_differences() == []


def test_verify_checks_each_group_size(task: SelectorLetters) -> None:
    conditions = {"gapft": {}, "once": {"selector": "uniform", "n": 7}}
    run = task.change(*SELECTED, conditions=conditions, budget={"n": 4}, seeds=[13])
    assert task.find_differences() == []
    stored = run.path / "recipe.yaml"
    stored.write_text(stored.read_text().replace("n: 7", "n: 8"))
    change_manifest(run.path, lambda m: m["recipe"]["conditions"]["once"].update(n=8))
    differences = task.find_differences()
    assert differences[0].startswith(
        "selections/once-seed13.parquet: has 7 examples, its selector ch"
    )
    assert differences[1].startswith("manifest.json: the budget of once-seed13 has condition = ")
