"""The matched diversity experiment, from the recipe to the report and ``gapft verify``."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.diversity import (
    Strata,
)
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.reading import check_recipe, load_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.training.plan import count_steps
from tests.kit.scaled_letters import ChangingLetters, write_task
from tests.kit.tampering import seal_again

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
    "budget": {"n": 8, "token_tolerance": 0.02, "position_tolerance": 0.04, "selection_seed": 13},
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> ChangingLetters:
    run_files = write_task(tmp_path_factory.mktemp("diversity"))
    run_files.change(**KEYS)
    return run_files


def count_strata(run_files: ChangingLetters, condition: str, seed: int) -> Counter[str]:
    run = run_files.folder / "r"
    answers = {
        p.id: p.document["answer"] for p, _ in read_problems(run / layout.problems_path("pool"))
    }
    examples = read_examples(run / layout.selection_path(Arm(condition, seed)))
    return Counter(answers[name] for name in {e.problem_id for e in examples})


def test_run_reports_matched_sets_table(finished_run: ChangingLetters) -> None:
    assert finished_run.find_differences() == []
    for name in MATCHED:
        first, second = (
            read_examples(finished_run.folder / "r" / layout.selection_path(Arm(name, seed)))
            for seed in (13, 21)
        )
        assert first == second, "all training seeds share the set of the selection seed"
    results = finished_run.results()
    budgets = RunDirectory.open(finished_run.folder / "r").manifest()["budgets"]
    section_results = results["matched_diversity"]
    assert section_results["strata"] == ["answer"]
    assert list(section_results["conditions"]) == list(MATCHED)
    for name, largest in section_results["conditions"].items():
        problems = 4 if name == "half" else 8
        for seed in (13, 21):
            own, gapft = (count_strata(finished_run, answer, seed) for answer in (name, "gapft"))
            assert own.total() == problems
            apart = [abs(own[answer] - gapft[answer] * problems / 8) for answer in own | gapft]
            assert max(apart) <= largest <= 1
    with (finished_run.folder / "r/report/tables/matched_diversity.csv").open() as file:
        rows = {row["condition"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(MATCHED)
    assert (rows["half"]["problems"], rows["half"]["exposures_each"]) == ("4", "2")
    whole, gapft = (
        read_examples(finished_run.folder / "r" / layout.selection_path(Arm(name, 13)))
        for name in ("whole", "gapft")
    )
    assert whole == gapft
    for name, row in rows.items():
        answer = results["conditions"][name]
        assert float(row["pass_at_1"]) == answer["pass_at_1"]
        for against in ("source", "gapft", "uniform"):
            sides, sign = {name, against}, 1
            contrast = next((c for c in results["contrasts"] if {c["a"], c["b"]} == sides), None)
            if contrast is None:
                assert name == against
                assert row[f"delta_minus_{against}"] == ""
                continue
            sign = 1 if contrast["a"] == name else -1
            assert float(row[f"delta_minus_{against}"]) == sign * contrast["delta"]
            ends = sorted(sign * end for end in contrast["ci95"])
            interval = [float(row[f"ci95_{end}_minus_{against}"]) for end in ("low", "high")]
            assert interval == ends
    text = (finished_run.folder / "r/report/report.md").read_text("utf-8").replace("\\", "")
    section = text.partition("## Matched diversity\n")[2].partition("\n## ")[0]
    assert "At N = 8 exposures in J = " in section
    assert (
        "matched by answer, to one problem per stratum; the largest difference of a stratum is"
        in section
    )
    apart = {"supervised_tokens": 0.0, "tokens": 0.0}
    for field, largest in apart.items():
        for seed in (13, 21):
            spent = [budgets[f"{name}-seed{seed}"][field] for name in MATCHED]
            largest = max(largest, (max(spent) - min(spent)) / max(spent))
        apart[field] = largest
    assert section_results["supervised_tokens_apart"] == apart["supervised_tokens"]
    assert section_results["processed_tokens_apart"] == apart["tokens"] > 0
    assert (
        f"by up to {100 * apart['supervised_tokens']:.2f}% of the larger number; the recipe allows "
        f"2.00%. Processed tokens differ by up to {100 * apart['tokens']:.2f}%; the recipe allows "
        "4.00%." in section
    )
    new = section_results["problems_not_gapfts"]
    assert (new["gapft"], new["solved"], new["half"], new["drawn"], new["near"]) == (0, 8, 0, 0, 0)
    assert 0 < new["uniform"] < 8
    assert "| half | 4 × 2 | " in section
    assert (finished_run.folder / "r/report/figures/matched_diversity.svg").exists()


def test_verify_finds_set_with_other_strata(finished_run: ChangingLetters, tmp_path: Path) -> None:
    forged = ChangingLetters(Path(shutil.copytree(finished_run.folder, tmp_path / "copy")))
    arm = Arm("solved", 13)
    path = forged.folder / "r" / layout.selection_path(arm)
    table = pq.read_table(path)
    rows = table.to_pylist()
    run = forged.folder / "r"
    answers = {
        p.id: p.document["answer"] for p, _ in read_problems(run / layout.problems_path("pool"))
    }
    ((first, _),) = count_strata(forged, "solved", 13).most_common(1)
    rows = [row for row in rows if answers[row["problem_id"]] == first]
    pq.write_table(type(table).from_pylist(rows, table.schema), path)
    seal_again(run, layout.selection_path(arm))
    assert any(
        "solved-seed13" in line and f"{len(rows)} of {len(rows)} problems" in line
        for line in forged.find_differences()
    )


def test_strata_may_differ_by_one_problem() -> None:
    gapft = Counter(a=4, b=4)
    for own, faults in (
        (Counter(a=5, b=3), 0), (Counter(a=6, b=2), 2), (Counter(a=3, b=4, c=1), 0),
        (Counter(a=2, b=2), 0), (Counter(a=3, b=1), 0), (Counter(a=4), 2),
    ):  # fmt: skip
        faults_found = [*Strata(own, gapft).faults("x-seed13")]
        assert len(faults_found) == faults, own
    assert "6 of 8 problems are in stratum a, for GapFT 4 of 8" in next(
        Strata(Counter(a=6, b=2), gapft).faults("x")
    )


def test_unmatchable_set_stops_run_without_loss(
    finished_run: ChangingLetters,
) -> None:
    sealed = finished_run.hash_sealed("pool", "audit", "selections", "adapters", "decisions")
    params = {"by": ["topic"]}
    more = {"gapft": {}, "other": {"selector": "matched_strata", "params": params}}
    with pytest.raises(UserError, match=r"by names 'topic', .* its fields: id, question, answer"):
        finished_run.change(**{**KEYS, "conditions": more, "experiments": {"coverage": {}}})
    assert (
        finished_run.hash_sealed("pool", "audit", "selections", "adapters", "decisions") == sealed
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"conditions": ["gapft"]}, "needs a condition of the selector gapft and one or more of"),
        ({"conditions": {"solved": MATCHED["solved"]}}, "found: solved"),
        ({"budget": {"n": 8}}, "budget.token_tolerance"),
        (
            {"conditions": {**MATCHED, "half": {**MATCHED["half"], "n": 4}}},
            "the same n in .*half 4",
        ),
        (
            {"conditions": {**MATCHED, "half": {"selector": "repeated", "params": {"times": 2}}}},
            r"the same fields in by in .*solved \['answer'\].*half \[\]",
        ),
        *(
            (
                {"conditions": {"gapft": {}, "x": {"selector": name, "params": params}, **MATCHED}},
                rf"recipe r: key 'conditions\.x\.params\.{key}': {value}: expected",
            )
            for name, params, key, value in (
                ("matched_strata", {"by": None}, "by", "None"),
                ("matched_strata", {"by": 3}, "by", "3"),
                ("matched_strata", {"by": "answer"}, "by", "'answer'"),
                ("matched_strata", {"states": None}, "states", "None"),
                ("matched_strata", {"states": 3}, "states", "3"),
                ("matched_strata", {"states": [["G"]]}, "states", r"\[\['G'\]\]"),
                ("repeated", {"times": 1, "by": [None]}, "by", r"\[None\]"),
            )
        ),
    ],
)
def test_rejects_recipes_without_matched_control(keys: dict[str, Any], expected: str) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe_keys = {**KEYS, "experiments": {"matched_diversity": {}}, **keys}
    with pytest.raises(UserError, match=expected):
        load_experiments(check_recipe({**content, **recipe_keys}, "test"), load_plugins())


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
