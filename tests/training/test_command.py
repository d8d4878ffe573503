"""The training of the real command is that of a literal loop; workers share trainings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.stage import build_view
from gapft_harness.stages.train import stage
from gapft_harness.stages.train.stage import list_training_steps
from gapft_harness.training.model import load_base
from gapft_harness.training.plan import build_sequences
from tests.kit.command import succeed
from tests.kit.recording_run import InProcessExecutor
from tests.training.examples import copy_selected
from tests.training.literal import run_literal_training

ARM = "gapft-seed13"
#: The budget follows from the settings of training, so the copies select again.
STAGES = ("--only", "select", "--only", "train")


def train_copy(folder: Path, run: Path, training: dict[str, Any]) -> Path:
    """Train a changed copy of the run without dropout; return its adapter."""
    literal = {"dropout": 0, "learning_rate": 1e-3, "warmup_steps": 0}
    copy_selected(folder, run, training=literal | training)
    succeed("run", run, *STAGES, "--plugin", folder / "plugin.py")
    return run / "adapters" / ARM


def read_log(adapter: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (adapter / "training_log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("training", "dtype", "tolerance"),
    [
        (
            {"micro_batch": 3, "accumulation": 6, "weight_decay": 0.1, "clip_norm": 0.05},
            "float32",
            1e-5,
        ),
        ({"normalization": "sequence_mean"}, "float32", 1e-5),
        ({"padding_free": True, "normalization": "sequence_mean"}, "bfloat16", 0.02),
        ({"normalization": "token_sum"}, "bfloat16", 0.02),
    ],
    ids=str,
)
def test_command_equals_literal_loop(
    selected_letters: Path, tmp_path: Path, training: dict[str, Any], dtype: str, tolerance: float
) -> None:
    """80 exposures in steps of 18: the last step has 8."""
    training = {**training, "dtype": dtype}
    adapter = train_copy(selected_letters, tmp_path / "run", training)
    run = RunDirectory.open(tmp_path / "run")
    settings, log = run.recipe.training, read_log(adapter)
    sequences = {
        s.slot: s
        for s in build_sequences(read_examples(run.file(f"selections/{ARM}.parquet")), settings)
    }
    base = load_base(
        {"pretrained": run.recipe.model.args["pretrained"]},
        settings.model_copy(update={"padding_free": False}),
    )
    steps = [[sequences[slot] for slot in line["examples"]] for line in log]
    assert log[0]["grad_norm"] > training.get("clip_norm", 0), "clipping has something to clip"
    for line, (loss, norm, _) in zip(
        log, run_literal_training(base, steps, settings, 2), strict=True
    ):
        assert line["loss"] == pytest.approx(loss, rel=tolerance)
        assert line["grad_norm"] == pytest.approx(norm, rel=10 * tolerance)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_divides_trainings_among_workers(
    selected_letters: Path, tmp_path: Path, workers: int
) -> None:
    run = RunDirectory.open(
        copy_selected(selected_letters, tmp_path / "run", executor={"workers": workers})
    )
    context = Context(run, InProcessExecutor(), [str(selected_letters / "plugin.py")])
    (step,) = list_training_steps(build_view(context))
    steps = [replace(step, settings={**step.settings, "seed": seed}) for seed in (13, 21, 34)]
    groups = [divided.together for divided in stage.divide_steps(context, steps)]
    assert len(set(groups)) == min(workers, 3)
