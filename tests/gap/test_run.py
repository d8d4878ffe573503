"""``gapft gap RUN`` on runs with known answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gapft_harness.analysis.power import find_detectable_effect
from gapft_harness.gap.page import build_page
from gapft_harness.gap.prospects import Advice, advise
from gapft_harness.gap.searched import Search
from gapft_harness.outcomes.searches import Endings, compute_search
from gapft_harness.outcomes.verdicts import Verdicts, encode_answers
from gapft_harness.presentation.page import Page
from tests.kit.command import call
from tests.kit.runs import BaseRun

SEEDS = 3


def build_split(greedy: object, passed: object) -> Verdicts:
    return Verdicts.of(np.array(greedy, dtype=bool), np.array(passed, dtype=bool))


def build_search(**splits: Verdicts) -> Search:
    shown = [*splits][-1]
    return Search("letters", "split", splits, shown, shown, "verifier contains")


@pytest.fixture
def run(run_at: Callable[..., BaseRun]) -> Path:
    """A copy of a finished run of the real command, with its report."""
    return run_at("reported").path


def test_gap_matches_report_and_leaves_run_unchanged(run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = call("gap", run, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    report = json.loads((run / "report/results.json").read_text())
    results = json.loads((tmp_path / "out/results.json").read_text())
    for split in ("pool", "audit"):
        states = {
            row["state"]: row["problems"] for row in report["states"] if row["split"] == split
        }
        counts = {
            row["state"]: row["problems"] for row in results["states"] if row["view"] == split
        }
        assert counts == states
        (share,) = [
            row["share"] for row in results["states"] if (row["view"], row["state"]) == (split, "S")
        ]
        assert share == states["S"] / sum(states.values())
    rates = [row["rate"] for row in results["curve"] if row["view"] == "audit"]
    assert [row["rate"] for row in report["curve"]] == rates
    assert any(row["note"].startswith("maj@K is not shown") for row in results["notes"])
    assert "maj@K is not shown" in (run / "report/index.md").read_text()
    for page in ("gap.html", "gap.md"):
        assert "Pass@4" in (tmp_path / "out" / page).read_text()


def test_refuses_settings_of_a_search(run: Path) -> None:
    done = call("gap", run, "--limit", 5, "--k", 4)
    assert done.returncode == 2
    assert "--k, --limit" in done.stderr


def test_needs_only_finished_search(run_at: Callable[..., BaseRun]) -> None:
    done = call("gap", run_at("searched").path)
    assert done.returncode == 0, done.stderr


def get_advice(search: Search) -> Advice:
    return advise(search.compute_findings(), SEEDS)


def show(search: Search) -> Page:
    return build_page(search, search.compute_findings(), get_advice(search))


def build_case(problems: int, recovered: int, solved: int) -> Search:
    passed = np.zeros((problems, 8), bool)
    passed[solved : solved + recovered, 0] = True
    return build_search(audit=build_split(np.arange(problems) < solved, passed))


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        ((12, 0, 0), "too little data"),
        ((1367, 29, 937), "too little data"),  # 2.1% [1.5, 3.0]; 2.1 points can be detected
        ((1367, 10, 937), "too small a gain"),
        ((1367, 43, 937), "too small a gain"),  # three quarters would have to be corrected
        ((1367, 362, 688), "worth training"),
    ],
)
def test_advice_depends_on_interval_of_recovered(case: tuple[int, int, int], answer: str) -> None:
    """The audit of LogiQA 2.0 has 1,367 items; the paper trains 3 seeds with K = 8."""
    advice = get_advice(build_case(*case))
    assert advice.answer == answer, advice
    least = find_detectable_effect(seeds=3, items=case[0], discordance=331 / 1367)
    assert advice.detectable[3] == least
    if answer == "too little data":
        (number,) = re.findall(r"About ([\d,]+) problems", advice.reason)
        problems = int(number.replace(",", ""))
        scaled = [round(count * problems / case[0]) for count in case[1:]]
        assert get_advice(build_case(problems, *scaled)).answer != answer


@pytest.mark.parametrize(
    ("endings", "part"),
    [
        (Endings(100, cut=81), "81% were cut"),
        (Endings(100, unanswered=10), "10% have no readable answer"),
        (Endings(100, cut=9, unanswered=9), ""),
        (Endings(100), ""),
    ],
)
def test_no_advice_on_cut_or_unreadable_responses(endings: Endings, part: str) -> None:
    search = replace(build_case(1367, 362, 688), endings={"audit": endings}, warnings=("w 81%",))
    page = show(search)
    assert (page.list_results()["advice"][0]["answer"] == "no advice") == bool(part)
    for text in (page.to_html(), page.to_markdown(), page.to_json()):
        assert part in text
        assert "w 81%" in text


def test_nothing_to_train_on() -> None:
    case = build_case(1367, 362, 688)
    assert get_advice(case).answer == "worth training"
    pool = build_split([0] * 40, np.zeros((40, 8)))
    none = build_search(pool=pool, audit=case.verdicts["audit"])
    assert get_advice(none).answer == "too small a gain"


def test_intervals_have_a_width_without_variation() -> None:
    answers = encode_answers([["a", "b", "b", "b"]] * 12)
    outvoted = Verdicts.of(
        np.ones(12, dtype=bool), np.tile([True, False, False, False], (12, 1)), answers
    )
    gain = compute_search(outvoted).majority_gain
    assert gain is not None
    assert gain.value == pytest.approx(-0.25)
    assert gain.low < gain.value < gain.high
    for share in (0, 1):
        findings = compute_search(build_split([share] * 12, np.full((12, 8), share)))
        estimates = [
            *(findings.greedy, *findings.pass_at, *findings.gains, *findings.shares.values())
        ]
        assert all(estimate.high > estimate.low for estimate in estimates)
    assert compute_search(build_split([0] * 12, np.zeros((12, 2)))).greedy.high == pytest.approx(
        0.2425, abs=1e-4
    )


def test_no_advice_without_audit() -> None:
    """The pool's size does not replace the audit's: 2,000 items show more than 300."""
    alone = build_search(pool=build_case(2000, 200, 0).verdicts["audit"])
    assert get_advice(alone).answer == "no advice"
    assert "No audit was searched" in show(alone).to_markdown()


def test_result_keys_are_documented(run: Path, tmp_path: Path) -> None:
    assert call("gap", run, "--out", tmp_path).returncode == 0
    page = (Path(__file__).parents[2] / "docs/gap.md").read_text("utf-8")
    for key in json.loads((tmp_path / "results.json").read_text()):
        assert f"`{key}`" in page, key
