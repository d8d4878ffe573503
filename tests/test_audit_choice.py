"""An additional audit keeps the settings of its search, whatever recipe the next command has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.files import check_tables, check_task
from tests.recording_run import LettersTask, write_letters_task
from tests.verify.tampering import change_manifest

SPLIT = "audit/other"
NOTHING = {"name": "nothing"}
LIMIT = {"task": "others", "limit": 8}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    letters_task = write_letters_task(tmp_path, pool=6, audit=5)
    text = (tmp_path / "tasks/letters.yaml").read_text()
    others = text.replace("task: letters", "task: others").replace("audit.jsonl", "other.jsonl")
    (tmp_path / "tasks/others.yaml").write_text(others)
    letters_task.write("other", range(12))
    return letters_task


def run_search(task: LettersTask, other: dict[str, Any], **keys: Any) -> RunDirectory:
    sections = {"search": {"k": 2, "chunk": 6}, "audits": {"other": {"task": "others", **other}}}
    return task.run("r", splits=(SPLIT,), **sections, **keys)


def find_differences(run: RunDirectory) -> list[str]:
    manifest = run.manifest()
    return [*check_tables(run, manifest, SPLIT), *check_task(run, manifest, SPLIT)]


def test_unsealed_audit_keeps_its_recorded_choice(
    task: LettersTask,
) -> None:
    run = run_search(task, {"limit": 8})
    assert run.manifest()["audits"]["other"]["settings"] == LIMIT

    def remove_records(manifest: dict[str, Any]) -> None:
        del manifest["audits"], manifest["verdict_counts"][SPLIT]
        for table in ("problems", "responses"):
            del manifest["files"][f"{SPLIT}/{table}.parquet"]

    change_manifest(run.path, remove_records)
    for other, message in (
        ({"limit": 3}, r"other was searched with other settings.*audits\.other\.limit 8 → 3"),
        ({"limit": 8, "verifier": NOTHING}, r"audits\.other\.verifier not set → "),
    ):
        with pytest.raises(UserError, match=message):
            run_search(task, other)
        assert f"{SPLIT}/responses.parquet" not in run.manifest()["files"]
    assert run_search(task, {"limit": 8}).manifest()["audits"]["other"]["settings"] == LIMIT


def test_verify_checks_the_recorded_choice(task: LettersTask) -> None:
    run = run_search(task, {"limit": 8})
    assert find_differences(run) == []
    change_manifest(run.path, lambda m: m["audits"]["other"]["settings"].update(limit=3))
    table, recipe = find_differences(run)
    assert f"{SPLIT}/responses.parquet, settings: limit is 8, manifest.json, audits has 3" in table
    assert "manifest.json, audit/other, settings: limit is 3, the recipe has 8" in recipe
