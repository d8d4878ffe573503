"""The controls as experiments: from the recipe to the tables of the report and ``gapft verify``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gapft_harness.analysis.paired import flip_signs
from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.controls.search import GoldLabels
from gapft_harness.experiments.controls.shared_core import SharedCore
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.experiment.view import View
from tests.kit.planted_run import SEEDS, read_selection, write_planted_task
from tests.kit.report_tables import read_results
from tests.kit.tampering import read_rows

Tables = dict[str, Any]
SLOTS = 8

DEPTHS = {
    "depth_4": {"selector": "search_depth", "params": {"k": 4}},
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
    "core_4": {"selector": "core_depth", "params": {"k": 4}, "n": "verified"},
    "core_0": {"selector": "core_depth", "params": {"k": 0}, "n": "verified"},
    "core_gold": {"selector": "core_gold", "params": {"answer_only": False}, "n": "verified"},
}
#: Conditions of the allocation, with names that look like a run's paths.
ONCE, TWICE = "a-seed1.b", "x.y"
HALVES = {ONCE: {"selector": "diffuse"}, TWICE: {"selector": "concentrated"}}
EXPERIMENTS = {
    "shared_core": {"position_tolerance": 0.9},
    "search_depth": {},
    "randomized_inclusion": {"permutations": 50},
    "gold_labels": {},
    "coverage": {},
    "full_pool": {},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of all controls, which is verified."""
    folder = tmp_path_factory.mktemp("controls") / "task"
    task = write_planted_task(folder, range(150), range(250, 300))
    conditions = {"gapft": {}, "replay": {}, **DEPTHS, **SHARES, **GOLD, **MORE, **CORE, **HALVES}
    experiments = {**EXPERIMENTS, "allocation": {"diffuse": ONCE, "concentrated": TWICE}}
    path = task.run("run", conditions=conditions, experiments=experiments, budget={"n": SLOTS})
    task.verify("run")
    return path


@pytest.fixture(scope="module")
def tables(run: Path) -> Tables:
    return read_results(run)


@pytest.mark.parametrize(
    ("control", "permutations", "pairs"),
    [
        ("search_depth", 2000, ["depth_1 depth_0", "depth_4 depth_0"]),
        ("randomized_inclusion", 50, ["half none", "all none"]),
        ("gold_labels", 2000, ["gold gapft"]),
        (
            "shared_core",
            2000,
            ["core_4 core_0", "core_gold core_0", "core_gold core_4", "gold gapft"],
        ),
        ("coverage", None, ["once four_times"]),
        ("full_pool", None, ["whole again"]),
    ],
)
def test_pairs_match_decisions(
    run: Path,
    tables: Tables,
    control: str,
    permutations: int | None,
    pairs: list[str],
) -> None:
    """Check differences and, with the recipe's permutations, the two-sided tests (Table 4)."""

    def read_passes(condition: str) -> NDArray[np.bool_]:
        decided = [read_rows(run / layout.decisions_path(Arm(condition, s))) for s in SEEDS]
        ordered = [sorted(rows, key=lambda row: str(row["problem_id"])) for rows in decided]
        return np.array([[row["status"] == "pass" for row in rows] for rows in ordered])

    reference, *rows = tables[control]
    seed_rows = {(r["condition"], r["against"], r["seed"]): r for r in tables[f"{control}_seeds"]}
    assert [f"{row['condition']} {row['against']}" for row in rows] == pairs
    assert (reference["condition"], reference["difference"]) == (rows[0]["against"], None)
    for row in rows:
        passed, other = read_passes(row["condition"]), read_passes(row["against"])
        assert row["pass_at_1"] == pytest.approx(passed.mean())
        assert row["difference"] == pytest.approx(passed.mean() - other.mean())
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
        assert sum(row[state] for state in "SUG") == pytest.approx(row["difference"])
        for seed, own, others in zip(SEEDS, passed, other, strict=True):
            seed_row = seed_rows[row["condition"], row["against"], seed]
            assert seed_row["difference"] == pytest.approx(own.mean() - others.mean())
        if permutations is None:
            assert "p" not in row
        else:
            test = flip_signs(
                passed.sum(axis=0) - other.sum(axis=0),
                flips=permutations,
                stream=Stream(0, f"report/{control}"),
            )
            assert (row["p"], row["permutations"], row["exact"]) == (
                test.p_value, test.flips, test.exhaustive,
            )  # fmt: skip


def test_rows_are_ordered_by_the_parameter(tables: Tables) -> None:
    for control, values in (
        ("search_depth", [0, 1, 4]),
        ("randomized_inclusion", [0, 0.5, 1]),
        ("coverage", [4, 1]),
    ):
        assert [row["value"] for row in tables[control]] == values
    gains = [row["difference"] for row in tables["search_depth"][1:]]
    shares = [row["gain_share"] for row in tables["search_depth"]]
    assert shares == [None, pytest.approx(gains[0] / gains[1]), 1]


def test_rows_have_the_states_of_training_sets(run: Path, tables: Tables) -> None:
    recovered: dict[str, list[int]] = {}
    for control in EXPERIMENTS:
        for row in tables[f"{control}_seeds"]:
            selected = read_selection(run, row["condition"], row["seed"])
            states = [entry["state"] for entry in selected]
            assert [row[f"slots_{s}"] for s in "GSU"] == [states.count(s) for s in "GSU"]
            recovered.setdefault(row["condition"], []).append(states.count("S"))
    for row in tables["randomized_inclusion"]:
        slots = recovered[row["condition"]]
        assert row["recovered_slots"] == pytest.approx(sum(slots) / len(slots) / SLOTS)


def read_selected(run: Path, condition: str, seed: int) -> set[str]:
    return {row["problem_id"] for row in read_selection(run, condition, seed)}


def read_exposed(run: Path, condition: str, seed: int) -> dict[str, bool]:
    rows = read_rows(run / f"decisions/{condition}-seed{seed}.exposed.parquet")
    assert {row["index"] for row in rows} == {-1}
    assert len({row["problem_id"] for row in rows}) == len(rows)
    return {row["problem_id"]: row["status"] == "pass" for row in rows}


def test_arms_decide_all_trained_problems(run: Path) -> None:
    for seed in SEEDS:
        trained = read_selected(run, ONCE, seed)
        assert len(trained) == SLOTS
        for condition in HALVES:
            assert read_exposed(run, condition, seed).keys() == trained


def test_allocation_matches_decisions(run: Path, tables: Tables) -> None:
    """Equation 10: the gain of problems once instead of never, less that of twice over once."""
    values = {row["quantity"]: row for row in tables["allocation"]}
    contrasts = []
    for seed in SEEDS:
        once, twice = (read_selected(run, condition, seed) for condition in HALVES)
        halves = {"A": twice, "B": once - twice}
        assert [len(half) for half in halves.values()] == [4, 4]
        exposed = {condition: read_exposed(run, condition, seed) for condition in HALVES}
        rates = {
            (condition, name): sum(exposed[condition][problem] for problem in half) / 4
            for condition in HALVES
            for name, half in halves.items()
        }
        reported = {name: row[f"seed_{seed}"] for name, row in values.items()}
        assert reported["a_A_1"] == rates[ONCE, "A"]
        assert reported["a_A_2"] == rates[TWICE, "A"]
        assert reported["a_B_0"] == rates[TWICE, "B"]
        assert reported["a_B_1"] == rates[ONCE, "B"]
        gain = rates[ONCE, "B"] - rates[TWICE, "B"]
        loss = rates[TWICE, "A"] - rates[ONCE, "A"]
        assert reported["contrast"] == gain / 2 - loss / 2
        contrasts.append(reported["contrast"])
    assert values["contrast"]["mean"] == sum(contrasts) / len(contrasts)
    assert values["contrast"]["problems"] == 4
    assert "## Coverage against repetition" in (run / "report/index.md").read_text("utf-8")


def test_reports_unmatched_training_sets(run: Path, tmp_path: Path) -> None:
    """Put other sets in place of some: half of GapFT's slots, and none of the core."""
    run = Path(shutil.copytree(run, tmp_path / "run"))
    arms = [Arm(name, 13) for name in ("gapft", "gold", *CORE)]
    view = View(RunDirectory.open(run), load_plugins(), arms)
    assert [*SharedCore().faults(view), *GoldLabels().faults(view)] == []
    for name, other in (("core_0", "half"), ("core_gold", "all"), ("gold", "half")):
        source, replaced = (run / layout.selection_path(Arm(n, 13)) for n in (other, name))
        replaced.unlink()  # stored outputs are read-only
        shutil.copy(source, replaced)
    faults = [*SharedCore().faults(view), *GoldLabels().faults(view)]
    for words in (
        ("core_0-seed13", "solved problems are missing"),
        ("core_0-seed13 and core_4-seed13", "position_tolerance"),
        ("core_4-seed13 and core_gold-seed13", "supervised_tokens"),
        ("gapft-seed13 and gold-seed13", "target strings"),
    ):
        assert any(all(word in fault for word in words) for fault in faults), (words, faults)


OF_LLAMA = {f"controls/llama-{task}": f"paper/llama-{task}" for task in ("logiqa", "reclor")}
OF_OLDER = {f"{name}-core": base for name, base in OF_LLAMA.items()}
OF_LLAMA["controls/llama-reclor-core-added"] = "paper/llama-reclor"
BUNDLED = sorted(
    name for name in list_bundled_recipes() if name.startswith("controls/") and name not in OF_OLDER
)
#: Experiments that do not compare training sets.
OTHERS = {"stability", "scope", "online"}


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


def test_every_control_has_a_bundled_recipe() -> None:
    expected = {"search_depth", "randomized_inclusion", "gold_labels", "coverage", "full_pool"}
    expected |= {"shared_core", "matched_diversity"}
    assert expected | OTHERS == {
        e for name in BUNDLED for e in load_recipe(list_bundled_recipes()[name]).experiments
    }


@pytest.mark.parametrize("name", BUNDLED)
def test_controls_compare_no_replicates(name: str) -> None:
    """A replicate shows the noise of training; it is no second condition of a control."""
    recipe = load_recipe(list_bundled_recipes()[name])
    repeated = {
        f"{condition}_again": settings.model_copy(update={"replicate": 1})
        for condition, settings in recipe.conditions.items()
    }
    other = recipe.model_copy(update={"conditions": recipe.conditions | repeated})
    for experiment in load_experiments(recipe, load_plugins()):
        if experiment.name not in OTHERS:
            assert experiment.conditions(other) == experiment.conditions(recipe)


@pytest.mark.parametrize(
    ("own", "key", "words"),
    [
        ({"n": 10}, "", "the same n in all compared conditions, found none recovered, all 10; set"),
        ({}, "within", "the same parameter within in all compared conditions, found none 4, all 2"),
    ],
)
def test_compared_conditions_have_the_same_settings(
    own: dict[str, int], key: str, words: str
) -> None:
    conditions = {
        "none": {"selector": "randomized_inclusion", "params": {"share": 0}},
        "all": {"selector": "randomized_inclusion", "params": {"share": 1}, **own},
    }
    if key:
        conditions["all"]["params"][key] = 2
    recipe = {
        "conditions": conditions,
        "budget": {"n": "recovered"},
        "experiments": {"randomized_inclusion": {}},
    }
    with pytest.raises(UserError, match=re.escape(words)):
        describe_dry_run(
            Options("demo", overrides=[f"{k}={json.dumps(v)}" for k, v in recipe.items()]), None
        )
