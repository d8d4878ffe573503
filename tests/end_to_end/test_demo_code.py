"""README's code experiment: episodes of real programs, whose hidden tests stay hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.kit.report_tables import find_row, read_results
from tests.presentation.exploring import unpack_page


@pytest.fixture(scope="session")
def run(readme_run: Path) -> Path:
    return readme_run / "runs" / "demo-code"


@pytest.fixture(scope="session")
def results(run: Path) -> dict[str, Any]:
    return read_results(run)


def test_episodes_follow_rule_and_programs_repeat(run: Path, results: dict[str, Any]) -> None:
    for table in ("pool/responses", "audit/responses", "decisions/diffuse-seed13"):
        for row in pq.read_table(run / f"{table}.parquet").to_pylist():
            assert len(row["attempts"]) <= 2
            assert all("public test" in a["feedback"] or "no complete" in a["feedback"]
                       for a in row["attempts"])  # fmt: skip
            assert bool(row["context_ids"]) == bool(row["attempts"])
            if len(row["attempts"]) < 2 and row["status"] == "fail":
                assert "hidden test" in row["reason"], "its public tests had passed"
    source = results["episodes"][0]
    assert (source["who"], source["kind"]) == ("source", "greedy")
    assert source["episodes"] == results["run"][0]["problems"]
    assert source["ended_at_attempt_2"] > 0
    assert source["passed_public_tests_alone"] > 0
    (executions,) = results["executions"]
    assert executions["times"] == 3
    assert executions["verdicts_differ"] == 0
    tier = find_row(results["facts"], setting="judged_by.audit.sandbox_tier")["value"]
    assert tier in ("namespaces", "landlock")


def test_hidden_tests_never_reach_conversations(run: Path) -> None:
    problems = pq.read_table(run / "pool/problems.parquet").to_pylist()
    hidden = {
        row["problem_id"]: [
            test["input"].strip() + "\n"
            for test in json.loads(row["gold"])["tests"][json.loads(row["gold"])["public"] :]
        ]
        for row in problems
    }
    assert not [row for row in problems if "tests" in json.loads(row["document"])]
    _, texts = unpack_page(run / "report/explorer.html")
    assert all("4 hidden ones" in item["gold"] for item in texts)
    for row in pq.read_table(run / "pool/responses.parquet").to_pylist():
        for attempt in row["attempts"]:
            input_text = attempt["feedback"].partition("Input:\n")[2].partition("Expected")[0]
            assert input_text not in hidden[row["problem_id"]]
