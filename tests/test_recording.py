"""All splits of a run use one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.recorded import read_source
from tests.kit.recording_run import write_letters_task
from tests.kit.records import read_records

A, B = "a" * 64, "b" * 64


def test_splits_with_different_weights_are_refused(tmp_path: Path) -> None:
    task = write_letters_task(tmp_path, pool=5, audit=4)
    weights = task.folder / "weights"
    weights.write_text(A)
    run = task.run("r")
    before, records = task.log("r"), read_records(run.path)
    weights.write_text(B)
    with pytest.raises(UserError, match=r"pool.*weights_sha256 a+… → b+…"):
        task.run("r", splits=("audit",))
    assert [record for record in task.log("r")[len(before) :] if "id" in record] == []
    assert read_records(run.path) == records
    weights.write_text(A)
    task.run("r", splits=("pool", "audit"))
    assert read_source(run)["weights_sha256"] == A
    assert run.has("audit/responses.parquet")
