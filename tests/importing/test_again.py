"""Repeated imports, interrupted imports, and files that change during an import."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.importing.job import require_not_searched
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.run_directory import layout
from gapft_harness.stages.pipeline import run_stages
from tests.importing.made import (
    VERDICTS,
    build_lines,
    gather_responses,
    import_and_run,
    write_lines,
)
from tests.kit.recording_run import LettersTask, write_letters_task


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def test_resumes_only_identical_import(task: LettersTask, model: Path) -> None:
    """Different options or files would be ignored, because the table already exists."""
    file = write_lines(task.folder / "r.jsonl", build_lines(VERDICTS))
    run = import_and_run(task, model, "run", [file])
    require_not_searched(str(run.path), "pool", ImportChoice([file]))
    for choice, message in (
        (ImportChoice([file], judge=True), "judge: false before, true now"),
        (ImportChoice([file], metric="other"), 'metric: null before, "other" now'),
        (ImportChoice([file], filter="none"), "filter: null before"),
        (ImportChoice([file], on=[("a", "b")]), r'on: \[\] before, \[\["a", "b"\]\] now'),
        (ImportChoice([file], ignore_unknown=True), "ignore_unknown: false before"),
        (ImportChoice([], greedy=file), "greedy: null before"),
    ):
        with pytest.raises(
            UserError, match=rf"pool was imported with other options \(.*{message}.* already"
        ):
            require_not_searched(str(run.path), "pool", choice)
    other = write_lines(task.folder / "other.jsonl", [*build_lines(VERDICTS), ""])
    for files in ([other], [file, other]):
        with pytest.raises(UserError, match="pool was imported from other files already"):
            require_not_searched(str(run.path), "pool", ImportChoice(files))


def test_search_removes_leftovers_of_killed_import(task: LettersTask, model: Path) -> None:
    run = import_and_run(
        task, model, "run", [write_lines(task.folder / "r.jsonl", build_lines(VERDICTS))]
    )
    leftovers = run.path / layout.import_folder("audit")
    leftovers.mkdir(parents=True)
    (leftovers / "0.jsonl").touch()
    run_stages(task.context(run, ("audit",)), ["search"], lambda stage: None)
    assert (run.path / "audit/responses.parquet").exists()
    assert not leftovers.exists()


def test_rejects_file_changed_while_reading(tokenizer: Retokenizer, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "r.jsonl", build_lines(VERDICTS))
    with pytest.raises(UserError, match=f"{file}: was changed while it was read"):
        gather_responses(tokenizer, ImportChoice([file]), lambda done: _append_line(file))


def _append_line(file: str) -> None:
    with Path(file).open("a") as stream:
        stream.write("\n")


def test_rejects_pipes_and_missing_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        UserError, match=r"is not a regular file \(a pipe\?\).* more than once; write"
    ):
        require_not_searched(str(tmp_path / "run"), "pool", ImportChoice([str(tmp_path / "pipe")]))
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read: No such file"):
        require_not_searched(
            str(tmp_path / "run"), "pool", ImportChoice([str(tmp_path / "none.jsonl")])
        )
