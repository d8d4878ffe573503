"""The controls as experiments: from the recipe to the report and ``gapft verify``."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from gapft_harness.analysis.paired import flip_signs
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
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment.loading import load_experiments
from tests.kit.scaled_letters import ChangingLetters, write_task
from tests.report.planted import build_inputs as synthetic_inputs

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
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> ChangingLetters:
    """Return a run in which the second of two samples recovers every failure of the pool.

    Trained models lose some solved problems, different ones for each arm; ``none`` loses most.
    """
    letters_run = write_task(tmp_path_factory.mktemp("controls"))
    plugin = letters_run.folder / "by_scale.py"
    text, line = plugin.read_text(), 'share(problem_id, "lost") >= LOSSES.get(arm, [[0] * 4])[0]'
    assert line in text
    plugin.write_text(
        text.replace(
            line, 'share(arm, problem_id, "lost") >= ([0.8 if "none" in arm else 0.4] * 4)'
        )
    )
    conditions = {"gapft": {}, "replay": {}, **DEPTHS, **SHARES, **GOLD, **MORE, **CORE}
    letters_run.change(conditions=conditions, experiments=EXPERIMENTS, budget={"n": 8})
    return letters_run


def read_selection(letters_run: ChangingLetters, condition: str, seed: int = 13) -> Any:
    return read_examples(letters_run.folder / "r" / layout.selection_path(Arm(condition, seed)))


def read_report(letters_run: ChangingLetters) -> str:
    return (letters_run.folder / "r/report/report.md").read_text("utf-8").replace("\\", "")


def read_report_section(letters_run: ChangingLetters, title: str) -> str:
    return read_report(letters_run).partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_report_has_table_and_figure_of_each_control(finished_run: ChangingLetters) -> None:
    assert finished_run.find_differences() == []
    results = finished_run.results()
    steps = results["search_depth"]["steps"]
    assert [(s["condition"], s["value"]) for s in steps] == [
        ("depth_0", 0), ("depth_1", 1), ("depth_2", 2)
    ]  # fmt: skip
    assert steps[2]["slots"]["21"] == {"G": 0, "S": 8, "U": 0}
    assert steps[1]["slots"]["21"] == {"G": 8, "S": 0, "U": 0}
    shares = [s["value"] for s in results["randomized_inclusion"]["steps"]]
    assert shares == [0, 0.5, 1]
    assert [s["condition"] for s in results["gold_labels"]["steps"]] == ["gapft", "gold"]
    depth = read_report_section(finished_run, "Search depth")
    rows = [line.strip("| ").split(" | ") for line in depth.splitlines() if "| K = " in line]
    assert [(row[0], row[-2:]) for row in rows] == [
        ("K = 0", ["0", "8"]), ("K = 1", ["0", "8"]), ("K = 2", ["8", "0"])
    ]  # fmt: skip
    assert rows[0][1] == "ref."
    inclusion = read_report_section(finished_run, "Randomized inclusion")
    assert re.search(r"^\| 50% \| .* \| 4 \| 4 \|$", inclusion, flags=re.MULTILINE)
    assert "Permutation test, two-sided" in inclusion
    assert re.search(r"50% minus 0%, p (=|<) [01]", inclusion)
    gold = read_report_section(finished_run, "Gold-label selection")
    assert re.search(r"Gold is below GapFT \D*\d of 2 seeds", gold)
    coverage = read_report_section(finished_run, "Coverage at the same exposures")
    assert re.findall(r"^\| (\S+ slots?) each ", coverage, flags=re.MULTILINE) == [
        "4 slots", "1 slot"
    ]  # fmt: skip
    budgets = read_report_section(finished_run, "Training budgets")
    sentence = re.search(r"\. ([^.]*) fill several of the n slots", budgets)
    assert sentence is not None
    conditions = set(re.split(", | and ", sentence[1].lower()))
    assert {"four times", "core 0"} <= conditions
    assert not conditions & {"gapft", "once", "whole", "core 2"}
    assert "All verified minus repeated draws" in read_report_section(
        finished_run, "The whole pool"
    )
    assert results["full_pool"]["steps"][1]["slots"]["13"]["U"] == 0
    figures = finished_run.folder / "r/report/figures"
    names = {path.stem for path in figures.glob("*.svg")}
    assert {"search_depth", "randomized_inclusion", "gold_labels", "full_pool"} <= names
    for name in ("gold_labels", "full_pool"):
        drawing = (figures / f"{name}.svg").read_text("utf-8")
        # the SVG draws text as paths, with the text in a comment
        assert drawing.count("<!-- of it on ") == 3


def test_principal_contrasts_skip_duplicate_conditions() -> None:
    inputs = synthetic_inputs(("gapft", "uniform", "replay"))
    training = {f"replay-seed{seed}": {"trained_as": f"gapft-seed{seed}"} for seed in inputs.seeds}
    findings = compute_findings(replace(inputs, training=training))
    assert len(findings.contrasts) == 6
    assert {(contrast.a, contrast.b) for contrast in select_principal(findings)} == {
        ("gapft", "uniform"), ("gapft", SOURCE), ("uniform", SOURCE)
    }  # fmt: skip


def test_difference_bars_are_parts_and_ticks_are_seeds() -> None:
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
        assert bars == pytest.approx([100 * float(value) for value in (terms.g, terms.s, terms.u)])
        assert sum(bars) == pytest.approx(100 * float(contrast.delta))
        ticks = [line.get_xdata() for line in axes.lines if line.get_marker() == "|"]
        seeds = [
            100 * float(value) for value in compute_seed_differences(findings, contrast).values()
        ]
        assert ticks[0] == pytest.approx(seeds)
        assert [np.mean(value) for value in ticks[1:]] == pytest.approx(bars)


def test_shared_core_is_kept_in_every_condition(
    finished_run: ChangingLetters,
) -> None:
    none, all_, gold = (read_selection(finished_run, name) for name in CORE)
    none, all_ = all_, none
    core = [e for e in all_ if e.state == "G"]
    assert [e for e in gold if e.state == "G"] == core
    assert {e.problem_id for e in none} == {e.problem_id for e in core}
    assert len(none) == len(all_) == len(gold) > len(core) > 0
    results = finished_run.results()
    core_results = results["shared_core"]
    assert [s["condition"] for s in core_results["steps"]] == ["core_0", "core_2", "core_gold"]
    assert core_results["without"] == ["gapft", "gold"]
    text = read_report_section(finished_run, "Controls with a shared core")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    source = next(row for row in rows if row[0] == "no post-training")
    assert f"{100 * results['source']['pass_at_1']:.1f}%" in source
    without, within = (
        next(r for r in rows if r[0] == f"{w} the core") for w in ("without", "with")
    )
    budgets = {
        name: results["conditions"][name]["seeds"]["13"]["budget"] for name in ("gold", "core_gold")
    }
    assert [without[1], within[1]] == [str(budget["n"]) for budget in budgets.values()]
    assert [without[2], within[2]] == [str(budget["J"]) for budget in budgets.values()]
    with (finished_run.folder / "r/report/tables/shared_core_gold.csv").open() as file:
        means = {row["group"]: row for row in csv.DictReader(file) if row["seed"] == "mean"}
    for group, pair in (("without", ("gold", "gapft")), ("with", ("core_gold", "core_2"))):
        rate = [results["conditions"][name]["pass_at_1"] for name in pair]
        assert float(means[group]["delta"]) == pytest.approx(rate[0] - rate[1], abs=1e-12)


def test_dry_run_prints_paper_update_counts() -> None:
    sizes = ["budget.n=913", "conditions.core_8.n=3046", "conditions.core_gold.n=3046"]
    text = describe_dry_run(Options("controls/llama-reclor-core-added", overrides=sizes), None)
    select_line = next(line for line in text.splitlines() if line.startswith("select"))
    assert select_line.endswith("n = 913; N = 7304; J = 457")
    assert "core_8 (core_depth, n = 3046, J = 1523), core_gold (n = 3046, J = 1523)" in select_line


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
def test_permutation_tests_match_sealed_decisions(
    finished_run: ChangingLetters, control: str, permutations: int, pairs: list[tuple[str, str]]
) -> None:
    """Check each control's two-sided tests (Table 4) with the recipe's permutations."""

    def read_passes(condition: str) -> NDArray[np.bool_]:
        paths = [
            finished_run.folder / "r" / layout.decisions_path(Arm(condition, s)) for s in (13, 21)
        ]
        decided = [pq.read_table(path).sort_by("problem_id") for path in paths]
        return np.array([[s == "pass" for s in table["status"].to_pylist()] for table in decided])

    results = finished_run.results()[control]["permutation_tests"]
    with (finished_run.folder / f"r/report/tables/{control}_test.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [(row["condition"], row["against"]) for row in rows] == pairs
    for row, result in zip(rows, results, strict=True):
        passed, other = read_passes(row["condition"]), read_passes(row["against"])
        test = flip_signs(
            passed.sum(axis=0) - other.sum(axis=0),
            flips=permutations,
            stream=Stream(0, f"report/{control}"),
        )
        assert (row["permutations"], row["exact"]) == (str(test.flips), str(test.exhaustive))
        assert float(row["difference"]) == pytest.approx(passed.mean() - other.mean())
        assert float(row["p"]) == result["p"] == test.p_value


def test_differences_match_contrasts_in_both_directions(finished_run: ChangingLetters) -> None:
    with (finished_run.folder / "r/report/tables/search_depth.csv").open() as file:
        rows = {(row["condition"], row["seed"]): row for row in csv.DictReader(file)}
    results = finished_run.results()
    rate = {name: condition["pass_at_1"] for name, condition in results["conditions"].items()}
    contrast = next(c for c in results["contrasts"] if {c["a"], c["b"]} == {"depth_0", "depth_2"})
    mean = rows["depth_2", "mean"]
    assert contrast["a"] == "depth_2", "the recipe names it first"
    assert float(mean["delta"]) == contrast["delta"]
    assert [float(mean["ci95_low"]), float(mean["ci95_high"])] == contrast["ci95"]
    with (finished_run.folder / "r/report/tables/randomized_inclusion.csv").open() as file:
        half = next(row for row in csv.DictReader(file) if row["condition"] == "half")
    assert float(half["delta"]) == pytest.approx(rate["half"] - rate["none"], abs=1e-12)
    assert float(half["delta"]) == pytest.approx(sum(float(half[s]) for s in "SUG"), abs=1e-12)
    with (finished_run.folder / "r/report/tables/gold_labels.csv").open() as file:
        gold = next(row for row in csv.DictReader(file) if row["seed"] == "mean")
    reversed_contrast = next(
        c for c in results["contrasts"] if {c["a"], c["b"]} == {"gapft", "gold"}
    )
    assert reversed_contrast["a"] == "gapft"
    assert float(gold["delta"]) == -reversed_contrast["delta"]
    assert [float(gold["ci95_low"]), float(gold["ci95_high"])] == [
        -x for x in reversed_contrast["ci95"][::-1]
    ]
    assert [float(gold[s]) for s in "SUG"] == [-reversed_contrast["terms"][s] for s in "SUG"]


def test_gold_targets_name_their_origin(finished_run: ChangingLetters) -> None:
    gapft, gold = (read_selection(finished_run, name) for name in ("gapft", "gold"))
    assert [e.response_ids for e in gold] == [e.response_ids for e in gapft]
    assert [e.origin for e in gold] == [e.problem_id for e in gapft]
    assert any(e.origin != e.problem_id for e in gold)


def test_rejects_gold_targets_beyond_the_answer(tmp_path: Path) -> None:
    letters_run = write_task(tmp_path)
    with pytest.raises(UserError, match="answer alone"):
        letters_run.change(conditions={"gapft": {}, "gold_labels": {}}, budget={"n": 8})
    assert not (tmp_path / "r/adapters").exists()


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
            "search_depth", r"'conditions\.d9\.params\.k': 9.*search\.k, 8",
        ),
        (["gapft"], "shared_core", "needs two conditions or more of the selectors core_depth"),
        (
            {**CORE, "core_2": {**CORE["core_2"], "params": {"k": 9}}},
            "shared_core", r"'conditions\.core_2\.params\.k': 9.*search\.k, 8",
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
def test_rejects_recipe_without_the_control(
    conditions: Any, experiment: str, expected: str
) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe = check_recipe(
        {**content, "conditions": conditions, "experiments": {experiment: {}}}, "test"
    )
    with pytest.raises(UserError, match=expected):
        load_experiments(recipe, load_plugins())


def test_replicates_are_not_control_steps() -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    again = {
        f"{name}_again": {**settings, "replicate": 1}
        for name, settings in {**DEPTHS, **GOLD}.items()
    }
    asked_for = {"search_depth": {}, "gold_labels": {}}
    steps = []
    for conditions in ({**DEPTHS, **GOLD}, {**again, **DEPTHS, **GOLD}):
        recipe = check_recipe(
            {**content, "conditions": {"gapft": {}, **conditions}, "experiments": asked_for}, "test"
        )
        steps.append(
            [
                experiment.conditions(recipe)
                for experiment in load_experiments(recipe, load_plugins())
            ]
        )
    assert steps[0] == steps[1]
    assert steps[0] == [["gapft", "gold"], ["depth_0", "depth_1", "depth_2"]]


def test_rejects_unknown_setting() -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe = check_recipe(
        {**content, "conditions": SHARES, "experiments": {"randomized_inclusion": {"draws": 1}}},
        "test",
    )
    with pytest.raises(UserError, match=r"'experiments\.randomized_inclusion\.draws'"):
        load_experiments(recipe, load_plugins())


OF_LLAMA = {f"controls/llama-{task}": f"paper/llama-{task}" for task in ("logiqa", "reclor")}
OF_OLDER = {f"{name}-core": base for name, base in OF_LLAMA.items()}
OF_LLAMA["controls/llama-reclor-core-added"] = "paper/llama-reclor"
BUNDLED = sorted(
    name for name in list_bundled_recipes() if name.startswith("controls/") and name not in OF_OLDER
)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_control_differs_only_in_conditions(name: str) -> None:
    """Compare with the paper's main recipe or with the demo, except for slot numbers."""
    recipe = load_recipe(list_bundled_recipes()[name])
    other = load_recipe(list_bundled_recipes()[OF_LLAMA.get(name, "demo")])
    own = {"name", "description", "conditions", "experiments", "notes", "paper"}
    if "core" in name:
        own.add("seeds")  # seeds of the older protocol, and two for the diagnostic
    if name == "controls/coverage":
        own.add("budget")  # divisible by times, and fewer than all recovered failures
    if name == "controls/math-diversity":  # the settings of Table 6
        own |= {"budget", "evidence", "seeds", "statistics", "training"}
    left_out: dict[str, Any] = dict.fromkeys(own, True)
    if name == "controls/online":  # only GRPO reads this key
        left_out["training"] = {"grpo"}
    actual, expected = (r.model_dump(mode="json", exclude=left_out) for r in (recipe, other))
    assert actual == expected
    load_experiments(recipe, load_plugins())
    check_names(recipe, load_plugins())


@pytest.mark.parametrize("name", OF_OLDER)
def test_older_protocol_settings(name: str) -> None:
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
    assert [condition.params.get("k") for condition in recipe.conditions.values()] == [
        0,
        1,
        8,
        None,
    ]
    load_experiments(recipe, load_plugins())
    check_names(recipe, load_plugins())


def test_every_control_has_a_bundled_recipe() -> None:
    expected = {"search_depth", "randomized_inclusion", "gold_labels", "coverage", "full_pool"}
    expected |= {"shared_core", "matched_diversity"}
    expected |= {"stability", "scope", "online"}
    assert expected == {
        e for name in BUNDLED for e in load_recipe(list_bundled_recipes()[name]).experiments
    }
