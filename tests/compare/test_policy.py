"""``--policy``: margins by task and metric, their verdicts, and JUnit's XML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.compare.policy import (
    EXIT_STATUS,
    GateRule,
    GateVerdict,
    build_margin_rule,
    decide,
    find_worst,
    read_policy,
)
from tests.compare.command import run_compare
from tests.compare.logs import row, write_log
from tests.kit.command import ROOT

CHANGES = st.floats(-1, 1)
MARGINS = st.floats(0, 1)


def write_policy(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    """Write logs of two metrics: accuracy falls from 100% to 90%, and f1 rises by 0.1."""
    for side, wrong, f1 in (("before", 0, 0.4), ("after", 20, 0.5)):
        rows = [row(n, int(n >= wrong), metrics=["exact_match", "f1"], f1=f1) for n in range(200)]
        facts = {"higher_is_better": {"toy": {"exact_match": True, "f1": True}}}
        write_log(tmp_path / side, rows=rows, facts=facts)
    return tmp_path / "before", tmp_path / "after"


@given(CHANGES, CHANGES, CHANGES, MARGINS, MARGINS)
def test_larger_margin_is_never_stricter(
    first: float, second: float, third: float, margin: float, other: float
) -> None:
    low, difference, high = sorted((first, second, third))
    small, large = sorted((margin, other))
    strict, lenient = (
        decide(build_margin_rule(value), difference, low, high).verdict for value in (small, large)
    )
    assert find_worst([strict, lenient]) == strict


@given(CHANGES, CHANGES, CHANGES, MARGINS, MARGINS)
def test_verdict_follows_from_interval(
    first: float, second: float, third: float, block: float, warn: float
) -> None:
    low, difference, high = sorted((first, second, third))
    decision = decide(GateRule("", block=block, warn=warn), difference, low, high)
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
    done = run_compare(*logs, "--policy", write_policy(tmp_path, text), "--format", "json")
    assert done.exit_code == status, done.output
    assert json.loads(done.stdout)["gate"]["verdict"] == verdict


def test_checks_metric_that_is_not_compared(logs: tuple[Path, Path], tmp_path: Path) -> None:
    policy = write_policy(tmp_path, "tasks: {toy: {exact_match: 0.02, f1: 0.01}}")
    done = run_compare(*logs, "--policy", policy, "--out", tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    accuracy, f1 = results["gate"]["checks"]
    assert results["metric"] == accuracy["metric"] == "exact_match"
    (model,) = results["models"].values()
    assert accuracy["ci95"] == model["ci95"], "the gate and the table have one interval"
    assert (f1["metric"], f1["verdict"]) == ("f1", "PASS")
    assert f1["difference"] == pytest.approx(0.1)
    words = " ".join(done.output.split())
    assert "BLOCK: 1 of 2 checks" in words
    assert "toy (f1) PASS" in words


def test_margin_is_a_loss_where_lower_is_better(tmp_path: Path) -> None:
    low, high = (
        write_log(tmp_path / name, [value] * 40, higher=False)
        for name, value in (("low", 1.5), ("high", 3.5))
    )
    policy = write_policy(tmp_path, "tasks: {toy: {exact_match: 1.9}}")
    assert run_compare(low, high, "--policy", policy).exit_code == 1
    assert run_compare(high, low, "--policy", policy).exit_code == 0


def test_rule_has_all_documents_of_its_task(logs: tuple[Path, Path], tmp_path: Path) -> None:
    """Groups of ``--by`` and training seeds do not change which documents a rule has."""
    policy = write_policy(tmp_path, "tasks: {toy: {exact_match: 0.1, f1: 0}}")
    arguments = (*logs, "--policy", policy, "--format", "json")
    plain, by_subject, seeds = (
        json.loads(run_compare(*arguments, *more).stdout)["gate"]["checks"]
        for more in ((), ("--by", "subject"), (logs[0], "--seeds"))
    )
    assert by_subject == plain
    assert seeds[0]["difference"] == pytest.approx(plain[0]["difference"] / 2)
    assert plain[0]["more"] is None, "the difference is the margin: no number of documents decides"
    assert (seeds[0]["verdict"], seeds[0]["more"]) == ("INCONCLUSIVE", None)
    words = " ".join(run_compare(*logs, logs[0], "--seeds", "--policy", policy).output.split())
    assert f" ×{seeds[0]['times_as_many']:.2g} " in words


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


def test_reads_documented_policy(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "comparing.md").read_text("utf-8")
    (example,) = [part for part in page.split("```yaml")[1:] if "overall:" in part]
    rules = read_policy(write_policy(tmp_path, example.partition("```")[0]))
    assert [(rule.task, rule.metric, rule.filter, rule.block, rule.warn) for rule in rules] == [
        ("", "", None, 0.01, None),
        ("gsm8k", "exact_match", "strict-match", 0.02, 0.01),
        ("mmlu", "acc", None, 0.01, None),
        ("ifeval", "prompt_level_strict_acc", None, None, 0.02),
    ]
