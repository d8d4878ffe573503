"""All splits of a run use one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from tests.kit.recording_run import write_letters_task

A, B = "a" * 64, "b" * 64


def test_splits_with_different_weights_are_refused(tmp_path: Path) -> None:
    task = write_letters_task(tmp_path, pool=5, audit=4)
    weights = task.folder / "weights"
    weights.write_text(A)
    run = task.run("r")
    before, manifest = task.log("r"), run.manifest()
    weights.write_text(B)
    with pytest.raises(UserError, match=r"pool.*weights_sha256 a+… → b+…"):
        task.run("r", splits=("audit",))
    assert [record for record in task.log("r")[len(before) :] if "id" in record] == []
    assert run.manifest()["files"] == manifest["files"]
    weights.write_text(A)
    task.run("r", splits=("pool", "audit"))
    assert run.manifest()["source"]["weights_sha256"] == A
    assert "audit/responses.parquet" in run.manifest()["files"]
