"""A demo run with repeats of a sampled deployment decode, from search to results.json."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.interactive.functions import decompose
from gapft_harness.interactive.runs import open_run
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed

REPEATS, REQUIRED, K = 3, 2, 4
CONDITIONS, SEEDS = ("gapft", "uniform"), (13, 21)
RECIPE = f"""
name: sampled
data: {{task: gapft_demo, pool_limit: 60, audit_limit: 40}}
model:
  backend: hf
  args: {{pretrained: "bundled:demo", dtype: float32, device: cpu, batch_size: 256}}
search:
  k: {K}
  temperature: 1.0
  chunk: 200
  deployment: {{temperature: 0.8, repeats: {REPEATS}}}
conditions: [{", ".join(CONDITIONS)}]
seeds: [{", ".join(map(str, SEEDS))}]
budget: {{n: 8}}
training: {{learning_rate: 1.0e-3, micro_batch: 16, accumulation: 1, dtype: float32}}
executor: {{name: local, workers: 1, threads: 1}}
experiments:
  scope: {{k: [1, 2, 4]}}
  stability: {{sets: 2, k: 2}}
"""

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "recipe.yaml").write_text(RECIPE)
    succeed("run", "recipe.yaml", "--run-dir", "run", cwd=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def results(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "report/results.json").read_text("utf-8"))
    return content


def read_passes(table: Path) -> dict[tuple[str, int], bool]:
    """Read whether each response passed, by problem and index."""
    rows = pq.read_table(table, columns=["problem_id", "index", "status"]).to_pylist()
    return {(row["problem_id"], row["index"]): row["status"] == "pass" for row in rows}


def classify_problems(passes: dict[tuple[str, int], bool], k: int) -> dict[str, str]:
    """Classify problems by their repeats, and by the first k samples."""
    return {
        problem: "G"
        if sum(passes[problem, index] for index in range(-REPEATS, 0)) >= REQUIRED
        else "SU"[not any(passes[problem, index] for index in range(k))]
        for problem, _ in passes
    }


def compute_changes(
    before: dict[tuple[str, int], bool], after: dict[tuple[str, int], bool], states: dict[str, str]
) -> Counter[str]:
    """Count, by state, the passing decodes after training minus those before."""
    changes: Counter[str] = Counter()
    for (problem, index), passed in after.items():
        changes[states[problem]] += int(passed) - int(before[problem, index])
    return changes


def test_results_follow_from_the_tables(run: Path, results: dict[str, Any]) -> None:
    before = read_passes(run / "audit/responses.parquet")
    states = classify_problems(before, K)
    decodes = REPEATS * len(states)
    assert len(before) == (REPEATS + K) * 40
    source = Fraction(sum(passed for (_, i), passed in before.items() if i < 0), decodes)
    assert results["source"]["pass_at_1"] == float(source)
    sizes = Counter(states.values())
    assert results["source"]["states"] == {state: sizes[state] for state in "GSU"}
    recorded = pq.read_table(run / "audit/states.parquet").to_pylist()
    assert {row["problem_id"]: row["state"] for row in recorded} == states
    decomposed = decompose(open_run(run))
    for name in CONDITIONS:
        total: Counter[str] = Counter()
        accuracies = []
        for seed in SEEDS:
            after = read_passes(run / f"decisions/{name}-seed{seed}.parquet")
            assert {index for _, index in after} == {-3, -2, -1}
            changes, entry = (
                compute_changes(before, after, states),
                results["conditions"][name]["seeds"][str(seed)],
            )
            accuracy = Fraction(sum(after.values()), decodes)
            assert accuracy - source == Fraction(changes.total(), decodes)
            assert entry["pass_at_1"] == float(accuracy)
            for key, state, sign in (("kappa_S", "S", 1), ("kappa_U", "U", 1), ("rho_G", "G", -1)):
                rate = Fraction(sign * changes[state], REPEATS * sizes[state])
                assert entry[key] == float(rate)
            total.update(changes)
            accuracies.append(accuracy)
        condition = results["conditions"][name]
        assert condition["pass_at_1"] == float(sum(accuracies) / len(SEEDS))
        terms = {state: Fraction(total[state], decodes * len(SEEDS)) for state in "SUG"}
        assert condition["terms"] == {state: float(term) for state, term in terms.items()}
        assert decomposed[name].terms.total == sum(terms.values())
        assert decomposed[name].pass_at_1 - source == sum(terms.values())
        check_scope(results["scope"]["lines"], name, before, run)


def check_scope(
    lines: list[dict[str, Any]], name: str, before: dict[tuple[str, int], bool], run: Path
) -> None:
    """Check the rates by the first K samples; the gain does not depend on K."""
    own_lines = [line for line in lines if line["condition"] == name]
    assert [line["K"] for line in own_lines] == [1, 2, 4]
    assert len({line["net_gain"] for line in own_lines}) == 1
    for line in own_lines:
        states, total = classify_problems(before, line["K"]), Counter[str]()
        for seed in SEEDS:
            after = read_passes(run / f"decisions/{name}-seed{seed}.parquet")
            total.update(compute_changes(before, after, states))
        size = [*states.values()].count("S")
        assert line["kappa_S"] == float(Fraction(total["S"], REPEATS * size * len(SEEDS)))


def test_stability_keeps_gain_and_regression(results: dict[str, Any]) -> None:
    for name in CONDITIONS:
        condition = results["stability"]["conditions"][name]
        terms = results["conditions"][name]["terms"]
        assert condition["total_gain"]["mean"] == pytest.approx(sum(terms.values()))
        assert condition["G_regression"]["range"] == 0


def test_run_is_verified(run: Path) -> None:
    assert verify(run).differences == []


def test_report_does_not_call_the_decode_greedy(run: Path) -> None:
    page = (run / "report/report.md").read_text("utf-8")
    assert page.count("sampled at temperature 0.8, 3 repeats of each problem") == 1
    assert page.count("solved: at least 2 of 3 pass") == 1
    sections = page.partition("## Settings")[0]
    assert "greedy" not in sections.lower()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scaling", "{calibration: 10}"),
        ("allocation", "{diffuse: gapft, concentrated: uniform}"),
    ],
)
def test_refuses_experiments_that_need_one_decode(tmp_path: Path, name: str, settings: str) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = gapft("run", "recipe.yaml", "--set", f"experiments={{{name}: {settings}}}", cwd=tmp_path)
    assert done.returncode == 2
    assert f"experiments.{name}" in done.stderr
    assert "search.deployment.repeats" in done.stderr
    assert "Traceback" not in done.stderr
