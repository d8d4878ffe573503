"""Tests of the demo's programming problems, drawn so that lazy programs are found out.

The public tests are few and small, as in contests: in part of the problems they do not exercise
the last step, so that a program without it passes them all. The hidden tests tell the whole
program from every program that leaves out one step, and from every constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from demo_policies.code_steps import READINGS, Ending, Family, Step, evaluate

HIDDEN: Final = 4
#: Share of the problems whose public tests do not exercise the last step, where there are such.
BLIND: Final = 0.4
#: Answers beyond this are no use for reading along.
LARGEST_ANSWER: Final = 9_999
#: Inputs drawn before a problem is given up.
_TRIES: Final = 30


@dataclass(frozen=True)
class CodeTest:
    """One test: the integers of the input line, and the answer."""

    values: tuple[int, ...]
    answer: int

    @property
    def line(self) -> str:
        """The input line."""
        return " ".join(map(str, self.values))


@dataclass(frozen=True)
class Suite:
    """The tests of a problem, the first ``public`` of them public."""

    tests: tuple[CodeTest, ...]
    public: int


def draw_suite(
    family: Family, steps: tuple[Step, ...], ending: Ending, rng: Random
) -> Suite | None:
    """Tests of a problem.

    Args:
        family: what is read.
        steps: the problem's steps.
        ending: what is printed.
        rng: source of the inputs.

    Returns:
        One or two public and ``HIDDEN`` hidden tests; None where no inputs were found that tell
        each step's absence, so that the step makes no difference.
    """
    public = 1 + (rng.random() < 0.5)
    blind = rng.random() < BLIND
    partial = [steps[:i] + steps[i + 1 :] for i in range(len(steps))]

    def draw(most: int) -> CodeTest:
        values = _values(family, most, rng)
        return CodeTest(values, evaluate(steps, ending, [*values]))

    def seen(test: CodeTest) -> bool:
        """Whether a test exercises the last step."""
        return evaluate(steps[:-1], ending, [*test.values]) != test.answer

    shown = [_first(lambda: draw(4), lambda t: seen(t) != blind) for _ in range(public)]
    for _ in range(_TRIES):
        hidden = [draw(READINGS[family].most) for _ in range(HIDDEN)]
        tests = (*shown, *hidden)
        answers = {test.answer for test in hidden}
        if (
            len(answers) > 1
            and len({test.answer for test in tests[:public]}) == public
            and len({test.values for test in tests}) == len(tests)
            and all(abs(test.answer) <= LARGEST_ANSWER for test in tests)
            and all(
                any(evaluate(other, ending, [*t.values]) != t.answer for t in hidden)
                for other in partial
            )
        ):
            return Suite(tests, public)
    return None


def _first(draw: Callable[[], CodeTest], wanted: Callable[[CodeTest], bool]) -> CodeTest:
    """The first test that is as wanted, or the last one drawn where none is."""
    for _ in range(_TRIES):
        test = draw()
        if wanted(test):
            break
    return test


def _values(family: Family, most: int, rng: Random) -> tuple[int, ...]:
    """The integers of an input: 3 to ``most`` of them, or two; now and then with repeats."""
    count = 2 if family == "pair" else 3 + int(rng.random() * (most - 2))
    bound = 12 if rng.random() < 0.3 else 40
    return tuple(int(rng.random() * bound) for _ in range(count))
