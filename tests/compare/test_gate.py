"""``--fail-if-worse`` and its exit status: 1 means that a model is worse, and only that."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapft_harness.analysis.power import compute_data_factor
from gapft_harness.compare import document
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import row, write_log


def test_gate_requires_known_direction(tmp_path: Path) -> None:
    low, high = (
        write_log(tmp_path / name, [value] * 40, higher=False).rename(tmp_path / f"{name}.jsonl")
        for name, value in (("low", 1.5), ("high", 3.5))
    )
    gate = ("--fail-if-worse", 0.01)
    assert run_compare(low, high).exit_code == 0
    read_refusal(low, high, *gate)
    for better, worse, option in ((low, high, "--lower"), (high, low, "--higher")):
        assert run_compare(better, worse, *gate, f"{option}-is-better").exit_code == 1
        assert run_compare(worse, better, *gate, f"{option}-is-better").exit_code == 0
    with_results = write_log(tmp_path / "known", [3.5] * 40, higher=False)
    assert (
        run_compare(low, with_results, *gate).exit_code == 1
    )  # the results file of either log has the direction
    assert str(with_results) in read_refusal(low, with_results, "--higher-is-better")
    read_refusal(with_results, write_log(tmp_path / "other", [3.5] * 40))


def test_reports_assumed_direction(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [1] * 40).rename(tmp_path / "before.jsonl")
    after = write_log(tmp_path / "b", [0] * 40).rename(tmp_path / "after.jsonl")
    done = run_compare(before, after, "--fail-if-worse", 0.01)
    assert done.exit_code == 1
    assert "--lower-is-better" in done.output
    assert run_compare(before, after, "--fail-if-worse", 0.01, "--lower-is-better").exit_code == 0


def test_undecided_gate_reports_needed_documents(tmp_path: Path) -> None:
    """Six of a hundred documents changed: three gained and three lost."""
    before = write_log(tmp_path / "a", [1] * 50 + [0] * 50)
    after = write_log(tmp_path / "b", [0] * 3 + [1] * 50 + [0] * 47)
    done = run_compare(before, after, "--fail-if-worse", 0.01, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "INCONCLUSIVE" in done.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (check,) = results["gate"]["checks"]
    low, high = check["ci95"]
    assert check["verdict"] == results["gate"]["verdict"] == "INCONCLUSIVE"
    assert check["times_as_many"] == compute_data_factor(0.01, high - low)
    assert check["more"] == math.ceil(100 * check["times_as_many"]) - 100
    assert f"{check['more']:,} more documents" in " ".join(done.output.split())
    assert run_compare(before, after, "--fail-if-worse", 0).exit_code == 3
    assert run_compare(before, after, "--fail-if-worse", 0.5).exit_code == 0
    assert json.loads(run_compare(before, after, "--format", "json").stdout)["gate"] is None


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_format_option_writes_stdout(tmp_path: Path, form: str) -> None:
    before, after = write_log(tmp_path / "a", [1] * 9), write_log(tmp_path / "b", [0, *[1] * 8])
    done = run_compare(before, after, "--format", form, "--out", tmp_path / "out")
    if form == "json":
        assert json.loads(done.stdout) == json.loads((tmp_path / "out/results.json").read_text())
    else:
        assert done.stdout.startswith("# Comparison\n")
        assert "| b | 100.0% | 88.9% |" in done.stdout.replace(str(after), "b")
    assert "written:" in done.stderr


def test_single_unit_has_no_interval(tmp_path: Path) -> None:
    rows = [row(i, 1, doc={"question": f"q{i}", "passage": "only"}) for i in range(40)]
    before = write_log(tmp_path / "a", rows=rows)
    after = write_log(tmp_path / "b", rows=[*rows[:39], rows[39] | {"exact_match": 0}])
    read_refusal(before, after, "--cluster", "passage")
    single_before, single_after = (
        write_log(tmp_path / "one", [1]),
        write_log(tmp_path / "other", [0]),
    )
    read_refusal(single_before, single_after, "--fail-if-worse", 0.01)
    done = run_compare(single_before, single_after, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert ",-1.0,,,mcnemar," in (tmp_path / "out" / "comparison.csv").read_text()


def test_marks_few_clusters(tmp_path: Path) -> None:
    """120 documents have 30 passages and 3 subjects; 116 documents have 29 passages."""
    logs = [write_log(tmp_path / name, [int(name == "b")] * 120) for name in "ab"]
    mark = "† fewer than 30 clusters"
    assert mark not in run_compare(*logs, "--cluster", "passage").output
    assert mark in run_compare(*logs, "--cluster", "subject").output
    assert "†" not in run_compare(*logs, "--by", "subject").output
    by = run_compare(*logs, "--by", "subject", "--cluster", "subject").output
    assert "–: no interval for one cluster" in by
    fewer = [write_log(tmp_path / name, [int(name == "d")] * 116) for name in "cd"]
    output = run_compare(*fewer, "--cluster", "passage").output
    assert mark in " ".join(output.split())


def test_unexpected_failures_exit_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_log(tmp_path / "a", [1] * 40)

    def raise_overflow(*args: object, **_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(document, "write_comparison", raise_overflow)
    assert "OverflowError: too large" in read_refusal(before, before, "--out", tmp_path / "out")


@pytest.mark.parametrize(("value", "status"), [(1, 0), (0, 1)])
def test_closed_pipe_keeps_exit_status(tmp_path: Path, value: int, status: int) -> None:
    before, after = write_log(tmp_path / "a", [1] * 40), write_log(tmp_path / "b", [value] * 40)
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "gapft_harness.cli.main", "compare", before, after,
         "--fail-if-worse", "0.2"],
        stdout=write_end, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert done.returncode == status, done.stderr
