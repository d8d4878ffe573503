"""Measure a programming policy's episodes by opening; the programs are executed.

    OMP_NUM_THREADS=1 python -m demo_policies.code_measure --policy DIR --split tuning

The habits in ``code_habits`` were set with this on "tuning", and the numbers of the model card were
measured with it. For an experiment use ``gapft run`` instead.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo_policies.code_habits import MAX_ATTEMPTS, conversation
from demo_policies.code_problems import OPENINGS, CodeProblem, generate
from gapft_harness.core.records import Attempt
from gapft_harness.demo import find_code_policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from gapft_harness.plugins.verifiers.program_tests import ProgramTests

#: The longest whole program is 40 tokens and the end token.
MAX_NEW_TOKENS: Final = 48
_BATCH: Final = 512
_LAZY: Final = ("unfinished", "constant", "other")


@dataclass(frozen=True)
class Episode:
    """A finished episode.

    Attributes:
        problem: the problem.
        attempts: earlier attempts with their feedback.
        final: the last response.
        stopped: whether it ended because all public tests passed.
        passed: whether the last response passed all tests.
    """

    problem: CodeProblem
    attempts: tuple[Attempt, ...]
    final: str
    stopped: bool
    passed: bool

    @property
    def first(self) -> str:
        """Return the first response."""
        return self.attempts[0].text if self.attempts else self.final

    @property
    def kind(self) -> str:
        """Classify the first response: ``whole``, ``unfinished``, ``constant`` or ``other``."""
        if self.first == self.problem.whole:
            return "whole"
        if self.first == self.problem.unfinished:
            return "unfinished"
        body = self.first.removeprefix("```python\nprint(").removesuffix(")\n```")
        return "constant" if body.removeprefix("-").isdigit() else "other"


@dataclass(frozen=True)
class Searched:
    """A problem's greedy episode and its K sampled ones."""

    greedy: Episode
    samples: tuple[Episode, ...]

    @property
    def state(self) -> str:
        """Return ``G`` solved in one decode, ``S`` recovered or ``U`` missed by search."""
        if self.greedy.passed:
            return "G"
        return "S" if any(episode.passed for episode in self.samples) else "U"


def decode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    sampled: bool,
) -> list[str]:
    """Generate a response to each prompt, greedy or at temperature 0.7 and top-p 0.95."""
    import torch

    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 0.95}
    settings = sampling if sampled else {"do_sample": False}
    texts: list[str] = []
    for first in range(0, len(prompts), _BATCH):
        batch = tokenizer(list(prompts[first : first + _BATCH]), return_tensors="pt", padding=True)
        with torch.inference_mode():
            ids = model.generate(**batch, **settings, max_new_tokens=MAX_NEW_TOKENS)
        width = batch["input_ids"].shape[1]
        texts += tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
    return texts


def play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    verifier: ProgramTests,
    problems: Sequence[CodeProblem],
    sampled: bool,
) -> list[Episode]:
    """Run one episode per problem, in rounds over the unfinished episodes."""
    golds = [gold(problem) for problem in problems]
    earlier: list[list[Attempt]] = [[] for _ in problems]
    final: dict[int, str] = {}
    for _ in range(MAX_ATTEMPTS):
        alive = [i for i in range(len(problems)) if i not in final]
        prompts = [conversation(problems[i], earlier[i]) for i in alive]
        texts = decode(model, tokenizer, prompts, sampled)
        feedback = verifier.feedback(texts, [golds[i] for i in alive])
        for i, text, message in zip(alive, texts, feedback, strict=True):
            if message is None:
                final[i] = text
            else:
                earlier[i].append(Attempt(text, (), "unknown", message))
    stopped = [i in final for i in range(len(problems))]
    texts = [final[i] if i in final else earlier[i].pop().text for i in range(len(problems))]
    passed = [verdict.passed for verdict in verifier.verify(texts, golds)]
    return [
        Episode(*fields)
        for fields in zip(problems, map(tuple, earlier), texts, stopped, passed, strict=True)
    ]


def gold(problem: CodeProblem) -> dict[str, object]:
    """Return the gold that the task gives the verifier."""
    record = problem.record()
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def search(folder: Path, problems: Sequence[CodeProblem], k: int, seed: int) -> list[Searched]:
    """Run each problem once greedily and ``k`` times by sampling with a folder's policy."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gapft_harness.plugins.verifiers.program_tests import ProgramTests

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with ProgramTests(preload=()) as verifier:
        greedy = play(model, tokenizer, verifier, problems, sampled=False)
        several = [problem for problem in problems for _ in range(k)]
        samples = play(model, tokenizer, verifier, several, sampled=True)
    return [
        Searched(episode, tuple(samples[start : start + k]))
        for episode, start in zip(greedy, range(0, len(samples), k or 1), strict=True)
    ]


def table(searched: Sequence[Searched]) -> str:
    """Format rows by opening and by number of steps: n, and these shares.

    ``G``, ``S``, ``U`` of the problems; ``sample``, the sampled episodes that pass. Of the greedy
    episodes: ``once``, right at the first attempt; ``unfin``, ``const`` and ``other``, first
    programs of these kinds; ``public``, first programs that fail a public test; ``mended``, the
    share of these that pass in the end; ``hidden``, episodes that end with all public tests passed
    and fail a hidden one.
    """
    names = ("G", "S", "U", "sample", "once", "unfin", "const", "other", "public", "mended")
    lines = [f"{'':<14}{'n':>5}" + "".join(f"{name:>8}" for name in (*names, "hidden"))]
    for opening in OPENINGS:
        rows = [item for item in searched if item.greedy.problem.opening == opening]
        lines.append(_row(opening, rows))
    for count in sorted({len(item.greedy.problem.steps) for item in searched}):
        rows = [item for item in searched if len(item.greedy.problem.steps) == count]
        lines.append(_row(f"{count} steps", rows))
    return "\n".join([*lines, _row("all", searched)])


def _row(name: str, items: Sequence[Searched]) -> str:
    """Format one line of ``table``."""
    greedy = [item.greedy for item in items]
    shares = [_share([item.state == state for item in items]) for state in "GSU"]
    shares += [
        _share([sample.passed for item in items for sample in item.samples]),
        _share([episode.passed and not episode.attempts for episode in greedy]),
        *(_share([episode.kind == kind for episode in greedy]) for kind in _LAZY),
        _share([bool(episode.attempts) or not episode.stopped for episode in greedy]),
        _share([episode.passed for episode in greedy if episode.attempts]),
        _share([episode.stopped and not episode.passed for episode in greedy]),
    ]
    return f"{name:<14}{len(items):>5}" + "".join(f"{share:>8.3f}" for share in shares)


def _share(outcomes: Sequence[bool]) -> float:
    """Return the share of true outcomes in 0..1; NaN without outcomes."""
    return sum(outcomes) / len(outcomes) if outcomes else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a policy on one split."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.code_measure")
    parser.add_argument(
        "--policy", type=Path, default=find_code_policy(), help="default: as shipped"
    )
    parser.add_argument("--split", choices=("tuning", "pool", "audit"), default="tuning")
    parser.add_argument("--count", type=int, default=300, help="problems (default: 300)")
    parser.add_argument("--k", type=int, default=8, help="episodes a problem (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="of problems and samples (default: 1)")
    options = parser.parse_args(arguments)
    problems = generate(options.split, options.count, options.seed)
    print(table(search(options.policy, problems, options.k, options.seed)))


if __name__ == "__main__":
    main()
