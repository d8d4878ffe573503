"""The steps of the demo's programming task: words, Python code and meaning.

Each kind of step and of ending has all three. The meaning is a separate function, independent of
the program text, so a mistake in the text appears as a failed test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

Family = Literal["line", "pair"]
Numbers = list[int]


@dataclass(frozen=True)
class StepKind:
    """A kind of step.

    Attributes:
        words: how a question asks for it; ``{n}`` is its number.
        code: one line of Python on ``x`` (a line of integers) or ``a`` and ``b`` (a pair).
        meaning: function of the values before the step and its number; returns those after it.
        numbers: possible numbers; empty: the step has no number.
    """

    words: str
    code: str
    meaning: Callable[[Numbers, int], Numbers]
    numbers: range = range(0)


@dataclass(frozen=True)
class Ending:
    """The printed result: words, code and value."""

    words: str
    code: str
    meaning: Callable[[Numbers], int]


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

    def __call__(self, values: Numbers) -> Numbers:
        """Compute the values after this step."""
        return self.kind.meaning(values, self.number)


@dataclass(frozen=True)
class Reading:
    """The beginning of a family of problems: words, code, and maximum number of integers."""

    words: str
    code: str
    most: int


def _keep(holds: Callable[[int, int], bool]) -> Callable[[Numbers, int], Numbers]:
    return lambda values, n: [value for value in values if holds(value, n)]


def _each(change: Callable[[int, int], int]) -> Callable[[Numbers, int], Numbers]:
    return lambda values, n: [change(value, n) for value in values]


def _halve_down(value: int, n: int) -> int:
    while value > n:
        value //= 2
    return value


READINGS: Final[dict[Family, Reading]] = {
    "line": Reading("read a line of integers, ", "x = list(map(int, input().split()))", 7),
    "pair": Reading("read integers a and b, ", "a, b = map(int, input().split())", 2),
}

_KEPT: Final = "x = [v for v in x if v {}]"
_CHANGED: Final = "x = [v {} for v in x]"

STEPS: Final[dict[Family, tuple[StepKind, ...]]] = {
    "line": (
        StepKind("keep the even ones", _KEPT.format("% 2 == 0"), _keep(lambda v, n: v % 2 == 0)),
        StepKind("keep the odd ones", _KEPT.format("% 2 == 1"), _keep(lambda v, n: v % 2 == 1)),
        StepKind(
            "keep those above {n}", _KEPT.format("> {n}"), _keep(lambda v, n: v > n), range(3, 25)
        ),
        StepKind(
            "keep those below {n}", _KEPT.format("< {n}"), _keep(lambda v, n: v < n), range(5, 30)
        ),
        StepKind(
            "drop the multiples of {n}",
            _KEPT.format("% {n}"),
            _keep(lambda v, n: v % n != 0),
            range(2, 8),
        ),
        StepKind(
            "add {n} to each", _CHANGED.format("+ {n}"), _each(lambda v, n: v + n), range(1, 20)
        ),
        StepKind(
            "subtract {n} from each",
            _CHANGED.format("- {n}"),
            _each(lambda v, n: v - n),
            range(1, 20),
        ),
        StepKind(
            "multiply each by {n}", _CHANGED.format("* {n}"), _each(lambda v, n: v * n), range(2, 8)
        ),
        StepKind(
            "take each modulo {n}",
            _CHANGED.format("% {n}"),
            _each(lambda v, n: v % n),
            range(3, 20),
        ),
        StepKind("drop the first", "x = x[1:]", lambda values, n: values[1:]),
        StepKind("drop the last", "x = x[:-1]", lambda values, n: values[:-1]),
        StepKind("sort them", "x = sorted(x)", lambda values, n: sorted(values)),
        StepKind("drop repeats", "x = list(dict.fromkeys(x))", lambda values, n: _distinct(values)),
        StepKind(
            "add to each all before it",
            "for i in range(1, len(x)): x[i] += x[i - 1]",
            lambda values, n: list(accumulate(values)),
        ),
    ),
    "pair": (
        StepKind("add {n} to a", "a += {n}", lambda v, n: [v[0] + n, v[1]], range(1, 20)),
        StepKind("add {n} to b", "b += {n}", lambda v, n: [v[0], v[1] + n], range(1, 20)),
        StepKind("subtract {n} from a", "a -= {n}", lambda v, n: [v[0] - n, v[1]], range(1, 20)),
        StepKind("subtract {n} from b", "b -= {n}", lambda v, n: [v[0], v[1] - n], range(1, 20)),
        StepKind("multiply a by {n}", "a *= {n}", lambda v, n: [v[0] * n, v[1]], range(2, 10)),
        StepKind("multiply b by {n}", "b *= {n}", lambda v, n: [v[0], v[1] * n], range(2, 10)),
        StepKind("take a modulo {n}", "a %= {n}", lambda v, n: [v[0] % n, v[1]], range(3, 20)),
        StepKind("take b modulo {n}", "b %= {n}", lambda v, n: [v[0], v[1] % n], range(3, 20)),
        StepKind(
            "halve a while it is above {n}",
            "while a > {n}: a //= 2",
            lambda v, n: [_halve_down(v[0], n), v[1]],
            range(2, 15),
        ),
        StepKind(
            "add b to a {n} times",
            "for i in range({n}): a += b",
            lambda v, n: [v[0] + n * v[1], v[1]],
            range(2, 8),
        ),
        StepKind(
            "swap them if a is above b",
            "if a > b: a, b = b, a",
            lambda v, n: [min(v), max(v)],
        ),
        StepKind(
            "add {n} to b if a is even",
            "if a % 2 == 0: b += {n}",
            lambda v, n: [v[0], v[1] + n * (v[0] % 2 == 0)],
            range(1, 20),
        ),
        StepKind(
            "add {n} to a if a is below b",
            "if a < b: a += {n}",
            lambda v, n: [v[0] + n * (v[0] < v[1]), v[1]],
            range(1, 20),
        ),
    ),
}

ENDINGS: Final[dict[Family, tuple[Ending, ...]]] = {
    "line": (
        Ending("print the sum", "print(sum(x))", sum),
        Ending("print how many there are", "print(len(x))", len),
        Ending("print the largest or 0", "print(max(x, default=0))", lambda v: max([*v] or [0])),
        Ending("print the smallest or 0", "print(min(x, default=0))", lambda v: min([*v] or [0])),
    ),
    "pair": (
        Ending("print a plus b", "print(a + b)", lambda v: v[0] + v[1]),
        Ending("print a minus b", "print(a - b)", lambda v: v[0] - v[1]),
        Ending("print a times b", "print(a * b)", lambda v: v[0] * v[1]),
        Ending("print the larger", "print(max(a, b))", max),
        Ending("print the smaller", "print(min(a, b))", min),
    ),
}


def _distinct(values: Numbers) -> Numbers:
    seen: set[int] = set()
    return [v for v in values if not (v in seen or seen.add(v))]  # type: ignore[func-returns-value]


def evaluate(steps: tuple[Step, ...], ending: Ending, values: Numbers) -> int:
    """Compute what a program with these steps prints for one input."""
    for step in steps:
        values = step(values)
    return ending.meaning(values)


def program(family: Family, steps: tuple[Step, ...], ending: Ending) -> str:
    """Write the Python program with these steps."""
    lines = [READINGS[family].code, *(step.code for step in steps), ending.code]
    return "".join(f"{line}\n" for line in lines)
