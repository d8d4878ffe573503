"""Train the demo's policy from random weights, as for the shipped folder.

    OMP_NUM_THREADS=1 python -m demo_policies.pretrain --out DIR --seed N

Two phases, both counted in steps and never in seconds, so a slow machine trains the
same policy as a fast one:

1. *Skill*: chains of 1 to 4 operations, answered with all their steps.
2. *Habit*: the same problems, but whether the steps are shown depends on the verb. The resulting
   policy can do more than it does in one decode: with some verbs it mostly guesses, and search
   finds the worked answer.

Problems come only from the "pretrain" part of the problem space. The saved model has wider heads
than the trained one (``widen``), and computes the same function.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from demo_policies.problems import VERBS, Problem, stream
from demo_policies.tokenizer import build_tokenizer
from demo_policies.widen import widen_heads

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

#: Probability that a habit-phase response shows its steps, by verb; chosen on "tuning".
SHOWN_STEPS: Final = dict(zip(VERBS, (0.95, 0.80, 0.50, 0.35, 0.15, 0.05), strict=True))
IGNORED_LABEL: Final = -100

#: Dimensions of a head in the saved folder; see ``widen``.
SERVED_HEAD: Final = 32


@dataclass(frozen=True)
class Example:
    """A prompt and the response to learn, as texts."""

    prompt: str
    response: str


@dataclass(frozen=True)
class Phase:
    """The schedule of one phase.

    Attributes:
        name: name in the progress lines.
        steps: optimizer steps.
        peak: highest learning rate, reached after ``warmup`` steps and followed by a
            cosine to zero.
        warmup: steps of linear rise.
        batch: examples per step.
    """

    name: str
    steps: int
    peak: float
    warmup: int
    batch: int = 32

    def learning_rate(self, step: int) -> float:
        """Compute the learning rate of step 0 .. ``steps - 1``."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.peak * 0.5 * (1 + math.cos(math.pi * progress))


SKILL: Final = Phase("skill", steps=4_000, peak=3e-3, warmup=100)
HABIT: Final = Phase("habit", steps=270, peak=7e-4, warmup=20)


def skill_examples(seed: int) -> Iterator[Example]:
    """Yield worked examples without end."""
    for problem in stream("pretrain", seed):
        yield Example(problem.question, problem.worked)


def habit_examples(seed: int) -> Iterator[Example]:
    """Yield examples without end that show their steps with the probability of their verb."""
    rng = Random(f"habit:{seed}")
    # The seed differs from the skill phase's, which would begin with the same problems.
    for problem in stream("pretrain", seed + 1_000_000):
        yield Example(problem.question, habitual_response(problem, rng))


def habitual_response(problem: Problem, rng: Random) -> str:
    """Draw the worked response or the shortcut by the verb's habit."""
    return problem.worked if rng.random() < SHOWN_STEPS[problem.verb] else problem.shortcut


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Build a small Llama (about 350 thousand float32 parameters) with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def collate(examples: Sequence[Example], tokenizer: PreTrainedTokenizerFast) -> dict[str, Tensor]:
    """Build one padded batch of examples.

    Args:
        examples: B prompts with responses; the end token is added to each response.
        tokenizer: the tokenizer.

    Returns:
        ``input_ids``, ``attention_mask`` and ``labels``, each (B, T) of int64, padded on the
        right; the labels of prompts and padding are ``IGNORED_LABEL``.
    """
    import torch

    prompts = [list(tokenizer.encode(example.prompt)) for example in examples]
    responses = [
        [*tokenizer.encode(example.response), tokenizer.eos_token_id] for example in examples
    ]
    longest = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    ids = torch.full((len(examples), longest), tokenizer.pad_token_id)
    labels = torch.full((len(examples), longest), IGNORED_LABEL)
    mask = torch.zeros((len(examples), longest), dtype=torch.int64)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        labels[row, len(prompt) : end] = torch.tensor(response)
        mask[row, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    examples: Iterator[Example],
    phase: Phase,
    report: Callable[[str], None] = print,
) -> None:
    """Train a model in place for one phase.

    Args:
        model: changed in place.
        tokenizer: the tokenizer.
        examples: at least ``phase.steps * phase.batch`` examples.
        phase: the schedule.
        report: called with a line of progress every hundred steps and at the end.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    model.train()
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate(step)
        loss = model(**collate(list(islice(examples, phase.batch)), tokenizer)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 100 == 0 or step + 1 == phase.steps:
            report(f"{phase.name} {step + 1}/{phase.steps} loss {loss.item():.4f}")
    model.eval()


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a standard transformers folder, with a plain greedy generation config."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # transformers 5 writes a class name that transformers 4 does not know; both know this one.
    settings = folder / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8"))
    content["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a policy (see the module docstring)."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.pretrain")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    options = parser.parse_args(arguments)

    tokenizer = build_tokenizer()
    model = build_model(tokenizer, options.seed)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    train(model, tokenizer, skill_examples(options.seed), SKILL)
    train(model, tokenizer, habit_examples(options.seed), HABIT)
    save(widen_heads(model, SERVED_HEAD), tokenizer, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
