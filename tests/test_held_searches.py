"""A task that is edited between two searches, or between two jobs of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.stages.search.stage import run_search_stage
from tests.kit.command import gapft, succeed
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task
from tests.kit.records import read_records

RECIPE = (
    "name: r\ndata: {task: letters}\n"
    "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {workers: 1}\n"
)


@pytest.mark.thorough
def test_detects_task_edited_before_audit(
    tmp_path: Path,
) -> None:
    write_letters(tmp_path, {"pool": 5, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    again = ("run", "--run-dir", "run", "--only", "search", "--plugin", "contains.py")
    command = (*again, "--include-path", "tasks")
    succeed(*command, "recipe.yaml", "--split", "pool", cwd=tmp_path)
    task = tmp_path / "tasks/letters.yaml"
    text = task.read_text()
    task.write_text(text.replace("max_gen_toks: 12", "max_gen_toks: 12, until: [x]"))
    refused = gapft(*command, "--split", "audit", cwd=tmp_path)
    assert refused.returncode == 2
    assert 'decoding.until [] → ["x"]' in " ".join(refused.stderr.split())
    assert list((tmp_path / "run").glob("audit/*")) == []
    # a split for later calibration; neither pool nor audit use it
    task.write_text(f"{text}\nvalidation_split: later\n")
    # it uses the include paths of the pool's search
    succeed(*again, "--split", "audit", cwd=tmp_path)
    task.write_text(text)
    plan = ("recipe.yaml", "--dry-run", "--run-dir", "run", "--plugin", "contains.py")
    assert "pool 5, audit 4" in gapft("run", *plan, cwd=tmp_path).stdout  # no model is available
    assert {"pool", "audit"} <= read_records(tmp_path / "run").keys()


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=8, audit=6)


class EditingExecutor(InProcessExecutor):
    """Edits a file after the first job of a search."""

    def __init__(self, file: Path, old: str, new: str) -> None:
        self._file, self._edit = file, (old, new)

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        results = []
        for job in jobs:
            results += super().run([job], progress)
            if job.label == "search pool, 1 of 2":
                self._file.write_text(self._file.read_text().replace(*self._edit))
        return results


def test_detects_gold_edited_between_jobs(task: LettersTask) -> None:
    """The id stays the same, since a problem's content is its question."""
    run = task.run("r", splits=(), executor={"workers": 2}, search={"chunk": 1})
    edits = EditingExecutor(task.folder / "tasks/pool.jsonl", '"answer": "a"', '"answer": "e"')
    with pytest.raises(UserError, match=r"pool: its problems or verifier have just changed"):
        run_search_stage(replace(task.context(run, ("pool",)), executor=edits))
    assert not (run.path / "pool/responses.parquet").exists()
