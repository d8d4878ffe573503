"""Episodes in the report: counts from the run's tables, in report.md and results.json."""

import json
import re
from dataclasses import replace

import pytest

from gapft_harness.core.records import GREEDY, Arm
from gapft_harness.report import write_report
from gapft_harness.report.reading.episodes import (
    EpisodeCounts,
    EpisodeFacts,
    Repeats,
    read_episodes,
)
from gapft_harness.run_directory.tables import response_schema
from tests.report import planted
from tests.report.written_run import build_response, write_rows

#: (problem, index, attempts before the last, status)
AUDIT = [
    ("a", GREEDY, 0, "pass"), ("a", 0, 2, "fail"), ("a", 1, 1, "pass"),
    ("b", GREEDY, 0, "fail"), ("b", 0, 1, "timeout"), ("b", 1, 2, "pass"),
    ("c", GREEDY, 2, "fail"), ("c", 0, 0, "fail"), ("c", 1, 2, "fail"),
]  # fmt: skip
ARMS = {
    Arm("diffuse", 13): [("a", GREEDY, 0, "pass"), ("b", GREEDY, 1, "pass")],
    Arm("diffuse", 21): [("a", GREEDY, 1, "fail"), ("b", GREEDY, 2, "fail")],
    Arm("replay", 13): [("a", GREEDY, 0, "pass"), ("b", GREEDY, 0, "pass")],
}
SAME = {"times": 3, "episodes": 3, "verdicts_differ": [], "feedback_differs": []}


def build_rows(episodes):
    attempt = {"text": "x", "token_ids": [1], "finish_reason": "stop", "feedback": "no"}
    return [
        {**build_response(problem, index, "t", status), "attempts": [attempt] * earlier}
        for problem, index, earlier, status in episodes
    ]


@pytest.fixture
def run_folder(tmp_path):
    write_rows(tmp_path / "audit/responses.parquet", build_rows(AUDIT), response_schema())
    for arm, episodes in ARMS.items():
        write_rows(
            tmp_path / f"decisions/{arm.name}.parquet", build_rows(episodes), response_schema()
        )
    return tmp_path


def build_manifest(attempts=3, executions=3, repeats=None):
    return {
        "recipe": {"search": {}},
        "task": {"episode": {"attempts": attempts, "executions": executions}},
        "executions": repeats or {},
    }


def test_counts_attempts_and_passes_of_public_tests_alone(run_folder):
    facts = read_episodes(run_folder, build_manifest(executions=1), list(ARMS))
    assert facts == EpisodeFacts(
        3,
        (
            EpisodeCounts("source", "greedy", (2, 0, 1), 1, 1),
            EpisodeCounts("source", "samples", (1, 2, 3), 2, 2),
            EpisodeCounts("diffuse", "greedy", (1, 2, 1), 2, 1),
            EpisodeCounts("replay", "greedy", (2, 0, 0), 2, 0),
        ),
        None,
    )
    assert [counts.total for counts in facts.counts] == [3, 6, 4, 2]


def test_sums_and_lists_differing_executions(run_folder):
    pool = {**SAME, "episodes": 9, "verdicts_differ": ["p"], "feedback_differs": ["p", "q"]}
    repeats = {"pool": pool, "audit": SAME, "diffuse-seed13": {**SAME, "feedback_differs": ["b"]}}
    facts = read_episodes(run_folder, build_manifest(repeats=repeats), list(ARMS))
    assert facts.repeats == Repeats(
        3, 15, 1, 3, (("diffuse-seed13", "b"), ("pool", "p"), ("pool", "q"))
    )


def test_single_responses_need_repeats_for_section(run_folder):
    assert read_episodes(run_folder, build_manifest(1, 1), list(ARMS)) is None
    facts = read_episodes(run_folder, build_manifest(1, 3, {"audit": SAME}), list(ARMS))
    assert facts == EpisodeFacts(1, (), Repeats(3, 3, 0, 0, ()))


@pytest.mark.parametrize("differing_problems", [(), (("pool", "p"), ("audit", "b & c"))])
def test_report_has_episode_table_and_results(tmp_path, differing_problems):
    counts = (
        EpisodeCounts("source", "greedy", (50, 30, 20), 60, 8),
        EpisodeCounts("gapft", "greedy", (200, 70, 30), 240, 12),
    )
    differing = (1, 2) if differing_problems else (0, 0)
    facts = EpisodeFacts(3, counts, Repeats(3, 400, *differing, differing_problems))
    judged_by = {"audit": {"sandbox_tier": "landlock"}}
    inputs = replace(planted.build_inputs(sizes=(12, 9, 8)), episodes=facts, judged_by=judged_by)
    write_report(inputs, tmp_path / "report")
    text = (tmp_path / "report/report.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| source, greedy | 100"))
    assert row.split("|")[2:-1] == [" 100 ", " 50.0% ", " 30.0% ", " 20.0% ", " 60.0% ", " 8.0% "]
    assert "landlock" in text
    results = json.loads((tmp_path / "report/results.json").read_text())
    assert results["judged_by"] == judged_by
    assert results["episodes"]["audit"][1] == {
        "who": "gapft",
        "kind": "greedy",
        "episodes": 300,
        "ended_at_attempt": [200, 70, 30],
        "passed": 240,
        "passed_public_tests_alone": 12,
    }
    assert results["episodes"]["executions"]["verdicts_differ"] == differing[0]
    html = (tmp_path / "report/index.html").read_text()
    # the explorer page has only problems of the audit
    linked = re.findall(r'<a href="(explorer.html#.*?)">(.*?)</a>', html.partition("Episodes")[2])
    assert ("explorer.html#open=b+%26+c", "b &amp; c") in linked or not differing_problems
    assert not [link for link in linked if link[1] == "p"]


def test_run_without_episodes_has_no_section(tmp_path):
    write_report(planted.build_inputs(sizes=(12, 9, 8)), tmp_path / "report")
    assert "Episodes" not in (tmp_path / "report/report.md").read_text()
    assert "episodes" not in json.loads((tmp_path / "report/results.json").read_text())
