"""Logits in chunks: the same loss and gradients with at most one chunk in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gapft_harness.core.pretrained import build_meta_model
from gapft_harness.training import objective
from gapft_harness.training.ledger import compute_token_weights
from gapft_harness.training.objective import Batch, collate, compute_loss
from gapft_harness.training.output_layer import is_output_layer_last
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import build_sequences
from tests.training.examples import examples, settings

VOCABULARY, ROWS = 259, 5
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.25,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

#: Architecture, its settings, and whether its logits are its output layer's output.
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "llama": ("llama", {}, True),
    "tied": ("qwen2", {"tie_word_embeddings": True}, True),
    "soft cap": ("gemma2", {"final_logit_softcapping": 3.0}, False),
    "scale": ("granite", {"logits_scaling": 4.0}, False),
}


def build_config(name: str) -> Any:
    from transformers import AutoConfig

    kind, more, _ = MODELS[name]
    return AutoConfig.for_model(kind, **{**SHAPE, **more})


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objective.MAX_LOGITS, "cpu", ROWS * VOCABULARY)


def compute_plain_loss_and_gradients(
    model: Any, batch: Batch, trained: list[Any]
) -> list[torch.Tensor]:
    """Compute them without chunks: logits at every position, torch's cross-entropy."""
    rows, places = batch.positions
    logits = model(input_ids=batch.input_ids).logits[rows, places]
    losses = torch.nn.functional.cross_entropy(logits.float(), batch.targets, reduction="none")
    loss = (losses * batch.weights).sum()
    return [loss, *torch.autograd.grad(loss, trained)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("head", [False, True], ids=["", "LoRA on the output layer"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("count", [1, 7])
def test_chunked_loss_and_gradients_match_plain(
    name: str,
    head: bool,
    dtype: torch.dtype,
    tolerance: float,
    count: int,
) -> None:
    """Adapters are float32 for every dtype of the base."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(build_config(name), dtype=dtype)
    modules = ["q_proj", "down_proj", *(["lm_head"] if head else [])]
    model = get_peft_model(base, LoraConfig(target_modules=modules, init_lora_weights=False))
    chosen = build_sequences(examples(count), settings())
    weights = compute_token_weights(chosen, "sequence_mean")
    batch = collate([Member(s, w) for s, w in zip(chosen, weights, strict=True)], 2)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {p.dtype for p in trained} == {torch.float32}
    chunk_sizes: list[int] = []
    model.get_output_embeddings().register_forward_hook(
        lambda _, __, output: chunk_sizes.append(output.shape[1])
    )
    loss = compute_loss(model, batch, MODELS[name][2])
    actual = [loss, *torch.autograd.grad(loss, trained)]
    supervised = len(batch.targets)
    chunks = [ROWS] * (supervised // ROWS) + [supervised % ROWS] * (supervised % ROWS > 0)
    assert chunk_sizes == ([0, *chunks] if MODELS[name][2] else [supervised])
    expected = compute_plain_loss_and_gradients(model, batch, trained)
    torch.testing.assert_close(actual[0], expected[0], rtol=tolerance / 10, atol=1e-6)
    for tensor, expected_tensor in zip(actual, expected, strict=True):
        assert (tensor - expected_tensor).norm() <= tolerance * expected_tensor.norm() + 1e-6


def scale_logits(_: Any, __: Any, output: Any) -> None:
    output.logits.mul_(2)


@pytest.mark.parametrize("name", MODELS)
def test_detects_logit_changes_without_weights(tmp_path: Path, name: str) -> None:
    build_config(name).save_pretrained(tmp_path)
    weightless = build_meta_model({"pretrained": str(tmp_path)}, dtype="bfloat16")
    assert is_output_layer_last(weightless) == MODELS[name][2]
    # scaled in place, the logits are the same tensor, but not the output layer's output
    scaling = weightless.register_forward_hook(scale_logits)
    assert not is_output_layer_last(weightless)
    scaling.remove()
    # a model that cannot run without weights counts as one that changes its logits
    weightless.register_forward_pre_hook(lambda _, __: torch.zeros(1, device="meta").item())
    assert not is_output_layer_last(weightless)
