"""Train a demo's policy from random weights, as for the shipped folders.

    OMP_NUM_THREADS=1 python -m demo_policies.pretrain demo --out DIR --seed N

Two phases, both counted in steps and never in seconds, so a slow machine trains the same policy as
a fast one:

1. *Skill*: every problem is answered as well as possible.
2. *Habit*: the same problems, but how well they are answered depends on their first word. The
   resulting policy can do more than it does in one decode: with some words it mostly guesses, and
   search finds the right answer.

Problems come only from the "pretrain" part of the problem space.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo_policies import arithmetic, programs

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

#: Prompts with the responses to learn, without end.
Examples = Iterator[tuple[str, str]]

IGNORED_LABEL: Final = -100
PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"


@dataclass(frozen=True)
class Phase:
    """The schedule of one phase.

    Attributes:
        steps: optimizer steps.
        peak: highest learning rate, reached after ``warmup`` steps and followed by a cosine to 0.
        warmup: steps of linear rise.
        batch: examples per step.
    """

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


@dataclass(frozen=True)
class Policy:
    """What a policy is trained with.

    Attributes:
        phrases: phrases that are one token each, in the order of the vocabulary.
        context: its longest text in tokens.
        yield_skill: the examples of the skill phase, of a seed.
        yield_habit: the examples of the habit phase, of a seed.
        skill: the skill phase.
        habit: the habit phase.
        served_head: dimensions of a head in the saved folder, if not those of training.
    """

    phrases: Sequence[str]
    context: int
    yield_skill: Callable[[int], Examples]
    yield_habit: Callable[[int], Examples]
    skill: Phase
    habit: Phase
    served_head: int | None = None

    def build_tokenizer(self) -> PreTrainedTokenizerFast:
        """Build a tokenizer that pads on the left and adds no special token to a text.

        So ``decode(encode(text))`` is the text, and a prompt with a response has the tokens of the
        prompt followed by those of the response. The longest phrase that matches is a token;
        numbers 0..99 and every printable ASCII character follow the phrases.
        """
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        numbers = [str(number) for number in range(100)]
        characters = [*string.ascii_letters, *string.punctuation, " ", "\n"]
        words = dict.fromkeys([PAD, BOS, EOS, UNKNOWN, *self.phrases, *numbers, *characters])
        tokenizer = Tokenizer(
            models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
        )
        # Phrases before single characters, the longest first; a two-digit number has no leading 0.
        longest_first = sorted(self.phrases, key=len, reverse=True)
        alternatives = "|".join(_escape(phrase) for phrase in longest_first)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(
            Regex(rf"{alternatives}|[1-9][0-9]|[\s\S]"), behavior="isolated"
        )
        tokenizer.decoder = decoders.Fuse()
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token=PAD,
            bos_token=BOS,
            eos_token=EOS,
            unk_token=UNKNOWN,
            padding_side="left",
            model_max_length=self.context,
            model_input_names=["input_ids", "attention_mask"],
            clean_up_tokenization_spaces=False,
        )


#: vLLM's attention on a CPU supports heads of 32 dimensions and of multiples of 16 from 64 on. The
#: first policy is trained with 24.
POLICIES: Final = {
    "demo": Policy(
        arithmetic.PHRASES, arithmetic.CONTEXT_TOKENS, arithmetic.yield_skill,
        arithmetic.yield_habit, Phase(4_000, 3e-3, 100), Phase(270, 7e-4, 20), served_head=32,
    ),
    "demo-code": Policy(
        programs.list_phrases(), programs.CONTEXT_TOKENS, programs.yield_skill,
        programs.yield_habit, Phase(1_500, 3e-3, 100), Phase(400, 1e-3, 20),
    ),
}  # fmt: skip


def _escape(phrase: str) -> str:
    """Escape a phrase for Oniguruma, which may not accept the spaces of ``re.escape``."""
    return "".join(c if c.isalnum() or c in " \n,:;`" else f"\\{c}" for c in phrase)


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


def collate(
    examples: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerFast
) -> dict[str, Tensor]:
    """Build one padded batch of examples.

    Args:
        examples: B prompts with responses; the end token is added to each response.
        tokenizer: the tokenizer.

    Returns:
        ``input_ids``, ``attention_mask`` and ``labels``, each (B, T) of int64, padded on the
        right; the labels of prompts and padding are ``IGNORED_LABEL``.
    """
    import torch

    prompts = [list(tokenizer.encode(prompt)) for prompt, _ in examples]
    responses = [[*tokenizer.encode(response), tokenizer.eos_token_id] for _, response in examples]
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
    examples: Examples,
    phase: Phase,
    report: Callable[[str], None] = print,
) -> None:
    """Train a model in place for one phase; report progress every hundred steps and at the end."""
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
            report(f"step {step + 1}/{phase.steps} loss {loss.item():.4f}")
    model.eval()


def widen_heads(model: LlamaForCausalLM, width: int) -> LlamaForCausalLM:
    """Copy a model with heads of ``width`` dimensions; its logits are equal up to rounding.

    Three changes preserve the function. Rotary positions turn dimensions i and i + h/2 of a
    head of h together, so the zeros go to the end of each half. The base of their angles,
    ``theta^(-2i/h)``, is raised to ``width / h``. And queries are scaled by ``sqrt(width / h)``,
    because scores are divided by the root of the head's width.

    Args:
        model: a model with plain rotary positions and at most as many key heads as query heads.
        width: new number of dimensions of a head; even, and at least the old number.

    Raises:
        ValueError: the width is odd or less than the model's.
    """
    import torch
    from transformers import LlamaForCausalLM

    old = int(model.config.head_dim)
    if width % 2 or width < old:
        raise ValueError(f"expected an even width from {old}, found {width}")
    config = copy.deepcopy(model.config)
    config.head_dim = width
    rope = dict(config.rope_parameters)
    config.rope_parameters = rope | {"rope_theta": rope["rope_theta"] ** (width / old)}
    weights = model.state_dict()
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            wider = _pad_rows(weight, old, width)
            weights[name] = wider * math.sqrt(width / old) if "q_proj" in name else wider
        elif name.endswith("o_proj.weight"):
            weights[name] = _pad_rows(weight.T, old, width).T.contiguous()
    # All weights drawn here are replaced; the caller's random stream must not advance.
    with torch.random.fork_rng(devices=[]):
        wide = LlamaForCausalLM(config)
    wide.load_state_dict(weights)
    return wide.eval()


def _pad_rows(weight: Tensor, old: int, width: int) -> Tensor:
    """Pad (heads * old, columns) to (heads * width, columns) with zeros after each half head."""
    import torch

    halves = weight.reshape(-1, old // 2, weight.shape[1])
    zeros = halves.new_zeros(halves.shape[0], (width - old) // 2, halves.shape[2])
    return torch.cat([halves, zeros], dim=1).flatten(0, 1)


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
    parser.add_argument("policy", choices=POLICIES)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    options = parser.parse_args(arguments)
    policy = POLICIES[options.policy]
    tokenizer = policy.build_tokenizer()
    model = build_model(tokenizer, options.seed)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    train(model, tokenizer, policy.yield_skill(options.seed), policy.skill)
    train(model, tokenizer, policy.yield_habit(options.seed), policy.habit)
    if policy.served_head is not None:
        model = widen_heads(model, policy.served_head)
    save(model, tokenizer, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
