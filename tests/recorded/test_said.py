"""Reports of verdicts of logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.gap.searched import read_run
from gapft_harness.stages.pipeline import run_stages
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.report_tables import read_results
from tests.recorded.made import build_lines, search_logs, write_lines

SPLITS = ("pool", "audit")


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def test_reports_verdicts_of_logs_everywhere(task: LettersTask, model: Path) -> None:
    verdicts = [[1, 0, 1], *[[0, 0, 0]] * 2]  # nothing to train on, so the report is complete
    pool = write_lines(task.folder / "pool.jsonl", build_lines(verdicts))
    audit = write_lines(task.folder / "audit.jsonl", build_lines(verdicts, "audit"))
    run = search_logs(task, model, "run", [pool], splits=SPLITS, audit=[audit])
    lines = [f"{split}: verdicts are those of {task.folder / split}" for split in SPLITS]

    def has_lines(text: str) -> bool:
        return all(line in text for line in lines)

    stages = ["states", "select", "report"]
    run_stages(task.context(run, SPLITS), stages, lambda stage: None)
    results = read_results(run.path)
    assert has_lines(" ".join(results["warnings"]))
    facts = {row["setting"]: row["value"] for row in results["facts"]}
    assert facts["imported.pool.verdicts"] == "file"
    assert str(task.folder) not in json.dumps(facts)
    (file,) = json.loads(facts["imported.audit.files"])
    assert file.keys() == {"sha256", "format", "holds"}
    assert has_lines(" ".join(read_run(run.path).warnings))
