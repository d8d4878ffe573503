"""Kept states: what a failed step leaves, and what a state of another device is worth."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import sha256
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import loop
from gapft_harness.training.devices import Devices
from gapft_harness.training.loop import Checkpoint, read_random_state
from gapft_harness.training.model import add_lora, load_base
from gapft_harness.training.objective import compute_loss
from tests.tiny_models import byte_llama
from tests.training.examples import examples, job, settings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("base") / "model")


@pytest.mark.parametrize("every", [None, 1], ids=["not kept before", "kept before"])
def test_a_step_that_failed_once_goes_on_to_the_bytes_of_one_that_never_did(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int | None
) -> None:
    """The failed step has drawn dropout masks; the state that is kept must be from before them."""
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
    kept = torch.load(tmp_path / ".failed.checkpoint", weights_only=True)
    assert [line["step"] for line in json.loads(kept["log"])] == [1, 2]
    lora(chosen)
    assert sha256(tmp_path / "failed") == sha256(tmp_path / "whole")


def test_a_state_of_another_kind_of_device_is_not_taken_up(model: Path, tmp_path: Path) -> None:
    """Its random states and rounding are of no use there: the training starts anew."""
    adapted = add_lora(load_base({"pretrained": str(model)}, settings()), settings(), 1)
    trainable = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable)
    cpu, gpu = (Devices(None, torch.device(kind), 0, 1) for kind in ("cpu", "cuda"))
    rests_on = {"settings": 1}

    def checkpoint(devices: Devices) -> Checkpoint:
        return Checkpoint.for_output(tmp_path / "a", rests_on, devices, None)

    done = [{"step": 1, "loss": 0.5}]
    checkpoint(cpu).save(cpu, adapted, optimizer, done, read_random_state(cpu.device))
    before = [p.detach().clone() for p in trainable]
    assert checkpoint(gpu).load(gpu, adapted, optimizer) == []
    assert all(torch.equal(a, b) for a, b in zip(before, trainable, strict=True))
    assert checkpoint(cpu).load(cpu, adapted, optimizer) == done
