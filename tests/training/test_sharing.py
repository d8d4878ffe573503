"""Arms with the same training set are trained once, by the real command, and verified."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.train.stored import map_originals
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.patience import PATIENCE_S
from tests.kit.report_tables import index_rows, read_results
from tests.kit.running_commands import kill_command
from tests.kit.runs import find_differences

#: Two runs that are finished_folder at once.
RUNS = ("first", "second")

GAPFT, SAME, LATER, UNIFORM = (Arm(name, 13) for name in ("gapft", "same", "later", "uniform"))


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run; two of its three conditions have the same selector."""
    folder = tmp_path_factory.mktemp("shared")
    command = prepare_letters_run(folder)
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text())
    # the condition that is named first is trained
    content["conditions"] = {"gapft": {}, "same": {"selector": "gapft"}, "uniform": {}}
    content |= {"seeds": [13, 21], "budget": {"n": 6}}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, "run", cwd=folder)
    return folder


@pytest.fixture
def run(finished_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_folder / "run", tmp_path / "run"))


def read_adapter_facts(run: Path, arm: Arm) -> dict[str, Any]:
    return dict(json.loads((run / layout.adapter_path(arm) / "training.json").read_text()))


def read_training_entry(run: Path, arm: Arm) -> dict[str, Any]:
    """Return the manifest's entry on an adapter."""
    return dict(json.loads((run / "manifest.json").read_text())["training"][arm.name])


@pytest.mark.thorough
def test_same_training_set_is_trained_once(finished_folder: Path) -> None:
    run = finished_folder / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    seeds = (13, 21)
    assert map_originals(RunDirectory.open(run).manifest()) == {
        Arm("same", seed): Arm("gapft", seed) for seed in seeds
    }
    assert "seconds" in manifest["training"][GAPFT.name], "this one was trained"
    assert "seconds" not in manifest["training"][SAME.name], "this one was not"
    assert read_adapter_facts(run, SAME) == {**read_adapter_facts(run, GAPFT), "condition": "same"}
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, SAME)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    tables = [run / layout.decisions_path(arm) for arm in (GAPFT, SAME)]
    assert [*read_judged(tables[0])] == [*read_judged(tables[1])]
    assert read_facts(tables[1])["adapter"]["arm"] == SAME.name
    assert manifest["verdict_counts"][SAME.name] == manifest["verdict_counts"][GAPFT.name]
    verified = verify(run, [str(finished_folder / "plugin.py")])
    assert verified.differences == []
    assert any(line.startswith("2 arms share adapter and") for line in verified.checked)


def test_report_names_shared_trainings(finished_folder: Path) -> None:
    results = read_results(finished_folder / "run")
    conditions = index_rows(results["conditions"], "condition")
    assert conditions["same"]["pass_at_1"] == conditions["gapft"]["pass_at_1"]
    shared = index_rows(results["seeds"], "condition", "seed")
    assert shared["same", 21]["trained_as"] == "gapft-seed21"
    assert shared["gapft", 21]["trained_as"] == ""


def test_added_condition_reuses_adapter(finished_folder: Path, run: Path) -> None:
    before = {
        name: sha256(run / layout.adapter_path(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]
    }
    content = yaml.safe_load((finished_folder / "recipe.yaml").read_text())
    content["conditions"] = {"later": {"selector": "gapft"}, **content["conditions"]}
    recipe = run.with_name("later.yaml")
    recipe.write_text(yaml.safe_dump(content))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run)
    entries = json.loads((run / "manifest.json").read_text())["training"]
    succeed("run", recipe, *arguments, cwd=finished_folder)
    assert read_training_entry(run, LATER)["trained_as"] == GAPFT.name
    kept = json.loads((run / "manifest.json").read_text())["training"]
    assert {arm: kept[arm] for arm in entries} == entries, "measured seconds are kept"
    now = {
        name: sha256(run / layout.adapter_path(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]
    }
    assert now == before
    assert find_differences(finished_folder, run) == []


@pytest.mark.parametrize("changed", ["adapter_model.safetensors", "index.json", "made_from.json"])
def test_rejects_edited_adapter_in_store(finished_folder: Path, run: Path, changed: str) -> None:
    shutil.copytree(finished_folder / ".store", run.parent / ".store")
    stored = run.parent / ".store" / read_adapter_facts(run, GAPFT)["stored"]
    index = json.loads((stored / "index.json").read_text())["files"]
    file = stored / index.get(changed, changed)
    file.chmod(0o644)
    text = file.read_bytes()
    file.write_bytes(text[:-9] + bytes([text[-9] ^ 1]) + text[-8:])
    shutil.rmtree(run / layout.adapter_path(SAME))
    shutil.rmtree(run / layout.adapter_path(GAPFT))
    done = gapft("run", run, "--only", "train", "--plugin", "plugin.py", cwd=finished_folder)
    assert done.returncode == 2
    assert str(file) in "".join(done.stderr.split("\n")), done.stderr
    assert not (run / layout.adapter_path(GAPFT)).exists()


@pytest.mark.thorough
def test_other_run_reuses_adapters_and_decisions(finished_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_folder, tmp_path / "moved")
    folder = tmp_path / "moved"
    shutil.rmtree(folder / "run")
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(finished_folder), str(folder)))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", "other")
    done = succeed("run", "recipe.yaml", *arguments, cwd=folder)
    assert "train: 4 reused from run" in " ".join((done.stdout + done.stderr).split())
    for arm in (GAPFT, SAME, UNIFORM):
        assert weights_hash(folder / "other" / layout.adapter_path(arm)) == weights_hash(
            finished_folder / "run" / layout.adapter_path(arm)
        )
        config = folder / "other" / layout.adapter_path(arm) / "adapter_config.json"
        assert json.loads(config.read_text())["base_model_name_or_path"] == str(folder / "model")
        reused, original = (
            read_judged(path / layout.decisions_path(arm))
            for path in (finished_folder / "run", folder / "other")
        )
        assert [*reused] == [*original]
    manifest = json.loads((folder / "other/manifest.json").read_text())
    assert not any("seconds" in entry for entry in manifest["training"].values())
    assert manifest["training"][GAPFT.name]["reused"] == str(finished_folder / "run")
    assert find_differences(folder, folder / "other") == []


def start_run(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a complete run in a folder, in the background."""
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml"]
    command += ["--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", name]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kills_first", [False, True])
def test_parallel_runs_train_each_adapter_once(
    finished_folder: Path, tmp_path: Path, kills_first: bool
) -> None:
    folder = Path(
        shutil.copytree(finished_folder, tmp_path / "folder", ignore=shutil.ignore_patterns("run"))
    )
    shutil.rmtree(folder / ".store/train")
    first, second = start_run(folder, "first"), start_run(folder, "second")
    if kills_first:
        deadline = time.monotonic() + PATIENCE_S
        while not [*folder.glob(".store/train/*/.index.json.lock")]:
            assert first.poll() is None, "the first run ended before it trained"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_command(first)
    assert second.wait(600) == 0
    assert first.wait(600) == (-signal.SIGKILL if kills_first else 0)
    if kills_first:
        again = start_run(folder, "first")
        assert again.wait(600) == 0
    manifests = {name: json.loads((folder / name / "manifest.json").read_text()) for name in RUNS}
    trained = [
        arm
        for manifest in manifests.values()
        for arm, entry in manifest["training"].items()
        if "seconds" in entry
    ]
    assert len(trained) == len(set(trained)) <= 4, "two of six arms share an adapter"
    assert kills_first or len(trained) == 4
    for arm in (GAPFT, SAME, UNIFORM):
        hashes = {weights_hash(folder / name / layout.adapter_path(arm)) for name in RUNS}
        assert hashes == {weights_hash(finished_folder / "run" / layout.adapter_path(arm))}
    for name in RUNS:
        assert find_differences(folder, folder / name) == []
