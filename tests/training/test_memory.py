"""The estimate of memory: against the tensors of a real model, and what it refuses."""

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
from gapft_harness.training.devices import Devices
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
from tests.tiny_models import byte_llama
from tests.training.examples import example, examples, job, settings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("base") / "model"
    return {"pretrained": str(byte_llama(folder, hidden=128, layers=4))}


def members(prompt: int, response: int, count: int) -> list[Member]:
    chosen = [example(f"p{i}", prompt, response, index=i) for i in range(count)]
    return [Member(s, 1.0) for s in build_sequences(chosen, settings())]


def kept(adapted: Any, batch: Any) -> int:
    """Bytes that a forward pass really keeps for its backward pass, weights not counted.

    The gradients of logits and of what they are made from are gone by then.
    """
    weights = {p.untyped_storage().data_ptr() for p in adapted.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # held, so that no address is used twice

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
def test_it_is_near_what_a_real_model_takes(
    model: dict[str, Any], dtype: str, dropout: float, padding_free: bool
) -> None:
    chosen = settings(dtype=dtype, dropout=dropout, padding_free=padding_free)
    step = members(prompt=150, response=50, count=4)
    found = estimate_memory(build_meta_model(model, chosen), chosen, [step])
    base = load_base(model, chosen)
    assert found.base == sum(p.nbytes for p in base.parameters())
    adapted = add_lora(base, chosen, 1).train()
    fuse_lora_layers(adapted)  # as training on a CPU does
    trained = [p for p in adapted.parameters() if p.requires_grad]
    assert found.adapters == 4 * sum(p.nbytes for p in trained)  # itself, gradient, two states
    real = kept(adapted, (flatten if padding_free else collate)(step, 2))
    assert 0.75 < real / found.activations < 1.25


def test_checkpointing_few_bits_and_sharing_lower_their_parts(model: dict[str, Any]) -> None:
    def of(shards: int = 1, **changes: Any) -> MemoryEstimate:
        chosen = settings(**changes)
        return estimate_memory(
            build_meta_model(model, chosen), chosen, [members(20, 5, 2), members(90, 10, 8)], shards
        )

    plain = of()
    assert of(gradient_checkpointing=True).activations < plain.activations / 2
    assert of(quantize="4bit").base < of(quantize="8bit").base < plain.base / 2
    assert plain.base / 2 < of(shards=2).base < plain.base
    assert of(shards=8).base < of(shards=2).base
    assert of(rank=16).adapters == 2 * plain.adapters
    alone = settings()
    larger = estimate_memory(build_meta_model(model, alone), alone, [members(90, 10, 8)])
    assert plain == larger, "the largest pass counts, whatever its place"


def test_of_many_logits_a_chunk_counts_where_a_chunk_is_made(
    model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(dtype="bfloat16")
    weightless = build_meta_model(model, chosen)
    vocabulary, hidden = weightless.get_output_embeddings().weight.shape
    monkeypatch.setitem(objective.MAX_LOGITS, "cpu", 10 * vocabulary)
    monkeypatch.setattr(memory, "MAX_FLOAT32_LOGITS", 5 * vocabulary)

    def logits(supervised: int, *, head_is_last: bool) -> int:
        step = members(20, supervised - 1, 1)  # and an end token
        return estimate_memory(weightless, chosen, [step], is_head_last=head_is_last).logits

    one = logits(10, head_is_last=True)
    assert one == 10 * (vocabulary + hidden) * 2 * 2 + 5 * vocabulary * 2 * 4
    assert logits(50, head_is_last=True) == one + 40 * hidden * 2 * 2
    assert logits(50, head_is_last=False) > 5 * 50 * vocabulary * 2


def test_side_by_side_each_training_needs_its_own_and_a_mapped_base_is_there_once() -> None:
    of_libraries = int(memory._LIBRARY_BYTES["cpu"])
    found = MemoryEstimate(base=of_libraries, adapters=0, activations=of_libraries, logits=0)
    free = 6 * of_libraries

    def count(processes: int, *, shared: bool, free: int = free) -> int:
        return count_fitting(found, free, CPU, processes, shared)

    assert count(1, shared=False) == 2  # three parts each
    assert count(1, shared=True) == 2  # one part, and two each
    assert count(1, shared=True, free=free + of_libraries) == 3
    assert count(2, shared=False) == 1
    assert count(3, shared=False) == 0


def test_a_base_that_cannot_fit_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """There are no weights in the folder, so nothing but the estimate can have been seen."""
    folder = byte_llama(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 200}
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    with pytest.raises(UserError, match=r"about [\d.e+]+ GB \(base .* GB free.*micro_batch"):
        lora(job(folder, tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()


def test_processes_of_one_memory_need_it_together() -> None:
    found = MemoryEstimate(base=6, adapters=2, activations=1, logits=1)
    check_memory(found, 16, CPU, 2)
    with pytest.raises(UserError, match="for each of 2 processes"):
        check_memory(found, 15, CPU, 2)
    assert measure_free_memory(CPU) > 0


@pytest.mark.parametrize(("dtype", "copies"), [("float32", False), ("bfloat16", True)])
def test_copies_of_the_base_count_where_processes_share_it_out(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, copies: bool
) -> None:
    """The files are float32. Two processes' parts would fit, their copies would not."""

    class Loaded(Exception):
        pass

    def load(*_: Any) -> Any:
        raise Loaded

    one = job(Path(model["pretrained"]), tmp_path / "a", examples(2), dtype=dtype)
    two = Devices(None, CPU, 0, 2, is_sharded=True)
    whole = sum(p.nbytes for p in load_base(model, settings(dtype=dtype)).parameters())
    monkeypatch.setattr(trainer, "load_base", load)
    monkeypatch.setattr(Devices, "of", lambda job: two)
    monkeypatch.setattr(trainer, "measure_free_memory", lambda device: 2 * whole - 1)
    monkeypatch.setattr(trainer, "check_memory", lambda *_: None)
    with pytest.raises(UserError if copies else Loaded) as refused:
        trainer.train(one)
    if copies:
        assert "each of 2 processes needs the complete base in bfloat16" in str(refused.value)
    monkeypatch.setattr(trainer, "measure_free_memory", lambda device: 2 * whole)
    with pytest.raises(Loaded):
        trainer.train(one)


def test_what_is_counted_must_fit_and_what_is_guessed_may_be_a_quarter_too_high() -> None:
    few = MemoryEstimate(base=6, adapters=2, activations=1, logits=1)
    check_memory(few, 8, CPU, 1)
    with pytest.raises(UserError, match="7e-09 GB free"):
        check_memory(few, 7, CPU, 1)
    many = MemoryEstimate(base=1, adapters=1, activations=90, logits=8)
    check_memory(many, 80, CPU, 1)
    with pytest.raises(UserError, match=r"7\.9e-08 GB free"):
        check_memory(many, 79, CPU, 1)


def test_a_token_keeps_what_the_experts_that_it_goes_through_keep(model: dict[str, Any]) -> None:
    """transformers 5 has no experts as layers of their own; a base with code of its own may."""
    dense = build_meta_model(model, settings())
    before = estimate_memory(dense, settings(), [members(20, 5, 2)])
    mixed = copy.deepcopy(dense)
    for layer in mixed.model.layers:
        layer.mlp.experts = torch.nn.ModuleList(copy.deepcopy(layer.mlp) for _ in range(8))
    every = estimate_memory(mixed, settings(), [members(20, 5, 2)])
    mixed.config.num_local_experts, mixed.config.num_experts_per_tok = 8, 2
    two = estimate_memory(mixed, settings(), [members(20, 5, 2)])
    added = every.activations - before.activations
    assert (two.activations - before.activations) * 4 == pytest.approx(added)
    assert two.base == every.base > before.base
    assert two.adapters == every.adapters


def test_nothing_of_the_base_is_left_when_a_gpu_s_memory_is_given_back(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is at hand: looked at when torch is asked to give its memory back."""
    bases: list[weakref.ref[Any]] = []
    left: list[Any] = []

    def load(*arguments: Any) -> Any:
        base = load_base(*arguments)
        bases.append(weakref.ref(base))
        return base

    jobs = [job(Path(model["pretrained"]), tmp_path / f"{n}", examples(2), n) for n in range(3)]
    # what libraries log on their first import would hold the frames of its time, and their base
    trainer.train(jobs.pop())
    monkeypatch.setattr(trainer, "load_base", load)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: left.extend(ref() for ref in bases))
    assert len(list(trainer.train_together(jobs))) == 2
    assert left == [None]


def test_what_the_allocator_holds_free_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"memory_reserved": 50, "memory_allocated": 20, "mem_get_info": (100, 1000)}
    for name, value in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert measure_free_memory(torch.device("cuda", 0)) == 130


def test_a_device_that_runs_out_all_the_same_is_told_with_the_estimate(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is at hand to run out of memory."""

    def runs_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "compute_loss", runs_out)
    with pytest.raises(GapftError, match=r"gapft-seed13: cpu ran out .* about .*micro_batch"):
        lora(job(Path(model["pretrained"]), tmp_path / "a", examples(3)))
    assert not (tmp_path / "a").exists()
