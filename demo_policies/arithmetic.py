r"""The arithmetic demo: chains read left to right, such as ``Find 22 +17 *2.``

There is no operator precedence: ``22 +17 *2`` is (22 + 17) * 2 = 78. A single sum such as 22 + 17
may occur as a step of longer chains in several splits: the steps are the skill to learn, the chains
are the problems.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, Final

from demo_policies.problems import Demo, DemoProblem, below

VERBS: Final = ("Find", "Compute", "Evaluate", "Calculate", "Determine", "Solve")
#: All intermediate values are in 0..LARGEST, so a number is one token.
LARGEST: Final = 99
MAX_OPERATIONS: Final = 4
#: Beginning of the policy's responses without steps.
SHORTCUT_OPENING: Final = "By eye; "
#: Probability that a habit-phase response shows its steps, by verb; chosen on "tuning".
SHOWN_STEPS: Final = dict(zip(VERBS, (0.95, 0.80, 0.50, 0.35, 0.15, 0.05), strict=True))
#: Phrases that are one token each; they keep a response within 28 tokens.
PHRASES: Final = (*VERBS, SHORTCUT_OPENING, r"\boxed{", "; ", " +", " -", " *")
#: Enough for the longest prompt and response after a few worked examples.
CONTEXT_TOKENS: Final = 256

_OPERATORS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


@dataclass(frozen=True)
class Problem(DemoProblem):
    """A chain of operations.

    Attributes:
        start: the number that the chain begins with.
        operations: operator and operand of 1 to ``MAX_OPERATIONS`` operations.
    """

    start: int
    operations: tuple[tuple[str, int], ...]

    @cached_property
    def values(self) -> tuple[int, ...]:
        """The start and the value after each operation."""
        values = [self.start]
        for sign, number in self.operations:
            values.append(_OPERATORS[sign](values[-1], number))
        return tuple(values)

    @property
    def content(self) -> str:
        """The chain as the question writes it, e.g. ``22 +17 *2``."""
        return f"{self.start}{''.join(f' {sign}{number}' for sign, number in self.operations)}"

    @property
    def question(self) -> str:
        """The prompt, e.g. ``Find 22 +17 *2.``"""
        return f"{self.word} {self.content}."

    @property
    def worked(self) -> str:
        r"""The response that shows its steps, e.g. ``22+17=39; 39*2=78; \boxed{78}``."""
        steps = (
            f"{before}{sign}{number}={after}; "
            for (sign, number), (before, after) in zip(
                self.operations, pairwise(self.values), strict=True
            )
        )
        return rf"{''.join(steps)}\boxed{{{self.values[-1]}}}"

    @property
    def shortcut(self) -> str:
        r"""The response that gives the answer at once, e.g. ``By eye; \boxed{78}``."""
        return rf"{SHORTCUT_OPENING}\boxed{{{self.values[-1]}}}"

    def record(self) -> dict[str, Any]:
        """Build its record, with gold responses in the two styles of the policy."""
        return {
            "id": f"arithmetic-{self.digest[:12]}",
            "question": self.question,
            "answer": str(self.values[-1]),
            "verb": self.word,
            "operations": len(self.operations),
            "solution": self.worked,
            "shortcut": self.shortcut,
        }


def draw(verb: str, rng: Random) -> Problem:
    """Draw a problem of any split; each operation changes the value and keeps it in 0..99."""
    start = value = below(LARGEST + 1, rng)
    operations = []
    for _ in range(1 + below(MAX_OPERATIONS, rng)):
        most = LARGEST // value if value else 1
        operands = {
            "+": range(1, LARGEST - value + 1),
            "-": range(1, value + 1),
            "*": range(2, min(9, most) + 1),
        }
        choices = [(sign, numbers) for sign, numbers in operands.items() if numbers]
        sign, numbers = choices[below(len(choices), rng)]
        number = numbers[below(len(numbers), rng)]
        operations.append((sign, number))
        value = _OPERATORS[sign](value, number)
    return Problem(verb, start, tuple(operations))


DEMO: Final = Demo("", VERBS, draw, pool=(400, 20_001), audit=(1_000, 91_127))


def yield_skill(seed: int) -> Iterator[tuple[str, str]]:
    """Yield prompts with worked responses without end."""
    for problem in DEMO.stream("pretrain", seed):
        yield problem.question, problem.worked


def yield_habit(seed: int) -> Iterator[tuple[str, str]]:
    """Yield prompts with responses that show their steps with the probability of their verb."""
    rng = Random(f"habit:{seed}")
    # The seed differs from the skill phase's, which would begin with the same problems.
    for problem in DEMO.stream("pretrain", seed + 1_000_000):
        shows = rng.random() < SHOWN_STEPS[problem.word]
        yield problem.question, problem.worked if shows else problem.shortcut
