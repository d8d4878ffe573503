"""The memory estimate against a real model, refused jobs, and memory that runs out."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import loop, memory
from gapft_harness.training import lora as trainer
from gapft_harness.training.memory import (
    MemoryEstimate,
    count_fitting,
    estimate_memory,
)
from gapft_harness.training.model import add_lora, build_meta_model, load_base
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, job, settings

CPU = torch.device("cpu")


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


def test_shared_base_counts_once() -> None:
    library_bytes = int(memory._LIBRARY_BYTES["cpu"])
    estimate = MemoryEstimate(weights=library_bytes, adapter=library_bytes)

    def count(*, shared: bool, parts: int) -> int:
        return count_fitting(estimate, parts * library_bytes, CPU, shares_base=shared)

    assert count(shared=False, parts=6) == 2  # three parts each
    assert count(shared=True, parts=6) == 2  # one part, and two each
    assert count(shared=True, parts=7) == 3
    assert count(shared=False, parts=2) == 0


def test_rejects_oversized_base_before_loading(tmp_path: Path) -> None:
    """The folder has no weights, so only the estimate can cause the error."""
    folder = write_byte_llama(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 200}
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    with pytest.raises(UserError, match=r"training\.dtype"):
        lora(job(folder, tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()


def test_frees_base_before_emptying_gpu_cache(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: check when torch is asked to release its memory."""
    bases: list[weakref.ref[Any]] = []
    left: list[Any] = []

    def load(*arguments: Any) -> Any:
        base = load_base(*arguments)
        bases.append(weakref.ref(base))
        return base

    jobs = [job(Path(model["pretrained"]), tmp_path / f"{n}", examples(2), n) for n in range(3)]
    # a first import may log and so keep frames, and their base, alive
    trainer.train(jobs.pop())
    monkeypatch.setattr(trainer, "load_base", load)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: left.extend(ref() for ref in bases))
    assert len(list(trainer.train_together(jobs))) == 2
    assert left == [None]


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
