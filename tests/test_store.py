"""The store refuses places inside a run; removed work is gone; large files are hashed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core import digests, files
from gapft_harness.core.digests import hash_file
from gapft_harness.core.errors import UserError
from gapft_harness.engine.inventory import StoredWork, remove_stored
from gapft_harness.engine.store import STORE_VARIABLE, open_store


@pytest.mark.parametrize("inside", ["", "store", "pool/store", "../run/store"])
def test_rejects_store_inside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "run" / inside))
    with pytest.raises(UserError, match=STORE_VARIABLE):
        open_store(tmp_path / "run")


def test_work_is_removed_after_a_removal_that_was_killed(tmp_path: Path) -> None:
    for name in ("key", ".key.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "output.jsonl").write_text("{}\n")
    remove_stored([StoredWork(tmp_path / "key", 0, 0, 0, (), {})])
    assert [*tmp_path.iterdir()] == []


def test_large_file_is_rehashed_only_after_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"a" * (1 << 20))
    expected, hashed = files.sha256(weights), []
    monkeypatch.setattr(digests, "sha256", lambda path: hashed.append(path) or files.sha256(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hash_file(weights) == hash_file(weights) == expected
    assert len(hashed) == 2, "it was written just now"
    monkeypatch.setattr(digests, "RECENT_CHANGE_NS", -(10**12))
    assert hash_file(weights) == hash_file(weights) == expected
    assert len(hashed) == 3
    weights.write_bytes(b"b" * (1 << 20))
    assert hash_file(weights) == files.sha256(weights) != expected
    (tmp_path / "gapft-harness/digests.json").write_text("{")
    assert hash_file(weights) == files.sha256(weights)
