"""Replicates: training repeated with the same data, settings and seeds."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.stages.verify.run import verify
from tests.command import succeed
from tests.training.letters import prepare
from tests.verify.tampering import change_facts, change_manifest, differences, seal_again

GAPFT, AGAIN, UNIFORM = (Arm(name, 13) for name in ("gapft", "again", "uniform"))
CONDITIONS: dict[str, Any] = {"gapft": {}, "uniform": {}}
REPLICATE = {"again": {"selector": "gapft", "replicate": 1}}


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two conditions and a replicate added later."""
    folder = tmp_path_factory.mktemp("retrained")
    command = [*prepare(folder), "run"]
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text()) | {"budget": {"n": 6}, "executor": {"workers": 1}}
    content |= {"conditions": CONDITIONS, "seeds": [13, 21]}
    content["training"] |= {"accumulation": 1, "learning_rate": 0.02}  # several large steps
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    shutil.copytree(folder / "run", folder / "before")
    # listed first: existing adapters are not trained again
    content["conditions"] = REPLICATE | CONDITIONS
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    succeed(*command, cwd=folder)
    return folder


@pytest.fixture
def run(finished_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_folder / "run", tmp_path / "run"))


def read_facts(run: Path, arm: Arm) -> dict[str, Any]:
    return dict(json.loads((run / layout.adapter_path(arm) / "training.json").read_text()))


def read_manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text()))


def test_trains_added_replicate_only(finished_folder: Path) -> None:
    before, after = (read_manifest(finished_folder / name)["files"] for name in ("before", "run"))
    assert before.items() <= after.items()
    arms = [Arm("again", seed) for seed in (13, 21)]
    files = (layout.selection_path, layout.adapter_path, layout.decisions_path)
    assert after.keys() - before.keys() == {file(arm) for arm in arms for file in files}
    verification = verify(finished_folder / "run", [str(finished_folder / "plugin.py")])
    assert (verification.differences, verification.missing) == ([], [])
    assert any("2 replicates have the training sets" in line for line in verification.checked)


def test_replicate_is_trained_on_same_set(finished_folder: Path) -> None:
    run = finished_folder / "run"
    selections = [run / layout.selection_path(arm) for arm in (GAPFT, AGAIN)]
    assert selections[0].read_bytes() == selections[1].read_bytes()
    assert "trained_as" not in read_manifest(run)["training"][AGAIN.name]
    assert "seconds" in read_manifest(run)["training"][AGAIN.name], "a shared adapter has none"


def test_cpu_replicate_has_same_bytes(finished_folder: Path) -> None:
    run = finished_folder / "run"
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, AGAIN)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    logs = [(folder / "training_log.jsonl").read_bytes() for folder in folders]
    assert logs[0] == logs[1]
    own = {"condition": "again", "stored": read_facts(run, AGAIN)["stored"]}
    assert read_facts(run, AGAIN) == {**read_facts(run, GAPFT), **own}
    assert own["stored"] != read_facts(run, GAPFT)["stored"]


def test_report_counts_no_changes_for_exact_replicate(finished_folder: Path) -> None:
    run = finished_folder / "run"
    results = json.loads((run / "report/results.json").read_text())
    (replicate,) = results["replicates"]
    assert (replicate["condition"], replicate["original"], replicate["n"]) == ("again", "gapft", 80)
    assert [replicate[key] for key in ("changed", "lost", "gained", "delta")] == [0] * 4
    assert replicate["ci95"] == [0, 0]
    assert [(row["seed"], row["reworded"], row["same_weights"]) for row in replicate["seeds"]] == [
        (13, 0, True), (21, 0, True)
    ]  # fmt: skip
    contrasts = {(row["a"], row["b"]): row for row in results["contrasts"]}
    assert contrasts["gapft", "again"]["matched_budget"], "they are equal"
    with (run / "report/tables/replicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["condition"], row["seed"], row["changed"]) for row in rows] == [
        ("again", "13", "0"), ("again", "21", "0")
    ]  # fmt: skip


def test_retrains_lost_replicate(finished_folder: Path, run: Path) -> None:
    before = weights_hash(run / layout.adapter_path(AGAIN))
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=finished_folder)
    assert "trained_as" not in read_manifest(run)["training"][AGAIN.name]
    assert weights_hash(run / layout.adapter_path(AGAIN)) == before
    assert differences(finished_folder, run) == []


def test_retrains_condition_turned_replicate(finished_folder: Path, run: Path) -> None:
    shutil.copytree(finished_folder / ".store", run.parent / ".store")
    key = read_facts(run, GAPFT)["stored"]
    succeed(
        "run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run,
        "--set", "conditions.gapft.replicate=2", cwd=finished_folder,
    )  # fmt: skip
    assert read_facts(run, GAPFT)["stored"] != key
    assert "seconds" in read_manifest(run)["training"][GAPFT.name]
    assert differences(finished_folder, run) == []


# Faults that gapft verify reports


def forge_training_set(run: Path) -> None:
    """Replace the replicate by the arm of another condition and seal it again."""
    for file in (layout.selection_path, layout.adapter_path, layout.decisions_path):
        source, target = run / file(UNIFORM), run / file(AGAIN)
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        seal_again(run, file(AGAIN))
    change_manifest(run, lambda m: m["training"].update({AGAIN.name: m["training"][UNIFORM.name]}))
    change_facts(run, AGAIN.name, lambda facts: facts.update(condition="again"))


def forge_shared_adapter(run: Path) -> None:
    """Record that the replicate shares the adapter of the arm that it repeats."""
    key = read_facts(run, GAPFT)["stored"]
    change_facts(run, AGAIN.name, lambda facts: facts.update(stored=key))
    change_manifest(run, lambda m: m["training"][AGAIN.name].update(trained_as=GAPFT.name))


def forge_copied_folder(run: Path) -> None:
    """Replace the replicate by an unchanged copy of the arm that it repeats."""
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    shutil.copytree(run / layout.adapter_path(GAPFT), run / layout.adapter_path(AGAIN))
    seal_again(run, layout.adapter_path(AGAIN))


def forge_seed(run: Path) -> None:
    """Replace the replicate by a training with another seed."""
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    shutil.copytree(run / layout.adapter_path(Arm("gapft", 21)), run / layout.adapter_path(AGAIN))
    seal_again(run, layout.adapter_path(AGAIN))
    change_manifest(
        run, lambda m: m["training"].update({AGAIN.name: m["training"]["gapft-seed21"]})
    )
    change_facts(run, AGAIN.name, lambda facts: facts.update(condition="again", seed=13))


@pytest.mark.parametrize(
    ("forge", "place", "expected"),
    [
        (forge_training_set, layout.selection_path(AGAIN), f"repeats the training of {GAPFT.name}"),
        (forge_shared_adapter, layout.adapter_path(AGAIN), "made_from"),
        (forge_copied_folder, layout.adapter_path(AGAIN), "condition"),
        (forge_seed, layout.adapter_path(AGAIN), "plan_sha256"),
    ],
)
def test_verify_detects_forged_replicate(
    finished_folder: Path, run: Path, forge: Callable[[Path], None], place: str, expected: str
) -> None:
    forge(run)
    lines = differences(finished_folder, run)
    assert any(line.startswith(place) and expected in line for line in lines), lines


# Which conditions are replicates


def build_recipe(**conditions: Any) -> Any:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe({**content, "conditions": {"gapft": {}} | conditions}, "here")


@pytest.mark.parametrize(
    "condition",
    [
        {"selector": "gapft", "replicate": 1},
        {"selector": "gapft", "replicate": 1, "k": 8},  # the same as in the search
        {"selector": "gapft", "replicate": 1, "n": "recovered"},
        {"selector": "gapft", "replicate": 9, "training": {"rank": 8}},
    ],
)
def test_replicates_differ_only_in_key(condition: dict[str, Any]) -> None:
    assert build_recipe(again=condition).map_replicates() == {"again": "gapft"}


@pytest.mark.parametrize(
    "other",
    [
        {"replicate": 0},
        {"selector": "uniform"},
        {"n": 5},
        {"k": 4},
        {"training": {"rank": 4}},
    ],
)
def test_other_differences_are_not_replicates(other: dict[str, Any]) -> None:
    recipe = build_recipe(again={"selector": "gapft", "replicate": 1} | other)
    assert recipe.map_replicates() == {}


def test_replicates_repeat_lowest_number() -> None:
    recipe = build_recipe(
        third={"selector": "gapft", "replicate": 2},
        second={"selector": "gapft", "replicate": 1},
        same={"selector": "gapft"},
        lone={"selector": "uniform", "replicate": 3},
        late={"selector": "uniform", "replicate": 4},
    )
    assert recipe.map_replicates() == {"second": "gapft", "third": "gapft", "late": "lone"}


def test_imported_training_sets_can_be_replicated() -> None:
    def imported_from(run: str) -> dict[str, Any]:
        return {"selector": "training_set", "params": {"run": run, "condition": "gold"}}

    recipe = build_recipe(
        imported=imported_from("runs/a"),
        gold=imported_from("runs/a") | {"replicate": 1},
        other=imported_from("runs/b") | {"replicate": 1},
    )
    assert recipe.map_replicates() == {"gold": "imported"}


@pytest.mark.parametrize("number", [-1, 1.5, True, "1"])
def test_replicate_must_be_whole_number(number: Any) -> None:
    with pytest.raises(UserError, match=r"conditions\.again\.replicate"):
        build_recipe(again={"selector": "gapft", "replicate": number})


def test_dry_run_lists_replicates(finished_folder: Path) -> None:
    options = Options(
        str(finished_folder / "recipe.yaml"),
        include_paths=[str(finished_folder / "tasks")],
        plugin_files=[str(finished_folder / "plugin.py")],
        overrides=["conditions.alone={selector: uniform, n: 3, replicate: 2}"],
    )
    output = describe_dry_run(options, str(finished_folder / "nowhere"))
    assert "again (gapft, trains gapft again)" in output
    assert "conditions.alone.replicate" in output.partition("# warnings")[2]
