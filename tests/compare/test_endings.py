"""The part of a difference that comes from cut responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import gapft
from tests.compare.logs import row, write_log


def write_answers(folder: Path, answers: str, *, tokens: bool = True) -> Path:
    """Write a log of one response per character: its case is the ending, its letter the verdict.

    Args:
        folder: the folder of the log.
        answers: ``r`` right and complete, ``w`` wrong and complete, ``R`` and ``W`` the same cut at
            the limit, ``?`` wrong with an unknown ending.
        tokens: whether the log has lengths.
    """
    rows = []
    for number, answer in enumerate(answers):
        ending = "unknown" if answer == "?" else "length" if answer.isupper() else "stop"
        facts: dict[str, Any] = {"finish_reasons": [ending]}
        if tokens:
            facts["tokens"] = [9 if ending == "length" else number]
        rows.append(row(number, int(answer in "rR"), **facts))
    return write_log(folder, rows=rows)


def compare_logs(folder: Path, before: str, after: str, **options: Any) -> dict[str, Any]:
    write_answers(folder / "before", before, **options)
    write_answers(folder / "after", after, **options)
    result = gapft("compare", folder / "before", f"after={folder / 'after'}", "--format", "json")
    results: dict[str, Any] = json.loads(result.stdout)
    return results


def test_gains_from_cut_responses_are_counted_apart(tmp_path: Path) -> None:
    #        cut to right x3, right to cut, wrong to right, kept
    before, after = "WWWrwrW?", "rrrWrrW?"
    results = compare_logs(tmp_path, before, after)
    first, second = results["truncation"]
    assert (first["model"], second["model"]) == ("before", "after")
    assert first["limit"] == 4 / 8
    assert second["limit"] == 2 / 8
    assert first["complete_accuracy"] == 2 / 3
    assert second["complete_accuracy"] == 1
    assert second["change_limit"] == (3 - 1) / 8
    assert second["change_other"] == 1 / 8
    total = results["models"]["after"]["difference"]
    assert second["change_limit"] + second["change_stop_string"] + second["change_other"] == total
    assert first["mean_tokens"] == (4 * 9 + 3 + 4 + 5 + 7) / 8
    printed = gapft("compare", tmp_path / "before", tmp_path / "after").stdout
    assert "Cut: at the token limit" in printed


def test_states_divide_the_table(tmp_path: Path) -> None:
    answers = {"before": "WrW", "after": "rrW"}
    for name, text in answers.items():
        write_answers(tmp_path / name, text)
    samples = [
        row(i, passing, metrics=["pass@1"], resps=[["a", "b"]],
            verdicts=[{"status": "pass" if passing else "fail"}, {"status": "fail"}],
            **{"pass@1": passing / 2})
        for i, passing in enumerate((1, 1, 0))
    ]  # fmt: skip
    write_log(tmp_path / "samples", rows=samples)
    result = gapft(
        *("compare", tmp_path / "before", f"after={tmp_path / 'after'}"),
        *("--source-samples", tmp_path / "samples", "--format", "json"),
    )
    entries = json.loads(result.stdout)["truncation"]
    after = {entry["state"]: entry for entry in entries if entry["model"] == "after"}
    assert {state: entry["responses"] for state, entry in after.items()} == {
        "all": 3, "G": 1, "S": 1, "U": 1
    }  # fmt: skip
    assert after["S"]["change_limit"] == 1
    assert after["U"]["limit"] == 1


@pytest.mark.parametrize("unknown", ["before", "after"])
def test_logs_without_endings_have_no_table(tmp_path: Path, unknown: str) -> None:
    answers = {"before": "WWr", "after": "rrr", unknown: "???"}
    results = compare_logs(tmp_path, answers["before"], answers["after"])
    assert results["truncation"] == []


def test_lengths_are_missing_if_a_log_has_none(tmp_path: Path) -> None:
    results = compare_logs(tmp_path, "Wr", "rr", tokens=False)
    assert [entry["mean_tokens"] for entry in results["truncation"]] == [None, None]
    assert results["truncation"][1]["change_limit"] == 1 / 2


def test_documents_with_several_responses_have_no_ending(tmp_path: Path) -> None:
    for name, value in (("before", 0), ("after", 1)):
        rows = [
            row(i, value, resps=[["a", "b"]], finish_reasons=["length", "stop"], tokens=[1, 2])
            for i in range(2)
        ]
        write_log(tmp_path / name, rows=rows)
    result = gapft(
        *("compare", tmp_path / "before", f"after={tmp_path / 'after'}"),
        *("--metric", "exact_match", "--format", "json"),
    )
    assert json.loads(result.stdout)["truncation"] == []
