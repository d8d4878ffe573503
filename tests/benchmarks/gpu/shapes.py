"""Models with random weights and sequences with random lengths."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from gapft_harness.core.records import Example


@dataclass(frozen=True)
class Shape:
    """A Llama and its training sequences.

    Attributes:
        name: the shape's name.
        config: arguments of transformers.LlamaConfig.
        dtype: the frozen base's dtype.
        prompt: median of the prompts' lengths, log-normal with sigma 0.3.
        response: median of the responses' lengths, log-normal with sigma 0.7.
        bandwidth_bytes: bytes that the bandwidth measurement copies.
    """

    name: str
    config: dict[str, Any]
    dtype: str
    prompt: int
    response: int
    bandwidth_bytes: int

    def model(self, device: torch.device, attention: str | None) -> Any:
        """Build the base on the device, without files."""
        from transformers import AutoModelForCausalLM, LlamaConfig

        torch.manual_seed(0)
        more = {} if attention is None else {"attn_implementation": attention}
        with torch.device(device):
            return AutoModelForCausalLM.from_config(
                LlamaConfig(**self.config, use_cache=False),
                dtype=getattr(torch, self.dtype),
                **more,
            )

    def examples(self, number: int) -> list[Example]:
        """Build random ids in sequences of random lengths, the same at every call."""
        draw = random.Random(0)

        def ids(median: int, sigma: float, most: int) -> tuple[int, ...]:
            length = min(most, max(2, round(median * draw.lognormvariate(0, sigma))))
            return tuple(draw.randrange(3, self.config["vocab_size"]) for _ in range(length))

        return [
            Example(
                problem_id=f"p{i}",
                state="S",
                prompt_ids=ids(self.prompt, 0.3, 4 * self.prompt),
                response_ids=ids(self.response, 0.7, 64),
                response_index=0,
                first_success=0,
                ended=False,
            )
            for i in range(number)
        ]


#: Llama-3.1-8B: 8.03 billion parameters. Lengths: about 240 tokens per sequence on average, as in
#: the main LogiQA recipe; the distribution is assumed, since no real run's lengths are available.
LLAMA_8B = Shape(
    "llama-3.1-8b",
    {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
    "bfloat16",
    prompt=215,
    response=12,
    bandwidth_bytes=1 << 32,
)

#: For the test that keeps this script alive.
TINY = Shape(
    "tiny",
    {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
    "float32",
    prompt=20,
    response=5,
    bandwidth_bytes=1 << 22,
)

SHAPES = {shape.name: shape for shape in (LLAMA_8B, TINY)}
