"""Pre-trains the study's base from random weights, and every policy from the base.

    python -m controlled_study pretrain --size small --out BASE
    python -m controlled_study pretrain --size small --base BASE --seed 0 --out POLICY

The learning rate rises, stays, and falls to zero over the last half. Nothing is counted in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controlled_study import tokens
from controlled_study.authors import batch_of
from controlled_study.problems import Problem
from controlled_study.sizes import SIZES, Size
from demo_policies.pretrain import IGNORED_LABEL, save

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM

#: Facts of a pre-training, in the policy's folder.
FACTS: Final = "pretrain.json"
#: Problems of one forward pass where probabilities are computed.
_AT_ONCE: Final = 256

Row = tuple[Problem, str]


def build_model(size: Size) -> LlamaForCausalLM:
    """A Llama with random float32 weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = tokens.tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.hidden * 8 // 3,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=tokens.CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.06,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Ids and labels, (B, T) of int64, padded on the right; prompts and padding have no label."""
    import torch

    end, pad = int(tokens.tokenizer().eos_token_id), int(tokens.tokenizer().pad_token_id)
    encoded = [
        (tokens.prompt_ids(problem), [*tokens.response_ids(response), end])
        for problem, response in rows
    ]
    width = max(len(prompt) + len(response) for prompt, response in encoded)
    ids = torch.full((len(rows), width), pad)
    labels = torch.full((len(rows), width), IGNORED_LABEL)
    for place, (prompt, response) in enumerate(encoded):
        whole = torch.tensor([*prompt, *response])
        ids[place, : len(whole)] = whole
        labels[place, len(prompt) : len(whole)] = whole[len(prompt) :]
    return ids, labels


def token_losses(model: LlamaForCausalLM, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of every position, (B, T - 1), and the labels that it is of."""
    import torch

    ids, labels = padded(rows)
    # Padding is on the right and attention causal, so no token sees it.
    logits = model(input_ids=ids).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORED_LABEL, reduction="none"
    ), labels[:, 1:]


def learning_rate(size: Size, step: int, steps: int) -> float:
    """Of step 0, 1, … of so many: it rises, stays, and falls to zero over the last half."""
    left = (steps - step) / (steps - steps // 2)
    return size.peak * min(1.0, (step + 1) / size.warmup, left)


def train(model: LlamaForCausalLM, size: Size, seed: int | None) -> None:
    """Pre-trains a model in place: the base's steps where ``seed`` is none, else a policy's own."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    steps = size.base_steps if seed is None else size.steps
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(size, step, steps)
        losses, labels = token_losses(model, batch_of(seed, step, size.batch, size.cells))
        loss = losses.sum() / (labels != IGNORED_LABEL).sum()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.eval()


def right_probabilities(folder: Path, problems: Sequence[Problem]) -> Iterator[float]:
    """The policy's probability of each problem's right response with its end, at temperature 1.

    It is exact, but for other ways to pass (lucky responses).
    """
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for first in range(0, len(problems), _AT_ONCE):
        rows = [(problem, problem.response()) for problem in problems[first : first + _AT_ONCE]]
        with torch.inference_mode():
            losses, _ = token_losses(model, rows)
        yield from (-losses.double().sum(1)).exp().tolist()


def pretrain(size_name: str, base: Path | None, seed: int | None, out: Path) -> None:
    """Makes the base, or a policy of a seed from it; ``out`` is there only once it is whole."""
    import torch
    from transformers import LlamaForCausalLM

    torch.use_deterministic_algorithms(True)
    size = SIZES[size_name]
    model = build_model(size) if base is None else LlamaForCausalLM.from_pretrained(base)
    print(f"{model.num_parameters():,} parameters, {len(tokens.tokenizer())} tokens", flush=True)
    train(model, size, seed)
    beside = out.with_name(f"{out.name}.part")
    save(model, tokens.tokenizer(), beside)
    facts = {"size": size_name, "seed": seed, "torch": torch.__version__,
             "parameters": model.num_parameters()}  # fmt: skip
    (beside / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    beside.rename(out)
