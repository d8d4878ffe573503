"""Several samples before and after: Pass@k at every k, on the terminal and in files."""

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
from tests.compare.logs import row, write

K = 4
#: Passing samples of 24 documents: before, and under two seeds after: safer, and seldom solved ones
#: are lost.
BEFORE = [0, 1, 1, 1, 2, 3] * 4
AFTER = [[0, 0, 0, 0, 4, 4] * 4, [0, 0, 0, 1, 4, 4] * 4]


def samples(folder: Path, passing: list[int], k: int = K, texts: Any = None) -> str:
    """A log of k samples of each document."""
    rows = []
    for number, count in enumerate(passing):
        verdicts = [{"status": "pass" if i < count else "fail"} for i in range(k)]
        answers = texts or [f"{folder.name} {i}" for i in range(k)]
        rows.append(row(number, count / k, verdicts=verdicts, resps=[answers]))
    return str(write(folder, rows=rows))


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Any]:
    return {
        "before": str(write(tmp_path / "before", [int(c > 1) for c in BEFORE])),
        "after": [
            str(write(tmp_path / f"after{n}", [int(c > 3) for c in AFTER[n]])) for n in (0, 1)
        ],
        "source": samples(tmp_path / "source", BEFORE),
        "tuned": [samples(tmp_path / f"tuned{n}", AFTER[n]) for n in (0, 1)],
    }


def found(logs: dict[str, Any], **choice: Any) -> Comparison:
    options = {"source_samples": [logs["source"]], "tuned_samples": logs["tuned"], "seeds": True}
    return compare(logs["before"], logs["after"], CompareChoice(**{**options, **choice}))


def test_curves_are_of_the_samples_of_every_seed(logs: dict[str, Any]) -> None:
    (one,) = found(logs).curves.values()
    assert one.any_right.seeds == 2
    assert one.any_right.before[[0, -1]] == pytest.approx([np.mean(BEFORE) / K, 20 / 24])
    assert one.any_right.after[[0, -1]] == pytest.approx([np.mean(AFTER) / K, 20 / 48])
    assert one.all_right.after[-1] == pytest.approx(16 / 48)
    assert one.any_right.behind == 2
    assert {state: documents for state, (documents, _) in one.by_state.items()} == {
        "G": 8, "S": 12, "U": 4,
    }  # fmt: skip
    assert one.by_state["U"][1].before[-1] == 0
    assert one.by_state["S"][1].before[-1] == 1


def test_logs_that_hold_samples_need_no_option(logs: dict[str, Any]) -> None:
    alone = compare(logs["source"], [logs["tuned"][0]], CompareChoice())
    (one,) = alone.curves.values()
    assert one.any_right.after[-1] == pytest.approx(8 / 24)
    assert one.by_state == {}
    greedy = compare(logs["before"], [logs["after"][0]], CompareChoice())
    assert greedy.curves == {}


def test_copies_are_told_and_left_out_on_request(logs: dict[str, Any], tmp_path: Path) -> None:
    copied = samples(tmp_path / "copied", BEFORE, texts=["a", "a", "b", "c"])
    told = found(logs, source_samples=[copied])
    assert any("samples 0 and 1 are the same" in note.line for note in told.notes)
    cached = found(logs, source_samples=[samples(tmp_path / "cached", BEFORE, texts=["a"] * K)])
    assert any("samples: before 24; after 0, 0 of 24" in note.line for note in cached.notes)
    assert not any("one text" in note.line for note in told.notes)
    assert told.samples is not None
    assert told.samples.k == K
    kept = found(logs, source_samples=[copied], drop_copies=True)
    assert kept.samples is not None
    assert kept.samples.k == 3
    left = [c - (c > 1) for c in BEFORE]  # the second of four is the first again
    assert sorted(kept.samples.passing.tolist()) == sorted(left)
    assert any("1 of 4 are dropped" in note.line for note in kept.notes)
    assert not any("are the same" in note.line for note in found(logs).notes)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"source_samples": []}, "add --source-samples"),
        ({"seeds": False}, "expected one for each AFTER"),
        ({"tuned_samples": ["SOURCE"]}, "identical logs"),
        ({"tuned_samples": ["BEFORE"]}, "found 1, 4 samples"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    logs: dict[str, Any], choice: dict[str, Any], message: str
) -> None:
    names = {"SOURCE": [logs["source"]], "BEFORE": [logs["after"][0], logs["tuned"][1]]}
    (given,) = choice.get("tuned_samples") or [""]
    with pytest.raises(UserError, match=message):
        found(logs, **choice | ({"tuned_samples": names[given]} if given else {}))


def test_the_command_says_where_it_falls_behind_and_writes_every_k(
    logs: dict[str, Any], tmp_path: Path
) -> None:
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
