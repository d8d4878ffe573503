"""One model for all splits of a run: by its weights' hashes, else by the names it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.recording import record_search, require_same_model
from tests.recording_run import Letters, letters

A, B = "a" * 64, "b" * 64


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=5, audit=4)


def weigh(task: Letters, weights: str) -> None:
    (task.folder / "weights").write_text(weights)


def test_a_split_of_other_weights_is_refused_before_anything_is_generated(task: Letters) -> None:
    weigh(task, A)
    run = task.run("r")
    before, manifest = task.log("r"), run.manifest()
    weigh(task, B)
    said = f"audit: searched with a different model than pool: weights_sha256 is {B}, expected {A}"
    with pytest.raises(UserError, match=said):
        task.run("r", splits=("audit",))
    assert [record for record in task.log("r")[len(before) :] if "id" in record] == []
    assert run.manifest()["files"] == manifest["files"]
    weigh(task, A)
    task.run("r", splits=("pool", "audit"))
    assert run.manifest()["source"]["weights_sha256"] == A
    assert "audit/responses.parquet" in run.manifest()["files"]


@pytest.mark.parametrize(
    ("before", "now", "differs"),
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
def test_what_tells_two_models_apart(
    before: dict[str, Any], now: dict[str, Any], differs: str
) -> None:
    task = {"name": "t", "fingerprint": "f", "dropped": []}
    counts: dict[str, Any] = {"pool": {}, "audit": {}, "gapft-seed13": {}}
    manifest = {"task": task, "source": before, "verdict_counts": counts, "warnings": []}
    facts = {"task": task, "source": now, "warnings": []}
    if not differs:
        require_same_model(manifest, "calibration", now)
        record_search("calibration", facts)(manifest)
        assert manifest["source"] == now
        return
    said = rf"calibration: .* different model than pool and audit: {differs}"
    with pytest.raises(UserError, match=said):
        require_same_model(manifest, "calibration", now)
    with pytest.raises(UserError, match=said):
        record_search("calibration", facts)(manifest)
    assert manifest["source"] == before


def test_an_adapter_on_a_server_is_no_other_model_though_it_has_a_name_of_its_own() -> None:
    manifest = {"source": {"model": "base", "pretrained": "base"}, "verdict_counts": {"audit": {}}}
    arm = {"model": "gapft:gapft-seed13", "pretrained": "base", "adapter": {"arm": "gapft-seed13"}}
    require_same_model(manifest, "gapft-seed13", arm)
    for other in ({**arm, "pretrained": "other"}, {**arm, "adapter": None}):
        with pytest.raises(UserError, match=r"gapft-seed13: .*different model"):
            require_same_model(manifest, "gapft-seed13", other)
