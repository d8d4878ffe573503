"""Read the tables of a report's results.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.report.document import build_page
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import ReportInputs

Rows = Sequence[dict[str, Any]]


def read_results(run: Path) -> dict[str, Any]:
    """Return the content of a run's results.json: rows by table."""
    content: dict[str, Any] = json.loads((run / "report/results.json").read_text("utf-8"))
    return content


def build_results(inputs: ReportInputs) -> dict[str, Any]:
    """Return what results.json of a report on these inputs contains."""
    content: dict[str, Any] = json.loads(build_page(inputs, compute_findings(inputs)).to_json())
    return content


def find_row(rows: Rows, **keys: Any) -> dict[str, Any]:
    """Return the one row with these values."""
    (row,) = (row for row in rows if all(row[key] == value for key, value in keys.items()))
    return row


def index_rows(rows: Rows, *keys: str) -> dict[Any, dict[str, Any]]:
    """Map the values of keys, a tuple if there are several, to their row."""
    return {
        row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys): row for row in rows
    }
