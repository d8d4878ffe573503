"""``--fail-if-worse``: exit status 1 says that a model is worse, and nothing else does."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gapft_harness.analysis.power import compute_data_factor
from gapft_harness.cli.main import app
from gapft_harness.compare import document
from gapft_harness.core.errors import GapftError
from tests.compare.logs import row, write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "160"})


def refused(*arguments: object) -> str:
    done = run(*arguments)
    assert isinstance(done.exception, GapftError), done.output
    assert done.exception.exit_status == 2
    return str(done.exception)


def test_nobody_guesses_which_direction_is_better(tmp_path: Path) -> None:
    low, high = (
        write(tmp_path / name, [value] * 40, higher=False).rename(tmp_path / f"{name}.jsonl")
        for name, value in (("low", 1.5), ("high", 3.5))
    )
    gate = ("--fail-if-worse", 0.01)
    assert run(low, high).exit_code == 0
    assert "add --higher-is-better or --lower-is-better" in refused(low, high, *gate)
    for better, worse, option in ((low, high, "--lower"), (high, low, "--higher")):
        assert run(better, worse, *gate, f"{option}-is-better").exit_code == 1
        assert run(worse, better, *gate, f"{option}-is-better").exit_code == 0
    known = write(tmp_path / "known", [3.5] * 40, higher=False)
    assert run(low, known, *gate).exit_code == 1  # the file beside either log tells
    told = refused(low, known, "--higher-is-better")
    assert f"exact_match, lower is better according to lm_eval's results file of {known}" in told
    other = write(tmp_path / "other", [3.5] * 40)
    assert "higher is better in" in refused(known, other)


def test_of_right_and_wrong_the_guess_is_told(tmp_path: Path) -> None:
    before = write(tmp_path / "a", [1] * 40).rename(tmp_path / "before.jsonl")
    after = write(tmp_path / "b", [0] * 40).rename(tmp_path / "after.jsonl")
    done = run(before, after, "--fail-if-worse", 0.01)
    assert done.exit_code == 1
    assert "exact_match: assuming that higher is better" in done.output
    assert "add --lower-is-better" in done.output
    assert run(before, after, "--fail-if-worse", 0.01, "--lower-is-better").exit_code == 0


def test_what_the_data_cannot_tell_is_undecided_and_how_many_would(tmp_path: Path) -> None:
    """Six documents of a hundred changed, half of them for the better."""
    before = write(tmp_path / "a", [1] * 50 + [0] * 50)
    after = write(tmp_path / "b", [0] * 3 + [1] * 50 + [0] * 47)
    done = run(before, after, "--fail-if-worse", 0.01, "--out", tmp_path / "out")
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    assert "undecided whether it is worse than before by more than 0.01" in said
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    ((name, gate),) = found["gate"]["models"].items()
    low, high = found["models"][name]["ci95"]
    assert gate["verdict"] == "undecided"
    assert gate["times_as_many"] == compute_data_factor(0.01, high - low)
    needed = f"{math.ceil(100 * gate['times_as_many']):,}"
    assert f"about {needed} documents (now 100) would decide" in said
    assert "no number of documents" in run(before, after, "--fail-if-worse", 0).output
    assert "is not worse than before by more than 0.5" in " ".join(
        run(before, after, "--fail-if-worse", 0.5).output.split()
    )
    assert "gate" not in run(before, after, "--format", "json").output.replace('"gate": null', "")


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_another_form_stands_alone_on_standard_output(tmp_path: Path, form: str) -> None:
    before, after = write(tmp_path / "a", [1] * 9), write(tmp_path / "b", [0, *[1] * 8])
    done = run(before, after, "--format", form, "--out", tmp_path / "out")
    if form == "json":
        assert json.loads(done.stdout) == json.loads((tmp_path / "out/results.json").read_text())
    else:
        assert done.stdout.startswith("# Comparison\n")
        assert "| b | 100.0% | 88.9% |" in done.stdout.replace(str(after), "b")
    assert "written:" in done.stderr


def test_one_cluster_or_document_says_nothing_of_others(tmp_path: Path) -> None:
    rows = [row(i, 1, doc={"question": f"q{i}", "passage": "only"}) for i in range(40)]
    before = write(tmp_path / "a", rows=rows)
    after = write(tmp_path / "b", rows=[*rows[:39], rows[39] | {"exact_match": 0}])
    assert "all 40 documents are in one cluster" in refused(before, after, "--cluster", "passage")
    one, other = write(tmp_path / "one", [1]), write(tmp_path / "other", [0])
    assert "found one document" in refused(one, other, "--fail-if-worse", 0.01)
    done = run(one, other, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "–: no interval for one document" in done.output
    assert ",-1.0,,,mcnemar," in (tmp_path / "out" / "comparison.csv").read_text()


def test_few_clusters_are_marked_where_documents_are_many(tmp_path: Path) -> None:
    """120 documents of 30 passages and of 3 subjects; of 29 passages, 116."""
    logs = [write(tmp_path / name, [int(name == "b")] * 120) for name in "ab"]
    mark = "† fewer than 30 clusters"
    assert mark not in run(*logs, "--cluster", "passage").output
    assert mark in run(*logs, "--cluster", "subject").output
    assert "†" not in run(*logs, "--by", "subject").output
    by = run(*logs, "--by", "subject", "--cluster", "subject").output
    assert "–: no interval for one cluster" in by
    fewer = [write(tmp_path / name, [int(name == "d")] * 116) for name in "cd"]
    assert mark in run(*fewer, "--cluster", "passage").output


def test_whatever_else_fails_does_not_end_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write(tmp_path / "a", [1] * 40)
    (tmp_path / "file").write_text("")
    assert "is a file; expected a folder" in refused(
        before, before, "--out", tmp_path / "file" / "out"
    )

    def broken(*of: object, **_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(document, "write_comparison", broken)
    told = refused(before, before, "--out", tmp_path / "out")
    assert told == "gapft compare failed unexpectedly: OverflowError: too large"


@pytest.mark.parametrize(("value", "status"), [(1, 0), (0, 1)])
def test_a_reader_that_stops_does_not_change_the_answer(
    tmp_path: Path, value: int, status: int
) -> None:
    before, after = write(tmp_path / "a", [1] * 40), write(tmp_path / "b", [value] * 40)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "gapft_harness.cli.main", "compare", before, after,
         "--fail-if-worse", "0.01"],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == status, done.stderr
    assert ("worse than before" in done.stderr) == bool(status)
