"""The summary on the terminal: the answer of a finished run, and every condition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.presentation.content import Column, Row, Section, Table
from gapft_harness.presentation.terminal import print_sections
from gapft_harness.presentation.visible import shorten
from gapft_harness.report.sections.opening import CONDITION_COLUMNS
from gapft_harness.report.sections.responses import FAILURE_COLUMNS

#: The most characters of a response that are printed.
_MAX_CHARS = 160
_NOTE = (
    "Brackets: 95% intervals. Change: Pass@1 minus the source's. K_eq: the most source samples, "
    "with a verifier, that one decode is worth. * Not budget-matched."
)


def print_summary(path: Path, console: Console | None = None) -> None:
    """Print a report's warnings, its answer and its conditions from results.json.

    Args:
        path: the file results.json.
        console: prints; None: a new console on standard output.
    """
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    (run,) = results["run"]
    text = [run["answer"], _describe_audit(run, results)]
    source, *conditions = results["conditions"]
    source = {key: value for key, value in source.items() if value is not None}
    tables = [_build_table(CONDITION_COLUMNS, [source, *conditions], _NOTE)]
    sections = [Section("", text, tables, warnings=results["warnings"])]
    if failures := results.get("failures"):
        examples = list(_describe_responses(results["failed_responses"]))
        reasons = [_build_table(FAILURE_COLUMNS, failures)]
        sections.append(Section("Why so little passes", examples, reasons))
    print_sections(sections, console or Console(highlight=False))


def _describe_audit(run: Row, results: Mapping[str, Any]) -> str:
    """Describe the audit, and its judge where it describes itself."""
    parts = [f"{run['task']}: {run['problems']:,} audit problems, K = {run['k']}"]
    states = (row for row in results["states"] if row["split"] == "audit")
    parts.append(", ".join(f"{row['state']} {row['problems']:,}" for row in states))
    parts += [r["value"] for r in results["facts"] if r["setting"] == "judged_by.audit.judge"]
    return f"{'; '.join(parts)}."


def _describe_responses(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each shown response that did not pass."""
    for row in rows:
        where = f"{row['where']}, {row['problem_id']}, {row['decode']}"
        text = shorten(" ".join(row["text"].split()), _MAX_CHARS) or "(only white space)"
        yield f"{where}: {row['status']}, {row['reason'] or 'no reason given'}: {text}"


def _build_table(columns: Sequence[Column], rows: Sequence[Row], note: str = "") -> Table:
    """Build a table from rows of results.json."""
    return Table("", columns, list(map(_restore_estimates, rows)), note)


def _restore_estimates(row: Row) -> Row:
    """Join an estimate and its interval, which have a key each in results.json."""
    estimates = {
        key: Estimate(row[key], row[f"{key}_low"], row[f"{key}_high"])
        for key in row
        if row.get(f"{key}_low") is not None
    }
    return {**row, **estimates}
