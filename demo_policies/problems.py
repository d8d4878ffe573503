r"""The demo's task: arithmetic chains read left to right, such as ``Find 22 +17 *2.``

    python -m demo_policies.problems --out tasks/demo

writes ``pool.jsonl`` (400 problems to search and train on) and ``audit.jsonl`` (1,000
problems to judge on). There is no operator precedence: ``22 +17 *2`` is (22 + 17) * 2 = 78.

The whole problem space is divided by a hash of the expression, the verb left out. So an
expression of the pool or the audit never occurs in pre-training, with any verb, for every seed
and every number of problems. (A single sum such as 22 + 17 may occur as a step of longer chains
in several splits: the steps are the skill to learn, the chains are the problems.)
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, pairwise
from pathlib import Path
from random import Random
from typing import Final, Literal

Split = Literal["pretrain", "tuning", "pool", "audit"]
Operator = Literal["+", "-", "*"]

#: First words of questions. The policy's habit of showing steps depends on them.
VERBS: Final = ("Find", "Compute", "Evaluate", "Calculate", "Determine", "Solve")
#: All intermediate values are in 0..LARGEST, so a number is one token.
LARGEST: Final = 99
MAX_OPERATIONS: Final = 4
#: Beginning of the policy's responses without steps.
SHORTCUT_OPENING: Final = "By eye; "

# Percent of the problem space by split, in this order. The policy's settings were chosen on
# "tuning"; nothing was chosen on "pool" or "audit".
_SHARES: Final[dict[Split, int]] = {"pretrain": 70, "tuning": 10, "pool": 10, "audit": 10}

POOL_SIZE: Final = 400
POOL_SEED: Final = 20_001
AUDIT_SIZE: Final = 1_000
AUDIT_SEED: Final = 91_127


@dataclass(frozen=True)
class Operation:
    """One operation of a chain."""

    operator: Operator
    operand: int

    def __call__(self, value: int) -> int:
        """Compute the value after this operation."""
        if self.operator == "+":
            return value + self.operand
        if self.operator == "-":
            return value - self.operand
        return value * self.operand


@dataclass(frozen=True)
class Problem:
    """A question of the demo with its answer and responses.

    Attributes:
        verb: the first word of the question, one of ``VERBS``.
        start: the number that the chain begins with.
        operations: 1 to ``MAX_OPERATIONS`` operations, applied left to right.
    """

    verb: str
    start: int
    operations: tuple[Operation, ...]

    @cached_property
    def values(self) -> tuple[int, ...]:
        """The start and the value after each operation, ``len(operations) + 1`` numbers."""
        values = [self.start]
        for operation in self.operations:
            values.append(operation(values[-1]))
        return tuple(values)

    @property
    def answer(self) -> int:
        """The value after the last operation."""
        return self.values[-1]

    @cached_property
    def expression(self) -> str:
        """The chain as the question writes it, e.g. ``22 +17 *2``."""
        links = (f" {link.operator}{link.operand}" for link in self.operations)
        return f"{self.start}{''.join(links)}"

    @property
    def question(self) -> str:
        """The prompt, e.g. ``Find 22 +17 *2.``"""
        return f"{self.verb} {self.expression}."

    @property
    def worked(self) -> str:
        r"""The response that shows its steps, e.g. ``22+17=39; 39*2=78; \boxed{78}``."""
        steps = (
            f"{before}{link.operator}{link.operand}={after}; "
            for link, (before, after) in zip(self.operations, pairwise(self.values), strict=True)
        )
        return f"{''.join(steps)}{boxed(self.answer)}"

    @property
    def shortcut(self) -> str:
        r"""The response that gives the answer at once, e.g. ``By eye; \boxed{78}``."""
        return f"{SHORTCUT_OPENING}{boxed(self.answer)}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the expression, without the verb, in hex."""
        return hashlib.sha256(self.expression.encode()).hexdigest()

    @property
    def split(self) -> Split:
        """The split of this expression, independent of the verb."""
        return split_of(self.digest)

    def record(self) -> dict[str, str | int]:
        """Build the record of a task's JSON file.

        ``solution`` and ``shortcut`` are gold responses in the two styles that the policy
        itself writes, so the policy can reach a gold target.
        """
        return {
            "id": f"arithmetic-{self.digest[:12]}",
            "question": self.question,
            "answer": str(self.answer),
            "verb": self.verb,
            "operations": len(self.operations),
            "solution": self.worked,
            "shortcut": self.shortcut,
        }


def boxed(answer: int) -> str:
    r"""Write an answer as at the end of a response, e.g. ``\boxed{78}``."""
    return rf"\boxed{{{answer}}}"


def split_of(digest: str) -> Split:
    """Return the split of an expression with this SHA-256 in hex."""
    percent = int(digest[:16], 16) % 100
    for split, share in _SHARES.items():
        if percent < share:
            return split
        percent -= share
    raise AssertionError("the shares of the splits do not add up to 100")


def stream(split: Split, seed: int) -> Iterator[Problem]:
    """Yield problems of one split without end; repeats are possible, verbs take turns.

    Args:
        split: the part of the problem space to draw from.
        seed: with the split, it determines every problem.
    """
    if split not in _SHARES:
        raise ValueError(f"split: found {split!r}, expected one of {', '.join(_SHARES)}")
    rng = Random(f"{split}:{seed}")
    for verb in cycle(VERBS):
        problem = _draw(verb, rng)
        while problem.split != split:
            problem = _draw(verb, rng)
        yield problem


def generate(split: Split, count: int, seed: int) -> list[Problem]:
    """Generate distinct problems of one split.

    Args:
        split: the part of the problem space to draw from.
        count: how many problems. No two of them share an expression.
        seed: with the split, it determines every problem. More problems of the same seed
            begin with the same ones.

    Returns:
        ``count`` problems in which the verbs' counts differ by at most one.
    """
    problems = stream(split, seed)
    by_expression: dict[str, Problem] = {}
    while len(by_expression) < count:
        problem = next(problems)
        if problem.expression not in by_expression:
            # Reassign the verb, because a skipped repeat would unbalance the turns.
            verb = VERBS[len(by_expression) % len(VERBS)]
            by_expression[problem.expression] = replace(problem, verb=verb)
    return list(by_expression.values())


def write_jsonl(problems: Sequence[Problem], path: Path) -> None:
    """Write one record per line, as UTF-8 with Unix line ends on every system."""
    lines = (json.dumps(problem.record(), ensure_ascii=False) + "\n" for problem in problems)
    path.write_bytes("".join(lines).encode())


def write_task_data(folder: Path) -> list[Path]:
    """Write the demo's ``pool.jsonl`` and ``audit.jsonl`` into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pool, audit = folder / "pool.jsonl", folder / "audit.jsonl"
    write_jsonl(generate("pool", POOL_SIZE, POOL_SEED), pool)
    write_jsonl(generate("audit", AUDIT_SIZE, AUDIT_SEED), audit)
    return [pool, audit]


def _draw(verb: str, rng: Random) -> Problem:
    """Draw a problem of any split: 1 to 4 operations, each value in 0..99."""
    start = value = _below(LARGEST + 1, rng)
    operations: list[Operation] = []
    for _ in range(1 + _below(MAX_OPERATIONS, rng)):
        choices = [choice for choice in _operands(value) if choice[1]]
        operator, operands = choices[_below(len(choices), rng)]
        operations.append(Operation(operator, operands[_below(len(operands), rng)]))
        value = operations[-1](value)
    return Problem(verb, start, tuple(operations))


def _operands(value: int) -> list[tuple[Operator, range]]:
    """List the operands by operator that change a value and keep it in 0..99."""
    most = LARGEST // value if value else 1
    return [
        ("+", range(1, LARGEST - value + 1)),
        ("-", range(1, value + 1)),
        ("*", range(2, min(9, most) + 1)),
    ]


def _below(bound: int, rng: Random) -> int:
    """Draw an integer in 0..bound-1.

    Python guarantees equal sequences in all versions only for ``Random.random``, and the shipped
    files must have the same bytes in all versions.
    """
    return int(rng.random() * bound)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the demo's task files (see the module docstring)."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.problems")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("tasks/demo"),
        help="folder to write (default: %(default)s)",
    )
    for path in write_task_data(parser.parse_args(arguments).out):
        print(path)


if __name__ == "__main__":
    main()
