"""The gate: margins, their verdicts, the exit status and JUnit's XML."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.estimate import estimate_paired_difference
from gapft_harness.analysis.power import compute_data_factor
from gapft_harness.compare.policy import (
    EXIT_STATUS,
    GateVerdict,
    Margins,
    decide,
    find_worst,
    read_policy,
)
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import DATE, compare_logs, read_model, row, write_log
from tests.kit.command import ROOT

CHANGES = st.floats(-1, 1)
MARGINS = st.floats(0, 1)


def write_policy(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def run_gate(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Return the exit status of a comparison and its results."""
    done = run_compare(*arguments, "--format", "json")
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    """Write logs of two metrics: accuracy falls from 100% to 90%, and f1 rises by 0.1."""
    for side, wrong, f1 in (("before", 0, 0.4), ("after", 20, 0.5)):
        rows = [row(n, int(n >= wrong), metrics=["exact_match", "f1"], f1=f1) for n in range(200)]
        facts = {"higher_is_better": {"toy": {"exact_match": True, "f1": True}}}
        write_log(tmp_path / side, rows=rows, facts=facts)
    return tmp_path / "before", tmp_path / "after"


@given(CHANGES, CHANGES, CHANGES, MARGINS, MARGINS)
def test_verdict_follows_from_interval(
    first: float, second: float, third: float, block: float, warn: float
) -> None:
    low, difference, high = sorted((first, second, third))
    decision = decide(Margins.model_construct(block=block, warn=warn), difference, low, high)
    expected: GateVerdict = "PASS"
    if high < -block:
        expected = "BLOCK"
    elif low < -block:
        expected = "INCONCLUSIVE"
    elif low < -warn:
        expected = "WARN"
    assert decision.verdict == expected
    margin = {"INCONCLUSIVE": block, "WARN": warn}.get(expected)
    is_undecided = margin is not None and high >= -margin
    assert decision.undecided == (margin if is_undecided else None)
    assert decision.factor is None or decision.factor >= 1


@given(st.lists(st.sampled_from(list(EXIT_STATUS)), min_size=1))
def test_worst_verdict_sets_status(verdicts: list[GateVerdict]) -> None:
    status = EXIT_STATUS[find_worst(verdicts)]
    assert status == (1 if "BLOCK" in verdicts else 3 if "INCONCLUSIVE" in verdicts else 0)


@pytest.mark.parametrize(
    ("text", "verdict", "status"),
    [
        ("tasks: {toy: {exact_match: 0.02}}", "BLOCK", 1),
        ("tasks: {toy: {exact_match: 0.1}}", "INCONCLUSIVE", 3),
        ("tasks: {toy: {exact_match: 0.2}}", "PASS", 0),
        ("tasks: {toy: {exact_match: {block: 0.2, warn: 0.1}}}", "WARN", 0),
        ("tasks: {toy: {exact_match: {warn: 0.02}}}", "WARN", 0),
        ("tasks: {toy: {'exact_match,none': 0.02}}", "BLOCK", 1),
        ("tasks: {toy: {f1: 0}}", "PASS", 0),
        ("overall: 0.02", "BLOCK", 1),
        ("{overall: {warn: 0.02}, tasks: {toy: {f1: 0}}}", "WARN", 0),
        ("tasks: {toy: {f1: 0, exact_match: 0.1}}", "INCONCLUSIVE", 3),
    ],
)
def test_policy_sets_exit_status(
    logs: tuple[Path, Path], tmp_path: Path, text: str, verdict: str, status: int
) -> None:
    code, results = run_gate(*logs, "--policy", write_policy(tmp_path, text))
    assert (code, results["comparison"][0]["verdict"]) == (status, verdict)


def test_reads_documented_policy(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "comparing.md").read_text("utf-8")
    (example,) = [part for part in document.split("```yaml")[1:] if "overall:" in part]
    rules = read_policy(write_policy(tmp_path, example.partition("```")[0]))
    assert [(r.task, r.metric, r.filter, r.margins.block, r.margins.warn) for r in rules] == [
        ("", "", None, 0.01, None),
        ("gsm8k", "exact_match", "strict-match", 0.02, 0.01),
        ("mmlu", "acc", None, 0.01, None),
        ("ifeval", "prompt_level_strict_acc", None, None, 0.02),
    ]


def test_gate_fails_below_margin(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [1] * 200)
    after = write_log(tmp_path / "after", [0] * 20 + [1] * 180)
    high = read_model(compare_logs(before, after))["difference_high"]
    assert -0.1 < high < -0.04
    for margin, status in ((0.0, 1), (0.01, 1), (-high - 1e-9, 1), (-high + 1e-9, 3), (0.2, 0)):
        assert run_compare(before, after, "--fail-if-worse", margin).exit_code == status, margin
    assert run_compare(after, before, "--fail-if-worse", 0.01).exit_code == 0, "better"
    several = run_compare(before, after, after.parent, "--fail-if-worse", 0.01)
    assert several.exit_code == 1, "one worse model suffices"


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
    assert run_compare(low, with_results, *gate).exit_code == 1, "either results file has it"
    assert str(with_results) in read_refusal(low, with_results, "--higher-is-better")
    read_refusal(with_results, write_log(tmp_path / "other", [3.5] * 40))


def test_undecided_gate_reports_needed_documents(tmp_path: Path) -> None:
    """Six of a hundred documents changed: three gained and three lost."""
    before = write_log(tmp_path / "a", [1] * 50 + [0] * 50)
    after = write_log(tmp_path / "b", [0] * 3 + [1] * 50 + [0] * 47)
    code, results = run_gate(before, after, "--fail-if-worse", 0.01)
    (check,) = results["gate"]
    assert (code, check["verdict"]) == (3, "INCONCLUSIVE")
    width = check["difference_high"] - check["difference_low"]
    assert check["times_as_many"] == compute_data_factor(0.01, width)
    assert check["more"] == math.ceil(100 * check["times_as_many"]) - 100
    assert any(f"{check['more']:,} more documents" in text for text in results["warnings"])
    assert run_compare(before, after, "--fail-if-worse", 0).exit_code == 3
    assert run_compare(before, after, "--fail-if-worse", 0.5).exit_code == 0


def test_blocks_loss_of_a_small_task(tmp_path: Path) -> None:
    """Each of 10 documents is lost, 90 of another task are not; both tasks have equal weights."""
    for side, value in (("before", 1), ("after", 0)):
        for task, values in (("a", [value] * 10), ("b", [1] * 90)):
            log = write_log(tmp_path / side, values, task=task)
        group = {"alias": "g", "exact_match,none": (1 + value) / 2}
        facts = {
            "results": {"a": {"exact_match,none": value}, "b": {"exact_match,none": 1}, "g": group},
            "groups": {"g": group},
            "group_subtasks": {"g": ["a", "b"]},
            "versions": {"a": 1, "b": 1},
            "higher_is_better": {name: {"exact_match": True} for name in "ab"},
        }
        (log.parent / f"results_{DATE}.json").write_text(json.dumps(facts))
    policy = write_policy(tmp_path, "tasks: {g: {exact_match: 0.3}}")
    code, results = run_gate(tmp_path / "before", tmp_path / "after", "--policy", policy)
    (check,) = results["gate"]
    assert (code, check["verdict"], check["difference"]) == (1, "BLOCK", -0.5)
    parts = [
        estimate_paired_difference(-lost, np.ones(size), np.full(size, 1.0 - lost))
        for lost, size in ((1, 10), (0, 90))
    ]
    above = math.hypot(*(part.high - float(part.value) for part in parts)) / 2
    below = math.hypot(*(float(part.value) - part.low for part in parts)) / 2
    ends = check["difference_low"], check["difference_high"]
    assert ends == pytest.approx((-0.5 - below, -0.5 + above))


def test_rule_has_all_documents_of_its_task(logs: tuple[Path, Path], tmp_path: Path) -> None:
    """Groups of ``--by`` and training seeds do not change which documents a rule has."""
    policy = write_policy(tmp_path, "tasks: {toy: {exact_match: 0.1, f1: 0}}")
    plain, by_subject, seeds = (
        run_gate(*logs, "--policy", policy, *more)[1]["gate"]
        for more in ((), ("--by", "subject"), (logs[0], "--seeds"))
    )
    assert by_subject == plain
    assert seeds[0]["difference"] == pytest.approx(plain[0]["difference"] / 2)
    assert plain[0]["more"] is None, "the difference is the margin: no number of documents decides"
    assert (seeds[0]["verdict"], seeds[0]["more"]) == ("INCONCLUSIVE", None)
    assert seeds[0]["times_as_many"] > 1


def test_junit_has_a_case_for_each_check(logs: tuple[Path, Path], tmp_path: Path) -> None:
    text = "{overall: 0.1, tasks: {toy: {exact_match: 0.02, f1: 0.01}}}"
    done = run_compare(
        logs[0], f"\x1b[2Jnew={logs[1]}", "--policy", write_policy(tmp_path, text),
        "--junit", tmp_path / "gate.xml",
    )  # fmt: skip
    assert done.exit_code == 1
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    outcomes = [[child.tag for child in case] for case in suite]
    assert outcomes == [["error"], ["failure"], ["system-out"]]
    assert [case.get("name") for case in suite] == [
        "all documents", "toy (exact_match)", "toy (f1)",
    ]  # fmt: skip
    assert "0.02" in str(suite[1][0].get("message"))


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
