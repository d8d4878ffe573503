"""A demo run with a sampled deployment decode holds the laws of a greedy one."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.interactive.functions import decompose
from gapft_harness.interactive.runs import open_run
from gapft_harness.stages.verify.run import verify
from gapft_harness.study.verify import verify_study
from tests.kit.command import succeed

K = 4
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
  deployment: {{temperature: 0.8}}
conditions: [{", ".join(CONDITIONS)}]
seeds: [{", ".join(map(str, SEEDS))}]
budget: {{n: 8}}
training: {{learning_rate: 1.0e-3, micro_batch: 16, accumulation: 1, dtype: float32}}
executor: {{name: local, workers: 1, threads: 1}}
experiments:
  scope: {{k: [1, 2, 4]}}
  stability: {{sets: 2, k: 2}}
"""


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
    """Classify problems by their deployment decode, and by the first k samples."""
    return {
        problem: "G" if passes[problem, -1]
        else "SU"[not any(passes[problem, index] for index in range(k))]
        for problem, _ in passes
    }  # fmt: skip


def count_passes(passes: dict[tuple[str, int], bool], states: dict[str, str]) -> Counter[str]:
    """Count the deployment decodes that pass, by the problem's state under the source."""
    return Counter(states[problem] for (problem, index), passed in passes.items() if passed)


def test_change_is_decomposed_exactly(run: Path, results: dict[str, Any]) -> None:
    before = read_passes(run / "audit/responses.parquet")
    states = classify_problems(before, K)
    assert len(before) == (1 + K) * 40
    sizes = Counter(states.values())
    assert results["source"]["states"] == {state: sizes[state] for state in "GSU"}
    assert all(sizes.values())
    source = Fraction(sizes["G"], 40)
    assert results["source"]["pass_at_1"] == float(source)
    recorded = pq.read_table(run / "audit/states.parquet").to_pylist()
    assert {row["problem_id"]: row["state"] for row in recorded} == states
    decomposed = decompose(open_run(run))
    for name in CONDITIONS:
        condition = results["conditions"][name]
        total = Counter[str]()
        for seed in SEEDS:
            after = read_passes(run / f"decisions/{name}-seed{seed}.parquet")
            assert {index for _, index in after} == {-1}
            passing, entry = count_passes(after, states), condition["seeds"][str(seed)]
            assert entry["pass_at_1"] == passing.total() / 40
            assert entry["kappa_S"] == passing["S"] / sizes["S"]
            assert entry["kappa_U"] == passing["U"] / sizes["U"]
            assert entry["rho_G"] == (sizes["G"] - passing["G"]) / sizes["G"]
            total.update(passing)
        decodes = 40 * len(SEEDS)
        terms = {state: Fraction(total[state], decodes) for state in "SU"}
        terms["G"] = Fraction(total["G"] - len(SEEDS) * sizes["G"], decodes)
        assert condition["terms"] == {state: float(terms[state]) for state in "SUG"}
        gain = Fraction(total.total(), decodes) - source
        assert sum(terms.values()) == gain == decomposed[name].terms.total
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
            total += count_passes(read_passes(run / f"decisions/{name}-seed{seed}.parquet"), states)
        size = [*states.values()].count("S")
        assert line["kappa_S"] == total["S"] / (size * len(SEEDS))


def test_stability_keeps_gain_and_regression(results: dict[str, Any]) -> None:
    for name in CONDITIONS:
        condition = results["stability"]["conditions"][name]
        terms = results["conditions"][name]["terms"]
        assert condition["total_gain"]["mean"] == pytest.approx(sum(terms.values()))
        assert condition["G_regression"]["range"] == 0


def test_run_is_verified(run: Path) -> None:
    assert verify(run).differences == []


def test_study_has_the_figures_of_its_run(run: Path, results: dict[str, Any]) -> None:
    study = {
        "name": "study", "conditions": CONDITIONS, "reference": "uniform", "seeds": SEEDS,
        "cells": {"Sampled": {"run": "run"}},
    }  # fmt: skip
    (run.parent / "study.yaml").write_text(yaml.safe_dump(study))
    succeed("run", "study.yaml", "--run-dir", "study", cwd=run.parent)
    content = json.loads((run.parent / "study/report/results.json").read_text("utf-8"))
    assert content["cells"]["Sampled"]["source"] == results["source"]
    for name in CONDITIONS:
        own = content["cells"]["Sampled"]["conditions"][name]
        assert own["pass_at_1"] == results["conditions"][name]["pass_at_1"]
        assert own["terms"] == results["conditions"][name]["terms"]
    assert verify_study(run.parent / "study").differences == []


def test_report_does_not_call_the_decode_greedy(run: Path, results: dict[str, Any]) -> None:
    assert results["deployment"] == {"temperature": 0.8, "top_p": 1.0, "top_k": 0}
    page = (run / "report/report.md").read_text("utf-8")
    assert page.count("sampled once at temperature 0.8.") == 1
    assert "greedy" not in page.partition("## Settings")[0].lower()
