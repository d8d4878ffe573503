"""The store refuses unreadable stores and places inside a run, and hashes large files once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.core import files
from gapft_harness.core.errors import UserError
from gapft_harness.store import digests
from gapft_harness.store.digests import Digests
from gapft_harness.store.store import FORMAT, STORE_VARIABLE, Store


@pytest.mark.parametrize("content", [{"format": FORMAT + 1}, {}])
def test_rejects_store_of_another_format(tmp_path: Path, content: dict[str, int]) -> None:
    (tmp_path / "store.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"store\.json.*format"):
        Store(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_rejects_unreadable_store(tmp_path: Path, content: str) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(UserError, match=r"store\.json"):
        Store(tmp_path)


@pytest.mark.parametrize("inside", ["", "store", "pool/store", "../run/store"])
def test_rejects_store_inside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "run" / inside))
    with pytest.raises(UserError, match=STORE_VARIABLE):
        Store.for_run(tmp_path / "run")


def test_large_file_is_rehashed_only_after_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"a" * (1 << 20))
    expected, hashed = files.sha256(weights), []
    monkeypatch.setattr(digests, "sha256", lambda path: hashed.append(path) or files.sha256(path))
    hash_file = Digests(tmp_path / "store").hash_file
    assert hash_file(weights) == hash_file(weights) == expected
    assert len(hashed) == 2, "it was written just now"
    monkeypatch.setattr(digests, "RECENT_CHANGE_NS", -(10**12))
    assert (
        hash_file(weights)
        == hash_file(weights)
        == Digests(tmp_path / "store").hash_file(weights)
        == expected
    )
    assert len(hashed) == 3
    weights.write_bytes(b"b" * (1 << 20))
    assert hash_file(weights) == files.sha256(weights) != expected
    (tmp_path / "store" / "digests.json").write_text("{")
    assert hash_file(weights) == files.sha256(weights)
