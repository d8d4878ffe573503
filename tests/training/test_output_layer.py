"""Logits a chunk at a time: the same loss and gradients, and never more than a chunk of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.recipe.sections import Normalization
from gapft_harness.training import loop, objective
from gapft_harness.training.ledger import compute_token_weights
from gapft_harness.training.model import build_meta_model
from gapft_harness.training.objective import Batch, collate, compute_loss
from gapft_harness.training.output_layer import is_output_layer_last
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import build_sequences
from tests.tiny_models import byte_llama
from tests.training.examples import examples, job, settings

VOCABULARY, ROWS = 259, 5
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.25,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

#: Architecture, settings of its own, and whether its logits are its output layer's output.
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "llama": ("llama", {}, True),
    "tied": ("qwen2", {"tie_word_embeddings": True}, True),
    "soft cap": ("gemma2", {"final_logit_softcapping": 3.0}, False),
    "scale": ("granite", {"logits_scaling": 4.0}, False),
}


def config(name: str) -> Any:
    from transformers import AutoConfig

    kind, more, _ = MODELS[name]
    return AutoConfig.for_model(kind, **{**SHAPE, **more})


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objective.MAX_LOGITS, "cpu", ROWS * VOCABULARY)


def plain_loss_and_gradients(model: Any, batch: Batch, trained: list[Any]) -> list[torch.Tensor]:
    """As a loop without any of this computes them: logits everywhere, torch's cross-entropy."""
    rows, places = batch.positions
    logits = model(input_ids=batch.input_ids).logits[rows, places]
    losses = torch.nn.functional.cross_entropy(logits.float(), batch.targets, reduction="none")
    loss = (losses * batch.weights).sum()
    return [loss, *torch.autograd.grad(loss, trained)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("head", [False, True], ids=["", "LoRA on the output layer"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("normalization", ["token_mean", "sequence_mean"])
def test_chunks_have_the_loss_and_gradients_of_all_at_once(
    name: str,
    head: bool,
    dtype: torch.dtype,
    tolerance: float,
    count: int,
    normalization: Normalization,
) -> None:
    """With adapters in float32, whatever the base's dtype is."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(config(name), dtype=dtype)
    modules = ["q_proj", "down_proj", *(["lm_head"] if head else [])]
    model = get_peft_model(base, LoraConfig(target_modules=modules, init_lora_weights=False))
    chosen = build_sequences(examples(count), settings())
    weights = compute_token_weights(chosen, normalization)
    batch = collate([Member(s, w) for s, w in zip(chosen, weights, strict=True)], 2)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {p.dtype for p in trained} == {torch.float32}
    made: list[int] = []
    model.get_output_embeddings().register_forward_hook(
        lambda _, __, output: made.append(output.shape[1])
    )
    loss = compute_loss(model, batch, MODELS[name][2])
    found = [loss, *torch.autograd.grad(loss, trained)]
    supervised = len(batch.targets)
    chunks = [ROWS] * (supervised // ROWS) + [supervised % ROWS] * (supervised % ROWS > 0)
    assert made == ([0, *chunks] if MODELS[name][2] else [supervised])
    expected = plain_loss_and_gradients(model, batch, trained)
    torch.testing.assert_close(found[0], expected[0], rtol=tolerance / 10, atol=1e-6)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= tolerance * other.norm() + 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_what_a_model_does_to_its_logits_is_seen_without_weights(tmp_path: Path, name: str) -> None:
    config(name).save_pretrained(tmp_path)
    weightless = build_meta_model({"pretrained": str(tmp_path)}, settings(dtype="bfloat16"))
    assert is_output_layer_last(weightless) == MODELS[name][2]


def test_a_scale_that_is_written_into_the_logits_is_seen(tmp_path: Path) -> None:
    """They are then the same tensor, and no longer what the output layer gave."""
    config("llama").save_pretrained(tmp_path)
    weightless = build_meta_model({"pretrained": str(tmp_path)}, settings())
    assert is_output_layer_last(weightless)

    def scale(_: Any, __: Any, given: Any) -> None:
        given.logits.mul_(2)

    weightless.register_forward_hook(scale)
    assert not is_output_layer_last(weightless)


def test_a_model_that_does_not_run_without_weights_counts_as_one_that_does_more(
    tmp_path: Path,
) -> None:
    config("llama").save_pretrained(tmp_path)
    weightless = build_meta_model({"pretrained": str(tmp_path)}, settings())
    weightless.register_forward_pre_hook(lambda _, __: torch.zeros(1, device="meta").item())
    assert not is_output_layer_last(weightless)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_training_in_chunks_is_that_of_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    model = byte_llama(tmp_path / "model")
    given = []

    def seen(model: Any, batch: Any, head_is_last: bool) -> torch.Tensor:
        given.append(head_is_last)
        return compute_loss(model, batch, head_is_last)

    monkeypatch.setattr(loop, "compute_loss", seen)
    shape: dict[str, Any] = {"padding_free": True, "gradient_checkpointing": checkpointing}
    chunked = lora(job(model, tmp_path / "chunked", examples(20), **shape))
    assert given == [True, True]
    monkeypatch.setitem(objective.MAX_LOGITS, "cpu", 1 << 27)
    whole = lora(job(model, tmp_path / "whole", examples(20), **shape))
    for key in ("first_loss", "last_loss"):
        assert chunked[key] == pytest.approx(whole[key], rel=1e-5)
