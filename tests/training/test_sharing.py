"""Arms with the same training set are trained once, by the real command, and verified."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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
from tests.kit.report_tables import index_rows, read_results
from tests.kit.runs import BaseRun, find_differences

#: Two runs that are made at once.
RUNS = ("first", "second")

GAPFT, SHARED, SAME, UNIFORM = (Arm(name, 13) for name in ("gapft", "shared", "same", "uniform"))


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


def test_same_training_set_is_trained_once(run_at: Callable[..., BaseRun]) -> None:
    """In the base run, the condition ``shared`` has the selector of ``gapft``."""
    base = run_at("reported")
    directory = RunDirectory.open(base.path)
    training = read_training(directory)
    assert {arm: facts.get("trained_as") for arm, facts in training.items()} == {
        "shared-seed13": "gapft-seed13",
        **{f"{name}-seed13": None for name in ("gapft", "uniform", "drawn", "repeated")},
    }
    folders = [base.path / layout.adapter_path(arm) for arm in (GAPFT, SHARED)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    own, shared = (base.path / layout.decisions_path(arm) for arm in (GAPFT, SHARED))
    assert [*read_judged(own)] == [*read_judged(shared)]
    decodes = read_decodes(directory)
    assert decodes[SHARED.name] == decodes[GAPFT.name], "they name no arm"
    verified = verify(base.path, base.plugins)
    assert verified.differences == []
    assert any(line.startswith("1 arms share adapter and") for line in verified.checked)
    seeds = index_rows(read_results(base.path)["seeds"], "condition", "seed")
    assert seeds["shared", 13]["trained_as"] == "gapft-seed13"
    assert seeds["gapft", 13]["trained_as"] == ""


@pytest.mark.thorough
def test_parallel_runs_train_each_adapter_once(finished_folder: Path, tmp_path: Path) -> None:
    """That a killed run does not stop another one of its store, laws/test_resume.py holds."""
    folder = Path(
        shutil.copytree(finished_folder, tmp_path / "folder", ignore=shutil.ignore_patterns("run"))
    )
    shutil.rmtree(folder / ".store/train")
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml"]
    command += ["--include-path", "tasks", "--plugin", "plugin.py", "--run-dir"]
    processes = [
        subprocess.Popen([*command, name], cwd=folder, stdout=subprocess.DEVNULL) for name in RUNS
    ]
    assert [process.wait(600) for process in processes] == [0, 0]
    stored = [*folder.glob(".store/train/*/made_from.json")]
    assert len(stored) == 4, "two of six arms share an adapter"
    trained = [read_training(RunDirectory.open(folder / name)) for name in RUNS]
    seconds = [facts[GAPFT.name]["seconds"] for facts in trained]
    assert seconds[0] == seconds[1], "it was trained once"
    for arm in (GAPFT, SAME, UNIFORM):
        hashes = {weights_hash(folder / name / layout.adapter_path(arm)) for name in RUNS}
        assert hashes == {weights_hash(finished_folder / "run" / layout.adapter_path(arm))}
    for name in RUNS:
        assert find_differences(folder, folder / name) == []
