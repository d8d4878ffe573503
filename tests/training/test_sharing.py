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

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_decodes, read_training
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.verify.run import verify
from tests.kit.command import succeed
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
    """Return the facts on an adapter."""
    return read_training(RunDirectory.open(run))[arm.name]


@pytest.mark.thorough
def test_same_training_set_is_trained_once(finished_folder: Path) -> None:
    run = finished_folder / "run"
    training = read_training(RunDirectory.open(run))
    seeds = (13, 21)
    trained_as = {arm: facts.get("trained_as") for arm, facts in training.items()}
    assert trained_as == {
        **{f"same-seed{seed}": f"gapft-seed{seed}" for seed in seeds},
        **{f"{name}-seed{seed}": None for name in ("gapft", "uniform") for seed in seeds},
    }
    assert "seconds" in training[GAPFT.name], "this one was trained"
    assert "seconds" not in training[SAME.name], "this one was not"
    assert read_adapter_facts(run, SAME) == read_adapter_facts(run, GAPFT)
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, SAME)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    tables = [run / layout.decisions_path(arm) for arm in (GAPFT, SAME)]
    assert [*read_judged(tables[0])] == [*read_judged(tables[1])]
    decodes = read_decodes(RunDirectory.open(run))
    assert decodes[SAME.name] == decodes[GAPFT.name], "they name no arm"
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
        while not [*folder.glob(".store/train/.*.lock")]:
            assert first.poll() is None, "the first run ended before it trained"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_command(first)
    assert second.wait(600) == 0
    assert first.wait(600) == (-signal.SIGKILL if kills_first else 0)
    if kills_first:
        again = start_run(folder, "first")
        assert again.wait(600) == 0
    stored = [*folder.glob(".store/train/*/made_from.json")]
    assert len(stored) == 4, "two of six arms share an adapter"
    seconds = [read_training_entry(folder / name, GAPFT)["seconds"] for name in RUNS]
    assert seconds[0] == seconds[1], "it was trained once"
    for arm in (GAPFT, SAME, UNIFORM):
        hashes = {weights_hash(folder / name / layout.adapter_path(arm)) for name in RUNS}
        assert hashes == {weights_hash(finished_folder / "run" / layout.adapter_path(arm))}
    for name in RUNS:
        assert find_differences(folder, folder / name) == []
