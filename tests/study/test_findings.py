"""A study's findings: cells as in their own reports, recomputed means, and joined tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.presentation.content import Column, Table
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.study.cells import Cell
from gapft_harness.study.findings import StudyFindings, compute_study
from gapft_harness.study.page import join_tables
from gapft_harness.study.protocol import select_audit_protocol, select_task_protocol
from gapft_harness.study.recipe import StudyRecipe
from tests.report import planted


def build_cell(number: int, sizes: tuple[int, int, int] = (30, 20, 18)) -> ReportInputs:
    """Build planted inputs; each number gives different trained models on the same audit."""
    base = planted.build_inputs(sizes=sizes, k=4)
    arms = [
        planted.build_arm(
            base.audit,
            trained.arm.condition,
            trained.arm.seed,
            tuple(rate * (0.8 + 0.15 * number) for rate in planted.FLOWS[trained.arm.condition]),
        )
        for trained in base.arms
    ]
    content = {
        "name": "planted",
        "data": {"task": "planted"},
        "model": {"args": {"pretrained": "planted"}},
        "search": {"k": 4},
        "statistics": {"replicates": 200},
    }
    recipe = check_recipe(content, "planted").model_dump(mode="json")
    return replace(base, arms=tuple(arms), recipe=recipe)


def build_planted_cell(name: str, inputs: ReportInputs) -> Cell:
    """Build a complete cell whose checkpoints have hashes of their own."""
    checkpoints = {arm.arm.name: (f"{name} selection", "decisions") for arm in inputs.arms}
    protocol = select_task_protocol(inputs.task, None) | select_audit_protocol(inputs)
    return Cell(name, Path(name), protocol=protocol, inputs=inputs, checkpoints=checkpoints)


def compute(cells: Sequence[Cell], **changes: Any) -> StudyFindings:
    """Compute a study of these cells."""
    content = {"name": "planted", "cells": {cell.name: {"run": cell.name} for cell in cells}}
    return compute_study(StudyRecipe.model_validate(content | changes), cells)


def move_to_other_audit(inputs: ReportInputs, task: str = "another") -> ReportInputs:
    """Return the inputs with the same outcomes on problems of another task."""
    audit = replace(inputs.audit, ids=np.char.add("other ", inputs.audit.ids))
    data = {**inputs.recipe["data"], "task": task}
    return replace(inputs, audit=audit, recipe={**inputs.recipe, "data": data})


def compute_pass_at_1(inputs: ReportInputs, name: str) -> Fraction:
    models = [inputs.audit] if name == "source" else inputs.find_arms(name)
    passed = np.array([model.deployed.passed for model in models])
    return Fraction(int(passed.sum()), passed.size)


@pytest.fixture(scope="module")
def three_inputs() -> dict[str, ReportInputs]:
    """Build three cells: two models on one audit, a third on another audit."""
    return {
        "a": build_cell(0),
        "b": build_cell(1),
        "c": move_to_other_audit(build_cell(2, sizes=(25, 12, 20))),
    }


@pytest.fixture(scope="module")
def three_cells(three_inputs: Mapping[str, ReportInputs]) -> list[Cell]:
    return [build_planted_cell(name, inputs) for name, inputs in three_inputs.items()]


def test_mean_equals_recomputed_cell_differences(
    three_inputs: dict[str, ReportInputs], three_cells: list[Cell]
) -> None:
    findings = compute(three_cells)
    for (a, b), mean in findings.means.items():
        differences = [
            compute_pass_at_1(inputs, a) - compute_pass_at_1(inputs, b)
            for inputs in three_inputs.values()
        ]
        assert mean.value == sum(differences) / 3
        assert mean.low <= float(mean.value) <= mean.high
    first = [("gapft", other) for other in (*planted.CONDITIONS[1:], "source")]
    assert list(findings.means)[:4] == first
    assert [b for a, b in findings.means if findings.is_matched(a, b)] == ["uniform", "replay"]


def test_interval_matches_plain_bootstrap_loop(
    three_inputs: dict[str, ReportInputs], three_cells: list[Cell]
) -> None:
    """Each replicate draws seeds once, and problems once for all cells with the same audit."""
    rng = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        seeds = rng.integers(3, size=3)
        drawn: dict[str, np.ndarray[Any, Any]] = {}
        values = []
        for inputs in three_inputs.values():
            ids = inputs.audit.ids
            problems = drawn.setdefault(ids[0], rng.integers(len(ids), size=len(ids)))
            a, b = (
                np.array([arm.deployed.passed for arm in inputs.find_arms(name)], dtype=float)
                for name in ("gapft", "uniform")
            )
            values.append((a - b)[seeds][:, problems].mean())
        means.append(np.mean(values))
    low, high = np.quantile(means, [0.025, 0.975])
    interval = compute(three_cells).means["gapft", "uniform"]
    # 200 replicates and 4,000: within a third of the interval's width
    assert interval.low == pytest.approx(low, abs=(high - low) / 3)
    assert interval.high == pytest.approx(high, abs=(high - low) / 3)


def test_equal_cells_have_the_interval_of_one() -> None:
    """They are resampled together; separate draws would shrink it. One cell has its report's."""
    inputs = build_cell(0)
    single, double = (
        compute([build_planted_cell(name, inputs) for name in names]) for names in ("a", "ab")
    )
    assert double.means == single.means
    alone = compute_findings(inputs)
    for (a, b), mean in single.means.items():
        assert mean == alone.find_contrast(a, b).estimate


@settings(max_examples=15)
@given(st.permutations([0, 1, 2]))
def test_cell_order_does_not_change_results(three_cells: list[Cell], order: list[int]) -> None:
    findings, expected = compute([three_cells[i] for i in order]), compute(three_cells)
    assert findings.means == expected.means
    assert findings.findings == expected.findings
    assert list(findings.findings) == ["abc"[i] for i in order]


def test_rejects_different_audits_of_one_task(three_inputs: dict[str, ReportInputs]) -> None:
    task = three_inputs["a"].recipe["data"]["task"]
    other = move_to_other_audit(three_inputs["b"], task)
    cells = [build_planted_cell("a", three_inputs["a"]), build_planted_cell("b", other)]
    with pytest.raises(UserError, match=f"'a' → 'b': audit problems of task {task}.*other"):
        compute(cells)


def test_rejects_checkpoint_in_two_cells(three_cells: list[Cell]) -> None:
    first = three_cells[0]
    with pytest.raises(UserError, match=r"'a' and 'again' .*checkpoint gapft-seed13"):
        compute([first, replace(first, name="again")])


def test_rejects_different_episode_settings(three_inputs: dict[str, ReportInputs]) -> None:
    task = {**three_inputs["b"].task, "episode": {"attempts": 3, "executions": 1}}
    other = replace(three_inputs["b"], task=task)
    cells = [build_planted_cell("a", three_inputs["a"]), build_planted_cell("b", other)]
    with pytest.raises(UserError, match=r"episode\.attempts 1 → 3"):
        compute(cells)


RATE = Column("rate", "Pass@1", "share")


PLAIN = Table("rates", [RATE], [{"rate": 0.5}])


def test_columns_of_any_cell_are_kept() -> None:
    more = Table("rates", [RATE, Column("extra", "extra")], [{"rate": 0.5, "extra": "x"}])
    (joined,) = join_tables({"A": [PLAIN], "B": [more]})
    assert [column.key for column in joined.columns] == ["cell", "rate", "extra"]
    first, second = joined.list_entries()
    assert (first["extra"], second["extra"], second["rate"]) == (None, "x", 0.5)
    assert joined.columns[2].format_cell(joined.rows[0]) == ""


def test_marks_of_any_cell_are_kept() -> None:
    marked = Table("rates", [Column("rate", "Pass@1 †", "share")], [{"rate": 0.5}])
    for tables in ({"A": [marked], "B": [PLAIN]}, {"A": [PLAIN], "B": [marked]}):
        (joined,) = join_tables(tables)
        assert [column.title for column in joined.titled] == ["cell", "Pass@1 †"]
