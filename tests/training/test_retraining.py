"""A training that is repeated with the same data, settings and seeds, by the real command."""

from __future__ import annotations

import csv
import json
import shutil
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
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.runs import find_differences

GAPFT, AGAIN, UNIFORM = (Arm(name, 13) for name in ("gapft", "again", "uniform"))
CONDITIONS: dict[str, Any] = {"gapft": {}, "uniform": {}}
REPLICATE = {"again": {"selector": "gapft", "replicate": 1}}


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run of two conditions and a replicate added later."""
    folder = tmp_path_factory.mktemp("retrained")
    command = [*prepare_letters_run(folder), "run"]
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text()) | {"budget": {"n": 6}, "executor": {"workers": 1}}
    content |= {"conditions": CONDITIONS, "seeds": [13, 21]}
    content["training"] |= {"accumulation": 1, "learning_rate": 0.02}  # several steps, large ones
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    shutil.copytree(folder / "run", folder / "before")
    # named first, but the finished arms are not trained again
    content["conditions"] = REPLICATE | CONDITIONS
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    succeed(*command, cwd=folder)
    return folder


@pytest.fixture
def run(finished_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_folder / "run", tmp_path / "run"))


def read_adapter_facts(run: Path, arm: Arm) -> dict[str, Any]:
    return dict(json.loads((run / layout.adapter_path(arm) / "training.json").read_text()))


def read_manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text()))


def test_added_replicate_is_trained(finished_folder: Path) -> None:
    before, now = (read_manifest(finished_folder / name)["files"] for name in ("before", "run"))
    assert before.items() <= now.items()
    arms = [Arm("again", seed) for seed in (13, 21)]
    files = (layout.selection_path, layout.adapter_path, layout.decisions_path)
    assert now.keys() - before.keys() == {file(arm) for arm in arms for file in files}
    verified = verify(finished_folder / "run", [str(finished_folder / "plugin.py")])
    assert (verified.differences, verified.missing) == ([], [])
    assert any("2 replicates have the training sets" in line for line in verified.checked)


def test_replicate_has_same_training_set(finished_folder: Path) -> None:
    run = finished_folder / "run"
    selections = [run / layout.selection_path(arm) for arm in (GAPFT, AGAIN)]
    assert selections[0].read_bytes() == selections[1].read_bytes()
    assert "trained_as" not in read_manifest(run)["training"][AGAIN.name]
    assert "seconds" in read_manifest(run)["training"][AGAIN.name], (
        "a shared adapter has no seconds"
    )


def test_replicate_has_same_bytes_on_cpu(finished_folder: Path) -> None:
    run = finished_folder / "run"
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, AGAIN)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    logs = [(folder / "training_log.jsonl").read_bytes() for folder in folders]
    assert logs[0] == logs[1]
    own = {"condition": "again", "stored": read_adapter_facts(run, AGAIN)["stored"]}
    assert read_adapter_facts(run, AGAIN) == {**read_adapter_facts(run, GAPFT), **own}
    assert own["stored"] != read_adapter_facts(run, GAPFT)["stored"]


def test_report_counts_no_change_for_equal_trainings(finished_folder: Path) -> None:
    run = finished_folder / "run"
    results = json.loads((run / "report/results.json").read_text())
    (entry,) = results["replicates"]
    assert (entry["condition"], entry["original"], entry["n"]) == ("again", "gapft", 80)
    assert [entry[key] for key in ("changed", "lost", "gained", "delta")] == [0] * 4
    assert entry["ci95"] == [0, 0]
    assert [(item["seed"], item["reworded"], item["same_weights"]) for item in entry["seeds"]] == [
        (13, 0, True), (21, 0, True)
    ]  # fmt: skip
    contrasts = {(item["a"], item["b"]): item for item in results["contrasts"]}
    assert contrasts["gapft", "again"]["matched_budget"], "they differ in nothing"
    with (run / "report/tables/replicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["condition"], row["seed"], row["changed"]) for row in rows] == [
        ("again", "13", "0"), ("again", "21", "0")
    ]  # fmt: skip


def test_lost_replicate_is_trained_again(finished_folder: Path, run: Path) -> None:
    before = weights_hash(run / layout.adapter_path(AGAIN))
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=finished_folder)
    assert "trained_as" not in read_manifest(run)["training"][AGAIN.name]
    assert weights_hash(run / layout.adapter_path(AGAIN)) == before
    assert find_differences(finished_folder, run) == []


def test_condition_that_becomes_replicate_is_trained_again(
    finished_folder: Path, run: Path
) -> None:
    shutil.copytree(finished_folder / ".store", run.parent / ".store")
    key = read_adapter_facts(run, GAPFT)["stored"]
    succeed(
        "run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run,
        "--set", "conditions.gapft.replicate=2", cwd=finished_folder,
    )  # fmt: skip
    assert read_adapter_facts(run, GAPFT)["stored"] != key
    assert "seconds" in read_manifest(run)["training"][GAPFT.name]
    assert find_differences(finished_folder, run) == []


# Which conditions are replicates


def build_recipe(**conditions: Any) -> Any:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe({**content, "conditions": {"gapft": {}} | conditions}, "here")


@pytest.mark.parametrize(
    "settings",
    [
        {"selector": "gapft", "replicate": 1},
        {"selector": "gapft", "replicate": 1, "k": 8},  # as the search
        {"selector": "gapft", "replicate": 1, "n": "recovered"},
        {"selector": "gapft", "replicate": 9, "training": {"rank": 8}},
    ],
)
def test_conditions_with_equal_settings_are_replicates(settings: dict[str, Any]) -> None:
    assert build_recipe(again=settings).map_replicates() == {"again": "gapft"}


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
def test_conditions_with_other_settings_are_not_replicates(other: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("number", [-1, 1.5, True, "1"])
def test_rejects_replicate_that_is_not_a_count(number: Any) -> None:
    with pytest.raises(UserError, match=r"conditions\.again\.replicate"):
        build_recipe(again={"selector": "gapft", "replicate": number})


def test_dry_run_names_replicates_and_warns(finished_folder: Path) -> None:
    options = Options(
        str(finished_folder / "recipe.yaml"),
        include_paths=[str(finished_folder / "tasks")],
        plugin_files=[str(finished_folder / "plugin.py")],
        overrides=["conditions.alone={selector: uniform, n: 3, replicate: 2}"],
    )
    output = describe_dry_run(options, str(finished_folder / "nowhere"))
    assert "again (gapft, trains gapft again)" in output
    assert "conditions.alone.replicate" in output.partition("# warnings")[2]
