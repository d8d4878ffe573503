"""The objective against plain torch: all logits, labels, cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Normalization
from gapft_harness.training import attention
from gapft_harness.training.attention import SEGMENTS, attend, check_separation, register_segments
from gapft_harness.training.ledger import compute_token_weights
from gapft_harness.training.objective import collate, compute_loss, flatten
from gapft_harness.training.passes import cut_step
from gapft_harness.training.plan import TrainingSequence, build_sequences
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, settings

END = 2
NORMALIZATIONS: tuple[Normalization, ...] = ("token_mean", "sequence_mean", "token_sum")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("objective"))


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def segment_model(model_folder: Path) -> Any:
    """The same weights with the attention for concatenated sequences."""
    from transformers import AutoModelForCausalLM

    register_segments()
    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation=SEGMENTS
    )


def compute_reference_loss(
    model: Any, members: Sequence[TrainingSequence], normalization: Normalization
) -> torch.Tensor:
    """Compute the loss of single sequences from all logits, with labels of -100 on the prompt."""
    losses = []
    for member in members:
        ids = [*member.prompt_ids, *member.target_ids, *([END] if member.eos else [])]
        labels = [-100] * len(member.prompt_ids) + ids[len(member.prompt_ids) :]
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        losses.append(
            torch.nn.functional.cross_entropy(logits, torch.tensor(labels[1:]), reduction="none")
        )
    if normalization == "token_sum":
        return torch.cat(losses).sum()
    if normalization == "token_mean":
        return torch.cat(losses).sum() / sum(m.supervised for m in members)
    means = [loss.sum() / m.supervised for loss, m in zip(losses, members, strict=True)]
    return torch.stack(means).mean()


CUTS: list[dict[str, Any]] = [
    {"micro_batch": 1},
    {"micro_batch": 3},
    {"micro_batch": 11},
    {"padding_free": True},
    {"padding_free": True, "max_tokens": 40, "max_length": 40},
]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("shape", CUTS, ids=str)
def test_loss_and_gradient_match_reference(
    model: Any, segment_model: Any, normalization: Normalization, shape: dict[str, Any]
) -> None:
    """For every division of a step into passes."""
    chosen = settings(normalization=normalization, **shape)
    trained = segment_model if chosen.padding_free else model
    members = build_sequences(examples(11), chosen)
    weights = compute_token_weights(members, normalization)
    expected = compute_reference_loss(model, members, normalization)
    expected_gradient = torch.autograd.grad(expected, get_query_weight(model))[0]
    loss = torch.zeros(())
    for part in cut_step(members, weights, chosen):
        batch = flatten(part, END) if chosen.padding_free else collate(part, END)
        loss = loss + compute_loss(trained, batch)
    gradient = torch.autograd.grad(loss, get_query_weight(trained))[0]
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    scale = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6 * scale)


def get_query_weight(model: Any) -> Any:
    return model.model.layers[0].self_attn.q_proj.weight


def test_rejects_model_that_mixes_neighbours(segment_model: Any) -> None:
    check_separation(segment_model, torch.device("cpu"))

    def mix(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        return output + output.roll(8, dims=1)

    hook = segment_model.model.layers[0].mlp.register_forward_hook(mix)
    with pytest.raises(UserError, match=r"mixes concatenated .*padding_free: false"):
        check_separation(segment_model, torch.device("cpu"))
    hook.remove()


def test_rejects_attention_without_sequence_ends(segment_model: Any) -> None:
    with pytest.raises(UserError, match=r"LlamaAttention: does not pass on.*padding_free: false"):
        segment_model(input_ids=torch.tensor([[5, 6, 7]]))


@pytest.mark.parametrize("heads", [(4, 4), (6, 2)], ids=["", "shared keys"])
@pytest.mark.parametrize("lengths", [(1,), (3, 3, 7), (40, 60)])
def test_dense_attention_matches_torch(heads: tuple[int, int], lengths: tuple[int, ...]) -> None:
    """Used in 16 bits on a CPU up to a length; torch's kernel computes longer sequences."""
    total, (many, few), width = sum(lengths), heads, 16
    ends = (0, *accumulate(lengths))
    torch.manual_seed(0)
    inputs = [torch.randn(1, n, total, width) for n in (many, few, few)]
    upstream = torch.randn(1, total, many, width)

    def compute_outcome(dtype: torch.dtype, dense_length: int) -> list[torch.Tensor]:
        leaves = [t.clone().to(dtype).requires_grad_() for t in inputs]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(attention, "DENSE_LENGTH", dense_length)
            out, _ = attend(torch.nn.Module(), *leaves, None, scaling=0.3, cu_seq_lens_q=ends)
            out.backward(upstream.to(dtype))
        return [t.float() for t in (out.detach(), *(t.grad for t in leaves)) if t is not None]

    exact = compute_outcome(torch.float32, 512)
    for dense_length in (0, 50, 512):
        for actual, expected in zip(
            compute_outcome(torch.bfloat16, dense_length), exact, strict=True
        ):
            assert (actual - expected).norm() <= 0.02 * expected.norm() + 1e-3
