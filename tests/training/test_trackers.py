"""Trackers in the real command: logged values, unchanged adapters."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate import tracking

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.engine.store import STORE_VARIABLE
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_train_stage
from gapft_harness.stages.train import requirements
from gapft_harness.stages.verify.run import verify
from tests.kit.command import succeed
from tests.kit.recording_run import InProcessExecutor
from tests.kit.records import change_recipe
from tests.training.examples import select_letters

ARM = "gapft-seed13"
VALUES = ("loss", "grad_norm", "learning_rate")


@pytest.fixture(autouse=True)
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty store in each test, so that every adapter is trained and tracked."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store of its own"))


@pytest.fixture(scope="module")
def selected_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run stopped after selection: one arm of 5 steps."""
    return select_letters(tmp_path_factory.mktemp("trackers"), warmup_steps=2)


def copy_run_with(selected_run: Path, name: str, tracker: str | None) -> Path:
    """Copy the run with a tracker in its recipe."""
    run = selected_run / name
    shutil.copytree(selected_run / "run", run)
    change_recipe(run, lambda recipe: recipe.update(tracker=tracker))
    return run


def train(selected_run: Path, name: str, tracker: str | None, **environment: str) -> Path:
    """Train the arm of a copied run by the real command."""
    run = copy_run_with(selected_run, name, tracker)
    plugin = str(selected_run / "plugin.py")
    succeed("run", run, "--only", "train", "--plugin", plugin, env=environment)
    return run


def train_here(selected_run: Path, run: Path) -> None:
    """Train the arm in this process."""
    plugins = [str(selected_run / "plugin.py")]
    run_train_stage(Context(RunDirectory.open(run), InProcessExecutor(), plugins))


def read_training_log(run: Path) -> list[dict[str, Any]]:
    lines = (run / "adapters" / ARM / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_tensorboard_keeps_every_step(selected_run: Path) -> None:
    """It does not change the adapter."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(selected_run, "board", "tensorboard")
    events = EventAccumulator(str(run / "tracking" / ARM))
    events.Reload()
    log = read_training_log(run)
    assert len(log) == 5
    assert set(events.Tags()["scalars"]) == set(VALUES)
    for name in VALUES:
        scalars = [(event.step, event.value) for event in events.Scalars(name)]
        assert scalars == [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in log]
    (written,) = (run / "tracking").rglob("hparams.yml")
    assert yaml.safe_load(written.read_text())["target_modules"].startswith("['q_proj', 'k_proj'")
    assert verify(run, [str(selected_run / "plugin.py")]).differences == []
    alone = copy_run_with(selected_run, "alone", None)
    shutil.rmtree(Path(os.environ[STORE_VARIABLE]) / "train")
    train_here(selected_run, alone)
    assert sha256(run / "adapters" / ARM) == sha256(alone / "adapters" / ARM)
    assert not (alone / "tracking").exists()


class FakeTracker:
    """Notes its calls and whether the adapter is complete at the end."""

    def __init__(self, run_name: str, logging_dir: Path) -> None:
        self.file = logging_dir / "calls"

    def start(self) -> None:
        self.file.write_text("")

    def store_init_configuration(self, settings: dict[str, str]) -> None:
        self.note(settings["rank"])

    def log(self, values: dict[str, float], step: int) -> None:
        self.note(step)
        if "stops" in str(self.file) and step == 3:
            raise RuntimeError("the disk is full")

    def finish(self) -> None:
        self.note(any(Path(os.environ[STORE_VARIABLE]).rglob("training.json")))

    def note(self, value: object) -> None:
        self.file.write_text(f"{self.file.read_text()} {value}".strip())


def test_tracker_finishes_after_adapter_is_written(
    selected_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs at its end must not lose the adapter; it also ends if training fails."""
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", FakeTracker)
    run = copy_run_with(selected_run, "stops", "tensorboard")
    with pytest.raises(RuntimeError, match="the disk is full"):
        train_here(selected_run, run)
    assert (run / "tracking" / "calls").read_text() == "8 1 2 3 False"
    run = copy_run_with(selected_run, "ended", "tensorboard")
    train_here(selected_run, run)
    assert (run / "tracking" / "calls").read_text() == "8 1 2 3 4 5 True"


def test_refuses_missing_package_before_search(
    selected_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(copy_run_with(selected_run, "x", "wandb") / "recipe.yaml")
    monkeypatch.setattr(requirements, "find_version", lambda package: None)
    with pytest.raises(UserError, match=r"wandb is not installed; .*gapft-harness\[trackers\]"):
        requirements.check_packages(recipe, load_plugins())
