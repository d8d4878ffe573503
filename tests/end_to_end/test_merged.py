"""``gapft export --to merged`` writes a model folder from which a next run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.kit.command import call, succeed
from tests.kit.runs import RunAt

ARM = "gapft-seed13"


def read_greedy(table: Path) -> dict[str, dict[str, Any]]:
    columns = ["problem_id", "text", "token_ids", "status"]
    rows = pq.read_table(table, filters=[("index", "=", -1)], columns=columns).to_pylist()
    return {row["problem_id"]: row for row in rows}


def test_next_run_starts_from_the_trained_model(run_at: RunAt, tmp_path: Path) -> None:
    first = run_at("reported", "demo").path
    export = ("export", first, "--to", "merged", "--out", tmp_path / "model", "--arm")
    for arm in ("", "gapft-seed14"):
        done = call(*export, arm)
        assert done.returncode == 2
        assert ARM in done.stderr, "the known ones"
        assert not (tmp_path / "model").exists()
    (tmp_path / "model").mkdir()
    succeed(*export[:-2], ".", "--arm", ARM, cwd=tmp_path / "model")
    settings = (f"model.args.pretrained={tmp_path / 'model'}", "search.k=1", "executor.workers=1")
    start = [word for setting in settings for word in ("--set", setting)]
    succeed(
        "run", "demo", *start, "--limit", 60, "--only", "search", "--run-dir", tmp_path / "next"
    )
    after = read_greedy(tmp_path / "next/audit/responses.parquet")
    decisions, source = (
        {problem: rows[problem] for problem in after}
        for rows in map(
            read_greedy,
            (first / f"decisions/{ARM}.parquet", first / "audit/responses.parquet"),
        )
    )
    assert len(after) == 60
    assert after == decisions != source
