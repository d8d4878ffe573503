"""Comparison groups of different n in one run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.stages.selection.choosing import (
    count_condition_slots,
    group_by_state,
)
from tests.kit.tampering import change_manifest
from tests.pools import build_pool
from tests.test_changed_recipe import SELECTED, write_task
from tests.test_conditions import SELECTORS, SelectorLetters, build_recipe


@given(st.integers(0, 6), st.integers(1, 6))
def test_slots_are_counted_from_the_pool(solved: int, recovered: int) -> None:
    source = build_pool(solved, recovered)
    parsed = build_recipe({"a": {"n": "verified"}, "b": {"n": 7}, "c": {}, "d": {"n": "recovered"}})
    expected = {"a": solved + recovered, "b": 7, "c": recovered, "d": recovered}
    assert count_condition_slots(parsed, lambda _: source) == expected


def test_rejects_a_condition_for_which_nothing_is_recovered() -> None:
    parsed = build_recipe({"r": {"selector": "gapft", "n": "recovered"}})
    with pytest.raises(UserError, match=r"'conditions\.r\.n'"):
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
