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
from tests.kit.command import gapft, succeed
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.tampering import read_rows

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
    message = (
        rf"{len(matches)} of {len(pool)} pool problems .* first: {matches[0][0]} .*drop_shared=true"
    )
    with pytest.raises(UserError, match=message):
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


def test_rejects_audit_equal_to_pool(task_folder: Path) -> None:
    tasks = task_folder / "tasks"
    (tasks / "audit.jsonl").write_text((tasks / "pool.jsonl").read_text())
    for split in ("pool", "audit"):
        done = gapft(*SEARCH, "--split", split, *OPTIONS, cwd=task_folder)
        assert done.returncode == 2
        assert "6 of 6 pool problems are also in the audit, first: pool0-" in done.stderr
        assert "data.drop_shared=true" in done.stderr
        assert not (task_folder / "run").exists()
    dry_run = gapft("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", cwd=task_folder)
    assert "6 of 6 pool problems are also in the audit" in dry_run.stdout


def test_drop_shared_removes_pool_problems(task_folder: Path) -> None:
    tasks = task_folder / "tasks"
    pool = [json.loads(line) for line in (tasks / "pool.jsonl").read_text().splitlines()]
    again = [{**record, "id": "other", "question": f"{record['question']} "} for record in pool[:2]]
    with (tasks / "audit.jsonl").open("a") as audit:
        audit.writelines(json.dumps(record) + "\n" for record in again)
    command = (*SEARCH, *OPTIONS, "--set", "data.drop_shared=true")
    message = " ".join(succeed(*command, cwd=task_folder).stderr.split())
    assert (
        "pool: 2 of 6 problems dropped because they are also in the audit (drop_shared)" in message
    )
    run = task_folder / "run"
    assert [len(read_rows(run / s / "problems.parquet")) for s in ("pool", "audit")] == [4, 6]
    assert (
        "no problem of one split is in another (pool, audit)"
        in succeed("verify", "run", *OPTIONS, cwd=task_folder).stdout
    )


def test_keep_shared_counts_problems(task_folder: Path) -> None:
    """Two of six pool problems equal one of five audit problems."""
    tasks = task_folder / "tasks"
    pool = [json.loads(line) for line in (tasks / "pool.jsonl").read_text().splitlines()]
    shared = {**pool[0], "id": "other", "question": f"{pool[0]['question']} "}
    with (tasks / "audit.jsonl").open("a") as audit:
        audit.write(json.dumps(shared) + "\n")
    again = {**pool[1], "id": "again", "question": pool[0]["question"]}
    (tasks / "pool.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*pool[:5], again]))
    message = (
        "2 of 6 pool problems are also in the audit, where they are 1 of 5 problems; they are kept"
    )
    setting = ("--set", "data.keep_shared=true")
    command = ("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", *setting)
    dry = gapft(*command, cwd=task_folder).stdout
    assert f"# warnings\npool: {message}" in dry
    output = " ".join(succeed(*SEARCH, *OPTIONS, *setting, cwd=task_folder).stderr.split())
    assert f"warning: {message}" in output
    run = task_folder / "run"
    assert [len(read_rows(run / s / "problems.parquet")) for s in ("pool", "audit")] == [6, 5]
    warnings = list_warnings(RunDirectory.open(run))
    assert [line for line in warnings if line.startswith(message)]
    assert not [line for line in warnings if "case or white space" in line]
    done = succeed("verify", "run", *OPTIONS, cwd=task_folder).stdout
    assert "no problem of one split is in another, except those that are kept (pool, audit)" in done
    assert message in done
    both = gapft(*command, "--set", "data.drop_shared=true", cwd=task_folder)
    assert both.returncode == 2
    assert "cannot be true together with data.drop_shared" in both.stderr


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=8, audit=6)


def test_warns_once_of_case_difference(task: LettersTask) -> None:
    with (task.folder / "tasks" / "audit.jsonl").open("a") as file:
        file.write(json.dumps({"id": "n", "question": "POOL 0?", "answer": "a"}) + "\n")
    run = task.run("r", splits=("pool", "audit"))
    STAGES["search"](task.context(run))
    warnings = [line for line in list_warnings(run) if "case or white space" in line]
    assert len(warnings) == 1
    assert len(read_rows(run.path / "pool/problems.parquet")) == 8
