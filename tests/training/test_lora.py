"""The LoRA trainer on a tiny Llama: files, reproducibility, checkpoints and errors."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import loop
from gapft_harness.training.loop import Checkpoint, read_random_state
from gapft_harness.training.model import add_lora, load_base
from gapft_harness.training.objective import compute_loss
from tests.training.examples import assert_same_weights, examples, job, settings

N = 37  # three steps of 16, the last of 5


def read_losses(folder: Path) -> list[tuple[float, float]]:
    """Read loss and gradient norm of every step."""
    lines = (folder / "training_log.jsonl").read_text().splitlines()
    return [(entry["loss"], entry["grad_norm"]) for entry in map(json.loads, lines)]


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return tensors


def assert_same_training(a: Path, b: Path) -> None:
    """Assert equal losses, norms and adapters up to float32 rounding."""
    assert len(read_losses(a)) == len(read_losses(b)) == 3
    for step, other_step in zip(read_losses(a), read_losses(b), strict=True):
        assert step == pytest.approx(other_step, rel=2e-5)
    assert_same_weights(a, b)


#: Ways to compute the same steps: by passes of several sizes, padded or not, and checkpoints.
SHAPES: list[dict[str, Any]] = [
    {"micro_batch": 2, "accumulation": 8},
    {"micro_batch": 16, "accumulation": 1},
    {"gradient_checkpointing": True},
    {"padding_free": True, "max_tokens": 16384, "max_length": 60},
    {"padding_free": True, "max_tokens": 60, "max_length": 60},
]


@pytest.mark.parametrize("normalization", ["token_mean", "sequence_mean", "token_sum"])
def test_way_of_computing_a_step_does_not_change_training(
    model: Path, tmp_path: Path, normalization: str
) -> None:
    def train(name: str, **shape: Any) -> Path:
        facts = lora(job(model, tmp_path / name, examples(N), normalization=normalization, **shape))
        assert facts["budget"]["steps"] == 3
        unpadded = facts["attention"]["implementation"] == "gapft_segments"
        assert unpadded == shape.get("padding_free", False)
        return tmp_path / name

    single = train("single", micro_batch=1, accumulation=16)
    for number, shape in enumerate(SHAPES):
        assert_same_training(single, train(str(number), **shape))


def test_same_examples_in_any_order_give_same_bytes(model: Path, tmp_path: Path) -> None:
    chosen = examples(20)
    facts = [
        lora(job(model, tmp_path / name, given, seed=seed, dropout=0.05))
        for name, given, seed in (("a", chosen, 13), ("b", chosen[::-1], 13), ("c", chosen, 21))
    ]
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "b")
    assert {**facts[0], "seconds": 0} == {**facts[1], "seconds": 0}
    assert facts[2]["plan_sha256"] != facts[0]["plan_sha256"]
    a, c = load_weights(tmp_path / "a"), load_weights(tmp_path / "c")
    assert all(not torch.equal(a[name], c[name]) for name in a)


def read_contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_writes_adapter_folder(model: Path, tmp_path: Path) -> None:
    chosen = examples(N)
    facts = lora(job(model, tmp_path / "a", chosen, repetitions=2))
    assert read_contents(tmp_path / "a").keys() == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "training.json",
        "training_log.jsonl",
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    modules = json.loads((tmp_path / "a/adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules)  # PEFT writes a set, whose order changes between processes
    written = json.loads((tmp_path / "a/training.json").read_text())
    assert {**written, "seconds": facts["seconds"]} == facts
    assert written["attention"] == {"implementation": "sdpa"}
    assert set(written["versions"]) == {"torch", "transformers", "peft", "accelerate"}
    log = [json.loads(line) for line in (tmp_path / "a/training_log.jsonl").open()]
    assert [entry["step"] for entry in log] == [1, 2, 3, 4, 5]
    assert {entry["learning_rate"] for entry in log} == {1e-2}
    by_id = {e.problem_id: len(e.response_ids) + e.ended for e in chosen}
    for entry in log:
        assert entry["supervised_tokens"] == sum(by_id[slot] for slot in entry["examples"])
    assert sum(len(entry["examples"]) for entry in log) == facts["budget"]["exposures"] == 2 * N
    assert log[-1]["loss"] < log[0]["loss"]
    assert all(math.isfinite(entry["grad_norm"]) for entry in log)


def test_bfloat16_base_has_float32_adapters(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "half", examples(N), dtype="bfloat16"))
    lora(job(model, tmp_path / "full", examples(N)))
    assert {tensor.dtype for tensor in load_weights(tmp_path / "half").values()} == {torch.float32}
    half, full = read_losses(tmp_path / "half"), read_losses(tmp_path / "full")
    assert half[0][0] == pytest.approx(full[0][0], rel=0.03)
    assert half[0][0] != full[0][0]


def test_rejects_base_other_than_searched(model: Path, tmp_path: Path) -> None:
    chosen = dataclasses.replace(job(model, tmp_path / "a", examples(5)), base_sha256="0" * 64)
    with pytest.raises(UserError, match=r"differs from the searched one: its weights' hash is"):
        lora(chosen)
    assert list(tmp_path.iterdir()) == []
    right = weights_hash(model)
    facts = lora(dataclasses.replace(chosen, base_sha256=right))
    assert facts["base_sha256"] == right


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_arms_together_gives_same_bytes(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], checkpointing: bool
) -> None:
    def build_jobs(name: str) -> list[TrainingJob]:
        shape: dict[str, Any] = {"dropout": 0.05, "gradient_checkpointing": checkpointing}
        return [
            job(model, tmp_path / f"{name}{seed}", examples(n), seed=seed, **shape)
            for seed, n in ((13, 20), (21, 33))
        ]

    alone = [lora(arm_job) for arm_job in build_jobs("alone")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = list(lora.together(build_jobs("together")))
    assert [{**f, "seconds": 0} for f in together] == [{**f, "seconds": 0} for f in alone]
    for seed in (13, 21):
        assert read_contents(tmp_path / f"alone{seed}") == read_contents(
            tmp_path / f"together{seed}"
        )
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("every", [None, 1], ids=["not kept before", "kept before"])
def test_resuming_after_failed_step_gives_same_bytes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int | None
) -> None:
    """The failed step has drawn dropout masks; the saved state must precede them."""
    shape: dict[str, Any] = {"dropout": 0.2, "padding_free": True}
    lora(job(model, tmp_path / "whole", examples(60), **shape))
    passes = []

    def fails_at_three(*arguments: Any, **more: Any) -> torch.Tensor:
        passes.append(compute_loss(*arguments, **more))
        return passes[-1] * (float("nan") if len(passes) == 3 else 1)

    chosen = job(model, tmp_path / "failed", examples(60), **shape)
    chosen = dataclasses.replace(chosen, checkpoint_steps=every)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "compute_loss", fails_at_three)
        with pytest.raises(GapftError, match=r"step 3 of 4 has loss nan.*state before it is saved"):
            lora(chosen)
    state = torch.load(tmp_path / ".failed.checkpoint", weights_only=True)
    assert [line["step"] for line in json.loads(state["log"])] == [1, 2]
    lora(chosen)
    assert sha256(tmp_path / "failed") == sha256(tmp_path / "whole")


class Stopped(Exception):
    """Raised from a job's progress callback during training."""


def stop_at(last: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done == last:
            raise Stopped

    return report


def test_ignores_checkpoint_of_other_training(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "whole", examples(20)))
    other = dataclasses.replace(job(model, tmp_path / "a", examples(21)), checkpoint_steps=1)
    with pytest.raises(Stopped):
        lora(dataclasses.replace(other, progress=stop_at(1)))
    (tmp_path / ".a.checkpoint").read_bytes()
    lora(job(model, tmp_path / "a", examples(20)))
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "whole")


def test_ignores_checkpoint_of_other_device_type(model: Path, tmp_path: Path) -> None:
    """Random states and rounding differ between device types, so training restarts."""
    adapted = add_lora(load_base({"pretrained": str(model)}, settings()), settings(), 1)
    trainable = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    inputs = {"settings": 1}

    def open_checkpoint(device: torch.device) -> Checkpoint:
        return Checkpoint.for_output(tmp_path / "a", inputs, device, None)

    done = [{"step": 1, "loss": 0.5}]
    open_checkpoint(cpu).save(adapted, optimizer, done, read_random_state(cpu))
    before = [p.detach().clone() for p in trainable]
    assert open_checkpoint(gpu).load(gpu, adapted, optimizer) == []
    assert all(torch.equal(a, b) for a, b in zip(before, trainable, strict=True))
    assert open_checkpoint(cpu).load(cpu, adapted, optimizer) == done


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_out_of_memory_error_names_the_key(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without a GPU: the error is raised by a stub."""

    def runs_out(*_: Any) -> None:
        raise error

    monkeypatch.setattr(loop, "compute_loss", runs_out)
    with pytest.raises(GapftError, match=r"training\.micro_batch"):
        lora(job(model, tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()
