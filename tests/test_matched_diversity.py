"""The matched diversity experiment, from the recipe to the report and ``gapft verify``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.training.plan import count_steps
from tests.kit.planted_run import SEEDS, read_selection, write_planted_task
from tests.kit.report_tables import read_results
from tests.kit.tampering import read_rows

BY = {"by": ["answer"]}
MATCHED: dict[str, Any] = {
    "gapft": {},
    "solved": {"selector": "matched_strata", "params": {"states": "G", **BY}},
    "uniform": {"selector": "matched_strata", "params": BY},
    "drawn": {"selector": "matched_strata", "params": {"states": "S", "responses": "drawn", **BY}},
    "near": {"selector": "matched_strata", "params": {"states": "S", "responses": "nearest", **BY}},
    "whole": {"selector": "repeated", "params": {"times": 1, "tokens": 0.02, **BY}},
    "half": {"selector": "repeated", "params": {"times": 2, "tokens": 0.04, **BY}},
}
KEYS: dict[str, Any] = {
    "conditions": MATCHED,
    "experiments": {"matched_diversity": {}, "coverage": {}},
    "training": {"repetitions": 1},
    "budget": {"n": 8, "token_tolerance": 0.02, "position_tolerance": 0.04, "selection_seed": 13},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diversity") / "task"
    task = write_planted_task(folder, range(150), range(200, 260))
    run = task.run("matched", **KEYS)
    task.verify("matched")
    return run


@pytest.fixture(scope="module")
def tables(run: Path) -> dict[str, Any]:
    return read_results(run)


def count_strata(run: Path, condition: str) -> Counter[str]:
    answers = {
        row["problem_id"]: json.loads(row["document"])["answer"]
        for row in read_rows(run / "pool/problems.parquet")
    }
    problems = {row["problem_id"] for row in read_selection(run, condition)}
    return Counter(answers[problem] for problem in problems)


def test_sets_are_matched_by_strata(run: Path, tables: dict[str, Any]) -> None:
    rows = {row["condition"]: row for row in tables["matched_diversity"]}
    assert list(rows) == list(MATCHED)
    gapft = count_strata(run, "gapft")
    for name, row in rows.items():
        problems = 4 if name == "half" else 8
        assert (row["problems"], row["exposures_each"]) == (problems, 8 // problems)
        own = count_strata(run, name)
        assert own.total() == problems
        apart = [abs(own[answer] - gapft[answer] * problems / 8) for answer in own | gapft]
        assert max(apart) <= row["strata_most_apart"] <= 1
        sets = [read_selection(run, name, seed) for seed in SEEDS]
        assert sets[0] == sets[1], "all training seeds share the set of the selection seed"
    assert read_selection(run, "whole") == read_selection(run, "gapft")
    new = {name: row["problems_not_gapfts"] for name, row in rows.items()}
    assert [new[name] for name in ("gapft", "solved", "half", "drawn", "near")] == [0, 8, 0, 0, 0]
    assert 0 < new["uniform"] < 8


def test_paper_recipe_matches_table_6() -> None:
    recipe = load_recipe(list_bundled_recipes()["paper/qwen-math"])
    slots = {recipe.find_slots(name) for name in recipe.conditions}
    assert slots == {188}
    training = recipe.training
    assert count_steps(188 * training.repetitions, training) == 188 * training.repetitions == 752
    assert (training.learning_rate, training.schedule, training.warmup_steps) == (
        1e-6,
        "constant",
        0,
    )
    assert (training.normalization, training.weight_decay) == ("sequence_mean", 0.01)
    assert (training.rank, training.alpha, training.dropout) == (8, 16, 0.05)
    assert (training.max_length, training.dtype) == (2048, "bfloat16")
    assert (recipe.seeds, recipe.statistics.replicates) == ((13, 21, 42), 10_000)
    assert (recipe.budget.token_tolerance, recipe.evidence.keep) == (0.02, "first")
    # model positions are matched too, and Table 6 has no selection seeds, as Table 7 has
    assert (recipe.budget.position_tolerance, recipe.budget.selection_seed) == (0.02, 13)
    assert (recipe.search.k, recipe.search.max_gen_toks) == (8, 1024)
    assert len(recipe.conditions) == 7
    demo = load_recipe(list_bundled_recipes()["controls/math-diversity"]).conditions
    for (name, own), (other, small) in zip(recipe.conditions.items(), demo.items(), strict=True):
        assert own.selector == small.selector
        assert name == other or name.startswith("distinct_")
        assert {**own.params, "by": 0} == {**small.params, "by": 0}
    load_experiments(recipe, load_plugins())
