"""Counts of how responses ended, by source and arm, and of missing answers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gapft_harness.core.records import SOURCE, STOP_STRING
from gapft_harness.report.frame import Frame
from gapft_harness.report.reading.endings import read_endings
from gapft_harness.report.sections.provenance import ENDINGS

ROWS = [("stop", "4"), ("stop", None), (STOP_STRING, None), ("length", None), ("length", "7")]


def write_table(path: Path, rows: list[tuple[str, str | None]]) -> Path:
    """Write a table in which the first response is a deployment decode."""
    reasons, answers = zip(*rows, strict=True)
    columns = {
        "index": pa.array(range(-1, len(rows) - 1)),
        "finish_reason": pa.array(reasons),
        "answer": pa.array(answers, pa.string()),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_counts_endings_by_table(tmp_path: Path) -> None:
    tables = {
        "pool": write_table(tmp_path / "pool", ROWS),
        "gapft-seed13": write_table(tmp_path / "arm", [("stop", None), ("length", None)]),
    }
    pool, arm = Frame(ENDINGS, [*read_endings(tables).items()]).entries()
    assert pool == {
        "of": "pool", "end_token": 2, "stop_string": 1, "limit": 2, "limit_share": 2 / 5,
        "unknown": 0, "not_generated": 0, "cut_unanswered": 2, "unanswered": 3,
    }  # fmt: skip
    assert (arm["of"], arm["limit"], arm["cut_unanswered"], arm["unanswered"]) == (
        "gapft-seed13", 1, 1, 2
    )  # fmt: skip


def test_source_has_only_deployment_decodes(tmp_path: Path) -> None:
    audit = write_table(tmp_path / "audit", [("length", None), ("stop", "4"), ("stop", "4")])
    endings = read_endings({"audit": audit, SOURCE: audit})
    whole, source = Frame(ENDINGS, [*endings.items()]).entries()
    assert (whole["end_token"], whole["limit"], whole["limit_share"]) == (2, 1, 1 / 3)
    assert (source["end_token"], source["limit"], source["limit_share"]) == (0, 1, 1)


def test_no_missing_answers_without_answer_reader(tmp_path: Path) -> None:
    tables = {"pool": write_table(tmp_path / "pool", [("stop", None), ("length", None)])}
    (pool,) = Frame(ENDINGS, [*read_endings(tables).items()]).entries()
    assert (pool["end_token"], pool["limit"]) == (1, 1)
    assert (pool["cut_unanswered"], pool["unanswered"]) == (None, None)
