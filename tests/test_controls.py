"""The controls as experiments: from the recipe to the report and ``gapft verify``."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from gapft_harness.analysis.permutation import compare_by_permutation
from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.controls.control import (
    ControlStep,
    compute_seed_differences,
    draw_parts_by_state,
)
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.reading import check_recipe, load_recipe
from gapft_harness.report.figures.contrasts import select_principal
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment import check_experiments, load_all_experiments
from gapft_harness.stages.experiment.loading import load_experiments
from tests.report.planted import build_inputs as synthetic_inputs
from tests.test_changed_recipe import SELECTED, Changing, write
from tests.test_groups import GROUPS
from tests.verify.tampering import seal_again

DEPTHS = {
    "depth_2": {"selector": "search_depth", "params": {"k": 2}},
    "depth_0": {"selector": "search_depth", "params": {"k": 0}},
    "depth_1": {"selector": "search_depth", "params": {"k": 1}},
}
SHARES = {
    "all": {"selector": "randomized_inclusion", "params": {"share": 1, "within": 1}},
    "half": {"selector": "randomized_inclusion", "params": {"share": 0.5, "within": 1}},
    "none": {"selector": "randomized_inclusion", "params": {"share": 0, "within": 1}},
}
MORE = {
    "once": {"selector": "repeated", "params": {"times": 1}},
    "four_times": {"selector": "repeated", "params": {"times": 4}},
    "whole": {"selector": "uniform", "n": "verified"},
    "again": {"selector": "uniform_with_replacement", "n": "verified"},
}
RELATED = {
    "distinct_paths": {},
    "paths_twin": {"selector": "random_twin", "params": {"responses": "verified"}},
    "difficulty_weighted": {"params": {"states": "S"}},
    "difficulty_twin": {"selector": "random_twin", "params": {"states": "S"}},
}
GOLD = {"gold": {"selector": "gold_labels", "params": {"answer_only": False}}}
CORE = {
    "core_2": {"selector": "core_depth", "params": {"k": 2}, "n": "verified"},
    "core_0": {"selector": "core_depth", "params": {"k": 0}, "n": "verified"},
    "core_gold": {"selector": "core_gold", "params": {"answer_only": False}, "n": "verified"},
}
EXPERIMENTS = {
    "shared_core": {},
    "search_depth": {},
    "randomized_inclusion": {"permutations": 50},
    "gold_labels": {},
    "coverage": {},
    "full_pool": {},
    "related": {},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Changing:
    """Every failure of the pool is recovered by the second of two samples, and by no other.

    Trained models lose some of what they solved, each arm others; ``none`` loses the most.
    """
    made = write(tmp_path_factory.mktemp("controls"))
    plugin = made.folder / "by_scale.py"
    text, line = plugin.read_text(), 'share(problem_id, "lost") >= LOSSES.get(arm, [[0] * 4])[0]'
    assert line in text
    plugin.write_text(
        text.replace(
            line, 'share(arm, problem_id, "lost") >= ([0.8 if "none" in arm else 0.4] * 4)'
        )
    )
    conditions = {"gapft": {}, "replay": {}, **DEPTHS, **SHARES, **GOLD, **MORE, **RELATED, **CORE}
    made.change(conditions=conditions, experiments=EXPERIMENTS, budget={"n": 8})
    return made


def examples(made: Changing, condition: str, seed: int = 13) -> Any:
    return read_examples(made.folder / "r" / layout.selection_path(Arm(condition, seed)))


def content(made: Changing) -> str:
    return (made.folder / "r/report/report.md").read_text("utf-8").replace("\\", "")


def section(made: Changing, title: str) -> str:
    return content(made).partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_training_sets_of_the_ends_are_those_of_gapft_and_replay(finished: Changing) -> None:
    for seed in (13, 21):
        gapft, replay = (examples(finished, name, seed) for name in ("gapft", "replay"))
        assert examples(finished, "depth_2", seed) == examples(finished, "all", seed) == gapft
        assert examples(finished, "depth_0", seed) == examples(finished, "none", seed) == replay
        half = examples(finished, "half", seed)
        assert half[:4] == [e for e in gapft if e in half]
        assert half[4:] == replay[:4]


def test_related_selections_have_gapfts_budget_and_their_twins_their_size(
    finished: Changing,
) -> None:
    conditions = finished.results()["conditions"]
    budgets = {name: conditions[name]["seeds"]["13"]["budget"] for name in ("gapft", *RELATED)}
    assert len({(b["n"], b["N"], b["J"]) for b in budgets.values()}) == 1
    assert budgets["gapft"]["n"] == 8
    for name in ("difficulty_weighted", "difficulty_twin"):
        assert {e.state for e in examples(finished, name)} == {"S"}


def test_the_report_has_the_papers_table_and_figure_of_each(finished: Changing) -> None:
    assert finished.holds() == []
    results = finished.results()
    steps = results["search_depth"]["steps"]
    assert [(s["condition"], s["value"]) for s in steps] == [
        ("depth_0", 0), ("depth_1", 1), ("depth_2", 2)
    ]  # fmt: skip
    assert steps[2]["slots"]["21"] == {"G": 0, "S": 8, "U": 0}
    assert steps[1]["slots"]["21"] == {"G": 8, "S": 0, "U": 0}
    shares = [s["value"] for s in results["randomized_inclusion"]["steps"]]
    assert shares == [0, 0.5, 1]
    assert [s["condition"] for s in results["gold_labels"]["steps"]] == ["gapft", "gold"]
    depth = section(finished, "Search depth")
    rows = [line.strip("| ").split(" | ") for line in depth.splitlines() if "| K = " in line]
    assert [(row[0], row[-2:]) for row in rows] == [
        ("K = 0", ["0", "8"]), ("K = 1", ["0", "8"]), ("K = 2", ["8", "0"])
    ]  # fmt: skip
    assert rows[0][1] == "ref."
    inclusion = section(finished, "Randomized inclusion")
    assert re.search(r"^\| 50% \| .* \| 4 \| 4 \|$", inclusion, flags=re.MULTILINE)
    assert "Permutation test, two-sided" in inclusion
    assert re.search(r"50% minus 0%, p (=|<) [01]", inclusion)
    assert ". Gold is below GapFT under " in section(finished, "Gold-label selection")
    coverage = section(finished, "Coverage at the same exposures")
    assert re.findall(r"^\| (\S+ slots?) each ", coverage, flags=re.MULTILINE) == [
        "4 slots", "1 slot"
    ]  # fmt: skip
    budgets = section(finished, "Training budgets")
    said = re.search(r"\. ([^.]*) fill several of the n slots with one problem\.", budgets)
    assert said is not None
    named = set(re.split(", | and ", said[1].lower()))
    assert {"four times", "core 0"} <= named
    assert not named & {"gapft", "once", "whole", "core 2"}
    assert "All verified minus repeated draws" in section(finished, "The whole pool")
    assert results["full_pool"]["steps"][1]["slots"]["13"]["U"] == 0
    assert results["related"]["twins"] == {
        "distinct_paths": "paths_twin", "difficulty_weighted": "difficulty_twin"
    }  # fmt: skip
    related = section(finished, "Related selections")
    assert related.startswith("\nDistinct paths minus as many random examples")
    rows = re.findall(r"^\| (\S+ \S+( − \S+ twin)?) \|", related, flags=re.MULTILINE)
    assert [row for row, _ in rows] == [
        "distinct paths", "paths twin", "difficulty weighted", "difficulty twin",
        "distinct paths − paths twin", "difficulty weighted − difficulty twin",
    ]  # fmt: skip
    figures = finished.folder / "r/report/figures"
    names = {path.stem for path in figures.glob("*.svg")}
    assert {"search_depth", "randomized_inclusion", "related", "gold_labels", "full_pool"} <= names
    for name in ("gold_labels", "full_pool"):
        drawing = (figures / f"{name}.svg").read_text("utf-8")
        assert drawing.count("<!-- of it on ") == 3  # text is drawn as paths; this names it


def test_contrasts_of_a_condition_that_is_another_are_not_among_the_first() -> None:
    made = synthetic_inputs(("gapft", "uniform", "replay"))
    training = {f"replay-seed{seed}": {"trained_as": f"gapft-seed{seed}"} for seed in made.seeds}
    findings = compute_findings(replace(made, training=training))
    assert len(findings.contrasts) == 6
    assert {(of.a, of.b) for of in select_principal(findings)} == {
        ("gapft", "uniform"), ("gapft", SOURCE), ("uniform", SOURCE)
    }  # fmt: skip


def test_the_bars_of_a_difference_are_its_parts_and_its_ticks_the_seeds() -> None:
    findings = compute_findings(synthetic_inputs())
    steps = [
        ControlStep("GapFT", "gapft"),
        ControlStep("replay", "replay"),
        ControlStep("all", "all_verified"),
    ]
    panels = draw_parts_by_state(findings, steps=steps).axes
    for axes, step in zip(panels, steps[1:], strict=True):
        contrast = findings.find_contrast(step.condition, "gapft")
        bars = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
        terms = contrast.terms
        assert bars == pytest.approx([100 * float(of) for of in (terms.g, terms.s, terms.u)])
        assert sum(bars) == pytest.approx(100 * float(contrast.delta))
        ticks = [line.get_xdata() for line in axes.lines if line.get_marker() == "|"]
        seeds = [100 * float(of) for of in compute_seed_differences(findings, contrast).values()]
        assert ticks[0] == pytest.approx(seeds)
        assert [np.mean(of) for of in ticks[1:]] == pytest.approx(bars)


def test_a_shared_core_is_kept_and_gold_labels_stand_without_and_with_it(
    finished: Changing,
) -> None:
    none, all_, gold = (examples(finished, name) for name in CORE)
    none, all_ = all_, none
    core = [e for e in all_ if e.state == "G"]
    assert [e for e in gold if e.state == "G"] == core
    assert {e.problem_id for e in none} == {e.problem_id for e in core}
    assert len(none) == len(all_) == len(gold) > len(core) > 0
    results = finished.results()
    found = results["shared_core"]
    assert [s["condition"] for s in found["steps"]] == ["core_0", "core_2", "core_gold"]
    assert found["without"] == ["gapft", "gold"]
    said = section(finished, "Controls with a shared core")
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| ")]
    source = next(row for row in rows if row[0] == "no post-training")
    assert f"{100 * results['source']['pass_at_1']:.1f}%" in source
    without, within = (
        next(r for r in rows if r[0] == f"{w} the core") for w in ("without", "with")
    )
    budgets = {
        name: results["conditions"][name]["seeds"]["13"]["budget"] for name in ("gold", "core_gold")
    }
    assert [without[1], within[1]] == [str(of["n"]) for of in budgets.values()]
    assert [without[2], within[2]] == [str(of["J"]) for of in budgets.values()]
    with (finished.folder / "r/report/tables/shared_core_gold.csv").open() as file:
        means = {row["group"]: row for row in csv.DictReader(file) if row["seed"] == "mean"}
    for group, pair in (("without", ("gold", "gapft")), ("with", ("core_gold", "core_2"))):
        rate = [results["conditions"][name]["pass_at_1"] for name in pair]
        assert float(means[group]["delta"]) == pytest.approx(rate[0] - rate[1], abs=1e-12)


def test_a_core_that_lost_an_example_and_depths_that_are_not_matched_are_found(
    finished: Changing, tmp_path: Path
) -> None:
    forged = Changing(Path(shutil.copytree(finished.folder, tmp_path / "copy")))
    path = forged.folder / "r" / layout.selection_path(Arm("core_2", 13))
    table = pq.read_table(path)
    rows = table.to_pylist()
    lost = next(i for i, row in enumerate(rows) if row["state"] == "G")
    rows[lost] = rows[-1]
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    seal_again(forged.folder / "r", layout.selection_path(Arm("core_2", 13)))
    assert any("arm core_2-seed13: 1 of " in line for line in forged.holds())
    path = forged.folder / "r" / layout.selection_path(Arm("core_0", 13))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[-1]["response_ids"] *= 20
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    seal_again(forged.folder / "r", layout.selection_path(Arm("core_0", 13)))
    far = r"core_0-seed13 and core_2-seed13 process \d+ and \d+ .* token_tolerance is 1\.00%: the"
    assert any(re.search(far, line) for line in forged.holds())
    context = forged.context(RunDirectory.open(forged.folder / "r"))
    with pytest.raises(UserError, match=r"'experiments\.shared_core': arm core_2-seed13: 1"):
        check_experiments(context, context.list_trainable_arms())


def test_a_dry_run_of_the_diagnostic_prints_the_papers_updates() -> None:
    sizes = ["budget.n=913", "conditions.core_8.n=3046", "conditions.core_gold.n=3046"]
    text = describe_dry_run(Options("controls/llama-reclor-core-added", overrides=sizes), None)
    said = next(line for line in text.splitlines() if line.startswith("select"))
    assert said.endswith("n = 913; N = 7304; J = 457")
    assert "core_8 (core_depth, n = 3046, J = 1523), core_gold (n = 3046, J = 1523)" in said


@pytest.mark.parametrize(
    ("control", "permutations", "pairs"),
    [
        ("search_depth", 2000, [("depth_1", "depth_0"), ("depth_2", "depth_0")]),
        ("randomized_inclusion", 50, [("half", "none"), ("all", "none")]),
        ("gold_labels", 2000, [("gold", "gapft")]),
        (
            "shared_core",
            2000,
            [
                ("core_2", "core_0"), ("core_gold", "core_0"), ("core_gold", "core_2"),
                ("gold", "gapft"),
            ],
        ),
    ],
)  # fmt: skip
def test_the_permutation_tests_are_those_of_the_sealed_decisions(
    finished: Changing, control: str, permutations: int, pairs: list[tuple[str, str]]
) -> None:
    """Of every control (Table 4), two-sided, by the recipe's permutations."""

    def passed(condition: str) -> NDArray[np.bool_]:
        paths = [finished.folder / "r" / layout.decisions_path(Arm(condition, s)) for s in (13, 21)]
        decided = [pq.read_table(path).sort_by("problem_id") for path in paths]
        return np.array([[s == "pass" for s in of["status"].to_pylist()] for of in decided])

    problems = pq.read_table(finished.folder / "r" / layout.problems_path("audit"))
    ids = np.array(sorted(problems["problem_id"].to_pylist()))
    results = finished.results()[control]["permutation_tests"]
    with (finished.folder / f"r/report/tables/{control}_test.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [(row["condition"], row["against"]) for row in rows] == pairs
    for row, result in zip(rows, results, strict=True):
        found = compare_by_permutation(
            passed(row["condition"]),
            passed(row["against"]),
            item_ids=ids,
            permutations=permutations,
            stream=Stream(0, f"report/{control}"),
        )
        assert (row["permutations"], row["exact"]) == (
            str(found.permutations),
            str(found.exhaustive),
        )
        assert float(row["difference"]) == float(found.difference)
        assert float(row["p"]) == result["p"] == float(found.p_value)


def test_differences_are_those_of_the_contrasts_whichever_way_round(finished: Changing) -> None:
    with (finished.folder / "r/report/tables/search_depth.csv").open() as file:
        rows = {(row["condition"], row["seed"]): row for row in csv.DictReader(file)}
    results = finished.results()
    rate = {name: of["pass_at_1"] for name, of in results["conditions"].items()}
    contrast = next(c for c in results["contrasts"] if {c["a"], c["b"]} == {"depth_0", "depth_2"})
    mean = rows["depth_2", "mean"]
    assert contrast["a"] == "depth_2", "the recipe names it first"
    assert float(mean["delta"]) == contrast["delta"]
    assert [float(mean["ci95_low"]), float(mean["ci95_high"])] == contrast["ci95"]
    with (finished.folder / "r/report/tables/randomized_inclusion.csv").open() as file:
        half = next(row for row in csv.DictReader(file) if row["condition"] == "half")
    assert float(half["delta"]) == pytest.approx(rate["half"] - rate["none"], abs=1e-12)
    assert float(half["delta"]) == pytest.approx(sum(float(half[s]) for s in "SUG"), abs=1e-12)
    with (finished.folder / "r/report/tables/gold_labels.csv").open() as file:
        gold = next(row for row in csv.DictReader(file) if row["seed"] == "mean")
    turned = next(c for c in results["contrasts"] if {c["a"], c["b"]} == {"gapft", "gold"})
    assert turned["a"] == "gapft"
    assert float(gold["delta"]) == -turned["delta"]
    assert [float(gold["ci95_low"]), float(gold["ci95_high"])] == [-x for x in turned["ci95"][::-1]]
    assert [float(gold[s]) for s in "SUG"] == [-turned["terms"][s] for s in "SUG"]


def test_gold_targets_name_whose_they_are_and_a_forged_one_is_found(
    finished: Changing, tmp_path: Path
) -> None:
    gapft, gold = (examples(finished, name) for name in ("gapft", "gold"))
    assert [e.response_ids for e in gold] == [e.response_ids for e in gapft]
    assert [e.origin for e in gold] == [e.problem_id for e in gapft]
    assert any(e.origin != e.problem_id for e in gold)
    forged = Changing(Path(shutil.copytree(finished.folder, tmp_path / "copy")))
    path = forged.folder / "r" / layout.selection_path(Arm("gold", 13))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0] |= {"response_ids": [104, 105], "origin": rows[0]["problem_id"]}
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    seal_again(forged.folder / "r", layout.selection_path(Arm("gold", 13)))
    found = forged.holds()
    assert any("arms gapft-seed13 and gold-seed13 differ in 1 of 8 target" in f for f in found)


def test_targets_that_say_more_than_the_answer_are_refused_before_training(tmp_path: Path) -> None:
    made = write(tmp_path)
    with pytest.raises(UserError, match="answer alone"):
        made.change(conditions={"gapft": {}, "gold_labels": {}}, budget={"n": 8})
    assert not (tmp_path / "r/adapters").exists()


def test_a_control_may_be_added_to_a_finished_run(tmp_path: Path) -> None:
    made = write(tmp_path)
    made.change(conditions=["gapft", "replay"], budget={"n": 8})
    before = made.sealed("adapters", "pool", "audit")
    conditions = {"gapft": {}, "replay": {}, **DEPTHS}
    run = made.change(conditions=conditions, budget={"n": 8}, experiments={"search_depth": {}})
    assert before.items() <= made.sealed("adapters", "pool", "audit").items()
    assert "search_depth" in made.results()
    assert made.holds() == []
    found = made.report(conditions=["gapft", "replay"])
    assert "search_depth" not in found, "a report without its conditions goes without it"
    assert run.path.is_dir()


@pytest.mark.parametrize(
    ("conditions", "experiment", "expected"),
    [
        (["gapft"], "search_depth", "needs two conditions or more of the selector search_depth"),
        ({"d": DEPTHS["depth_0"]}, "search_depth", "found: d"),
        (["gapft"], "gold_labels", "needs a condition of the selector gapft and one of gold_labe"),
        (GOLD, "gold_labels", "found: none"),
        (["gapft"], "randomized_inclusion", "needs two conditions or more of the selector rand"),
        (
            {**DEPTHS, "d9": {"selector": "search_depth", "params": {"k": 9}}},
            "search_depth", "'conditions.d9.params.k': is 9, and search.k draws 8 samples",
        ),
        (["gapft"], "shared_core", "needs two conditions or more of the selectors core_depth"),
        (
            {**CORE, "core_2": {**CORE["core_2"], "params": {"k": 9}}},
            "shared_core", "'conditions.core_2.params.k': is 9, and search.k draws 8 samples",
        ),
        (CORE, "shared_core", "'core_gold' needs the targets of a search with all 8 samples; add"),
        (
            {**DEPTHS, "more": {"selector": "search_depth", "params": {"k": 1}, "n": 9}},
            "search_depth", r"the same n in .*depth_0 recovered, .*9",
        ),
        (
            {**SHARES, "w": {"selector": "randomized_inclusion", "params": {"share": 0.2}}},
            "randomized_inclusion", r"parameter within in .*none 1, w 4, half 1, all 1",
        ),
    ],
)  # fmt: skip
def test_a_recipe_that_is_no_such_control_is_refused_at_once(
    conditions: Any, experiment: str, expected: str
) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe = check_recipe(
        {**content, "conditions": conditions, "experiments": {experiment: {}}}, "test"
    )
    with pytest.raises(UserError, match=expected):
        load_experiments(recipe, load_plugins())


def test_a_replicate_is_no_step_of_a_control() -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    again = {f"{name}_again": {**of, "replicate": 1} for name, of in {**DEPTHS, **GOLD}.items()}
    asked_for = {"search_depth": {}, "gold_labels": {}}
    found = []
    for conditions in ({**DEPTHS, **GOLD}, {**again, **DEPTHS, **GOLD}):
        recipe = check_recipe(
            {**content, "conditions": {"gapft": {}, **conditions}, "experiments": asked_for}, "test"
        )
        found.append([each.conditions(recipe) for each in load_experiments(recipe, load_plugins())])
    assert found[0] == found[1]
    assert found[0] == [["gapft", "gold"], ["depth_0", "depth_1", "depth_2"]]


def test_an_unknown_setting_is_named() -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe = check_recipe(
        {**content, "conditions": SHARES, "experiments": {"randomized_inclusion": {"draws": 1}}},
        "test",
    )
    with pytest.raises(UserError, match=r"'experiments\.randomized_inclusion\.draws'"):
        load_experiments(recipe, load_plugins())


OF_LLAMA = {f"controls/llama-{task}": f"paper/llama-{task}" for task in ("logiqa", "reclor")}
OF_OLDER = {f"{name}-core": of for name, of in OF_LLAMA.items()}
OF_LLAMA["controls/llama-reclor-core-added"] = "paper/llama-reclor"
BUNDLED = sorted(
    name for name in list_bundled_recipes() if name.startswith("controls/") and name not in OF_OLDER
)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_control_differs_from_its_recipe_in_its_conditions_alone(name: str) -> None:
    """From the paper's main comparison, or from the demo, but for a number of slots."""
    recipe = load_recipe(list_bundled_recipes()[name])
    other = load_recipe(list_bundled_recipes()[OF_LLAMA.get(name, "demo")])
    own = {"name", "description", "conditions", "experiments", "notes", "paper"}
    if "core" in name:
        own.add("seeds")  # those of the older protocol, and two of the diagnostic
    if name in ("controls/coverage", "controls/related"):
        own.add("budget")  # a number that times divides, and fewer than all recovered failures
    if name == "controls/math-diversity":  # the settings of Table 6
        own |= {"budget", "evidence", "seeds", "statistics", "training"}
    left_out: dict[str, Any] = dict.fromkeys(own, True)
    if name == "controls/online":  # what GRPO alone reads
        left_out["training"] = {"grpo"}
    found, expected = (r.model_dump(mode="json", exclude=left_out) for r in (recipe, other))
    assert found == expected
    load_experiments(recipe, load_plugins())
    check_names(recipe, load_plugins())


@pytest.mark.parametrize("name", OF_OLDER)
def test_the_older_protocol_has_one_start_token_its_seeds_and_a_core(name: str) -> None:
    recipe = load_recipe(list_bundled_recipes()[name])
    main = load_recipe(list_bundled_recipes()[OF_OLDER[name]])
    own = {
        "name", "description", "conditions", "experiments", "seeds", "budget", "notes", "paper",
        "data", "training",
    }  # fmt: skip
    assert recipe.model_dump(exclude=own) == main.model_dump(exclude=own)
    pool = {"gapft_logiqa": "gapft_logiqa_whole_pool"}.get(main.data.task, main.data.task)
    assert recipe.data == main.data.model_copy(update={"task": pool})
    assert main.model.start_tokens == 2, "source rows are the same in both protocols"
    assert recipe.training == main.training.model_copy(update={"start_tokens": 1})
    assert (recipe.seeds, recipe.budget.n) == ((13, 21, 42), "verified")
    assert [of.params.get("k") for of in recipe.conditions.values()] == [0, 1, 8, None]
    load_experiments(recipe, load_plugins())
    check_names(recipe, load_plugins())


def test_every_control_has_a_bundled_recipe() -> None:
    wanted = {"search_depth", "randomized_inclusion", "gold_labels", "coverage", "full_pool"}
    wanted |= {"shared_core", "related", "matched_diversity"}
    wanted |= {"stability", "scope", "redistribution", "online"}
    assert wanted == {
        e for name in BUNDLED for e in load_recipe(list_bundled_recipes()[name]).experiments
    }


def test_runs_without_controls_hear_nothing_of_them(tmp_path: Path) -> None:
    made = write(tmp_path)
    made.change(*SELECTED, conditions=GROUPS, budget={"n": 4})
    assert {"search_depth", "gold_labels"} <= {e.name for e in load_all_experiments(load_plugins())}
    assert made.holds() == []
