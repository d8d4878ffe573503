"""Invariance through the real command: what a step is cut into, and by whom, changes no loss."""

from __future__ import annotations

import json
import os
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

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.context import Context
from gapft_harness.stages.train import stage
from gapft_harness.stages.train.job import train_arms
from gapft_harness.stages.verify.run import verify
from gapft_harness.store.store import STORE_VARIABLE
from gapft_harness.training import lora
from gapft_harness.training.model import load_base
from gapft_harness.training.plan import build_sequences
from tests.command import gapft, succeed
from tests.recording_run import Here
from tests.training.examples import same_weights
from tests.training.letters import prepare
from tests.training.literal import literal_training

pytestmark = pytest.mark.xdist_group("train_command")

ARM = "gapft-seed13"

#: A command that takes longer does not end: the test fails, and waits for nothing.
TIMEOUT_S = 300


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
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *plugin),
        *("--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
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
    """Trains such a copy by ``--only train``; its adapter."""
    copy_with(selected, target, training, **executor)
    succeed("run", target, "--only", "train", "--plugin", selected / "plugin.py", timeout=TIMEOUT_S)
    return target / "adapters" / ARM


def log_of(adapter: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (adapter / "training_log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def one_by_sixteen(selected: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("one") / "run"
    return train(selected, target, {"micro_batch": 1, "accumulation": 16})


@pytest.mark.parametrize(
    ("training", "executor"),
    [
        ({"micro_batch": 2, "accumulation": 8}, {}),
        ({"micro_batch": 16, "accumulation": 1}, {}),
        ({"padding_free": True, "max_tokens": 64, "max_length": 64}, {}),
        ({"micro_batch": 2, "accumulation": 8}, {"processes": 2}),
        ({"gradient_checkpointing": True}, {"processes": 2, "fsdp": True}),
    ],
    ids=["2x8", "16x1", "unpadded", "2x8 on two", "2x8, base shared out"],
)
def test_every_cut_of_a_step_trains_the_same(
    selected: Path,
    one_by_sixteen: Path,
    tmp_path: Path,
    training: dict[str, Any],
    executor: dict[str, Any],
) -> None:
    adapter = train(selected, tmp_path / "run", training, **executor)
    assert_same(one_by_sixteen, adapter)
    facts = json.loads((adapter / "training.json").read_text())
    assert facts["processes"] == executor.get("processes", 1)
    assert facts.get("fsdp", False) == executor.get("fsdp", False)
    assert verify(tmp_path / "run", [str(selected / "plugin.py")]).differences == []


def assert_same(expected: Path, found: Path) -> None:
    """Asserts that two adapters of the same plan are equal but for rounding in float32."""
    logs = log_of(expected), log_of(found)
    assert len(logs[0]) == len(logs[1]) == 5
    for one, other in zip(*logs, strict=True):
        for exact in ("step", "examples", "supervised_tokens", "weight", "learning_rate"):
            assert one[exact] == other[exact]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    same_weights(expected, found)


@pytest.mark.parametrize(
    ("training", "dtype", "tolerance"),
    [
        ({"micro_batch": 3, "accumulation": 6}, "float32", 1e-5),
        ({"padding_free": True, "micro_batch": 3, "accumulation": 6}, "float32", 1e-5),
        ({"normalization": "sequence_mean"}, "float32", 1e-5),
        ({"padding_free": True, "normalization": "sequence_mean"}, "bfloat16", 0.02),
        ({}, "bfloat16", 0.02),
    ],
    ids=str,
)
def test_the_command_trains_as_a_literal_loop_does(
    selected: Path, tmp_path: Path, training: dict[str, Any], dtype: str, tolerance: float
) -> None:
    """Of 80 exposures in steps of 18 the last has 8."""
    training = {**training, "dtype": dtype}
    adapter = train(selected, tmp_path / "run", training)
    run = RunDirectory.open(tmp_path / "run")
    settings, log = run.recipe.training, log_of(adapter)
    fitted = {
        s.slot: s
        for s in build_sequences(read_examples(run.sealed(f"selections/{ARM}.parquet")), settings)
    }
    base = load_base(
        {"pretrained": run.recipe.model.args["pretrained"]},
        settings.model_copy(update={"padding_free": False}),
    )
    steps = [[fitted[slot] for slot in line["examples"]] for line in log]
    for line, (loss, norm, _) in zip(log, literal_training(base, steps, settings, 2), strict=True):
        assert line["loss"] == pytest.approx(loss, rel=tolerance)
        assert line["grad_norm"] == pytest.approx(norm, rel=10 * tolerance)


@pytest.mark.parametrize(("free", "groups"), [(100e9, 2), (0.6e9, 1), (0.1e9, 1)])
def test_as_many_workers_train_as_memory_has_room_for(
    selected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, groups: int
) -> None:
    """A process with torch alone has 0.4 GB, the model of this test next to nothing."""
    monkeypatch.setattr(lora, "measure_free_memory", lambda device: int(free))
    run = RunDirectory.open(copy_with(selected, tmp_path / "run", {}, workers=2))
    arms = [Arm("gapft", 13), Arm("gapft", 21)]
    shutil.copy(*(run.path / layout.selection_path(arm) for arm in arms))
    manifest = run.manifest()
    manifest["budgets"][arms[1].name] = manifest["budgets"][arms[0].name]
    manifest["files"][layout.selection_path(arms[1])] = manifest["files"][
        layout.selection_path(arms[0])
    ]
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    said: list[str] = []
    plugin = [str(selected / "plugin.py")]
    context = Context(run, Here(), plugin, report_line=said.append)
    assert len(stage._divide_arms(context, arms)) == groups
    assert [("1 of 2 workers" in line, "GB are free" in line) for line in said] == [
        (True, True)
    ] * (2 - groups)


#: On any free port: by default every launcher of a machine takes the same one.
ACCELERATE = (
    *("-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1"),
    *("--main_process_port", "0"),
)


@pytest.mark.parametrize("sharing", ["--multi_gpu", "--use_fsdp"])
def test_ones_own_launcher_trains_the_same(
    selected: Path, one_by_sixteen: Path, tmp_path: Path, sharing: str
) -> None:
    """Two processes without padding; torchrun's launcher is the one that the command uses."""
    run = copy_with(selected, tmp_path / "run", {"padding_free": True})
    plugin = ("--plugin", selected / "plugin.py")
    done = subprocess.run(
        [sys.executable, *ACCELERATE, sharing, "-m", "gapft_harness.training", run, *plugin],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"step {step} of 5" for step in range(1, 6)]
    assert_same(one_by_sixteen, run / "adapters" / ARM)
    facts = json.loads((run / "adapters" / ARM / "training.json").read_text())
    assert facts["processes"] == 2
    assert facts.get("fsdp", False) == (sharing == "--use_fsdp")
    succeed("run", run, "--only", "train", *plugin)
    assert verify(run, [str(selected / "plugin.py")]).differences == []


def test_an_arm_without_a_budget_is_passed_over_and_refused_by_name(
    selected: Path, tmp_path: Path
) -> None:
    """Its condition came into the recipe after selection."""
    run = copy_with(selected, tmp_path / "run", {})
    for file in ("recipe.yaml", "manifest.json"):
        content = yaml.safe_load((run / file).read_text())
        of = content["recipe"] if file == "manifest.json" else content
        of["conditions"] = ["gapft", "random"]
        dump = json.dumps if file == "manifest.json" else yaml.safe_dump
        (run / file).write_text(dump(content))
    command = [sys.executable, "-m", "gapft_harness.training", run, "--plugin"]
    command += [selected / "plugin.py"]

    def trained(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    refused = trained("--arm", "random-seed13")
    assert refused.returncode == 2
    assert refused.stderr.startswith("gapft: --arm random-seed13: has no budget")
    done = trained()
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (run / "adapters").iterdir()] == [ARM]


def test_a_launcher_that_asks_for_more_is_refused(selected: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gapft_harness.training", selected / "run"],
        env={**os.environ, "ACCELERATE_USE_DEEPSPEED": "true"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gapft: the launcher requests DEEPSPEED")


def test_one_process_cannot_share_the_base_out(selected: Path, tmp_path: Path) -> None:
    run = copy_with(selected, tmp_path / "run", {}, fsdp=True)
    done = gapft(
        "run", run, "--only", "train", "--plugin", selected / "plugin.py", timeout=TIMEOUT_S
    )
    assert done.returncode == 2
    assert "executor.fsdp: needs several processes" in done.stderr


def wait_until(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert child.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(
    selected: Path, tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with its workers after a state was kept; dropout and schedule go on as they were."""
    training = {"dropout": 0.1, "schedule": "cosine", "repetitions": 200, "padding_free": True}
    whole = train(selected, tmp_path / "whole", training, processes=processes)
    run = copy_with(selected, tmp_path / "run", training, processes=processes, checkpoint_steps=2)
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store of its own"))
    checkpoint = run / "adapters" / f".{ARM}.checkpoint"
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", str(run)]
    command += ["--only", "train", "--plugin"]
    child = subprocess.Popen(
        [*command, str(selected / "plugin.py")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family: list[psutil.Process] = []

    def kept_a_state() -> bool:
        family[:] = psutil.Process(child.pid).children(recursive=True)
        return checkpoint.exists()

    wait_until(kept_a_state, child)
    child.kill()
    child.wait()
    assert psutil.wait_procs(family, timeout=60)[1] == [], "all end with the command"
    assert not (run / "adapters" / ARM).exists()
    kept = torch.load(checkpoint, weights_only=True)
    done = len(json.loads(kept["log"]))
    assert 2 <= done < 50
    assert done % 2 == 0
    succeed("run", run, "--only", "train", "--plugin", selected / "plugin.py", timeout=TIMEOUT_S)
    assert not checkpoint.exists()
    assert sha256(run / "adapters" / ARM) == sha256(whole)


def test_an_error_of_one_process_of_two_is_told_as_it_is(selected: Path, tmp_path: Path) -> None:
    run = copy_with(selected, tmp_path / "run", {"target_modules": ["q_prog"]}, processes=2)
    done = gapft(
        "run", run, "--only", "train", "--plugin", selected / "plugin.py", timeout=TIMEOUT_S
    )
    assert done.returncode == 2
    assert "no 'q_prog'; did you mean 'q_proj'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_lora_cannot_be_put_on_is_refused(selected: Path, tmp_path: Path) -> None:
    run = copy_with(selected, tmp_path / "run", {"target_modules": ["mlp"]})
    done = gapft(
        "run", run, "--only", "train", "--plugin", selected / "plugin.py", timeout=TIMEOUT_S
    )
    assert done.returncode == 2
    assert "LoRA cannot adapt 'mlp'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "without"),
    [("gapft run", True), ("gapft run", False), ("gapft_harness.training", False)],
    ids=["no training.json", "weights cut", "weights cut, own launcher"],
)
def test_a_folder_that_is_not_whole_is_no_adapter_that_is_done(
    selected: Path, one_by_sixteen: Path, tmp_path: Path, command: str, without: bool
) -> None:
    """As a copy that was broken off leaves it."""
    run = copy_with(selected, tmp_path / "run", {"micro_batch": 1, "accumulation": 16})
    folder = run / "adapters" / ARM
    shutil.copytree(one_by_sixteen, folder)
    if without:
        (folder / "training.json").unlink()
    else:
        weights = folder / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])
    arguments = (run, "--plugin", selected / "plugin.py")
    if command == "gapft run":
        done = gapft("run", *arguments, "--only", "train", timeout=TIMEOUT_S)
    else:
        done = subprocess.run(
            [sys.executable, "-m", command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert f"{folder}: is incomplete" in " ".join(done.stderr.split())
    assert "remove the folder and run the command again" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert f"adapters/{ARM}" not in json.loads((run / "manifest.json").read_text())["files"]


def test_a_sealed_folder_is_done_by_its_hash_alone(
    selected: Path, one_by_sixteen: Path, tmp_path: Path
) -> None:
    """Earlier versions' folders by a plugin's trainer do not say what their weights' hash is."""
    run = RunDirectory.open(copy_with(selected, tmp_path / "run", {}))
    folder = run.path / "adapters" / ARM
    shutil.copytree(one_by_sixteen, folder)
    (folder / "training.json").write_text('{"trainer": "mine"}')
    run.seal(f"adapters/{ARM}")
    seen: list[tuple[int, int]] = []
    found = train_arms(str(run.path), [("gapft", 13)], progress=lambda *at: seen.append(at))
    assert found == {ARM: {"trainer": "mine"}}
    steps = run.manifest()["budgets"][ARM]["steps"]
    assert seen == [(steps, steps)], "what was trained before is done"
    (folder / "training.json").write_text("{}")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        train_arms(str(run.path), [("gapft", 13)])
