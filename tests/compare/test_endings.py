"""The shares of responses that were cut at the token limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import build_document
from tests.compare.logs import row, write_log

ENDINGS = {"c": "length", "s": "stop", "t": "stop_string", "?": "unknown"}


def write_responses(folder: Path, endings: str) -> str:
    """Write a log of one response per character, which tells how it ended."""
    rows = [row(i, i % 2, finish_reasons=[ENDINGS[e]]) for i, e in enumerate(endings)]
    return str(write_log(folder, rows=rows))


def compare_endings(folder: Path, before: str, *after: str) -> tuple[dict[str, Any], str]:
    """Return the results and the page of a comparison with one seed for each of ``after``."""
    logs = [write_responses(folder / f"after{n}", e) for n, e in enumerate(after)]
    choice = CompareChoice(seeds=True)
    document = build_document(compare(write_responses(folder / "before", before), logs, choice))
    return document.results, document.to_markdown()


def test_shares_of_cut_responses(tmp_path: Path) -> None:
    results, page = compare_endings(tmp_path, "cccst?", "cssstt", "ssssss")
    (model,) = results["models"].values()
    assert (results["before"]["cut"], model["cut"]) == (3 / 6, 1 / 12)
    assert "cut before" in page


@pytest.mark.parametrize("unknown", ["before", "after"])
def test_logs_without_endings_have_no_shares(tmp_path: Path, unknown: str) -> None:
    sides = {"before": "ccs", "after": "sss", unknown: "???"}
    results, page = compare_endings(tmp_path, sides["before"], sides["after"])
    (model,) = results["models"].values()
    assert None in (results["before"]["cut"], model["cut"])
    assert ("cut before" in page) == (unknown == "after")


def test_documents_with_several_responses_have_no_ending(tmp_path: Path) -> None:
    rows = [row(i, 0, resps=[["a", "b"]], finish_reasons=["length", "stop"]) for i in range(2)]
    logs = [str(write_log(tmp_path / name, rows=rows)) for name in ("before", "after")]
    choice = CompareChoice(metric="exact_match")
    assert build_document(compare(logs[0], logs[1:], choice)).results["before"]["cut"] is None
