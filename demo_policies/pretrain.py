"""Train a demo's policy from random weights, as for the shipped folders.

    OMP_NUM_THREADS=1 python -m demo_policies.pretrain demo --out DIR

Two phases, both counted in steps and never in seconds, so a slow machine trains the same policy as
a fast one:

1. *Skill*: every problem is answered as well as possible.
2. *Habit*: the same problems, but how well they are answered depends on their first word. The
   resulting policy can do more than it does in one decode: with some words it mostly guesses, and
   search finds the right answer.

Problems come only from the "pretrain" part of the problem space.

The shipped folder states the architecture and the tokenizer; training makes the weights.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from demo_policies import arithmetic, programs
from demo_policies.problems import Example, Phase

DEMOS: Final = {"demo": arithmetic.DEMO, "demo-code": programs.DEMO}
BATCH: Final = 32
IGNORED_LABEL: Final = -100
#: Dimensions of a head, and the base of its rotary angles, in training.
HEAD_DIM: Final = 24
ROPE_THETA: Final = 10_000.0


def build_model(shipped: Path, seed: int) -> LlamaForCausalLM:
    """Build the model that is trained, with random weights (about 350 thousand of float32)."""
    torch.manual_seed(seed)
    config = LlamaConfig.from_pretrained(shipped)
    config.head_dim = HEAD_DIM
    config.rope_parameters["rope_theta"] = ROPE_THETA
    return LlamaForCausalLM(config)


def collate(examples: Iterable[Example], tokenizer: PreTrainedTokenizerFast) -> dict[str, Tensor]:
    """Build one batch: ``input_ids``, ``attention_mask`` and ``labels``, each (B, T) of int64.

    The end token is added to each response. Padding is on the right; the labels of prompts and
    padding are ``IGNORED_LABEL``.
    """
    ids = []
    labels = []
    for prompt, response in examples:
        prompt_ids = tokenizer.encode(prompt)
        response_ids = [*tokenizer.encode(response), tokenizer.eos_token_id]
        ids.append(torch.tensor([*prompt_ids, *response_ids]))
        labels.append(torch.tensor([IGNORED_LABEL] * len(prompt_ids) + response_ids))
    mask = [torch.ones_like(row) for row in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
        "attention_mask": pad_sequence(mask, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED_LABEL),
    }


def compute_learning_rate(phase: Phase, step: int) -> float:
    """Compute the learning rate of step 0 .. ``phase.steps - 1``."""
    if step < phase.warmup:
        return phase.peak * (step + 1) / phase.warmup
    progress = (step - phase.warmup) / (phase.steps - phase.warmup)
    return phase.peak * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    examples: Iterator[Example],
    phase: Phase,
) -> None:
    """Train a model in place for one phase; print the loss every hundred steps and at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = compute_learning_rate(phase, step)
        loss = model(**collate(islice(examples, BATCH), tokenizer)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 100 == 0 or step + 1 == phase.steps:
            print(f"step {step + 1}/{phase.steps} loss {loss.item():.4f}")


def widen_heads(weights: dict[str, Tensor], width: int) -> None:
    """Widen heads from ``HEAD_DIM`` to ``width`` in place; logits are equal up to rounding.

    vLLM's attention on a CPU supports heads of 32 dimensions, not of 24. Three changes preserve the
    function. Rotary positions turn dimensions i and i + h/2 of a head of h together, so zeros are
    added at the end of each half. The base of their angles, ``theta^(-2i/h)``, is raised to
    ``width / h`` (in the shipped config). And queries are scaled by ``sqrt(width / h)``, because
    scores are divided by the root of the head's width.
    """

    def widen(weight: Tensor) -> Tensor:
        """Widen (heads * HEAD_DIM, columns) to (heads * width, columns)."""
        halves = weight.reshape(-1, HEAD_DIM // 2, weight.shape[1])
        return pad(halves, (0, 0, 0, (width - HEAD_DIM) // 2)).flatten(0, 1)

    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            weights[name] = widen(weight) * math.sqrt(width / HEAD_DIM)
        elif name.endswith(("k_proj.weight", "v_proj.weight")):
            weights[name] = widen(weight)
        elif name.endswith("o_proj.weight"):
            weights[name] = widen(weight.T).T


def save(model: LlamaForCausalLM, shipped: Path, folder: Path) -> None:
    """Write a folder like the shipped one, with the weights of a trained model."""
    served = LlamaForCausalLM.from_pretrained(shipped)
    weights = model.state_dict()
    widen_heads(weights, served.config.head_dim)
    served.load_state_dict(weights)
    served.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(shipped / name, folder / name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a policy (see the module docstring)."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.pretrain")
    parser.add_argument("demo", choices=DEMOS)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    options = parser.parse_args(arguments)
    demo = DEMOS[options.demo]
    tokenizer = AutoTokenizer.from_pretrained(demo.policy)
    model = build_model(demo.policy, options.seed)
    for phase in demo.phases:
        train(model, tokenizer, demo.yield_examples(phase, options.seed), phase)
    save(model, demo.policy, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
