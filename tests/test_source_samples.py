"""Stability and scope in one run of the real command, with hashed answers."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from tests.kit.planted_run import SEEDS, write_planted_task
from tests.kit.report_tables import read_results
from tests.kit.tampering import read_rows

CONDITIONS, SETS, K = ("gapft", "uniform"), 4, 3
#: Samples of the search: two sets and part of the third. The audit draws the rest.
SEARCHED = 8

#: Some wrong responses give the other letter, and the verifier reads the letter.
ANSWERS = """

class Planted(Planted):
    def _respond(self, request, index):
        response = super()._respond(request, index)
        guesses = share("guesses", self._arm, request.problem_id, index) < 0.5
        if response.text[0] != "?" or not guesses:
            return response
        text = "ba"["ab".index(request.prompt[-1])] + response.text[1:]
        return Generation(text, tuple(text.encode()), "stop")


class FirstLetter(FirstLetter):
    def answer(self, text):
        return text[0] if text[0] in "ab" else None
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = write_planted_task(
        tmp_path_factory.mktemp("samples") / "task", range(40), range(200, 290)
    )
    with (task.folder / "plugin.py").open("a") as plugin:
        plugin.write(ANSWERS)
    return task.run(
        "run",
        search={"k": SEARCHED},
        conditions=list(CONDITIONS),
        budget={"n": 8},
        experiments={
            "stability": {"sets": SETS, "k": K},
            "scope": {"k": [K, SEARCHED, K]},
        },
    )


class Tables:
    """The tables as dictionaries by problem."""

    def __init__(self, run: Path) -> None:
        responses = read_rows(run / "audit/responses.parquet")
        problems = read_rows(run / "audit/problems.parquet")
        self.gold = {row["problem_id"]: json.loads(row["gold"]) for row in problems}
        self.source = {r["problem_id"]: r for r in responses if r["index"] == -1}
        self.samples: dict[str, list[bool]] = {problem: [] for problem in self.source}
        more = read_rows(run / "decisions/source-seed0.stability.parquet")
        assert {row["index"] for row in more} == {*range(SETS * K - SEARCHED)}
        for row in (*responses, *more):
            if row["index"] >= 0:
                self.samples[row["problem_id"]].append(row["status"] == "pass")
        self.arms = {
            (c, s): {r["problem_id"]: r for r in read_rows(run / f"decisions/{c}-seed{s}.parquet")}
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
        return Fraction(right, len(seeds) * len(self.source))


def test_stability_matches_verdicts(run: Path) -> None:
    results, recorded = read_results(run), Tables(run)
    sets = [{p: recorded.state(p, K * i, K * i + K) for p in recorded.source} for i in range(SETS)]
    failed = [p for p in recorded.source if sets[0][p] != "G"]
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
        gain = recorded.right(condition, [*recorded.source]) - Fraction(
            len(recorded.source) - len(failed), len(recorded.source)
        )
        assert rows[condition, "total_gain"]["mean"] == float(gain)
    assert unlike, "the largest range is no other seed's"


def test_scope_rows_match_nested_budgets(run: Path) -> None:
    tables, recorded = read_results(run), Tables(run)
    assert [(row["condition"], row["K"]) for row in tables["scope"]] == [
        (condition, k) for condition in CONDITIONS for k in (K, SEARCHED)
    ]
    for row in tables["scope"]:
        states = {p: recorded.state(p, 0, row["K"]) for p in recorded.source}
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


def test_null_rates_match_shuffled_answers(run: Path) -> None:
    """Compare null rates with plain shuffles of the recorded answers."""
    tables, recorded = read_results(run), Tables(run)
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


def test_pool_gets_no_unused_samples(run: Path) -> None:
    rows = read_rows(run / "pool/responses.parquet")
    assert {row["index"] for row in rows} == {-1, *range(SEARCHED)}
