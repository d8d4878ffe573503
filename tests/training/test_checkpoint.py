"""Checkpoints after a failed step, and checkpoints of another device type."""

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
from gapft_harness.training.objective import compute_loss
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, job


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("base") / "model")


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
