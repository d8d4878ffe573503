"""Curves: Pass@k of samples before and after at every k, on the terminal and in files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import Comparison, compare
from gapft_harness.core.errors import UserError
from tests.command import gapft
from tests.compare.logs import row, write_log

K = 4
#: Passing samples of 24 documents, before and with two seeds after. After, often solved documents
#: always pass, and rarely solved ones never do.
BEFORE = [0, 1, 1, 1, 2, 3] * 4
AFTER = [[0, 0, 0, 0, 4, 4] * 4, [0, 0, 0, 1, 4, 4] * 4]


def write_samples(folder: Path, passing: list[int], k: int = K, texts: Any = None) -> str:
    """Write a log with k samples of each document."""
    rows = []
    for number, count in enumerate(passing):
        verdicts = [{"status": "pass" if i < count else "fail"} for i in range(k)]
        answers = texts or [f"{folder.name} {i}" for i in range(k)]
        rows.append(row(number, count / k, verdicts=verdicts, resps=[answers]))
    return str(write_log(folder, rows=rows))


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Any]:
    return {
        "before": str(write_log(tmp_path / "before", [int(c > 1) for c in BEFORE])),
        "after": [
            str(write_log(tmp_path / f"after{n}", [int(c > 3) for c in AFTER[n]])) for n in (0, 1)
        ],
        "source": write_samples(tmp_path / "source", BEFORE),
        "tuned": [write_samples(tmp_path / f"tuned{n}", AFTER[n]) for n in (0, 1)],
    }


def compare_logs(logs: dict[str, Any], **choice: Any) -> Comparison:
    options = {"source_samples": [logs["source"]], "tuned_samples": logs["tuned"], "seeds": True}
    return compare(logs["before"], logs["after"], CompareChoice(**{**options, **choice}))


def test_curves_include_every_seed(logs: dict[str, Any]) -> None:
    (curves,) = compare_logs(logs).curves.values()
    assert curves.any_right.seeds == 2
    assert curves.any_right.before[[0, -1]] == pytest.approx([np.mean(BEFORE) / K, 20 / 24])
    assert curves.any_right.after[[0, -1]] == pytest.approx([np.mean(AFTER) / K, 20 / 48])
    assert curves.all_right.after[-1] == pytest.approx(16 / 48)
    assert curves.any_right.behind == 2
    assert {state: documents for state, (documents, _) in curves.by_state.items()} == {
        "G": 8, "S": 12, "U": 4,
    }  # fmt: skip
    assert curves.by_state["U"][1].before[-1] == 0
    assert curves.by_state["S"][1].before[-1] == 1


def test_reads_samples_from_compared_logs(logs: dict[str, Any]) -> None:
    alone = compare(logs["source"], [logs["tuned"][0]], CompareChoice())
    (curves,) = alone.curves.values()
    assert curves.any_right.after[-1] == pytest.approx(8 / 24)
    assert curves.by_state == {}
    greedy = compare(logs["before"], [logs["after"][0]], CompareChoice())
    assert greedy.curves == {}


def test_reports_and_drops_copied_samples(logs: dict[str, Any], tmp_path: Path) -> None:
    copied = write_samples(tmp_path / "copied", BEFORE, texts=["a", "a", "b", "c"])
    comparison = compare_logs(logs, source_samples=[copied])
    assert any("samples 0 and 1 are the same" in note.line for note in comparison.notes)
    cached = compare_logs(
        logs, source_samples=[write_samples(tmp_path / "cached", BEFORE, texts=["a"] * K)]
    )
    assert any("samples: before 24; after 0, 0 of 24" in note.line for note in cached.notes)
    assert not any("one text" in note.line for note in comparison.notes)
    assert comparison.samples is not None
    assert comparison.samples.k == K
    without_copies = compare_logs(logs, source_samples=[copied], drop_copies=True)
    assert without_copies.samples is not None
    assert without_copies.samples.k == 3
    passing = [c - (c > 1) for c in BEFORE]  # the second of four samples is a copy of the first
    assert sorted(without_copies.samples.passing.tolist()) == sorted(passing)
    assert any("1 of 4 are dropped" in note.line for note in without_copies.notes)
    assert not any("are the same" in note.line for note in compare_logs(logs).notes)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"source_samples": []}, "add --source-samples"),
        ({"seeds": False}, "expected one for each AFTER"),
        ({"tuned_samples": ["SOURCE"]}, "identical logs"),
        ({"tuned_samples": ["BEFORE"]}, "found 1, 4 samples"),
    ],
)
def test_rejects_unusable_samples(
    logs: dict[str, Any], choice: dict[str, Any], message: str
) -> None:
    names = {"SOURCE": [logs["source"]], "BEFORE": [logs["after"][0], logs["tuned"][1]]}
    (placeholder,) = choice.get("tuned_samples") or [""]
    with pytest.raises(UserError, match=message):
        compare_logs(
            logs, **choice | ({"tuned_samples": names[placeholder]} if placeholder else {})
        )


def test_command_writes_curves(logs: dict[str, Any], tmp_path: Path) -> None:
    options = ["--source-samples", logs["source"]]
    for log in logs["tuned"]:
        options += ["--tuned-samples", log]
    done = gapft(
        "compare", logs["before"], *logs["after"], "--seeds", *options, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    assert "With k samples" in done.stdout
    assert "first at k = 2" in done.stdout
    with (tmp_path / "out" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(line["state"], line["k"]) for line in rows] == [
        (state, str(k)) for state in ("", "G", "S", "U") for k in range(1, K + 1)
    ]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (model,) = results["models"].values()
    assert model["curves"]["behind"] == 2
    for line, point in zip(rows, model["curves"]["points"], strict=True):
        assert float(line["after"]) == point["after"]
        assert [float(line["band95_low"]), float(line["band95_high"])] == point["band95"]
        assert point["band95"][0] <= point["difference"] <= point["band95"][1]
