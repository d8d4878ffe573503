"""Repeated and interrupted searches with logs, and logs that change."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.stages.search import recorded
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.recorded.made import (
    VERDICTS,
    build_lines,
    gather_responses,
    get_states,
    search_logs,
    write_lines,
)


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def test_changed_log_is_read_again(task: LettersTask, model: Path) -> None:
    lines = build_lines(VERDICTS)
    file = write_lines(task.folder / "r.jsonl", lines)
    before = get_states(search_logs(task, model, "run", [file]))
    write_lines(task.folder / "r.jsonl", [{**lines[0], "passed": 0}, *lines[1:]])
    after = get_states(search_logs(task, model, "run", [file]))
    assert before["pool0"] == "G"
    assert after == {**before, "pool0": "S"}


def test_changed_settings_take_the_responses_again(task: LettersTask, model: Path) -> None:
    lines = [{**line, "other": 1 - line["passed"]} for line in build_lines(VERDICTS)]
    file = write_lines(task.folder / "r.jsonl", lines)
    run = search_logs(task, model, "run", [file])
    before = get_states(run)
    run = search_logs(task, model, "run", [file], metric="other")
    assert get_states(run) != before
    run = search_logs(task, model, "run", [file])
    assert get_states(run) == before


def test_rejects_file_changed_while_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_lines(tmp_path / "r.jsonl", build_lines(VERDICTS))
    read = recorded.read_responses

    def read_and_change(*arguments: object) -> object:
        yield from read(*arguments)  # type: ignore[arg-type]
        append_line(file)

    monkeypatch.setattr(recorded, "read_responses", read_and_change)
    with pytest.raises(UserError, match=f"{file}: changed while they were read"):
        gather_responses(file)


def append_line(file: str) -> None:
    with Path(file).open("a") as stream:
        stream.write("\n")
