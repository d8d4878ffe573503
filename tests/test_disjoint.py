"""Pool and audit share no problem, before generation and when they are recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings
from gapft_harness.stages.pipeline import STAGES
from gapft_harness.stages.search.disjoint import (
    DuplicateIndex,
    require_disjoint,
)
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.records import record_again
from tests.kit.tampering import read_rows, write_rows

KEYED = st.tuples(
    st.builds("{}-{:012x}".format, st.sampled_from("abc"), st.integers(0, 3)),
    st.sampled_from(["x", " x", "x\n", "X", "y  z", "y z"]),
)


@settings(deadline=None)
@given(st.lists(KEYED, max_size=6), st.lists(KEYED, max_size=6))
def test_finds_shared_problems_from_both_sides(
    pool: list[tuple[str, str]], audit: list[tuple[str, str]]
) -> None:
    """Compare the hash in the id and the stripped prompt."""

    def is_same(a: tuple[str, str], b: tuple[str, str]) -> bool:
        return a[0][-12:] == b[0][-12:] or a[1].strip() == b[1].strip()

    shared = [a for a in sorted(pool) if any(is_same(a, b) for b in audit)]
    matches = DuplicateIndex(audit).list_shared(pool)
    assert [name for name, _ in matches] == [name for name, _ in shared]
    assert all(any(b[0] == audit_id for b in audit) for _, audit_id in matches)
    assert bool(matches) == bool(DuplicateIndex(pool).list_shared(audit))
    if not matches:
        require_disjoint({"pool": pool, "audit": audit}, "t", keep_shared=False)
        return
    with pytest.raises(UserError, match=rf"first: {matches[0][0]} .*drop_shared=true"):
        require_disjoint({"pool": pool, "audit": audit}, "t", keep_shared=False)


RECIPE = (
    "name: r\ndata: {task: letters}\n"
    "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {workers: 1}\n"
)
SEARCH = ("run", "recipe.yaml", "--run-dir", "run", "--only", "search", "--include-path", "tasks")
OPTIONS = ("--plugin", "contains.py")


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    write_letters(tmp_path, {"pool": 6, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def share_problems(folder: Path, count: int) -> None:
    """Add problems of the pool to the audit, with other ids and white space."""
    lines = (folder / "tasks/pool.jsonl").read_text().splitlines()
    with (folder / "tasks/audit.jsonl").open("a") as audit:
        for record in map(json.loads, lines[:count]):
            again = {**record, "id": "other", "question": f"{record['question']} "}
            audit.write(json.dumps(again) + "\n")


def count_problems(run: Path) -> list[int]:
    return [len(read_rows(run / f"{split}/problems.parquet")) for split in ("pool", "audit")]


def test_shared_problems_are_refused(task_folder: Path) -> None:
    share_problems(task_folder, 6)
    for split in ("pool", "audit"):
        done = gapft(*SEARCH, "--split", split, *OPTIONS, cwd=task_folder)
        assert done.returncode == 2
        assert "6 of 6 pool problems are also in the audit, first: pool0-" in done.stderr
        assert "data.drop_shared=true" in done.stderr
        assert not (task_folder / "run").exists()
    dry_run = gapft("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", cwd=task_folder)
    assert "6 of 6 pool problems are also in the audit" in dry_run.stdout


def test_drop_shared_removes_pool_problems(task_folder: Path) -> None:
    share_problems(task_folder, 2)
    done = succeed(*SEARCH, *OPTIONS, "--set", "data.drop_shared=true", cwd=task_folder)
    assert "2 of 6 problems dropped" in " ".join(done.stderr.split())
    assert count_problems(task_folder / "run") == [4, 6]
    succeed("verify", "run", *OPTIONS, cwd=task_folder)


def test_keep_shared_says_so_everywhere(task_folder: Path) -> None:
    share_problems(task_folder, 2)
    message, setting = "2 of 6 pool problems are also in the audit", "data.keep_shared=true"
    plan = ("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", "--set", setting)
    assert message in gapft(*plan, cwd=task_folder).stdout
    done = succeed(*SEARCH, *OPTIONS, "--set", setting, cwd=task_folder)
    assert message in " ".join(done.stderr.split())
    run = task_folder / "run"
    assert count_problems(run) == [6, 6]
    assert [line for line in list_warnings(RunDirectory.open(run)) if message in line]
    assert message in succeed("verify", "run", *OPTIONS, cwd=task_folder).stdout
    both = gapft(*plan, "--set", "data.drop_shared=true", cwd=task_folder)
    assert both.returncode == 2
    assert "data.drop_shared" in both.stderr


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=8, audit=6)


def copy_prompt(run: RunDirectory) -> None:
    """Copy an audit problem's prompt to a pool problem, and record the table again."""
    path = run.path / "pool/problems.parquet"
    rows = read_rows(path)
    rows[0]["prompt"] = read_rows(run.path / "audit/problems.parquet")[0]["prompt"]
    write_rows(path, rows)
    record_again(run.path, "pool")


def test_verify_detects_shared_problems(task: LettersTask) -> None:
    run = task.run("r", ("states", "select"), ("pool", "audit"), conditions=["gapft"])
    assert verify(run.path, task.plugins).differences == []
    copy_prompt(run)
    message = "1 of 8 pool problems are also in the audit"
    assert any(message in line for line in verify(run.path, task.plugins).differences)
    with pytest.raises(UserError, match=message):
        STAGES["search"](task.context(run))


def test_warns_once_of_case_difference(task: LettersTask) -> None:
    with (task.folder / "tasks" / "audit.jsonl").open("a") as file:
        file.write(json.dumps({"id": "n", "question": "POOL 0?", "answer": "a"}) + "\n")
    run = task.run("r", splits=("pool", "audit"))
    STAGES["search"](task.context(run))
    warnings = [line for line in list_warnings(run) if "case or white space" in line]
    assert len(warnings) == 1
    assert len(read_rows(run.path / "pool/problems.parquet")) == 8
