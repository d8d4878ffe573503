"""``gapft export --to merged`` writes a model folder from which a next run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.kit.command import gapft, succeed

ARM = "gapft-seed13"
SETTINGS = ("search.k=4", "search.chunk=64", "executor.workers=1", "statistics.replicates=20")
OPTIONS = ["--limit", "60", *(word for setting in SETTINGS for word in ("--set", setting))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run, an arm as a model, and a search that starts from it."""
    folder = tmp_path_factory.mktemp("merged")
    trained = ["--condition", "gapft", "--seed", "13", "--run-dir", folder / "first"]
    succeed("run", "demo", *OPTIONS, *trained)
    export = ["export", folder / "first", "--to", "merged", "--arm", ARM]
    succeed(*export, "--out", folder / "model")
    start = ["--set", f"model.args.pretrained={folder / 'model'}", "--run-dir", folder / "next"]
    succeed("run", "demo", *OPTIONS, *start, "--only", "search")
    return folder


def read_greedy(table: Path) -> list[dict[str, Any]]:
    columns = ["problem_id", "text", "token_ids", "status"]
    rows: list[dict[str, Any]] = pq.read_table(
        table, filters=[("index", "=", -1)], columns=columns
    ).to_pylist()
    return rows


def test_next_run_starts_from_the_trained_model(folder: Path) -> None:
    decisions = read_greedy(folder / f"first/decisions/{ARM}.parquet")
    source = read_greedy(folder / "first/audit/responses.parquet")
    assert len(decisions) == 60
    assert read_greedy(folder / "next/audit/responses.parquet") == decisions != source


def test_unknown_arm_is_refused(folder: Path) -> None:
    for arm in ("", "gapft-seed14"):
        export = ["export", folder / "first", "--to", "merged", "--arm", arm]
        done = gapft(*map(str, export), "--out", str(folder / "other"))
        assert done.returncode == 2
        assert f"known: {ARM}" in done.stderr
        assert not (folder / "other").exists()
