"""All splits of a run use one model, compared by weight hashes or else by recorded names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.recording import record_search, require_same_model
from tests.kit.recording_run import LettersTask, write_letters_task

A, B = "a" * 64, "b" * 64


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=5, audit=4)


def set_weights(task: LettersTask, weights: str) -> None:
    (task.folder / "weights").write_text(weights)


def test_rejects_splits_with_different_weights(task: LettersTask) -> None:
    set_weights(task, A)
    run = task.run("r")
    before, manifest = task.log("r"), run.manifest()
    set_weights(task, B)
    expected = (
        f"audit: searched with a different model than pool: weights_sha256 is {B}, expected {A}"
    )
    with pytest.raises(UserError, match=expected):
        task.run("r", splits=("audit",))
    assert [record for record in task.log("r")[len(before) :] if "id" in record] == []
    assert run.manifest()["files"] == manifest["files"]
    set_weights(task, A)
    task.run("r", splits=("pool", "audit"))
    assert run.manifest()["source"]["weights_sha256"] == A
    assert "audit/responses.parquet" in run.manifest()["files"]


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ({}, {"weights_sha256": A}, ""),
        ({"weights_sha256": A, "pretrained": "x"}, {"weights_sha256": A, "pretrained": "y"}, ""),
        ({"weights_sha256": A, "model": "x"}, {"weights_sha256": B, "model": "x"}, "weights"),
        ({"weights_sha256": A, "model": "x"}, {"weights_sha256": None, "model": "x"}, ""),
        ({"weights_sha256": A, "model": "x"}, {"model": "y"}, "model is y, expected x"),
        ({"pretrained": "x"}, {"pretrained": "y"}, "pretrained is y, expected x"),
        ({"pretrained": "x"}, {"model": "y"}, ""),
        ({"backend": "dummy"}, {"backend": "dummy"}, ""),
    ],
)
def test_models_are_compared_by_hash_or_name(
    before: dict[str, Any], after: dict[str, Any], differs: str
) -> None:
    task = {"name": "t", "fingerprint": "f", "dropped": []}
    counts: dict[str, Any] = {"pool": {}, "audit": {}, "gapft-seed13": {}}
    manifest = {"task": task, "source": before, "verdict_counts": counts, "warnings": []}
    facts = {"task": task, "source": after, "warnings": []}
    if not differs:
        require_same_model(manifest, "calibration", after)
        record_search("calibration", facts)(manifest)
        assert manifest["source"] == after
        return
    expected = rf"calibration: .* different model than pool and audit: {differs}"
    with pytest.raises(UserError, match=expected):
        require_same_model(manifest, "calibration", after)
    with pytest.raises(UserError, match=expected):
        record_search("calibration", facts)(manifest)
    assert manifest["source"] == before


def test_server_adapter_is_the_same_base_model() -> None:
    manifest = {"source": {"model": "base", "pretrained": "base"}, "verdict_counts": {"audit": {}}}
    arm = {"model": "gapft:gapft-seed13", "pretrained": "base", "adapter": {"arm": "gapft-seed13"}}
    require_same_model(manifest, "gapft-seed13", arm)
    for other in ({**arm, "pretrained": "other"}, {**arm, "adapter": None}):
        with pytest.raises(UserError, match=r"gapft-seed13: .*different model"):
            require_same_model(manifest, "gapft-seed13", other)
