"""Write sample logs as ``lm_eval --log_samples`` does, and compare logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.compare.comparison import Comparison, compare
from gapft_harness.compare.options import CompareOptions
from gapft_harness.compare.page import build_page

DATE = "2026-01-01T00-00-00.000001"


def row(number: int, value: Any, **changes: Any) -> dict[str, Any]:
    """Build a row; each number has its own document, four share a passage, of three subjects."""
    doc = {"question": f"q{number}", "passage": f"p{number // 4}", "subject": "abc"[number % 3]}
    return {
        "doc_id": number,
        "doc": doc,
        "target": "42",
        "arguments": {"gen_args_0": {"arg_0": f"Question q{number}", "arg_1": {"until": []}}},
        "resps": [[f"response {value} to {number}"] * len(changes.get("verdicts", [0]))],
        "filtered_resps": [str(value)],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": "of no use",
        "prompt_hash": f"prompt {number}",
        "target_hash": "target",
        "exact_match": value,
        **changes,
    }


def write_log(
    folder: Path,
    values: Sequence[Any] | None = None,
    *,
    rows: Sequence[dict[str, Any]] | None = None,
    task: str = "toy",
    date: str = DATE,
    version: Any = 1,
    higher: bool = True,
    results: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write a log of values or rows and lm_eval's results file next to it; return the log.

    ``results`` are numbers by metric and filter; ``facts`` replace other parts of that file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"samples_{task}_{date}.jsonl"
    lines = rows if rows is not None else [row(i, value) for i, value in enumerate(values or ())]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    content = {
        "results": {task: results or {}},
        "versions": {task: version},
        "higher_is_better": {task: {"exact_match": higher}},
        **(facts or {}),
    }
    (folder / f"results_{date}.json").write_text(json.dumps(content), "utf-8")
    return path


def compare_logs(before: object, *after: object, **choice: Any) -> Comparison:
    """Compare logs with options by name."""
    return compare(str(before), [str(log) for log in after], CompareOptions(**choice))


def read_results(comparison: Comparison) -> dict[str, Any]:
    """Return the content of results.json."""
    return build_page(comparison).list_results()


def read_model(comparison: Comparison) -> dict[str, Any]:
    """Return the row of the only model in the table of models."""
    (row,) = read_results(comparison)["models"]
    return dict(row)


def read_means(comparison: Comparison) -> tuple[float, float]:
    """Return the means of the only model before and after."""
    (paired,) = comparison.models.values()
    return paired.before, paired.after


def join_notes(comparison: Comparison) -> str:
    """Return all notes and warnings."""
    results = read_results(comparison)
    return "\n".join([*results["warnings"], *(row["note"] for row in results["notes"])])
