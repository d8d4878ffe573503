"""README's code experiment: real programs, matched allocations and the contrast."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

SEEDS = ("13", "21", "42")


@pytest.fixture(scope="session")
def run(readme_run: Path) -> Path:
    return readme_run / "runs" / "demo-code"


@pytest.fixture(scope="session")
def results(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "report/results.json").read_text())
    return content


def test_conditions_match_in_steps_replay_and_tokens(run: Path, results: dict[str, Any]) -> None:
    for seed in SEEDS:
        chosen = {
            name: pq.read_table(run / f"selections/{name}-seed{seed}.parquet").to_pylist()
            for name in ("diffuse", "concentrated")
        }
        replay = [[row for row in rows if row["state"] == "G"] for rows in chosen.values()]
        assert replay[0] == replay[1]
        assert replay[0]
        budgets = [
            results["conditions"][name]["seeds"][seed]["budget"]
            for name in ("diffuse", "concentrated")
        ]
        for budget in budgets:
            assert budget["J"] == 64
            assert (budget["n"], budget["N"]) == (budgets[0]["n"], budgets[0]["N"])
        tokens = sorted(budget["L_supervised"] for budget in budgets)
        assert tokens[1] - tokens[0] <= 0.02 * tokens[1]


def test_contrast_matches_the_decisions(run: Path, results: dict[str, Any]) -> None:
    """Recompute equation coverage_repetition from the listed problems."""
    with (run / "report/tables/allocation_problems.csv").open() as file:
        rows = list(csv.DictReader(file))
    (contrast,) = (row for row in results["allocation"] if row["quantity"] == "contrast")
    means = []
    for seed in SEEDS:
        seed_rows = [row for row in rows if row["seed"] == seed]
        halves = {half: [row for row in seed_rows if row["half"] == half] for half in "AB"}
        assert len(halves["A"]) == len(halves["B"]) > 0

        def success(half: str, condition: str, halves: dict[str, Any] = halves) -> Fraction:
            passed = sum(row[f"verdict_{condition}"] == "pass" for row in halves[half])
            return Fraction(passed, len(halves[half]))

        coverage = success("B", "diffuse") - success("B", "concentrated")
        repetition = success("A", "concentrated") - success("A", "diffuse")
        means.append((coverage - repetition) / 2)
        assert contrast[f"seed_{seed}"] == pytest.approx(float(means[-1]), abs=1e-12)
    assert contrast["mean"] == pytest.approx(float(sum(means) / 3), abs=1e-12)
    assert contrast["mean_low"] <= contrast["mean"] <= contrast["mean_high"]
    assert "## Coverage against repetition" in (run / "report/index.md").read_text()


def test_episodes_follow_rule_and_programs_repeat(run: Path, results: dict[str, Any]) -> None:
    for table in ("pool/responses", "audit/responses", "decisions/diffuse-seed13"):
        for row in pq.read_table(run / f"{table}.parquet").to_pylist():
            assert len(row["attempts"]) <= 2
            assert all("public test" in a["feedback"] or "no complete" in a["feedback"]
                       for a in row["attempts"])  # fmt: skip
            assert bool(row["context_ids"]) == bool(row["attempts"])
            if len(row["attempts"]) < 2 and row["status"] == "fail":
                assert "hidden test" in row["reason"], "its public tests had passed"
    facts = results["episodes"]
    source = facts["audit"][0]
    assert (source["who"], source["episodes"]) == ("source", results["source"]["n"])
    assert source["ended_at_attempt"][1] > 0
    assert source["passed_public_tests_alone"] > 0
    assert facts["executions"]["times"] == 3
    assert facts["executions"]["verdicts_differ"] == 0
    assert results["judged_by"]["audit"]["sandbox_tier"] in ("namespaces", "landlock")


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
    assert "4 hidden ones" in (run / "report/index.md").read_text()
    for row in pq.read_table(run / "pool/responses.parquet").to_pylist():
        for attempt in row["attempts"]:
            input_text = attempt["feedback"].partition("Input:\n")[2].partition("Expected")[0]
            assert input_text not in hidden[row["problem_id"]]
