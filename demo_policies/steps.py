"""The steps of the demo's programming task: how a question asks for each, and its line of Python.

What a program prints follows from these lines, which are executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any, Final, Literal

Family = Literal["line", "pair"]


@dataclass(frozen=True)
class StepKind:
    """A kind of step.

    Attributes:
        words: how a question asks for it; ``{n}`` is its number.
        code: one line of Python on ``x`` (a line of integers) or ``a`` and ``b`` (a pair).
        numbers: possible numbers; empty: the step has no number.
    """

    words: str
    code: str
    numbers: range = range(0)


@dataclass(frozen=True)
class Ending:
    """The printed result: words, and an expression."""

    words: str
    value: str

    @property
    def code(self) -> str:
        """The line of Python."""
        return f"print({self.value})"


@dataclass(frozen=True)
class Step:
    """One step of a problem.

    Attributes:
        kind: what is done.
        number: its number; 0: the kind has none.
    """

    kind: StepKind
    number: int = 0

    @property
    def words(self) -> str:
        """How a question asks for it, e.g. ``keep those above 4``."""
        return self.kind.words.format(n=self.number)

    @property
    def code(self) -> str:
        """The line of Python."""
        return self.kind.code.format(n=self.number)


@dataclass(frozen=True)
class Reading:
    """The beginning of a family of problems: words, code, and maximum number of integers."""

    words: str
    code: str
    most: int


READINGS: Final[dict[Family, Reading]] = {
    "line": Reading("read a line of integers, ", "x = list(map(int, input().split()))", 7),
    "pair": Reading("read integers a and b, ", "a, b = map(int, input().split())", 2),
}

STEPS: Final[dict[Family, tuple[StepKind, ...]]] = {
    "line": (
        StepKind("keep the even ones", "x = [v for v in x if v % 2 == 0]"),
        StepKind("keep the odd ones", "x = [v for v in x if v % 2 == 1]"),
        StepKind("keep those above {n}", "x = [v for v in x if v > {n}]", range(3, 25)),
        StepKind("keep those below {n}", "x = [v for v in x if v < {n}]", range(5, 30)),
        StepKind("drop the multiples of {n}", "x = [v for v in x if v % {n}]", range(2, 8)),
        StepKind("add {n} to each", "x = [v + {n} for v in x]", range(1, 20)),
        StepKind("subtract {n} from each", "x = [v - {n} for v in x]", range(1, 20)),
        StepKind("multiply each by {n}", "x = [v * {n} for v in x]", range(2, 8)),
        StepKind("take each modulo {n}", "x = [v % {n} for v in x]", range(3, 20)),
        StepKind("drop the first", "x = x[1:]"),
        StepKind("drop the last", "x = x[:-1]"),
        StepKind("sort them", "x = sorted(x)"),
        StepKind("drop repeats", "x = list(dict.fromkeys(x))"),
        StepKind("add to each all before it", "for i in range(1, len(x)): x[i] += x[i - 1]"),
    ),
    "pair": (
        StepKind("add {n} to a", "a += {n}", range(1, 20)),
        StepKind("add {n} to b", "b += {n}", range(1, 20)),
        StepKind("subtract {n} from a", "a -= {n}", range(1, 20)),
        StepKind("subtract {n} from b", "b -= {n}", range(1, 20)),
        StepKind("multiply a by {n}", "a *= {n}", range(2, 10)),
        StepKind("multiply b by {n}", "b *= {n}", range(2, 10)),
        StepKind("take a modulo {n}", "a %= {n}", range(3, 20)),
        StepKind("take b modulo {n}", "b %= {n}", range(3, 20)),
        StepKind("halve a while it is above {n}", "while a > {n}: a //= 2", range(2, 15)),
        StepKind("add b to a {n} times", "for i in range({n}): a += b", range(2, 8)),
        StepKind("swap them if a is above b", "if a > b: a, b = b, a"),
        StepKind("add {n} to b if a is even", "if a % 2 == 0: b += {n}", range(1, 20)),
        StepKind("add {n} to a if a is below b", "if a < b: a += {n}", range(1, 20)),
    ),
}

ENDINGS: Final[dict[Family, tuple[Ending, ...]]] = {
    "line": (
        Ending("print the sum", "sum(x)"),
        Ending("print how many there are", "len(x)"),
        Ending("print the largest or 0", "max(x, default=0)"),
        Ending("print the smallest or 0", "min(x, default=0)"),
    ),
    "pair": (
        Ending("print a plus b", "a + b"),
        Ending("print a minus b", "a - b"),
        Ending("print a times b", "a * b"),
        Ending("print the larger", "max(a, b)"),
        Ending("print the smaller", "min(a, b)"),
    ),
}


@cache
def _compile(code: str, mode: str) -> CodeType:
    return compile(code, "<step>", mode)


def evaluate(steps: tuple[Step, ...], ending: Ending, values: Sequence[int]) -> int:
    """Execute steps on the integers of one input; return what the ending prints."""
    names: dict[str, Any] = {"x": [*values], "a": values[0], "b": values[-1]}
    for step in steps:
        exec(_compile(step.code, "exec"), names)
    return int(eval(_compile(ending.value, "eval"), names))


def program(family: Family, steps: tuple[Step, ...], ending: Ending) -> str:
    """Write the Python program with these steps."""
    lines = [READINGS[family].code, *(step.code for step in steps), ending.code]
    return "".join(f"{line}\n" for line in lines)
