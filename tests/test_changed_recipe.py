"""Changed recipes of finished runs: sealed results are reused, and every change is reported."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import run_stages_alone
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Arm
from gapft_harness.recipe.conditions import build_condition
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recipe_changes import extend_recipe, find_changes, restrict_recipe
from gapft_harness.run_directory.tables import read_states
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.search.stage import store_searched_recipe
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import write_letters_task
from tests.kit.tampering import change_manifest
from tests.test_scale import PLUGIN, ScaledLetters

STAGES = ("states", "select", "train", "audit", "report")
SCALED = ("states", "select", "train", "audit", "experiments", "report")
SELECTED = STAGES[:2]
SPLITS = ("pool", "audit")

SELECTOR = """
from gapft_harness.api import hookimpl


@hookimpl
def register_selectors(register):
    register("first", lambda pool, n, rng: sorted(pool.verified, key=lambda e: e.problem_id)[:n])
"""


class ChangingLetters(ScaledLetters):
    """The letters task with a validation split, and one run whose recipe changes."""

    def change(self, *stages: str, **keys: Any) -> RunDirectory:
        """Run the stages of the recipe with other keys."""
        splits = (*SPLITS, "calibration") if "scaling" in keys.get("experiments", {}) else SPLITS
        settings = {
            "conditions": ["gapft", "uniform"],
            "seeds": [13, 21],
            "budget": {"n": 4},
            "model": {"backend": "by_scale"},
            "training": {"trainer": "ones", "repetitions": 1},
            "search": {"k": 2, "chunk": 20},
            "statistics": {"replicates": 20},
        }
        stages = stages or (SCALED if "scaling" in keys.get("experiments", {}) else STAGES)
        return self.run("r", stages, splits, **{**settings, **keys})  # type: ignore[arg-type]

    @property
    def plugins(self) -> list[str]:
        more = [self.folder / "first.py"]
        return [*super().plugins, *(str(path) for path in more if path.exists())]

    def read_calls(self) -> list[Any]:
        """Return the model's calls: arm, scale, whether sampled, and problems."""
        return list(self.log("r"))

    def report(self, **choice: Any) -> dict[str, Any]:
        """Run the report command without plugins, and return the results."""
        run_stages_alone(["report"], str(self.folder / "r"), Options(**choice))
        return self.results()

    def results(self) -> dict[str, Any]:
        content = json.loads((self.folder / "r/report/results.json").read_text())
        return dict(content)

    def hash_sealed(self, *folders: str) -> dict[str, str]:
        """Return the hashes of the sealed files in some folders."""
        files = RunDirectory.open(self.folder / "r").manifest()["files"]
        return {name: h for name, h in files.items() if name.split("/")[0] in folders}

    def find_differences(self) -> list[str]:
        """Return the differences that verify finds."""
        return verify(self.folder / "r", self.plugins).differences


def write_task(folder: Path) -> ChangingLetters:
    task = ChangingLetters(write_letters_task(folder, pool=60, audit=30).folder)
    plugin = PLUGIN.replace("LOSSES[arm]", "LOSSES.get(arm, [[0] * 4])")
    (folder / "by_scale.py").write_text(plugin)
    yaml = (folder / "tasks/letters.yaml").read_text()
    yaml = yaml.replace("test: audit.jsonl", "test: audit.jsonl, held: held.jsonl")
    (folder / "tasks/letters.yaml").write_text(f"validation_split: held\n{yaml}")
    task.write("held", range(100, 160))
    return task


@pytest.fixture
def task(tmp_path: Path) -> ChangingLetters:
    return write_task(tmp_path)


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run without scaling, and a copy of it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "here").mkdir()
    write_task(folder / "here").change()
    shutil.copytree(folder / "here", folder / "copy")
    return folder


@pytest.fixture
def finished_run(finished_folder: Path) -> ChangingLetters:
    """Restore the finished run in the same place, since its recipe names its log."""
    shutil.rmtree(finished_folder / "here")
    shutil.copytree(finished_folder / "copy", finished_folder / "here")
    return ChangingLetters(finished_folder / "here")


def test_report_settings_may_change(finished_run: ChangingLetters) -> None:
    sealed_before, calls = (
        finished_run.hash_sealed("pool", "audit", "adapters", "decisions"),
        finished_run.read_calls(),
    )
    intervals = finished_run.results()["contrasts"]
    finished_run.change(statistics={"replicates": 7, "seed": 5}, notes=["new"], description="other")
    assert finished_run.results()["contrasts"] != intervals
    assert finished_run.read_calls() == calls
    assert finished_run.hash_sealed("pool", "audit", "adapters", "decisions") == sealed_before
    manifest = RunDirectory.open(finished_run.folder / "r").manifest()
    statistics = {"replicates": 7, "seed": 5, "items": "crossed"}
    assert manifest["recipe"]["statistics"] == statistics
    finished_run.change()
    assert finished_run.results()["contrasts"] == intervals
    finished_run.change(statistics={"replicates": 20, "items": "nested"})
    assert finished_run.results()["contrasts"] != intervals
    assert finished_run.find_differences() == []


def test_single_stage_requires_the_stored_recipe(task: ChangingLetters) -> None:
    """Jobs read the recipe on disk, so different settings must be an error."""
    run = task.change(*SELECTED)
    recipe_before = (run.path / "recipe.yaml").read_bytes()

    def run_stage(stage: str, *settings: str, **choice: Any) -> None:
        files = tuple(task.plugins)
        options = Options(overrides=settings, plugin_files=files, **choice)
        run_stages_alone([stage], str(run.path), options)

    for stage, setting, difference in (
        ("train", "training.repetitions=2", "training.repetitions 1 → 2"),
        ("audit", "seeds=[13,21,73]", "seeds [13, 21] → [13, 21, 73]"),
        ("report", "statistics.seed=9", "statistics.seed 0 → 9"),
    ):
        with pytest.raises(UserError, match=f"--only {stage} uses the recipe") as caught:
            run_stage(stage, setting)
        assert f"differs: {difference}. Run the command without --only" in str(caught.value)
        assert (run.path / "recipe.yaml").read_bytes() == recipe_before
    assert not (run.path / "adapters").exists()
    run_stage("select", "training.repetitions=2")
    run_stage("train", "executor.workers=2", conditions=("gapft",), seeds=(13,))
    assert run.manifest()["budgets"]["gapft-seed13"]["exposures"] == 8
    assert [path.name for path in (run.path / "adapters").iterdir()] == ["gapft-seed13"]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("rank: 8\n", "rank: 999\n", "training.rank"),
        ("replicates: 20", "replicates: 7", "statistics"),
    ],
)
def test_report_rejects_edited_recipe(
    finished_run: ChangingLetters, old: str, new: str, key: str
) -> None:
    """Settings without results may change too, but only by a command, which records them."""
    path = finished_run.folder / "r" / layout.RECIPE
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=rf"recipe\.yaml: differs .*{key}"):
        finished_run.report()
    path.write_text(text)
    finished_run.report()


def test_scaling_reuses_search_and_training(finished_run: ChangingLetters) -> None:
    sealed_before, calls = (
        finished_run.hash_sealed("pool", "audit", "selections", "adapters"),
        len(finished_run.read_calls()),
    )
    finished_run.change(experiments={"scaling": {"calibration": "validation"}})
    assert len(finished_run.results()["scaling"]["checkpoints"]) == 4
    new = finished_run.read_calls()[calls:]
    assert not any(sampled for _, _, sampled, _ in new)
    held = {i for arm, _, _, ids in new if arm is None for i in ids}
    assert {i.rstrip("0123456789abcdef").startswith("held") for i in held} == {True}
    assert finished_run.hash_sealed("pool", "audit", "selections", "adapters") == sealed_before
    assert finished_run.find_differences() == []


def test_separate_search_adds_calibration_split(
    finished_run: ChangingLetters,
) -> None:
    scaling = {"calibration": "validation"}
    run = finished_run.change("search", experiments={"scaling": scaling}, seeds=[13, 21, 5])
    lines: list[str] = []
    store_searched_recipe(replace(finished_run.context(run), report_line=lines.append))
    stored_recipe = RunDirectory.open(run.path).recipe
    assert stored_recipe.calibration == "validation"
    assert stored_recipe.seeds == (13, 21)
    assert "experiments.scaling" in lines[0], "the warning says that scaling came after results"
    assert lines[1:] == [
        "these settings apply when gapft run selects again: seeds [13, 21] → [13, 21, 5]"
    ]
    for stage in ("audit", "experiments"):
        run_stages(finished_run.context(RunDirectory.open(run.path)), [stage], lambda stage: None)
    assert len(finished_run.report()["scaling"]["checkpoints"]) == 4
    assert finished_run.find_differences() == []


def test_failed_scaling_leaves_run_unchanged(finished_run: ChangingLetters) -> None:
    file = finished_run.folder / "tasks/letters.yaml"
    sealed_before = finished_run.hash_sealed(
        "pool", "audit", "adapters", "decisions", "calibration"
    )
    (finished_run.folder / "tasks/held.jsonl").unlink()
    with pytest.raises(GapftError):
        finished_run.change(experiments={"scaling": {"calibration": "validation"}})
    assert RunDirectory.open(finished_run.folder / "r").recipe.calibration is None
    assert (
        finished_run.hash_sealed("pool", "audit", "adapters", "decisions", "calibration")
        == sealed_before
    )
    assert "scaling" not in finished_run.report()
    assert file.exists()


def test_new_tolerance_reuses_decisions(finished_run: ChangingLetters) -> None:
    lax = {"calibration": "validation", "tolerance": 0.9, "level": 0.2}
    run = finished_run.change(experiments={"scaling": lax})
    scales = [c["scale"] for c in finished_run.results()["scaling"]["checkpoints"]]
    calibration, calls = (
        finished_run.hash_sealed("calibration", "adapters"),
        finished_run.read_calls(),
    )
    strict = {"calibration": "validation", "tolerance": 0.01}
    changed = finished_run.change(*SELECTED, experiments={"scaling": strict})
    with pytest.raises(
        UserError, match=r"made with other settings .* --only experiments makes it again"
    ):
        finished_run.report()
    finished_run.change(experiments={"scaling": strict})
    scaling = finished_run.results()["scaling"]
    assert (scaling["tolerance"], scaling["level"]) == (0.01, 0.05)
    assert [c["scale"] for c in scaling["checkpoints"]] == [0.0] * 4 != scales
    assert finished_run.read_calls() == calls, "scale 0 is the source, which has decisions"
    assert finished_run.hash_sealed("calibration", "adapters") == calibration
    assert any("too few for any scale" in w for w in changed.manifest()["warnings"])
    assert finished_run.find_differences() == []
    finished_run.change(experiments={"scaling": lax})
    assert [c["scale"] for c in finished_run.results()["scaling"]["checkpoints"]] == scales
    assert not any("too few for any scale" in w for w in run.manifest()["warnings"])
    assert finished_run.find_differences() == []


def test_state_experiments_use_scaled_adapters(finished_run: ChangingLetters) -> None:
    """As in the paper's older protocol."""
    scaling = {"calibration": "validation", "tolerance": 0.4, "level": 0.2}
    of_scaled = {"adapters": "scaled"}
    experiments = {
        "scope": {"k": [1, 2], **of_scaled},
        "stability": {"sets": 2, "k": 2, **of_scaled},
    }
    with pytest.raises(UserError, match=r"'experiments\.scope\.adapters': is 'scaled', but"):
        finished_run.change(experiments=experiments)
    finished_run.change(experiments={"scaling": scaling, **experiments})
    run, results = RunDirectory.open(finished_run.folder / "r"), finished_run.results()
    scales = {
        choice["condition"] + f"-seed{choice['seed']}": choice["scale"]
        for choice in read_scaling_choices(run)
    }
    assert len(set(scales.values()) - {1.0}) > 1, "some scales differ from 1"
    for condition in ("gapft", "uniform"):
        rates = []
        for seed in (13, 21):
            arm = Arm(condition, seed)
            if scale := scales[arm.name]:
                path = run.path / layout.scaled_decisions_path(arm, scale)
                rates.append(pq.read_table(path)["status"].to_pylist().count("pass") / 30)
            else:
                rates.append(results["source"]["pass_at_1"])
        gain = sum(rates) / 2 - results["source"]["pass_at_1"]
        lines = [line for line in results["scope"]["lines"] if line["condition"] == condition]
        assert [line["net_gain"] for line in lines] == [pytest.approx(gain, abs=1e-12)] * 2
        moved = results["stability"]["conditions"][condition]["total_gain"]
        assert moved["mean"] == pytest.approx(gain, abs=1e-12)
    assert results["scope"]["adapters"] == results["stability"]["adapters"] == "scaled"
    assert any(
        results["conditions"][line["condition"]]["pass_at_1"] - results["source"]["pass_at_1"]
        != pytest.approx(line["net_gain"])
        for line in results["scope"]["lines"]
    ), "the trained models have other decisions"
    assert finished_run.find_differences() == []


def read_scaling_choices(run: RunDirectory) -> list[dict[str, Any]]:
    """Read the scale that was chosen for each arm."""
    return [json.loads(path.read_text()) for path in sorted(run.path.glob("scaled/*/scaling.json"))]


def test_report_requires_the_sealed_scale(finished_run: ChangingLetters) -> None:
    scaling = {"calibration": "validation", "tolerance": 0.4, "level": 0.2}
    keys: dict[str, Any] = {
        "experiments": {
            "scaling": scaling,
            "scope": {"k": [1, 2], "adapters": "scaled"},
            "stability": {"sets": 2, "k": 2, "adapters": "scaled"},
        },
    }
    finished_run.change(*SELECTED, **keys)
    with pytest.raises(UserError, match=r"does not exist yet"):
        finished_run.report()
    finished_run.change(**keys)
    with (finished_run.folder / "r/scaled/gapft-seed13/scaling.json").open("a") as file:
        file.write(" ")
    with pytest.raises(UserError, match=r"scaled/gapft-seed13: was changed after it was sealed"):
        finished_run.report()


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"training": {"trainer": "ones", "repetitions": 1, "rank": 4}}, "training.rank"),
        ({"evidence": {"keep": "last"}}, "evidence.keep"),
        ({"budget": {"n": 5}}, "budget.n"),
    ],
)
def test_changed_training_keeps_the_search(
    finished_run: ChangingLetters, keys: dict[str, Any], key: str
) -> None:
    tables = ("pool/responses.parquet", "audit/responses.parquet", "pool/problems.parquet")
    sealed_before, adapters = (
        finished_run.hash_sealed("pool", "audit"),
        finished_run.hash_sealed("adapters"),
    )
    searches = [line for line in finished_run.read_calls() if line[0] is None]
    run = finished_run.change(**keys)
    assert [line.partition(" ")[0] for line in run.changes.selection_changes] == [key]
    sealed_after = finished_run.hash_sealed("pool", "audit")
    assert [sealed_after[name] for name in tables] == [sealed_before[name] for name in tables]
    assert [line for line in finished_run.read_calls() if line[0] is None] == searches
    assert any(f"results: {key} " in line for line in run.manifest()["warnings"])
    assert f"results: {key}" in (run.path / "report/report.md").read_text().replace("\\", "")
    assert finished_run.find_differences() == []
    calls = finished_run.read_calls()
    finished_run.change()
    assert finished_run.hash_sealed("adapters") == adapters
    assert finished_run.read_calls() == calls, "earlier results are in the store"
    assert finished_run.find_differences() == []


def test_changed_search_recomputes_and_reverts(finished_run: ChangingLetters) -> None:
    every = ("pool", "audit", "selections", "adapters", "decisions")
    sealed_before, calls = finished_run.hash_sealed(*every), len(finished_run.read_calls())
    run = finished_run.change(search={"k": 4, "chunk": 20})
    assert run.changes.search_changes == ("search.k 2 → 4",)
    assert len(finished_run.read_calls()) > calls
    assert finished_run.find_differences() == []
    history = [json.loads(line) for line in (run.path / layout.HISTORY).read_text().splitlines()]
    assert [(entry["changed"], entry["decided"]) for entry in history] == [
        (["search.k 2 → 4"], True)
    ]
    assert history[0]["pass_at_1"].keys() == {"gapft", "uniform"}
    shutil.rmtree(run.path / "decisions")  # results were seen, even if they are deleted
    change_manifest(run.path, lambda m: [m["files"].pop(f) for f in [*m["files"]] if "decis" in f])
    calls = len(finished_run.read_calls())
    back = finished_run.change()
    assert "chosen after results: search.k 4 → 2" in back.manifest()["warnings"]
    assert finished_run.hash_sealed(*every) == sealed_before
    assert len(finished_run.read_calls()) == calls, "all results are in the store"
    assert finished_run.find_differences() == []


def test_warns_of_model_changed_after_results(finished_run: ChangingLetters) -> None:
    run = finished_run.change(model={"backend": "by_scale", "args": {"hopeless": True}})
    (late,) = (line for line in run.manifest()["warnings"] if "chosen after results" in line)
    assert "model.args.hopeless not set → true" in late
    assert "model.args.hopeless" in (run.path / layout.HISTORY).read_text()


def test_warns_once_of_key_set_by_task(finished_run: ChangingLetters) -> None:
    run = finished_run.change(search={"k": 2, "chunk": 20, "max_gen_toks": 11})
    (late,) = (line for line in run.manifest()["warnings"] if "chosen after results" in line)
    assert "search.max_gen_toks 12 → 11" in late


def test_history_must_match_recipe_and_warnings(finished_run: ChangingLetters) -> None:
    run = finished_run.change(statistics={"replicates": 7}).path
    change_manifest(run, lambda m: m["warnings"].clear())
    assert any("chosen after results" in line for line in finished_run.find_differences())
    path = run / layout.RECIPE
    path.write_text(path.read_text().replace("replicates: 7", "replicates: 8"))
    change_manifest(run, lambda m: m["recipe"]["statistics"].update(replicates=8))
    assert any(line.startswith(layout.HISTORY) for line in finished_run.find_differences())


def test_history_line_is_rewritten_after_kill(finished_run: ChangingLetters) -> None:
    """A kill may come between the history and the manifest, which is written later."""
    manifest = (finished_run.folder / "r" / layout.MANIFEST).read_bytes()
    recipe = (finished_run.folder / "r" / layout.RECIPE).read_bytes()
    finished_run.change(statistics={"replicates": 7})
    (finished_run.folder / "r" / layout.MANIFEST).write_bytes(manifest)
    (finished_run.folder / "r" / layout.RECIPE).write_bytes(recipe)
    assert any(line.startswith(layout.HISTORY) for line in finished_run.find_differences())
    finished_run.change(statistics={"replicates": 7})
    assert len((finished_run.folder / "r" / layout.HISTORY).read_text().splitlines()) == 1
    assert finished_run.find_differences() == []


def test_compares_settings_of_each_recipe_separately() -> None:
    """A condition's settings in the earlier recipe need not fit today's training section."""

    def build(longest: int) -> Recipe:
        content = build_recipe(["uniform"], [13]).model_dump(mode="json")
        own = {"padding_free": True, "max_tokens": longest}
        content["training"]["max_length"] = longest
        return check_recipe(content | {"conditions": {"a": {"training": own}}}, "test")

    changes = find_changes(Path("run"), build(128), build(512), {})
    assert [line.partition(" ")[0] for line in changes.selection_changes] == [
        "training.max_length", "conditions.a.training.max_tokens",
    ]  # fmt: skip


def test_keeps_results_missing_from_store(finished_run: ChangingLetters) -> None:
    sealed_before = finished_run.hash_sealed("pool", "audit", "selections", "adapters", "decisions")
    shutil.rmtree(finished_run.folder / ".store")
    for keys in ({"search": {"k": 4, "chunk": 20}}, {"budget": {"n": 5}}):
        with pytest.raises(UserError, match=r"not in the store.* --run-dir"):
            finished_run.change(**keys)
    assert (
        finished_run.hash_sealed("pool", "audit", "selections", "adapters", "decisions")
        == sealed_before
    )
    finished_run.change()
    assert finished_run.find_differences() == []


def test_recomputes_states_and_selections_before_training(task: ChangingLetters) -> None:
    run = task.change(*SELECTED)
    first, calls = task.hash_sealed("pool", "selections"), task.read_calls()
    kept_indices = [state.kept_index for state in read_states(run.path / "pool/states.parquet")]
    changed = {"training": {"trainer": "ones", "repetitions": 3}, "budget": {"n": 6}}
    run = task.change(*SELECTED, **changed, evidence={"keep": "last"})
    assert task.read_calls() == calls
    assert run.manifest()["task"]["keep"] == "last"
    facts = read_facts(run.path / "selections/gapft-seed13.parquet")
    assert (facts["n"], facts["repetitions"]) == (6, 3)
    assert [s.kept_index for s in read_states(run.path / "pool/states.parquet")] == kept_indices
    second = task.hash_sealed("pool", "selections")
    assert {name for name in first if first[name] != second[name]} == {
        f"selections/{arm}-seed{seed}.parquet" for arm in ("gapft", "uniform") for seed in (13, 21)
    }
    task.change(**changed, evidence={"keep": "last"})
    assert task.find_differences() == []
    run = task.change(*SELECTED, **changed)
    assert run.manifest()["task"]["keep"] == "shortest"


def test_trained_condition_stays_without_its_plugin(finished_run: ChangingLetters) -> None:
    (finished_run.folder / "first.py").write_text(SELECTOR)
    finished_run.change(conditions=["gapft", "first"])
    everything = ["gapft", "uniform", "first"]
    assert list(finished_run.results()["conditions"]) == everything
    (finished_run.folder / "first.py").unlink()
    calls, sealed_before = (
        finished_run.read_calls(),
        finished_run.hash_sealed("adapters", "decisions", "selections"),
    )
    finished_run.change()
    assert list(finished_run.results()["conditions"]) == everything
    assert list(finished_run.report()["conditions"]) == everything
    assert (
        finished_run.read_calls(),
        finished_run.hash_sealed("adapters", "decisions", "selections"),
    ) == (
        calls,
        sealed_before,
    )
    fewer = finished_run.report(conditions=["first", "gapft"], seeds=[21])
    assert list(fewer["conditions"]) == ["gapft", "first"]
    assert list(fewer["conditions"]["gapft"]["seeds"]) == ["21"]
    page = (finished_run.folder / "r/report/report.md").read_text()
    assert "trained, but not in this report" in page
    with pytest.raises(UserError, match="'replay' is not one of the conditions"):
        finished_run.report(conditions=["replay"])
    assert list(finished_run.report()["conditions"]) == everything
    with pytest.raises(UserError, match="unknown selector 'first'"):
        finished_run.change(conditions=["gapft", "first"], seeds=[13, 21, 5])


def test_added_seed_stays_and_missing_ones_are_listed(finished_run: ChangingLetters) -> None:
    finished_run.change(conditions=["gapft"], seeds=[5])
    assert list(finished_run.results()["conditions"]["gapft"]["seeds"]) == ["5", "13", "21"]
    warning = "not in this report, which has every condition for every seed: uniform (seeds 13, 21)"
    assert warning in (finished_run.folder / "r/report/report.md").read_text()
    finished_run.change(seeds=[5])
    for condition in ("gapft", "uniform"):
        assert list(finished_run.results()["conditions"][condition]["seeds"]) == ["5", "13", "21"]
    assert warning not in (finished_run.folder / "r/report/report.md").read_text()
    assert finished_run.find_differences() == []


def build_recipe(conditions: list[str], seeds: list[int]) -> Recipe:
    content: dict[str, Any] = {"name": "r", "data": {"task": "t"}}
    content |= {"model": {"args": {"pretrained": "m"}}, "conditions": conditions, "seeds": seeds}
    return check_recipe(content, "test")


names = st.lists(st.sampled_from("abcd"), min_size=1, unique=True)
numbers = st.lists(st.integers(0, 3), min_size=1, unique=True)


@given(names, numbers, names, numbers, st.data())
def test_extended_recipe_adds_only_trained_arms(
    earlier: list[str],
    earlier_seeds: list[int],
    requested: list[str],
    seeds: list[int],
    data: st.DataObject,
) -> None:
    every = [Arm(c, s) for c in "abcd" for s in range(4)]
    trained = data.draw(st.lists(st.sampled_from(every), unique=True))
    requested_recipe = build_recipe(requested, seeds)
    extended = extend_recipe(
        build_recipe(earlier, earlier_seeds),
        requested_recipe,
        {arm: build_condition(arm.condition, {}) for arm in trained},
    )
    assert set(requested) <= set(extended.conditions)
    assert set(seeds) <= set(extended.seeds)
    arms = {Arm(c, s) for c in extended.conditions for s in extended.seeds}
    assert arms - {Arm(c, s) for c in requested for s in seeds} <= set(trained)
    for name in set("abcd") - set(extended.conditions):
        assert any(Arm(name, s) not in trained for s in extended.seeds), "this one could be added"
    for seed in set(range(4)) - set(extended.seeds):
        assert any(Arm(c, seed) not in trained for c in extended.conditions), (
            "this one could be added"
        )
    assert (
        extend_recipe(
            extended, extended, {arm: build_condition(arm.condition, {}) for arm in trained}
        )
        == extended
    )
    assert restrict_recipe(
        extended, requested, seeds
    ).model_dump() == requested_recipe.model_dump() | {
        "conditions": [*restrict_recipe(extended, requested, seeds).conditions],
        "seeds": restrict_recipe(extended, requested, seeds).seeds,
    }


SEARCH, SELECTION, NOTHING = "search", "selection", "nothing"

#: What a changed section or key recomputes (docs/run-directory.md).
EFFECTS = {
    "data": SEARCH, "model": SEARCH, "verifier": SEARCH, "search": SEARCH, "episode": SEARCH,
    "evidence": SELECTION, "training": SELECTION, "budget": SELECTION,
    "budget.token_tolerance": NOTHING, "budget.position_tolerance": NOTHING, "seeds": NOTHING,
    "statistics": NOTHING,
    "description": NOTHING, "executor": NOTHING, "tracker": NOTHING, "notes": NOTHING,
    "paper": NOTHING, "experiments": NOTHING, "conditions": NOTHING,
}  # fmt: skip


def flatten_keys(content: Any, key: str = "") -> dict[str, Any]:
    """Return the value of each leaf key, by its dotted name."""
    if not isinstance(content, dict) or not content:
        return {key: content}
    keys: dict[str, Any] = {}
    for name, value in content.items():
        keys |= flatten_keys(value, f"{key}.{name}" if key else name)
    return keys


def list_alternatives(value: Any) -> list[Any]:
    """List values to try instead of a value, those of the same type first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1, value / 2, value * 3, 0.3]
    words = """x first never problem float32 linear cosine constant refuse truncate fused plain
        wandb permissive bnpo batch nested token_sum recovered"""
    return [*words.split(), 3, 0.25, True, ["x"], [5], {"x": 1}]


def set_key(content: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    inner = content.get(first, {})
    return content | {first: set_key(inner, rest, value) if rest else value}


def test_every_recipe_key_has_its_declared_effect() -> None:
    base = check_recipe(
        {
            "name": "r",
            "data": {"task": "t"},
            "model": {"args": {"pretrained": "m"}, "chat_template": False, "start_tokens": 2},
            "training": {"trainer": "grpo", "start_tokens": 1},
            "search": {"k": 4},
        },
        "test",
    )
    content = base.model_dump(mode="json")
    untried = []
    for key, value in flatten_keys(content).items():
        if key == "name" or value == {}:  # sections whose keys are names
            continue
        for other in list_alternatives(value):
            try:
                changed = check_recipe(set_key(content, key, other), "test")
            except UserError:
                continue
            if changed != base:
                break
        else:
            untried.append(key)
            continue
        section = key.partition(".")[0]
        changes = find_changes(Path("run"), base, changed, {})
        effects = {SEARCH: bool(changes.search_changes), SELECTION: bool(changes.selection_changes)}
        expected = EFFECTS.get(key, EFFECTS[section])
        assert effects == {name: name == expected for name in (SEARCH, SELECTION)}, (
            key,
            other,
            changes,
        )
    assert untried == [], "list_alternatives needs values for these keys"
