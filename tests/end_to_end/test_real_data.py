"""The real LogiQA 2.0 validation file and MATH training file, from task to report.

One run generates with a random byte-level Llama on a part of the data (it solves almost nothing);
another uses all data with responses planted at known rates, so that every rate can be checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.records import Problem
from gapft_harness.lm_eval_bridge.discovery import load_task
from tests.end_to_end import planting
from tests.end_to_end.results_checks import check_results
from tests.kit.command import succeed
from tests.kit.tiny_models import write_byte_llama
from tests.real_data import find_real_file

#: the first part of the validation file is the training split, the rest the test split
LOGIQA_TRAIN = 1100


def lay_out(benchmark: str, folder: Path) -> Path:
    """Write the real file as the benchmark's splits below a test folder."""
    data = folder / "data"
    if benchmark == "logiqa":
        lines = find_real_file("logiqa2/dev.txt").read_text("utf-8").splitlines(keepends=True)
        assert len(lines) == 1569
        (data / "logiqa2").mkdir(parents=True)
        (data / "logiqa2" / "train.txt").write_text("".join(lines[:LOGIQA_TRAIN]), "utf-8")
        (data / "logiqa2" / "test.txt").write_text("".join(lines[LOGIQA_TRAIN:]), "utf-8")
    else:
        (data / "MATH").mkdir(parents=True)
        (data / "MATH" / "train.jsonl").symlink_to(find_real_file("MATH/train.jsonl"))
    return data


def load_benchmark(benchmark: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GAPFT_DATA_DIR", str(data))
    return load_task(f"gapft_{benchmark}")


def run_recipe(folder: Path, recipe: dict[str, Any], data: Path) -> dict[str, Any]:
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    succeed("run", "recipe.yaml", "--run-dir", "run", cwd=folder, env={"GAPFT_DATA_DIR": str(data)})
    results: dict[str, Any] = json.loads((folder / "run/report/results.json").read_text())
    return results


@pytest.mark.parametrize("benchmark", ["logiqa", "math"])
def test_random_model_generates_on_real_data(benchmark: str, tmp_path: Path) -> None:
    data = lay_out(benchmark, tmp_path)
    model = write_byte_llama(tmp_path / "model", hidden=16, layers=1, heads=1, context=8192)
    results = run_recipe(
        tmp_path,
        {
            "name": f"random-{benchmark}",
            "data": {"task": f"gapft_{benchmark}", "pool_limit": 600, "audit_limit": 300},
            "model": {"args": {"pretrained": str(model), "dtype": "float32", "batch_size": 32}},
            "search": {"k": 1, "max_gen_toks": 4, "chunk": 512},
            "conditions": ["gapft"],
            "seeds": [13],
            "training": {"dtype": "float32", "max_length": 8192, "repetitions": 1},
            "executor": {"workers": 2},
        },
        data,
    )
    check_results(results)
    assert results["source"]["n"] == 300
    assert sum(results["pool"]["states"].values()) == 600
    report = (tmp_path / "run/report/report.md").read_text()
    recovered = results["pool"]["states"]["S"]
    if recovered == 0:
        assert results["conditions"] == {}
        assert "nothing to train on" in report
    else:
        assert results["conditions"]["gapft"]["seeds"]["13"]["budget"]["n"] == recovered


def format_letters(problem: Problem) -> list[str]:
    letter = problem.gold["answer"]
    return [f"The answer is {letter}.", letter, f"I weighed them all, and the answer is {letter}."]


def format_wrong_letter(problem: Problem) -> str:
    return next(letter for letter in "ABCD" if letter != problem.gold["answer"])


def format_boxed(problem: Problem) -> list[str]:
    box = f"$\\boxed{{{problem.gold}}}$"
    return [f"So the answer is {box}.", box, f"Solving it step by step, we find {box}."]


def format_wrong_boxed(problem: Problem) -> str:
    return "So the answer is $\\boxed{987654321987654321}$."


PLANTED: dict[str, tuple[Callable[[Problem], list[str]], Callable[[Problem], str]]] = {
    "logiqa": (format_letters, format_wrong_letter),
    "math": (format_boxed, format_wrong_boxed),
}


#: the paper's rule by benchmark: logic keeps the shortest verified sample, MATH the first
KEEP = {"logiqa": "shortest", "math": "first"}


def check_evidence(selections: Path, planted: dict[str, planting.Planted], rule: str) -> None:
    """Check that every sealed example has the verified sample kept by the paper's rule."""
    import pyarrow.parquet as pq

    rows = pq.read_table(selections / "gapft-seed13.parquet").to_pylist()
    assert len(rows) == 64
    for row in rows:
        outcome = planted[row["problem_id"]]
        assert outcome.state == row["state"] == "S"
        assert row["response_index"] == outcome.kept(rule)
        assert row["first_success"] == outcome.kept("first")
        assert len(row["response_ids"]) == len(outcome.texts[row["response_index"]].encode())
    chosen = [planted[row["problem_id"]] for row in rows]
    assert any(o.kept("first") != o.kept("shortest") for o in chosen), "the rules must differ here"


@pytest.mark.parametrize("benchmark", ["logiqa", "math"])
def test_every_rate_is_the_planted_rate(
    benchmark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lay_out(benchmark, tmp_path)
    task = load_benchmark(benchmark, data, monkeypatch)
    pool, audit = task.read_pool(), task.read_audit()
    planted = planting.write_responses(
        tmp_path / "responses.jsonl", pool, audit, *PLANTED[benchmark]
    )
    model = write_byte_llama(tmp_path / "model", hidden=16, layers=1, context=8192)
    results = run_recipe(
        tmp_path,
        {
            "name": f"planted-{benchmark}",
            "data": {"task": f"gapft_{benchmark}"},
            "model": {
                "backend": "recorded",
                "args": {"pretrained": str(model), "responses": "responses.jsonl"},
            },
            "search": {"k": planting.K, "chunk": 512},
            "conditions": list(planting.CONDITIONS[:3]),
            "seeds": list(planting.SEEDS),
            "budget": {"n": 64},
            "training": {"dtype": "float32", "max_length": 8192, "repetitions": 1},
            "executor": {"workers": 2},
        },
        data,
    )
    check_results(results)
    check_evidence(tmp_path / "run/selections", planted, KEEP[benchmark])

    def states(problems: list[Problem]) -> dict[str, int]:
        counts = Counter(planted[problem.id].state for problem in problems)
        return {state: counts[state] for state in ("G", "S", "U")}

    assert results["pool"]["states"] == states(pool)
    assert results["source"]["states"] == states(audit)
    outcomes = [planted[problem.id] for problem in audit]
    n = len(outcomes)
    assert results["source"]["pass_at_k"]["8"] == pytest.approx(
        sum(any(o.samples) for o in outcomes) / n, abs=1e-12
    )
    assert results["source"]["pass_at_k"]["1"] == pytest.approx(
        sum(sum(o.samples) for o in outcomes) / (n * planting.K), abs=1e-12
    )
    for condition in planting.CONDITIONS[:3]:
        for seed in planting.SEEDS:
            arm = results["conditions"][condition]["seeds"][str(seed)]
            now = [o.arms[condition, seed] for o in outcomes]
            assert arm["pass_at_1"] == sum(now) / n
            for rate, state, counted in (
                ("kappa_S", "S", True),
                ("kappa_U", "U", True),
                ("rho_G", "G", False),
            ):
                members = [p for p, o in zip(now, outcomes, strict=True) if o.state == state]
                assert arm[rate] == members.count(counted) / len(members)
            assert arm["budget"]["n"] == 64
            assert arm["budget"]["N"] == 64
            assert arm["budget"]["J"] == 4
