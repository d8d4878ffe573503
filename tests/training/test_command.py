"""Invariance through the real command: what a step is cut into, and by whom, changes no loss."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from gapft_harness.files import sha256
from gapft_harness.verify import verify
from tests.command import gapft, succeed
from tests.training.letters import prepare

ARM = "gapft-seed13"


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has come as far as its selections: one arm of 80 exposures."""
    folder = tmp_path_factory.mktemp("command")
    prepare(folder)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content["conditions"], content["seeds"], content["executor"] = ["gapft"], [13], {"workers": 1}
    content["budget"] = {"n": 4}
    content["training"] |= {"dropout": 0, "repetitions": 20, "learning_rate": 1e-3}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    plugin = ("--plugin", "plugin.py")
    succeed(
        "search", "run", "--recipe", "recipe.yaml", "--include-path", "tasks", *plugin, cwd=folder
    )
    for stage in ("states", "select"):
        succeed(stage, "run", *plugin, cwd=folder)
    return folder


def copy_with(selected: Path, target: Path, training: dict[str, Any], **executor: Any) -> Path:
    """A copy of the run whose recipe has other training settings."""
    shutil.copytree(selected / "run", target)
    content = yaml.safe_load((target / "recipe.yaml").read_text())
    content["training"] |= training
    content["executor"] |= executor
    (target / "recipe.yaml").write_text(yaml.safe_dump(content))
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["recipe"] = content
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def train(selected: Path, target: Path, training: dict[str, Any], **executor: Any) -> Path:
    """Trains such a copy by ``gapft train``; its adapter."""
    copy_with(selected, target, training, **executor)
    succeed("train", target, "--plugin", selected / "plugin.py")
    return target / "adapters" / ARM


def log_of(adapter: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (adapter / "training_log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def one_by_sixteen(selected: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("one") / "run"
    return train(selected, target, {"micro_batch": 1, "accumulation": 16})


@pytest.mark.parametrize(
    ("training", "processes"),
    [
        ({"micro_batch": 2, "accumulation": 8}, 1),
        ({"micro_batch": 16, "accumulation": 1}, 1),
        ({"padding_free": True, "max_tokens": 64, "max_length": 64}, 1),
        ({"micro_batch": 2, "accumulation": 8}, 2),
        ({"padding_free": True}, 2),
    ],
    ids=["2x8", "16x1", "unpadded", "2x8 on two", "unpadded on two"],
)
def test_every_cut_of_a_step_trains_the_same(
    selected: Path, one_by_sixteen: Path, tmp_path: Path, training: dict[str, Any], processes: int
) -> None:
    adapter = train(selected, tmp_path / "run", training, processes=processes)
    expected, found = log_of(one_by_sixteen), log_of(adapter)
    assert len(expected) == len(found) == 5
    for one, other in zip(expected, found, strict=True):
        for exact in ("step", "examples", "supervised_tokens", "weight", "learning_rate"):
            assert one[exact] == other[exact]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    one, other = (load_file(a / "adapter_model.safetensors") for a in (one_by_sixteen, adapter))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-5)
    facts = json.loads((adapter / "training.json").read_text())
    assert facts["processes"] == processes
    assert verify(tmp_path / "run", [str(selected / "plugin.py")]).differences == []


def wait_until(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert child.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("processes", [1])
def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(
    selected: Path, tmp_path: Path, processes: int
) -> None:
    """Killed with its workers after a state was kept; dropout and schedule go on as they were."""
    training = {"dropout": 0.1, "schedule": "cosine", "repetitions": 200, "padding_free": True}
    whole = train(selected, tmp_path / "whole", training, processes=processes)
    run = copy_with(selected, tmp_path / "run", training, processes=processes, checkpoint_steps=2)
    checkpoint = run / "adapters" / f".{ARM}.checkpoint"
    command = [sys.executable, "-m", "gapft_harness.cli", "train", str(run), "--plugin"]
    child = subprocess.Popen(
        [*command, str(selected / "plugin.py")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(checkpoint.exists, child)
    family = psutil.Process(child.pid).children(recursive=True)
    child.kill()
    child.wait()
    assert psutil.wait_procs(family, timeout=60)[1] == [], "all end with the command"
    assert not (run / "adapters" / ARM).exists()
    kept = torch.load(checkpoint, weights_only=True)
    done = len(json.loads(kept["log"]))
    assert 2 <= done < 50
    assert done % 2 == 0
    succeed("train", run, "--plugin", selected / "plugin.py")
    assert not checkpoint.exists()
    assert sha256(run / "adapters" / ARM) == sha256(whole)


def test_an_error_of_one_process_of_two_is_told_as_it_is(selected: Path, tmp_path: Path) -> None:
    run = copy_with(selected, tmp_path / "run", {"target_modules": ["q_prog"]}, processes=2)
    done = gapft("train", run, "--plugin", selected / "plugin.py")
    assert done.returncode == 2
    assert "no 'q_prog'; did you mean 'q_proj'?" in done.stderr
    assert "Traceback" not in done.stderr
