"""A run's tables in Python: rows with their split or arm, and clear errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import gapft_harness as g
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_states, response_schema
from tests.compare.logs import write_log
from tests.kit.recording_run import write_letters_task
from tests.kit.records import record_files

PASSED = {"gapft": {0, 1, 2, 3}, "uniform": {0, 5}}


@pytest.fixture(scope="module")
def audited_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the letters task with planted decisions: PASSED lists the solved problems."""
    task = write_letters_task(tmp_path_factory.mktemp("letters"))
    run = task.run(
        "run",
        ["states", "select"],
        ("pool", "audit"),
        search={"k": 4},
        conditions={"gapft": {}, "uniform": {}},
    )
    return plant_decisions(run, PASSED)


def plant_decisions(run: RunDirectory, passed: dict[str, set[int]]) -> RunDirectory:
    """Write decisions: the source's greedy rows with planted verdicts."""
    table = pq.read_table(run.path / layout.responses_path("audit"))
    greedy = table.filter(pc.equal(table["index"], -1)).to_pylist()
    for condition, right in passed.items():
        place = layout.decisions_path(Arm(condition, 13))
        rows = [
            row | {"status": "pass" if number in right else "fail"}
            for number, row in enumerate(greedy)
        ]
        (run.path / place).parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=response_schema()), run.path / place)
        record_files(run, {place: {}})
    return run


def test_tables_hold_rows_with_arm_columns(audited_run: RunDirectory) -> None:
    run = g.open_run(audited_run.path)
    states = run.states.to_pylist()
    for split in ("audit", "pool"):
        rows_of_split = [
            (row["problem_id"], row["state"]) for row in states if row["split"] == split
        ]
        recorded = read_states(audited_run.path / layout.states_path(split))
        assert rows_of_split == [(entry.problem_id, entry.state) for entry in recorded]
    assert run.responses.num_rows == 5 * (24 + 21)
    assert {*run.problems["split"].to_pylist()} == {"audit", "pool"}
    assert {*run.selections["condition"].to_pylist()} == set(PASSED)
    decisions = run.decisions.to_pylist()
    assert {(row["training_seed"], row["of"]) for row in decisions} == {(13, "")}
    for condition, right in PASSED.items():
        rows = [row for row in decisions if row["condition"] == condition]
        assert {n for n, row in enumerate(rows) if row["status"] == "pass"} == right
    assert "2 of decisions" in repr(run)
    assert run.states.to_pandas().shape == (45, 7)


def test_reads_chosen_columns_and_split(audited_run: RunDirectory) -> None:
    run = g.open_run(str(audited_run.path))
    table = run.read("responses", ["index"], split="audit")
    assert table.column_names == ["split", "index"]
    assert table["index"].to_pylist() == [-1, 0, 1, 2, 3] * 21


def test_wrong_arguments_are_refused(audited_run: RunDirectory, tmp_path: Path) -> None:
    """The error names the argument."""
    run = g.open_run(audited_run.path)
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


def test_unfinished_run_names_missing_stage(tmp_path: Path) -> None:
    task = write_letters_task(tmp_path)
    run = g.open_run(task.run("run", search={"k": 4}).path)
    assert run.responses.num_rows > 0
    with pytest.raises(UserError, match=f"gapft run {run.path} --only states"):
        _ = run.states


def test_changed_table_is_refused(tmp_path: Path) -> None:
    run = write_letters_task(tmp_path).run("run", ["states"], ("pool", "audit"), search={"k": 4})
    with (run.path / layout.states_path("audit")).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match=r"states/audit\.parquet"):
        _ = g.open_run(run.path).states


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
