"""Searches whose model, files or outputs change between two commands, or between two jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.engine import runner
from gapft_harness.hooks import manager
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings, read_source
from gapft_harness.stages.search.stage import run_search_stage
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task
from tests.kit.records import read_records


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=8, audit=6)


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))
    manager._load_cached.cache_clear()


def test_splits_with_different_weights_are_refused(task: LettersTask) -> None:
    weights, (first, other) = task.folder / "weights", ("a" * 64, "b" * 64)
    weights.write_text(first)
    run = task.run("r")
    before, records = task.log("r"), read_records(run.path)
    weights.write_text(other)
    with pytest.raises(UserError, match=r"pool.*weights_sha256 a+… → b+…"):
        task.run("r", splits=("audit",))
    assert [record for record in task.log("r")[len(before) :] if "id" in record] == []
    assert read_records(run.path) == records
    weights.write_text(first)
    task.run("r", splits=("pool", "audit"))
    assert read_source(run)["weights_sha256"] == first
    assert run.has("audit/responses.parquet")


@dataclass
class EditingExecutor(InProcessExecutor):
    """Edits a file after the first job of a search; workers begin as new processes."""

    edit: tuple[Path, str, str]

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        results = []
        for job in jobs:
            results += super().run([job], progress)
            if job.label == "search pool, 1 of 2":
                edit(*self.edit)
        return results


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tasks/pool.jsonl", '"answer": "a"', '"answer": "e"'),
        ("tasks/letters.yaml", 'word: ""', 'word: "!!!!!"'),
        ("plugin.py", "g in r", "g not in r"),
    ],
    ids=["gold", "verifier's parameter", "verifier"],
)
def test_edit_between_jobs_is_detected(task: LettersTask, file: str, old: str, new: str) -> None:
    """The problems' ids stay the same, since a problem's content is its question."""
    run = task.run("r", splits=(), executor={"workers": 2}, search={"chunk": 1})
    editing = EditingExecutor((task.folder / file, old, new))
    with pytest.raises(UserError, match="run the same command again"):
        run_search_stage(replace(task.context(run, ("pool",)), executor=editing))
    assert not run.has("pool/responses.parquet")


def test_task_edited_before_the_audit_is_detected(task: LettersTask) -> None:
    run = task.run("r")
    file = task.folder / "tasks/letters.yaml"
    text = file.read_text()
    edit(file, "max_gen_toks: 12", "max_gen_toks: 12, until: [x]")
    with pytest.raises(UserError, match=r'decoding\.until \[\] → \["x"\]'):
        run_search_stage(task.context(run, ("audit",)))
    assert not list(run.path.glob("audit/*"))
    # a split for later calibration; neither pool nor audit use it
    file.write_text(f"{text}\nvalidation_split: later\n")
    run_search_stage(task.context(run, ("audit",)))
    assert run.has("audit/responses.parquet")


class ReportsDone(InProcessExecutor):
    """Reports every search as done, like a machine whose disk is not shared."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        return [
            {order["place"]: {} for order in job.arguments["orders"]}
            if "orders" in job.arguments
            else super(ReportsDone, self).run([job], progress)[0]
            for job in jobs
        ]


def test_missing_tables_are_an_error(task: LettersTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_VISIBLE_TIMEOUT_S", 0.0)
    run = task.run("r", splits=())
    with pytest.raises(GapftError, match=r"was made, but .* not visible"):
        run_search_stage(replace(task.context(run), executor=ReportsDone()))


@pytest.mark.thorough
def test_records_that_the_models_penalty_is_ignored(tmp_path: Path) -> None:
    """Qwen2.5-Instruct has such a file. Also responses from the store get the warning."""
    arguments = prepare_letters_run(tmp_path)
    GenerationConfig(repetition_penalty=1.05, eos_token_id=2).save_pretrained(tmp_path / "model")
    expected = f"{tmp_path / 'model'}: ignored repetition_penalty=1.05 of its generation_config: "
    done = succeed(*arguments, "first", "--only", "search", cwd=tmp_path)
    assert expected in " ".join((done.stdout + done.stderr).split())
    succeed(*arguments, "second", "--only", "search", cwd=tmp_path)
    for name in ("first", "second"):
        warnings = list_warnings(RunDirectory.open(tmp_path / name))
        (warning,) = [line for line in warnings if "generation_config" in line]
        assert warning.startswith(expected)
