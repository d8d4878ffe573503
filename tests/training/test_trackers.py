"""Trackers of a training: logged values, unchanged adapters, and their end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from accelerate import tracking

from gapft_harness.core.files import sha256
from gapft_harness.engine.store import STORE_VARIABLE
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_train_stage
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import InProcessExecutor
from tests.training.examples import copy_selected

ARM = "gapft-seed13"
VALUES = ("loss", "grad_norm", "learning_rate")


def train_here(folder: Path, run: Path) -> None:
    """Train the arm of a copied run in this process."""
    plugins = [str(folder / "plugin.py")]
    run_train_stage(Context(RunDirectory.open(run), InProcessExecutor(), plugins))


def test_tensorboard_keeps_every_step_and_changes_no_adapter(
    selected_letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, alone = (
        copy_selected(selected_letters, tmp_path / name, tracker=tracker)
        for name, tracker in (("board", "tensorboard"), ("alone", None))
    )
    for copy in (run, alone):
        monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / f"store of {copy.name}"))
        train_here(selected_letters, copy)
    events = EventAccumulator(str(run / "tracking" / ARM))
    events.Reload()
    lines = (run / "adapters" / ARM / "training_log.jsonl").read_text().splitlines()
    log = [json.loads(line) for line in lines]
    assert len(log) == 5
    assert set(events.Tags()["scalars"]) == set(VALUES)
    for name in VALUES:
        scalars = [(event.step, event.value) for event in events.Scalars(name)]
        assert scalars == [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in log]
    (written,) = (run / "tracking").rglob("hparams.yml")
    assert yaml.safe_load(written.read_text())["target_modules"].startswith("['q_proj', 'k_proj'")
    assert verify(run, [str(selected_letters / "plugin.py")]).differences == []
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
    selected_letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs at its end must not lose the adapter; it also ends if training fails."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", FakeTracker)
    run = copy_selected(selected_letters, tmp_path / "stops", tracker="tensorboard")
    with pytest.raises(RuntimeError, match="the disk is full"):
        train_here(selected_letters, run)
    assert (run / "tracking" / "calls").read_text() == "8 1 2 3 False"
    run = copy_selected(selected_letters, tmp_path / "ended", tracker="tensorboard")
    train_here(selected_letters, run)
    assert (run / "tracking" / "calls").read_text() == "8 1 2 3 4 5 True"
