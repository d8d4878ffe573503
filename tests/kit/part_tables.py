"""The tables of experiments' parts of the report, without a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.part import Part
from gapft_harness.report.reading.inputs import ReportInputs, read_inputs
from gapft_harness.run_directory.directory import RunDirectory


def read_tables(run: Path, *parts: Part) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the parts' tables by name, as results.json has them."""
    return build_tables(read_inputs(RunDirectory.open(run), parts))


def build_tables(inputs: ReportInputs) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables of the inputs' parts by name."""
    findings = compute_findings(inputs)
    return {
        table.name: table.list_entries()
        for loaded in inputs.parts
        for table in loaded.part.tables(inputs, findings, loaded.data)
    }
