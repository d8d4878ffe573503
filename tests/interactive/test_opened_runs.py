"""A run's tables in Python: rows with their split or arm, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gapft_harness as g
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_judged, read_states
from tests.compare.logs import write_log
from tests.kit.runs import BaseRun

RunAt = Callable[..., BaseRun]


def test_tables_hold_rows_with_arm_columns(run_at: RunAt) -> None:
    path = run_at("audited").path
    run = g.open_run(path)
    states = run.states.to_pylist()
    for split in ("audit", "pool"):
        rows = [(row["problem_id"], row["state"]) for row in states if row["split"] == split]
        recorded = read_states(path / layout.states_path(split))
        assert rows == [(entry.problem_id, entry.state) for entry in recorded]
    decisions = [row for row in run.decisions.to_pylist() if not row["of"]]
    conditions = {row["condition"] for row in decisions}
    assert conditions == {*run.selections["condition"].to_pylist()}
    assert {"gapft", "uniform"} <= conditions
    for condition in conditions:
        passed = [row["status"] == "pass" for row in decisions if row["condition"] == condition]
        judged = read_judged(path / layout.decisions_path(Arm(condition, 13)))
        assert passed == [decision.verdict.passed for _, (decision,) in judged]
    table = run.read("responses", ["index"], split="audit")
    assert table.column_names == ["split", "index"]
    assert table["index"].to_pylist() == [-1, 0, 1, 2, 3] * 40


def test_wrong_arguments_are_refused(run_at: RunAt, tmp_path: Path) -> None:
    """The error names the argument."""
    run = g.open_run(str(run_at("audited").path))
    for wrong, culprit in [
        (lambda: g.open_run(tmp_path / "none"), "none"),
        (lambda: run.read("state"), "'state'.*'states'"),
        (lambda: run.read("states", ["sate"]), "'sate'.*'state'"),
        (lambda: run.read("states", split="audti"), "'audti'.*'audit'"),
        (lambda: run.read("decisions", split="audit"), "decisions"),
        (lambda: g.compare("before", []), "'after'"),
        (lambda: g.compare(tmp_path / "before", "x"), "before"),
    ]:
        with pytest.raises(UserError, match=culprit):
            wrong()


def test_unfinished_run_names_missing_stage(run_at: RunAt) -> None:
    run = run_at("searched")
    with pytest.raises(UserError, match=f"gapft run {run.path} --only select"):
        _ = g.open_run(run.path).selections


def test_changed_table_is_refused(run_at: RunAt) -> None:
    path = run_at("searched").path
    with (path / layout.states_path("audit")).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match=r"states/audit\.parquet"):
        _ = g.open_run(path).states


def test_compare_returns_the_page_of_the_command(tmp_path: Path) -> None:
    write_log(tmp_path / "before", [1, 0, 0, 1] * 20)
    write_log(tmp_path / "after", [1, 1, 0, 1] * 20)
    page = g.compare(tmp_path / "before", {"tuned": tmp_path / "after"})
    values = [value for rows in page.list_results().values() if isinstance(rows, list)
              for row in rows if isinstance(row, dict) for value in row.values()]  # fmt: skip
    assert 0.25 in values
    assert "tuned" in repr(page)
    assert "![" not in page._repr_markdown_()  # a notebook does not have the files of figures
    page.write(tmp_path / "out")
    assert (tmp_path / "out/results.json").is_file()


def test_compare_is_function_after_module_import() -> None:
    import gapft_harness.compare.comparison  # noqa: F401 - sets the attribute
    from gapft_harness import compare

    assert compare is g.compare
    assert compare.__module__ == "gapft_harness.interactive.functions"
    with pytest.raises(AttributeError, match="comprae"):
        _ = g.comprae  # type: ignore[attr-defined]
    assert all(getattr(g, name) is not None for name in g.__all__)
