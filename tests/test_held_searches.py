"""Files that are edited between two searches, or between two jobs of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks import manager
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.stages.search.stage import run_search_stage
from tests.kit.recording_run import InProcessExecutor, write_letters_task


class EditingExecutor(InProcessExecutor):
    """Edits a file after the first job of a search; workers begin as new processes."""

    def __init__(self, file: Path, old: str, new: str) -> None:
        self._file, self._edit = file, (old, new)

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        results = []
        for job in jobs:
            results += super().run([job], progress)
            if job.label == "search pool, 1 of 2":
                self._file.write_text(self._file.read_text().replace(*self._edit))
                manager._load_cached.cache_clear()
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
def test_edit_between_jobs_is_detected(tmp_path: Path, file: str, old: str, new: str) -> None:
    """The problems' ids stay the same, since a problem's content is its question."""
    task = write_letters_task(tmp_path, pool=8, audit=6)
    run = task.run("r", splits=(), executor={"workers": 2}, search={"chunk": 1})
    editing = EditingExecutor(tmp_path / file, old, new)
    with pytest.raises(UserError, match="run the same command again"):
        run_search_stage(replace(task.context(run, ("pool",)), executor=editing))
    assert not run.has("pool/responses.parquet")


def test_task_edited_before_the_audit_is_detected(tmp_path: Path) -> None:
    task = write_letters_task(tmp_path, pool=5, audit=4)
    run = task.run("r")
    file = tmp_path / "tasks/letters.yaml"
    text = file.read_text()
    file.write_text(text.replace("max_gen_toks: 12", "max_gen_toks: 12, until: [x]"))
    with pytest.raises(UserError, match=r'decoding\.until \[\] → \["x"\]'):
        run_search_stage(task.context(run, ("audit",)))
    assert not list(run.path.glob("audit/*"))
    # a split for later calibration; neither pool nor audit use it
    file.write_text(f"{text}\nvalidation_split: later\n")
    run_search_stage(task.context(run, ("audit",)))
    assert run.has("audit/responses.parquet")
