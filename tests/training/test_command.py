"""Invariance of the real command: dividing a step does not change its loss."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.verify.run import verify
from gapft_harness.training.model import load_base
from gapft_harness.training.plan import build_sequences
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.records import change_recipe, read_records
from tests.training.examples import assert_same_weights
from tests.training.literal import run_literal_training

ARM = "gapft-seed13"
#: The budget follows from the settings of training, so the copies select again.
STAGES = ("--only", "select", "--only", "train")


@pytest.fixture(scope="module")
def selected_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run stopped after selection: one arm of 80 exposures."""
    folder = tmp_path_factory.mktemp("command")
    prepare_letters_run(folder)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content["conditions"], content["seeds"], content["executor"] = ["gapft"], [13], {"workers": 1}
    content["budget"] = {"n": 4}
    content["training"] |= {"dropout": 0, "repetitions": 20, "learning_rate": 1e-3}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    plugin = ("--plugin", "plugin.py")
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *plugin),
        *("--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
    return folder


def copy_run_with(
    selected_run: Path, target: Path, training: dict[str, Any], **executor: Any
) -> Path:
    """Copy the run with changed training settings."""
    shutil.copytree(selected_run / "run", target)

    def change(recipe: dict[str, Any]) -> None:
        recipe["training"] |= training
        recipe["executor"] |= executor

    change_recipe(target, change)
    return target


def train_copy(selected_run: Path, target: Path, training: dict[str, Any], **executor: Any) -> Path:
    """Train a changed copy; return its adapter."""
    copy_run_with(selected_run, target, training, **executor)
    succeed("run", target, *STAGES, "--plugin", selected_run / "plugin.py")
    return target / "adapters" / ARM


def read_log(adapter: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (adapter / "training_log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def reference_adapter(selected_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("one") / "run"
    return train_copy(selected_run, target, {"micro_batch": 1, "accumulation": 16})


@pytest.mark.parametrize(
    "training",
    [
        {"micro_batch": 2, "accumulation": 8},
        {"micro_batch": 16, "accumulation": 1},
        {"padding_free": True, "max_tokens": 64, "max_length": 64},
    ],
    ids=["2x8", "16x1", "unpadded"],
)
def test_step_division_does_not_change_training(
    selected_run: Path,
    reference_adapter: Path,
    tmp_path: Path,
    training: dict[str, Any],
) -> None:
    adapter = train_copy(selected_run, tmp_path / "run", training)
    assert_same_training(reference_adapter, adapter)
    assert verify(tmp_path / "run", [str(selected_run / "plugin.py")]).differences == []


def assert_same_training(expected: Path, actual: Path) -> None:
    """Assert that two adapters of the same plan are equal up to float32 rounding."""
    logs = read_log(expected), read_log(actual)
    assert len(logs[0]) == len(logs[1]) == 5
    for line, other_line in zip(*logs, strict=True):
        for key in ("step", "examples", "supervised_tokens", "weight", "learning_rate"):
            assert line[key] == other_line[key]
        assert line["loss"] == pytest.approx(other_line["loss"], rel=1e-5)
        assert line["grad_norm"] == pytest.approx(other_line["grad_norm"], rel=1e-4)
    assert_same_weights(expected, actual)


@pytest.mark.parametrize(
    ("training", "dtype", "tolerance"),
    [
        (
            {"micro_batch": 3, "accumulation": 6, "weight_decay": 0.1, "clip_norm": 0.05},
            "float32",
            1e-5,
        ),
        ({"padding_free": True, "micro_batch": 3, "accumulation": 6}, "float32", 1e-5),
        ({"normalization": "sequence_mean"}, "float32", 1e-5),
        ({"padding_free": True, "normalization": "sequence_mean"}, "bfloat16", 0.02),
        ({}, "bfloat16", 0.02),
    ],
    ids=str,
)
def test_command_equals_literal_loop(
    selected_run: Path, tmp_path: Path, training: dict[str, Any], dtype: str, tolerance: float
) -> None:
    """80 exposures in steps of 18: the last step has 8."""
    training = {**training, "dtype": dtype}
    adapter = train_copy(selected_run, tmp_path / "run", training)
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


@pytest.mark.parametrize(("module", "near"), [("q_prog", "q_proj"), ("mlp", "mlp")])
def test_rejects_unsuitable_target_module(
    selected_run: Path, tmp_path: Path, module: str, near: str
) -> None:
    """An unknown one, and one that LoRA cannot adapt."""
    run = copy_run_with(selected_run, tmp_path / "run", {"target_modules": [module]})
    done = gapft("run", run, "--only", "train", "--plugin", selected_run / "plugin.py")
    assert done.returncode == 2
    assert f"'{module}'" in done.stderr
    assert f"'{near}'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("without", [True, False], ids=["no training.json", "weights cut"])
def test_replaces_incomplete_adapter(
    selected_run: Path, reference_adapter: Path, tmp_path: Path, without: bool
) -> None:
    """An interrupted copy leaves such a folder, which the run has no record of."""
    training = {"micro_batch": 1, "accumulation": 16}
    run = copy_run_with(selected_run, tmp_path / "run", training)
    folder = run / "adapters" / ARM
    shutil.copytree(reference_adapter, folder)
    lost = folder / ("training.json" if without else "adapter_model.safetensors")
    lost.unlink()
    if not without:
        lost.write_bytes((reference_adapter / lost.name).read_bytes()[:100])
    succeed("run", run, *STAGES, "--plugin", selected_run / "plugin.py")
    assert (folder / "training.json").exists()
    assert_same_training(reference_adapter, folder)
    assert f"adapters/{ARM}" in read_records(run)
