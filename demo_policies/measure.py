"""Measure one decode and K samples of a demo policy by verb.

    OMP_NUM_THREADS=1 python -m demo_policies.measure --policy DIR --split tuning

The habits in ``pretrain`` were set with this on "tuning", and the numbers of the model card were
measured with it. For an experiment use ``gapft run`` instead.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo_policies.problems import SHORTCUT_OPENING, VERBS, Problem, generate
from gapft_harness.demo import find_policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: The longest response, four operations, is 27 tokens and the end token.
MAX_NEW_TOKENS: Final = 32
_BATCH: Final = 500
_BOXED: Final = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True)
class Searched:
    """A problem with the source's decodes.

    Attributes:
        problem: the problem.
        greedy: the greedy response.
        samples: K sampled responses.
    """

    problem: Problem
    greedy: str
    samples: tuple[str, ...]

    @property
    def passing(self) -> tuple[str, ...]:
        """Return the samples that a verifier accepts, in order."""
        return tuple(text for text in self.samples if verified(self.problem, text))

    @property
    def state(self) -> str:
        """Return ``G`` solved in one decode, ``S`` recovered or ``U`` missed by search."""
        if verified(self.problem, self.greedy):
            return "G"
        return "S" if self.passing else "U"


def verified(problem: Problem, response: str) -> bool:
    r"""Return whether the last ``\boxed{}`` of a response contains the problem's answer."""
    answers = _BOXED.findall(response)
    return bool(answers) and answers[-1].strip() == str(problem.answer)


def decode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    samples: int = 0,
    seed: int = 0,
) -> list[list[str]]:
    """Generate responses to each prompt: one greedy response, or samples at temperature 1.

    Args:
        model: any causal language model.
        tokenizer: one that pads on the left.
        prompts: P prompts.
        samples: responses to sample for each prompt; 0 for the greedy one.
        seed: seed of the sampling.

    Returns:
        P lists of ``max(1, samples)`` responses without special tokens.
    """
    import torch

    torch.manual_seed(seed)
    # Sample from the whole distribution: transformers' default keeps the 50 likeliest tokens.
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    settings = sampling | {"num_return_sequences": samples} if samples else {"do_sample": False}
    per_prompt = max(1, samples)
    responses: list[list[str]] = []
    rows = max(1, _BATCH // per_prompt)
    for first in range(0, len(prompts), rows):
        batch = tokenizer(list(prompts[first : first + rows]), return_tensors="pt", padding=True)
        with torch.inference_mode():
            ids = model.generate(**batch, **settings, max_new_tokens=MAX_NEW_TOKENS)
        width = batch["input_ids"].shape[1]
        texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
        responses += [
            texts[start : start + per_prompt] for start in range(0, len(texts), per_prompt)
        ]
    return responses


def search(folder: Path, problems: Sequence[Problem], k: int, seed: int) -> list[Searched]:
    """Decode problems once greedily and ``k`` times by sampling with the policy of a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [problem.question for problem in problems]
    greedy = decode(model, tokenizer, prompts)
    sampled = decode(model, tokenizer, prompts, samples=k, seed=seed)
    return [
        Searched(problem, greedy_texts[0], tuple(samples))
        for problem, greedy_texts, samples in zip(problems, greedy, sampled, strict=True)
    ]


def table(searched: Sequence[Searched]) -> str:
    """Format rows by verb and by number of operations: n, and these shares.

    ``G``, ``S``, ``U`` of the problems; ``steps``, the greedy responses that show their
    steps; ``sample``, the samples that pass; ``right``, the samples with steps that pass;
    ``lucky``, the sampled shortcuts that pass; ``short``, the shortest verified responses in
    S that are shortcuts.
    """
    names = ("G", "S", "U", "steps", "sample", "right", "lucky", "short")
    lines = [f"{'':<14}{'n':>6}" + "".join(f"{name:>8}" for name in names)]
    for verb in VERBS:
        lines.append(_row(verb, [item for item in searched if item.problem.verb == verb]))
    for count in sorted({len(item.problem.operations) for item in searched}):
        rows = [item for item in searched if len(item.problem.operations) == count]
        lines.append(_row(f"{count} operations", rows))
    return "\n".join([*lines, _row("all", searched)])


def _row(name: str, items: Sequence[Searched]) -> str:
    """Format one line of ``table``."""
    samples = [(is_shortcut(s), verified(i.problem, s)) for i in items for s in i.samples]
    kept = [min(item.passing, key=len) for item in items if item.state == "S"]
    shares = [_share([item.state == state for item in items]) for state in "GSU"]
    shares += [
        _share([not is_shortcut(item.greedy) for item in items]),
        _share([passed for _, passed in samples]),
        _share([passed for short, passed in samples if not short]),
        _share([passed for short, passed in samples if short]),
        _share([is_shortcut(text) for text in kept]),
    ]
    return f"{name:<14}{len(items):>6}" + "".join(f"{share:>8.3f}" for share in shares)


def is_shortcut(response: str) -> bool:
    """Return whether a response gives its answer without steps."""
    return response.startswith(SHORTCUT_OPENING)


def _share(outcomes: Sequence[bool]) -> float:
    """Return the share of true outcomes in 0..1; NaN without outcomes."""
    return sum(outcomes) / len(outcomes) if outcomes else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a policy on one split."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.measure")
    parser.add_argument("--policy", type=Path, default=find_policy(), help="default: as shipped")
    parser.add_argument("--split", choices=("tuning", "pool", "audit"), default="tuning")
    parser.add_argument("--count", type=int, default=1_000, help="problems (default: 1000)")
    parser.add_argument("--k", type=int, default=8, help="samples a problem (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="of problems and samples (default: 1)")
    options = parser.parse_args(arguments)
    problems = generate(options.split, options.count, options.seed)
    print(table(search(options.policy, problems, options.k, options.seed)))


if __name__ == "__main__":
    main()
