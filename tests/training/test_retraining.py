"""A training that is repeated with the same data, settings and seeds, by the real command."""

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
from tests.verify.tampering import change_facts, change_manifest, find_differences, seal_again

GAPFT, AGAIN, UNIFORM = (Arm(name, 13) for name in ("gapft", "again", "uniform"))
CONDITIONS: dict[str, Any] = {"gapft": {}, "uniform": {}}
REPLICATE = {"again": {"selector": "gapft", "replicate": 1}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two conditions, to which a replicate was added later."""
    folder = tmp_path_factory.mktemp("retrained")
    command = [*prepare(folder), "run"]
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text()) | {"budget": {"n": 6}, "executor": {"workers": 1}}
    content |= {"conditions": CONDITIONS, "seeds": [13, 21]}
    content["training"] |= {"accumulation": 1, "learning_rate": 0.02}  # several steps, large ones
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    shutil.copytree(folder / "run", folder / "before")
    # named first: what is there already is not trained again
    content["conditions"] = REPLICATE | CONDITIONS
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    succeed(*command, cwd=folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


def facts(run: Path, arm: Arm) -> dict[str, Any]:
    return dict(json.loads((run / layout.adapter_path(arm) / "training.json").read_text()))


def manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text()))


def test_a_finished_run_keeps_what_it_has_and_trains_the_replicate(made: Path) -> None:
    before, now = (manifest(made / name)["files"] for name in ("before", "run"))
    assert before.items() <= now.items()
    arms = [Arm("again", seed) for seed in (13, 21)]
    files = (layout.selection_path, layout.adapter_path, layout.decisions_path)
    assert now.keys() - before.keys() == {file(arm) for arm in arms for file in files}
    found = verify(made / "run", [str(made / "plugin.py")])
    assert (found.differences, found.missing) == ([], [])
    assert any("2 replicates have the training sets" in line for line in found.checked)


def test_a_replicate_has_the_same_training_set_and_is_trained(made: Path) -> None:
    run = made / "run"
    selections = [run / layout.selection_path(arm) for arm in (GAPFT, AGAIN)]
    assert selections[0].read_bytes() == selections[1].read_bytes()
    assert "trained_as" not in manifest(run)["training"][AGAIN.name]
    assert "seconds" in manifest(run)["training"][AGAIN.name], "an adapter that is shared has none"


def test_on_a_cpu_a_replicate_repeats_to_the_byte(made: Path) -> None:
    run = made / "run"
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, AGAIN)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    logs = [(folder / "training_log.jsonl").read_bytes() for folder in folders]
    assert logs[0] == logs[1]
    own = {"condition": "again", "stored": facts(run, AGAIN)["stored"]}
    assert facts(run, AGAIN) == {**facts(run, GAPFT), **own}
    assert own["stored"] != facts(run, GAPFT)["stored"]


def test_the_report_counts_no_change_where_training_repeats(made: Path) -> None:
    run = made / "run"
    results = json.loads((run / "report/results.json").read_text())
    (found,) = results["replicates"]
    assert (found["condition"], found["original"], found["n"]) == ("again", "gapft", 80)
    assert [found[key] for key in ("changed", "lost", "gained", "delta")] == [0] * 4
    assert found["ci95"] == [0, 0]
    assert [(of["seed"], of["reworded"], of["same_weights"]) for of in found["seeds"]] == [
        (13, 0, True), (21, 0, True)
    ]  # fmt: skip
    contrasts = {(of["a"], of["b"]): of for of in results["contrasts"]}
    assert contrasts["gapft", "again"]["matched_budget"], "they differ in nothing"
    with (run / "report/tables/replicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["condition"], row["seed"], row["changed"]) for row in rows] == [
        ("again", "13", "0"), ("again", "21", "0")
    ]  # fmt: skip


def test_one_that_was_lost_is_trained_again(made: Path, run: Path) -> None:
    before = weights_hash(run / layout.adapter_path(AGAIN))
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made)
    assert "trained_as" not in manifest(run)["training"][AGAIN.name]
    assert weights_hash(run / layout.adapter_path(AGAIN)) == before
    assert find_differences(made, run) == []


def test_a_condition_that_becomes_a_replicate_is_trained_again(made: Path, run: Path) -> None:
    shutil.copytree(made / ".store", run.parent / ".store")
    key = facts(run, GAPFT)["stored"]
    succeed(
        "run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run,
        "--set", "conditions.gapft.replicate=2", cwd=made,
    )  # fmt: skip
    assert facts(run, GAPFT)["stored"] != key
    assert "seconds" in manifest(run)["training"][GAPFT.name]
    assert find_differences(made, run) == []


# What gapft verify finds


def other_training_set(run: Path) -> None:
    """The whole arm of another condition under the replicate's name, sealed again."""
    for file in (layout.selection_path, layout.adapter_path, layout.decisions_path):
        source, target = run / file(UNIFORM), run / file(AGAIN)
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        seal_again(run, file(AGAIN))
    change_manifest(run, lambda m: m["training"].update({AGAIN.name: m["training"][UNIFORM.name]}))
    change_facts(run, AGAIN.name, lambda said: said.update(condition="again"))


def shared_adapter(run: Path) -> None:
    """The replicate says that it has the adapter of the arm that it repeats."""
    key = facts(run, GAPFT)["stored"]
    change_facts(run, AGAIN.name, lambda said: said.update(stored=key))
    change_manifest(run, lambda m: m["training"][AGAIN.name].update(trained_as=GAPFT.name))


def copied_folder(run: Path) -> None:
    """The folder of the arm that it repeats, with nothing changed."""
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    shutil.copytree(run / layout.adapter_path(GAPFT), run / layout.adapter_path(AGAIN))
    seal_again(run, layout.adapter_path(AGAIN))


def another_seed(run: Path) -> None:
    """A training under another seed, which is no replicate."""
    shutil.rmtree(run / layout.adapter_path(AGAIN))
    shutil.copytree(run / layout.adapter_path(Arm("gapft", 21)), run / layout.adapter_path(AGAIN))
    seal_again(run, layout.adapter_path(AGAIN))
    change_manifest(
        run, lambda m: m["training"].update({AGAIN.name: m["training"]["gapft-seed21"]})
    )
    change_facts(run, AGAIN.name, lambda said: said.update(condition="again", seed=13))


@pytest.mark.parametrize(
    ("forge", "place", "expected"),
    [
        (other_training_set, layout.selection_path(AGAIN), f"repeats the training of {GAPFT.name}"),
        (shared_adapter, layout.adapter_path(AGAIN), "its key is"),
        (copied_folder, layout.adapter_path(AGAIN), "condition"),
        (another_seed, layout.adapter_path(AGAIN), "plan_sha256"),
    ],
)
def test_a_forged_replicate_is_found(
    made: Path, run: Path, forge: Callable[[Path], None], place: str, expected: str
) -> None:
    forge(run)
    found = find_differences(made, run)
    assert any(line.startswith(place) and expected in line for line in found), found


# Which conditions repeat which


def recipe_of(**conditions: Any) -> Any:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe({**content, "conditions": {"gapft": {}} | conditions}, "here")


@pytest.mark.parametrize(
    "said",
    [
        {"selector": "gapft", "replicate": 1},
        {"selector": "gapft", "replicate": 1, "k": 8},  # as the search
        {"selector": "gapft", "replicate": 1, "n": "recovered"},
        {"selector": "gapft", "replicate": 9, "training": {"rank": 8}},
    ],
)
def test_conditions_that_differ_in_the_key_alone_are_replicates(said: dict[str, Any]) -> None:
    assert recipe_of(again=said).replicates() == {"again": "gapft"}


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
def test_conditions_that_differ_in_anything_else_are_not(other: dict[str, Any]) -> None:
    recipe = recipe_of(again={"selector": "gapft", "replicate": 1} | other)
    assert recipe.replicates() == {}


def test_all_replicates_repeat_the_one_of_the_lowest_number() -> None:
    recipe = recipe_of(
        third={"selector": "gapft", "replicate": 2},
        second={"selector": "gapft", "replicate": 1},
        same={"selector": "gapft"},
        lone={"selector": "uniform", "replicate": 3},
        late={"selector": "uniform", "replicate": 4},
    )
    assert recipe.replicates() == {"second": "gapft", "third": "gapft", "late": "lone"}


def test_sets_of_another_run_may_be_trained_on_twice() -> None:
    def of(run: str) -> dict[str, Any]:
        return {"selector": "training_set", "params": {"run": run, "condition": "gold"}}

    recipe = recipe_of(
        theirs=of("runs/a"),
        gold=of("runs/a") | {"replicate": 1},
        other=of("runs/b") | {"replicate": 1},
    )
    assert recipe.replicates() == {"gold": "theirs"}


@pytest.mark.parametrize("number", [-1, 1.5, True, "1"])
def test_a_replicate_is_a_whole_number(number: Any) -> None:
    with pytest.raises(UserError, match=r"conditions\.again\.replicate"):
        recipe_of(again={"selector": "gapft", "replicate": number})


def test_the_dry_run_names_what_is_repeated_and_what_repeats_nothing(made: Path) -> None:
    options = Options(
        str(made / "recipe.yaml"),
        include_paths=[str(made / "tasks")],
        plugin_files=[str(made / "plugin.py")],
        overrides=["conditions.alone={selector: uniform, n: 3, replicate: 2}"],
    )
    said = describe_dry_run(options, str(made / "nowhere"))
    assert "again (gapft, trains gapft again)" in said
    assert "conditions.alone.replicate" in said.partition("# warnings")[2]
