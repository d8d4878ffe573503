"""The search stage reads all data before it searches, and records each finished split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from gapft_harness.core.errors import GapftError
from gapft_harness.engine import runner
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings
from gapft_harness.stages.search.stage import (
    run_search_stage,
)
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=5, audit=4)


class ReportsDone(InProcessExecutor):
    """Reports every search as done, like a machine whose disk is not shared."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        return [
            {order["place"]: {} for order in job.arguments["orders"]}
            if "orders" in job.arguments
            else super(ReportsDone, self).run([job], progress)[0]
            for job in jobs
        ]


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
        assert "lm_eval --model hf apply the penalty" in warning


def test_missing_tables_are_an_error(task: LettersTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_VISIBLE_TIMEOUT_S", 0.0)
    run = task.run("r", splits=())
    with pytest.raises(GapftError, match=r"was made, but .* not visible"):
        run_search_stage(replace(task.context(run), executor=ReportsDone()))
