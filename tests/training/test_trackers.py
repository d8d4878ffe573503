"""A tracker in the real command: logged values, unchanged adapters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from gapft_harness.core.files import sha256
from gapft_harness.engine.store import STORE_VARIABLE
from gapft_harness.stages.verify.run import verify
from tests.kit.command import succeed
from tests.kit.records import change_recipe
from tests.training.examples import select_letters

ARM = "gapft-seed13"
VALUES = ("loss", "grad_norm", "learning_rate")


def train(folder: Path, name: str, tracker: str | None) -> Path:
    """Copy the selected run, and train its arm with a store of its own."""
    run = Path(shutil.copytree(folder / "run", folder / name))
    change_recipe(run, lambda recipe: recipe.update(tracker=tracker))
    store = {STORE_VARIABLE: str(folder / f"store of {name}")}
    succeed("run", run, "--only", "train", "--plugin", folder / "plugin.py", env=store)
    return run


def test_tensorboard_keeps_every_step_and_changes_no_adapter(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    select_letters(tmp_path, warmup_steps=2)
    run = train(tmp_path, "board", "tensorboard")
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
    assert verify(run, [str(tmp_path / "plugin.py")]).differences == []
    alone = train(tmp_path, "alone", None)
    assert sha256(run / "adapters" / ARM) == sha256(alone / "adapters" / ARM)
    assert not (alone / "tracking").exists()
