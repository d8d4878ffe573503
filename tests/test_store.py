"""The store refuses places inside a run; removed work is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

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
