r"""The demo's programming task: short Python programs that are executed.

    python -m demo_policies.code_problems --out tasks/demo_code

writes ``pool.jsonl`` and ``audit.jsonl``. A question asks for one to three steps on the integers
of one line, and shows one example:

    Write code: read a line of integers, keep those above 4, add 3 to each, print the sum.
    Example: 3 9 8 gives 23

The whole problem space is divided by a hash of the request (the opening and the example left
out). So a request of the pool or the audit never occurs in pre-training, with any opening. Each
single step does: the audit tests the composition of steps. A program without the last step of one
request is the whole program of a shorter one, possibly of another split.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from demo_policies.code_steps import (
    ENDINGS,
    READINGS,
    STEPS,
    Ending,
    Family,
    Step,
    evaluate,
    program,
)
from demo_policies.code_tests import Suite, draw_suite
from demo_policies.problems import Split, split_of

#: Openings of questions. The policy's habit of writing whole programs depends on them.
OPENINGS: Final = ("Carefully", "Write code", "In Python", "Short program", "Quick one", "Sketch")
MAX_STEPS: Final = 3

POOL_SIZE: Final = 216
POOL_SEED: Final = 30_011
AUDIT_SIZE: Final = 144
AUDIT_SEED: Final = 77_419


@dataclass(frozen=True)
class CodeProblem:
    """A question with its request, tests and responses.

    Attributes:
        opening: the question's first words, one of ``OPENINGS``.
        family: what is read.
        steps: 1 to ``MAX_STEPS`` steps, in order.
        ending: what is printed.
    """

    opening: str
    family: Family
    steps: tuple[Step, ...]
    ending: Ending

    @cached_property
    def request(self) -> str:
        """The program's task in words; two questions with the same request are the same problem."""
        words = "".join(f"{step.words}, " for step in self.steps)
        return f"{READINGS[self.family].words}{words}{self.ending.words}."

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the request in hex."""
        return hashlib.sha256(self.request.encode()).hexdigest()

    @property
    def split(self) -> Split:
        """The split of this request, independent of the opening."""
        return split_of(self.digest)

    @cached_property
    def suite(self) -> Suite | None:
        """Its tests, which depend only on the request; None: a step makes no difference."""
        return draw_suite(self.family, self.steps, self.ending, Random(f"tests:{self.digest}"))

    @property
    def tests(self) -> Suite:
        """Its tests.

        Raises:
            ValueError: a step makes no difference, so there are no tests.
        """
        if self.suite is None:
            raise ValueError(f"a step makes no difference: {self.request}")
        return self.suite

    @property
    def question(self) -> str:
        """The prompt, with the first public test as the example."""
        shown = self.tests.tests[0]
        return f"{self.opening}: {self.request}\nExample: {shown.line} gives {shown.answer}\n\n"

    @property
    def whole(self) -> str:
        """The response with the whole program."""
        return fenced(program(self.family, self.steps, self.ending))

    @property
    def unfinished(self) -> str:
        """The response with a program without the last step."""
        return fenced(program(self.family, self.steps[:-1], self.ending))

    def record(self) -> dict[str, Any]:
        """Build the record of a task's JSON file; ``solution`` is a gold response."""
        return {
            "id": f"program-{self.digest[:12]}",
            "question": self.question,
            "opening": self.opening,
            "family": self.family,
            "steps": len(self.steps),
            "kind": "stdin",
            "function": None,
            "public": self.tests.public,
            "tests": [
                {"input": f"{test.line}\n", "output": f"{test.answer}\n"}
                for test in self.tests.tests
            ],
            "solution": self.whole,
        }


def constant(answer: int) -> str:
    """Write a response whose program prints one number for every input."""
    return fenced(f"print({answer})\n")


def fenced(source: str) -> str:
    """Put a program into a code fence, as a response does."""
    return f"```python\n{source}```"


def unfinished_answer(problem: CodeProblem, values: Sequence[int]) -> int:
    """Compute what the program without the last step prints."""
    return evaluate(problem.steps[:-1], problem.ending, [*values])


def stream(split: Split, seed: int) -> Iterator[CodeProblem]:
    """Yield problems of one split without end; repeats are possible, openings take turns.

    Args:
        split: the part of the problem space to draw from.
        seed: with the split, it determines every problem.
    """
    if split not in get_args(Split):
        expected = ", ".join(get_args(Split))
        raise ValueError(f"split: found {split!r}, expected one of {expected}")
    rng = Random(f"code:{split}:{seed}")
    for opening in cycle(OPENINGS):
        problem = _draw(opening, rng)
        while problem.split != split or problem.suite is None:
            problem = _draw(opening, rng)
        yield problem


def generate(split: Split, count: int, seed: int) -> list[CodeProblem]:
    """Generate distinct problems of one split.

    Args:
        split: the part of the problem space to draw from.
        count: how many problems. No two of them share a request.
        seed: with the split, it determines every problem. More problems of the same seed
            begin with the same ones.

    Returns:
        ``count`` problems in which the openings' counts differ by at most one.
    """
    problems = stream(split, seed)
    by_request: dict[str, CodeProblem] = {}
    while len(by_request) < count:
        problem = next(problems)
        if problem.request not in by_request:
            # Reassign the opening, because a skipped repeat would unbalance the turns.
            opening = OPENINGS[len(by_request) % len(OPENINGS)]
            by_request[problem.request] = replace(problem, opening=opening)
    return list(by_request.values())


def write_task_data(folder: Path) -> list[Path]:
    """Write ``pool.jsonl`` and ``audit.jsonl`` into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pool, audit = folder / "pool.jsonl", folder / "audit.jsonl"
    for problems, path in (
        (generate("pool", POOL_SIZE, POOL_SEED), pool),
        (generate("audit", AUDIT_SIZE, AUDIT_SEED), audit),
    ):
        lines = (json.dumps(problem.record()) + "\n" for problem in problems)
        path.write_bytes("".join(lines).encode())
    return [pool, audit]


def _draw(opening: str, rng: Random) -> CodeProblem:
    """Draw a problem of any split, possibly one without tests."""
    family: Family = "line" if rng.random() < 0.6 else "pair"
    kinds = STEPS[family]
    steps = []
    # One step is drawn less often, because there are few requests of one step.
    for _ in range((1, 2, 2, 3, 3)[below(5, rng)]):
        kind = kinds[below(len(kinds), rng)]
        number = kind.numbers[below(len(kind.numbers), rng)] if kind.numbers else 0
        steps.append(Step(kind, number))
    endings = ENDINGS[family]
    return CodeProblem(opening, family, tuple(steps), endings[below(len(endings), rng)])


def below(bound: int, rng: Random) -> int:
    """Draw an integer in 0..bound-1, equal in all versions of Python."""
    return int(rng.random() * bound)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the task's files (see the module docstring)."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.code_problems")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("tasks/demo_code"),
        help="folder to write (default: %(default)s)",
    )
    for path in write_task_data(parser.parse_args(arguments).out):
        print(path)


if __name__ == "__main__":
    main()
