"""A further audit is what it was searched by, whatever recipe the next command brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.files import check_tables, check_task
from tests.recording_run import Letters, letters
from tests.verify.tampering import change_manifest

SPLIT = "audit/other"
NOTHING = {"name": "nothing"}
LIMIT = {"task": "others", "limit": 8}


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    made = letters(tmp_path, pool=6, audit=5)
    text = (tmp_path / "tasks/letters.yaml").read_text()
    others = text.replace("task: letters", "task: others").replace("audit.jsonl", "other.jsonl")
    (tmp_path / "tasks/others.yaml").write_text(others)
    made.write("other", range(12))
    return made


def search(task: Letters, other: dict[str, Any], **keys: Any) -> RunDirectory:
    sections = {"search": {"k": 2, "chunk": 6}, "audits": {"other": {"task": "others", **other}}}
    return task.run("r", splits=(SPLIT,), **sections, **keys)


def found(run: RunDirectory) -> list[str]:
    manifest = run.manifest()
    return [*check_tables(run, manifest, SPLIT), *check_task(run, manifest, SPLIT)]


def test_what_a_kill_left_unsealed_is_not_taken_for_what_another_recipe_says(
    task: Letters,
) -> None:
    run = search(task, {"limit": 8})
    assert run.manifest()["audits"]["other"]["settings"] == LIMIT

    def forget(manifest: dict[str, Any]) -> None:
        del manifest["audits"], manifest["verdict_counts"][SPLIT]
        for table in ("problems", "responses"):
            del manifest["files"][f"{SPLIT}/{table}.parquet"]

    change_manifest(run.path, forget)
    for other, said in (
        ({"limit": 3}, r"other was searched with other settings.*audits\.other\.limit 8 → 3"),
        ({"limit": 8, "verifier": NOTHING}, r"audits\.other\.verifier not set → "),
    ):
        with pytest.raises(UserError, match=said):
            search(task, other)
        assert f"{SPLIT}/responses.parquet" not in run.manifest()["files"]
    assert search(task, {"limit": 8}).manifest()["audits"]["other"]["settings"] == LIMIT


def test_verify_holds_the_choice_to_the_table_and_to_the_recipe(task: Letters) -> None:
    run = search(task, {"limit": 8})
    assert found(run) == []
    change_manifest(run.path, lambda m: m["audits"]["other"]["settings"].update(limit=3))
    table, recipe = found(run)
    assert f"{SPLIT}/responses.parquet, said: limit is 8, manifest.json, audits has 3" in table
    assert "manifest.json, audit/other, said: limit is 3, the recipe has 8" in recipe
