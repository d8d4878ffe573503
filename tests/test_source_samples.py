"""Stability and scope in one run of the real command, with hashed answers."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.experiments.scope import ScopePart
from tests.kit.command import succeed
from tests.kit.local_tasks import build_task
from tests.kit.part_tables import read_tables

CONDITIONS, SEEDS, SETS, K = ("gapft", "uniform"), (13, 21), 4, 3
#: Samples of the search: two sets and part of the third. The audit draws the rest.
SEARCHED = 8

TASK = build_task(
    "options",
    'verifier: option_letter, keep: shortest, id: "{{id}}", content: [question]',
    text="{{question}} {{answer}}",
)

#: The prompt ends with the right option. The source answers a third of the problems with it;
#: samples and trained models give it sometimes, else another option or nothing.
PLUGIN = """
import hashlib

from gapft_harness.api import Generated, Generation, Verdict, hookimpl


class Options:
    def __init__(self, settings, adapter):
        self._who = adapter.arm.name if adapter else "source"

    def generate(self, requests, decoding, report):
        return [
            Generated(tuple(r.prompt.encode()), tuple(self._say(r, i) for i in r.indices))
            for r in requests
        ]

    def _say(self, request, index):
        text = f"{self._who} {index} {request.problem_id}"
        first, second = hashlib.sha256(text.encode()).digest()[:2]
        sampled = index >= 0
        knows = first % 12 < (1 if sampled else 4 if self._who == "source" else 6)
        guess = "ABCD"[second % 4] if second % 9 == 0 or not sampled else "none"
        said = request.prompt[-1] if knows else guess
        return Generation(said, tuple(said.encode()), "stop")

    def describe(self):
        return {"model": "options"}

    def close(self):
        pass


def train(job):
    job.output.mkdir(parents=True)
    (job.output / "adapter_config.json").write_text("{}")
    return {"seconds": 0.0}


@hookimpl
def register_samplers(register):
    register("options", Options)


@hookimpl
def register_trainers(register):
    register("none", train)
"""

RECIPE = f"""
name: options
data: {{task: options}}
model: {{backend: options, args: {{pretrained: none}}}}
search: {{k: {SEARCHED}, chunk: 20}}
conditions: [{", ".join(CONDITIONS)}]
seeds: {list(SEEDS)}
training: {{trainer: none, repetitions: 1}}
statistics: {{replicates: 50}}
experiments:
  stability: {{sets: {SETS}, k: {K}}}
  scope: {{k: [{K}, {SEARCHED}, {K}]}}
"""


def write_files(folder: Path) -> Path:
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks/options.yaml").write_text(TASK)
    for split, count in (("pool", 40), ("audit", 90)):
        lines = [
            {"id": f"{split}{i}", "question": f"{split} {i * i}?", "answer": "ABCD"[i * i % 7 % 4]}
            for i in range(count)
        ]
        (folder / f"tasks/{split}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def build_command(*more: str, run: str = "run") -> list[str]:
    options = ["--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run]
    return ["run", "recipe.yaml", *options, *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options_folder = write_files(tmp_path_factory.mktemp("options") / "whole")
    (options_folder / "said").write_text(succeed(*build_command(), cwd=options_folder).stdout)
    return options_folder


def read_results(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run/report/results.json").read_text())
    return content


class Tables:
    """The tables as dictionaries by problem."""

    def __init__(self, folder: Path) -> None:
        def rows(table: str) -> list[dict[str, Any]]:
            table_rows: list[dict[str, Any]] = pq.read_table(folder / "run" / table).to_pylist()
            return table_rows

        responses = rows("audit/responses.parquet")
        self.gold = {r["problem_id"]: json.loads(r["gold"]) for r in rows("audit/problems.parquet")}
        self.source = {r["problem_id"]: r for r in responses if r["index"] == -1}
        self.samples: dict[str, list[bool]] = {problem: [] for problem in self.gold}
        more = rows("decisions/source-seed0.stability.parquet")
        assert {row["index"] for row in more} == {*range(SETS * K - SEARCHED)}
        for row in (*responses, *more):
            if row["index"] >= 0:
                self.samples[row["problem_id"]].append(row["status"] == "pass")
        self.arms = {
            (c, s): {r["problem_id"]: r for r in rows(f"decisions/{c}-seed{s}.parquet")}
            for c in CONDITIONS
            for s in SEEDS
        }

    def state(self, problem: str, start: int, end: int) -> str:
        if self.source[problem]["status"] == "pass":
            return "G"
        return "S" if any(self.samples[problem][start:end]) else "U"

    def right(
        self, condition: str, problems: list[str], seeds: tuple[int, ...] = SEEDS
    ) -> Fraction:
        """Return the mean over seeds of these problems' correct share of the audit."""
        right = sum(
            self.arms[condition, seed][p]["status"] == "pass" for seed in seeds for p in problems
        )
        return Fraction(right, len(seeds) * len(self.gold))


def test_stability_matches_verdicts(folder: Path) -> None:
    results, recorded = read_results(folder), Tables(folder)
    sets = [{p: recorded.state(p, K * i, K * i + K) for p in recorded.gold} for i in range(SETS)]
    failed = [p for p in recorded.gold if sets[0][p] != "G"]
    (agreement,) = results["stability_agreement"]
    assert agreement["source_failures"] == len(failed)
    changing = [p for p in failed if len({states[p] for states in sets}) == 2]
    assert agreement["unstable_share"] == len(changing) / len(failed)
    pairs = [*combinations(sets, 2)]
    agreeing = sum(a[p] == b[p] for a, b in pairs for p in failed)
    assert agreement["agreement"] == agreeing / (len(pairs) * len(failed))
    overlaps = [
        Fraction(sum(a[p] == b[p] == "S" for p in failed), sum("S" in (a[p], b[p]) for p in failed))
        for a, b in pairs
    ]
    assert agreement["S_jaccard"] == float(sum(overlaps) / len(pairs))
    for row, states in zip(results["stability_sets"], sets, strict=True):
        assert [row[state] for state in "GSU"] == [[*states.values()].count(s) for s in "GSU"]
    recovered = [[p for p in failed if by[p] == "S"] for by in sets]
    rows = {(row["condition"], row["quantity"]): row for row in results["stability"]}
    unlike = 0
    for condition in CONDITIONS:
        flow = rows[condition, "S_flow"]
        by_seed = [[recorded.right(condition, s, (seed,)) for s in recovered] for seed in SEEDS]
        ranges = [max(values) - min(values) for values in by_seed]
        assert flow["seed_range"] == float(max(ranges))
        unlike += min(ranges) < max(ranges)
        flows = [recorded.right(condition, s) for s in recovered]
        assert [flow[f"set_{i}"] for i in range(1, SETS + 1)] == [*map(float, flows)]
        assert flow["range"] == float(max(flows) - min(flows)) > 0
        assert flow["mean"] == float(sum(flows) / SETS)
        for name in ("total_gain", "G_regression", "combined_correction"):
            assert rows[condition, name]["range"] == 0
        gain = recorded.right(condition, [*recorded.gold]) - Fraction(
            len(recorded.gold) - len(failed), len(recorded.gold)
        )
        assert rows[condition, "total_gain"]["mean"] == float(gain)
    assert unlike, "the largest range is no other seed's"


def test_scope_rows_match_nested_budgets(folder: Path) -> None:
    tables, recorded = read_tables(folder / "run", ScopePart()), Tables(folder)
    assert [(row["condition"], row["K"]) for row in tables["scope"]] == [
        (condition, k) for condition in CONDITIONS for k in (K, SEARCHED)
    ]
    for row in tables["scope"]:
        states = {p: recorded.state(p, 0, row["K"]) for p in recorded.gold}
        sizes = {state: sum(value == state for value in states.values()) for state in "GSU"}
        assert {state: row[state] for state in "GSU"} == sizes
        assert row["unstable"] == ", ".join(state for state in "GSU" if sizes[state] < 30)
        assert row["p_S"] == sizes["S"] / len(states)
        for key, state in (("kappa_S", "S"), ("kappa_U", "U"), ("rho_G", "G")):
            members = [p for p in states if states[p] == state]
            rate = recorded.right(row["condition"], members) * len(states) / len(members)
            assert row[key] == pytest.approx(float(1 - rate if state == "G" else rate))
        net = row["p_S"] * row["kappa_S"] * len(states) + sizes["U"] * row["kappa_U"]
        assert row["net_gain"] * len(states) == pytest.approx(net - sizes["G"] * row["rho_G"])
    assert "scope_no_null_rates" not in tables


def test_null_rates_match_shuffled_answers(folder: Path) -> None:
    """Compare null rates with plain shuffles of the recorded answers."""
    tables, recorded = read_tables(folder / "run", ScopePart()), Tables(folder)
    rng = random.Random(1)
    for line in tables["scope"]:
        for state in "SU":
            members = sorted(p for p in recorded.gold if recorded.state(p, 0, line["K"]) == state)
            rates = []
            for _ in range(600):
                dealt = {p: p for p in members}
                for answer in sorted({recorded.source[p]["answer"] for p in members}, key=str):
                    own = [p for p in members if recorded.source[p]["answer"] == answer]
                    dealt |= dict(zip(own, rng.sample(own, len(own)), strict=True))
                right = [
                    recorded.arms[line["condition"], seed][dealt[p]]["answer"] == recorded.gold[p]
                    for seed in SEEDS
                    for p in members
                ]
                rates.append(sum(right) / len(right))
            assert line[f"null_{state}"] == pytest.approx(sum(rates) / len(rates), abs=0.02)


def test_pool_gets_no_unused_samples(folder: Path) -> None:
    rows = pq.read_table(folder / "run/pool/responses.parquet")
    assert {*rows["index"].to_pylist()} == {-1, *range(SEARCHED)}
