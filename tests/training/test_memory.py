"""The memory estimate against the tensors of a real model, and refused jobs."""

from __future__ import annotations

import copy
import itertools
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.memory import measure_free_memory
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import loop, memory, objective
from gapft_harness.training import lora as trainer
from gapft_harness.training.memory import (
    MemoryEstimate,
    check_memory,
    count_fitting,
    estimate_memory,
)
from gapft_harness.training.model import add_lora, build_meta_model, fuse_lora_layers, load_base
from gapft_harness.training.objective import collate, compute_loss, flatten
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import build_sequences
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import example, examples, job, settings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("base") / "model"
    return {"pretrained": str(write_byte_llama(folder, hidden=128, layers=4))}


def build_members(prompt: int, response: int, count: int) -> list[Member]:
    chosen = [example(f"p{i}", prompt, response, index=i) for i in range(count)]
    return [Member(s, 1.0) for s in build_sequences(chosen, settings())]


def measure_kept_bytes(adapted: Any, batch: Any) -> int:
    """Measure the bytes that a forward pass keeps for its backward pass, without weights.

    Gradients of the logits and of their inputs are already freed.
    """
    weights = {p.untyped_storage().data_ptr() for p in adapted.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address is reused

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compute_loss(adapted, batch)
    return sum(s.nbytes() for at, s in storages.items() if at not in weights)


@pytest.mark.parametrize(
    ("dtype", "dropout", "padding_free"),
    [*itertools.product(("float32", "bfloat16"), (0.0, 0.05), (False, True))],
)
def test_estimate_is_near_real_model(
    model: dict[str, Any], dtype: str, dropout: float, padding_free: bool
) -> None:
    chosen = settings(dtype=dtype, dropout=dropout, padding_free=padding_free)
    step = build_members(prompt=150, response=50, count=4)
    estimate = estimate_memory(build_meta_model(model, chosen), chosen, [step])
    base = load_base(model, chosen)
    assert estimate.base == sum(p.nbytes for p in base.parameters())
    adapted = add_lora(base, chosen, 1).train()
    fuse_lora_layers(adapted)  # as in training on a CPU
    trained = [p for p in adapted.parameters() if p.requires_grad]
    assert estimate.adapters == 4 * sum(
        p.nbytes for p in trained
    )  # weight, gradient, two optimizer states
    real = measure_kept_bytes(adapted, (flatten if padding_free else collate)(step, 2))
    assert 0.75 < real / estimate.activations < 1.25


def test_checkpointing_lowers_estimate(model: dict[str, Any]) -> None:
    def estimate(**changes: Any) -> MemoryEstimate:
        chosen = settings(**changes)
        return estimate_memory(
            build_meta_model(model, chosen),
            chosen,
            [build_members(20, 5, 2), build_members(90, 10, 8)],
        )

    plain = estimate()
    assert estimate(gradient_checkpointing=True).activations < plain.activations / 2
    assert estimate(rank=16).adapters == 2 * plain.adapters
    alone = settings()
    larger = estimate_memory(build_meta_model(model, alone), alone, [build_members(90, 10, 8)])
    assert plain == larger, "the largest pass counts, whatever its place"


def test_counts_one_chunk_of_logits(model: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(dtype="bfloat16")
    weightless = build_meta_model(model, chosen)
    vocabulary, hidden = weightless.get_output_embeddings().weight.shape
    monkeypatch.setitem(objective.MAX_LOGITS, "cpu", 10 * vocabulary)
    monkeypatch.setattr(memory, "MAX_FLOAT32_LOGITS", 5 * vocabulary)

    def estimate_logits(supervised: int, *, head_is_last: bool) -> int:
        step = build_members(20, supervised - 1, 1)  # and an end token
        return estimate_memory(weightless, chosen, [step], is_head_last=head_is_last).logits

    chunk = estimate_logits(10, head_is_last=True)
    assert chunk == 10 * (vocabulary + hidden) * 2 * 2 + 5 * vocabulary * 2 * 4
    assert estimate_logits(50, head_is_last=True) == chunk + 40 * hidden * 2 * 2
    assert estimate_logits(50, head_is_last=False) > 5 * 50 * vocabulary * 2


def test_count_fitting_counts_shared_base_once() -> None:
    library_bytes = int(memory._LIBRARY_BYTES["cpu"])
    estimate = MemoryEstimate(base=library_bytes, adapters=0, activations=library_bytes, logits=0)
    free = 6 * library_bytes

    def count(*, shared: bool, free: int = free) -> int:
        return count_fitting(estimate, free, CPU, shared)

    assert count(shared=False) == 2  # three parts each
    assert count(shared=True) == 2  # one part, and two each
    assert count(shared=True, free=free + library_bytes) == 3
    assert count(shared=False, free=2 * library_bytes) == 0


def test_rejects_oversized_base_before_loading(tmp_path: Path) -> None:
    """The folder has no weights, so only the estimate can cause the error."""
    folder = write_byte_llama(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 200}
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    with pytest.raises(UserError, match=r"about [\d.e+]+ GB \(base .* GB free.*micro_batch"):
        lora(job(folder, tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()


def test_check_memory_tolerates_estimate_error() -> None:
    few = MemoryEstimate(base=6, adapters=2, activations=1, logits=1)
    check_memory(few, 8, CPU)
    with pytest.raises(UserError, match="7e-09 GB free"):
        check_memory(few, 7, CPU)
    many = MemoryEstimate(base=1, adapters=1, activations=90, logits=8)
    check_memory(many, 80, CPU)
    with pytest.raises(UserError, match=r"7\.9e-08 GB free"):
        check_memory(many, 79, CPU)


def test_counts_activations_of_active_experts(model: dict[str, Any]) -> None:
    """transformers 5 has no separate expert layers; a base with custom code may."""
    dense = build_meta_model(model, settings())
    dense_estimate = estimate_memory(dense, settings(), [build_members(20, 5, 2)])
    mixed = copy.deepcopy(dense)
    for layer in mixed.model.layers:
        layer.mlp.experts = torch.nn.ModuleList(copy.deepcopy(layer.mlp) for _ in range(8))
    all_active = estimate_memory(mixed, settings(), [build_members(20, 5, 2)])
    mixed.config.num_local_experts, mixed.config.num_experts_per_tok = 8, 2
    two_active = estimate_memory(mixed, settings(), [build_members(20, 5, 2)])
    added = all_active.activations - dense_estimate.activations
    assert (two_active.activations - dense_estimate.activations) * 4 == pytest.approx(added)
    assert two_active.base == all_active.base > dense_estimate.base
    assert two_active.adapters == all_active.adapters


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


def test_free_memory_includes_allocator_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"memory_reserved": 50, "memory_allocated": 20, "mem_get_info": (100, 1000)}
    for name, value in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert measure_free_memory(torch.device("cuda", 0)) == 130


def test_out_of_memory_error_includes_estimate(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: the error is raised by a stub."""

    def runs_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "compute_loss", runs_out)
    with pytest.raises(GapftError, match=r"gapft-seed13: cpu ran out .* about .*micro_batch"):
        lora(job(Path(model["pretrained"]), tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()
