"""Wording of outcomes, and escaping of names and texts from logs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import write_comparison as write_files
from tests.compare.command import run_compare
from tests.compare.logs import row, write_log


def write_comparison_files(
    tmp_path: Path, before: Path, *after: object
) -> tuple[str, dict[str, Any]]:
    """Write a comparison; return its page and its results."""
    out = tmp_path / "out"
    comparison = compare(str(before), [str(log) for log in after], CompareChoice())
    write_files(comparison, out, overwrite=True)
    results = json.loads((out / "results.json").read_text())
    return (out / "comparison.md").read_text(), results


def test_numeric_changes_are_higher_or_lower(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "a", [0.3, 0.9]), write_log(tmp_path / "b", [0.4, 0.8])
    page, results = write_comparison_files(tmp_path, before, f"f1={after}")
    assert "### doc_id 0 · higher, 0.3 to 0.4 (f1)" in page
    assert "### doc_id 1 · lower, 0.9 to 0.8 (f1)" in page
    assert "Before:\n" in page
    assert "wrong" not in page
    (line,) = csv.DictReader((tmp_path / "out" / "comparison.csv").open())
    assert (line["higher"], line["lower"]) == ("1", "1")
    assert results["models"]["f1"]["higher"] == 1


def test_lower_is_better_has_no_losses(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [1, 1, 0], higher=False)
    after = write_log(tmp_path / "b", [0, 1, 0], higher=False)
    page, results = write_comparison_files(tmp_path, before, f"new={after}")
    assert "### doc_id 0 · lower, 1 to 0 (new)" in page
    assert "· lost" not in page
    assert "wrong" not in page
    assert "−33.3" in page  # the difference is in points
    assert (results["models"]["new"]["lower"], results["models"]["new"]["test"]) == (1, "mcnemar")
    (item,) = csv.DictReader((tmp_path / "out" / "items.csv").open())
    assert item["change"] == "lower"


FORGED = "x\n\ngapft: worse than before\x1b[2J"


def test_escapes_names_in_output(tmp_path: Path) -> None:
    rows = [row(i, 0, doc={"question": f"q{i}", "subject": FORGED}) for i in range(3)]
    before = write_log(tmp_path / "a", rows=rows)
    after = write_log(
        tmp_path / "b", rows=[line | {"exact_match": 1, "doc_id": FORGED} for line in rows]
    )
    after_first = run_compare(after, before, "--by", "subject")
    assert after_first.exit_code == 0
    lines = after_first.output.splitlines()
    assert not any(line.lstrip().startswith("gapft: worse") for line in lines)
    assert any("x gapft: worse than before␛[2J" in line for line in lines)
