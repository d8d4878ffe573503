"""Episodes in the report: counted from the sealed tables, said in words and in results.json."""

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
from tests.report.test_read_inputs import response, write

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


def rows(of):
    attempt = {"text": "x", "token_ids": [1], "finish_reason": "stop", "feedback": "no"}
    return [
        {**response(problem, index, "t", status), "attempts": [attempt] * earlier}
        for problem, index, earlier, status in of
    ]


@pytest.fixture
def run(tmp_path):
    write(tmp_path / "audit/responses.parquet", rows(AUDIT), response_schema())
    for arm, of in ARMS.items():
        write(tmp_path / f"decisions/{arm.name}.parquet", rows(of), response_schema())
    return tmp_path


def manifest(attempts=3, executions=3, found=None):
    return {
        "task": {"episode": {"attempts": attempts, "executions": executions}},
        "executions": found or {},
    }


def test_attempts_and_finals_that_pass_the_public_tests_alone_are_counted(run):
    facts = read_episodes(run, manifest(executions=1), list(ARMS))
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
    assert [of.total for of in facts.counts] == [3, 6, 4, 2]


def test_executions_that_differ_are_added_up_and_named(run):
    pool = {**SAME, "episodes": 9, "verdicts_differ": ["p"], "feedback_differs": ["p", "q"]}
    found = {"pool": pool, "audit": SAME, "diffuse-seed13": {**SAME, "feedback_differs": ["b"]}}
    facts = read_episodes(run, manifest(found=found), list(ARMS))
    assert facts.repeats == Repeats(
        3, 15, 1, 3, (("diffuse-seed13", "b"), ("pool", "p"), ("pool", "q"))
    )


def test_a_run_of_single_responses_has_no_section_unless_they_were_run_again(run):
    assert read_episodes(run, manifest(1, 1), list(ARMS)) is None
    facts = read_episodes(run, manifest(1, 3, {"audit": SAME}), list(ARMS))
    assert facts == EpisodeFacts(1, (), Repeats(3, 3, 0, 0, ()))


@pytest.mark.parametrize("named", [(), (("pool", "p"), ("audit", "b & c"))])
def test_the_report_has_table_and_numbers(tmp_path, named):
    counts = (
        EpisodeCounts("source", "greedy", (50, 30, 20), 60, 8),
        EpisodeCounts("gapft", "greedy", (200, 70, 30), 240, 12),
    )
    differing = (1, 2) if named else (0, 0)
    facts = EpisodeFacts(3, counts, Repeats(3, 400, *differing, named))
    judged_by = {"audit": {"sandbox_tier": "landlock"}}
    inputs = replace(planted.inputs(sizes=(12, 9, 8)), episodes=facts, judged_by=judged_by)
    write_report(inputs, tmp_path / "report")
    text = (tmp_path / "report/report.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| source, greedy | 100"))
    assert row.split("|")[2:-1] == [" 100 ", " 50.0% ", " 30.0% ", " 20.0% ", " 60.0% ", " 8.0% "]
    assert "landlock" in text
    found = json.loads((tmp_path / "report/results.json").read_text())
    assert found["judged_by"] == judged_by
    assert found["episodes"]["audit"][1] == {
        "who": "gapft",
        "kind": "greedy",
        "episodes": 300,
        "ended_at_attempt": [200, 70, 30],
        "passed": 240,
        "passed_public_tests_alone": 12,
    }
    assert found["episodes"]["executions"]["verdicts_differ"] == differing[0]
    html = (tmp_path / "report/index.html").read_text()
    # of the problems that are named, the explorer has those of the audit
    linked = re.findall(r'<a href="(explorer.html#.*?)">(.*?)</a>', html.partition("Episodes")[2])
    assert ("explorer.html#open=b+%26+c", "b &amp; c") in linked or not named
    assert not [of for of in linked if of[1] == "p"]


def test_other_runs_have_neither(tmp_path):
    write_report(planted.inputs(sizes=(12, 9, 8)), tmp_path / "report")
    assert "Episodes" not in (tmp_path / "report/report.md").read_text()
    assert "episodes" not in json.loads((tmp_path / "report/results.json").read_text())
