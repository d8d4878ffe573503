"""Attention over concatenated sequences: separate, and equal to torch's."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch

from gapft_harness.core.errors import UserError
from gapft_harness.training import attention
from gapft_harness.training.attention import SEGMENTS, attend, check_separation, register_segments
from tests.kit.tiny_models import write_byte_llama


@pytest.fixture(scope="module")
def segment_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model with the attention for concatenated sequences."""
    from transformers import AutoModelForCausalLM

    folder = write_byte_llama(tmp_path_factory.mktemp("attention"))
    register_segments()
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=SEGMENTS
    )


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
