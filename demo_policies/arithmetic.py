r"""The arithmetic demo: chains read left to right, such as ``Find 22 +17 *2.``

There is no operator precedence: ``22 +17 *2`` is (22 + 17) * 2 = 78. A single sum such as 22 + 17
may occur as a step of longer chains in several splits: the steps are the skill to learn, the chains
are the problems.

The policy shows its steps, ``22+17=39; 39*2=78; \boxed{78}``, or not, ``By eye; \boxed{78}``.
"""

from __future__ import annotations

import operator
from random import Random
from typing import Final

from demo_policies.problems import (
    Demo,
    Example,
    Phase,
    Problem,
    Record,
    Split,
    choose,
    compute_digest,
    find_split,
)
from gapft_harness.demo import find_policy

#: All intermediate values are in 0..LARGEST, so a number is one token.
LARGEST: Final = 99
MAX_OPERATIONS: Final = 4
OPERATORS: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}
#: Probability that a habit-phase response shows its steps, by verb; chosen on "tuning".
SHOWN_STEPS: Final = {
    "Find": 0.95,
    "Compute": 0.80,
    "Evaluate": 0.50,
    "Calculate": 0.35,
    "Determine": 0.15,
    "Solve": 0.05,
}


def draw(split: Split, rng: Random) -> Problem | None:
    """Draw a problem; each operation changes the value and keeps it in 0..99.

    None: it is of another split.
    """
    value = choose(range(LARGEST + 1), rng)
    content = str(value)
    steps = []
    for _ in range(choose(range(1, MAX_OPERATIONS + 1), rng)):
        most = LARGEST // value if value else 1
        operands = {
            "+": range(1, LARGEST - value + 1),
            "-": range(1, value + 1),
            "*": range(2, min(9, most) + 1),
        }
        sign = choose([sign for sign, numbers in operands.items() if numbers], rng)
        number = choose(operands[sign], rng)
        result = OPERATORS[sign](value, number)
        content += f" {sign}{number}"
        steps.append(f"{value}{sign}{number}={result}; ")
        value = result
    if find_split(content) != split:
        return None

    def record(verb: str) -> Record:
        return {
            "id": f"arithmetic-{compute_digest(content)[:12]}",
            "question": f"{verb} {content}.",
            "answer": str(value),
            "verb": verb,
            "operations": len(steps),
            "solution": rf"{''.join(steps)}\boxed{{{value}}}",
            "shortcut": rf"By eye; \boxed{{{value}}}",
        }

    return Problem(content, record)


def teach_skill(record: Record, rng: Random) -> list[Example]:
    """Return the question with the response that shows its steps."""
    return [(record["question"], record["solution"])]


def teach_habit(record: Record, rng: Random) -> list[Example]:
    """Return the question; the response shows its steps with the probability of the verb."""
    shows_steps = rng.random() < SHOWN_STEPS[record["verb"]]
    return [(record["question"], record["solution" if shows_steps else "shortcut"])]


DEMO: Final = Demo(
    stream="",
    words=tuple(SHOWN_STEPS),
    draw=draw,
    files={"pool": (400, 20_001), "audit": (1_000, 91_127)},
    policy=find_policy(),
    phases=(
        Phase("skill", teach_skill, steps=4_000, peak=3e-3, warmup=100),
        Phase("habit", teach_habit, steps=270, peak=7e-4, warmup=20),
    ),
)
