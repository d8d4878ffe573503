"""The memory estimate against a real model, and memory that runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import GapftError
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import loop
from gapft_harness.training.memory import estimate_memory
from gapft_harness.training.model import add_lora, build_meta_model, load_base
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, job, settings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("base") / "model"
    return {"pretrained": str(write_byte_llama(folder, hidden=128, layers=4))}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_estimate_is_that_of_the_real_model(model: dict[str, Any], dtype: str) -> None:
    chosen = settings(dtype=dtype, rank=4)
    estimate = estimate_memory(build_meta_model(model, chosen), chosen)
    base = load_base(model, chosen)
    assert estimate.weights == sum(p.nbytes for p in base.parameters())
    trained = [p for p in add_lora(base, chosen, 1).parameters() if p.requires_grad]
    # weight, gradient, two states of the optimizer
    assert estimate.adapter == 4 * sum(p.nbytes for p in trained)


def test_out_of_memory_error_names_the_key(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: the error is raised by a stub."""

    def runs_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "compute_loss", runs_out)
    with pytest.raises(GapftError, match=r"training\.micro_batch"):
        lora(job(Path(model["pretrained"]), tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()
