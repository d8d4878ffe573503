"""Tests of the demo's programming problems, drawn to detect lazy programs.

The public tests are few and small, as in contests. In some problems they do not exercise the last
step, so a program without it passes them all. The hidden tests distinguish the whole program from
every program without one step, and from every constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from demo_policies.code_steps import READINGS, Ending, Family, Step, evaluate

HIDDEN: Final = 4
#: Share of the problems whose public tests do not exercise the last step, if such tests exist.
BLIND: Final = 0.4
#: Larger answers are hard to read.
LARGEST_ANSWER: Final = 9_999
#: Number of draws before a problem is given up.
_TRIES: Final = 30


@dataclass(frozen=True)
class CodeTest:
    """One test: the integers of the input line, and the answer."""

    values: tuple[int, ...]
    answer: int

    @property
    def line(self) -> str:
        """The line of input."""
        return " ".join(map(str, self.values))


@dataclass(frozen=True)
class Suite:
    """The tests of a problem; the first ``public`` tests are public."""

    tests: tuple[CodeTest, ...]
    public: int


def draw_suite(
    family: Family, steps: tuple[Step, ...], ending: Ending, rng: Random
) -> Suite | None:
    """Draw the tests of a problem.

    Args:
        family: what is read.
        steps: the problem's steps.
        ending: what is printed.
        rng: source of the inputs.

    Returns:
        One or two public and ``HIDDEN`` hidden tests; None: no drawn inputs show the absence of
        each step, so a step makes no difference.
    """
    public = 1 + (rng.random() < 0.5)
    blind = rng.random() < BLIND
    partial = [steps[:i] + steps[i + 1 :] for i in range(len(steps))]

    def draw(most: int) -> CodeTest:
        values = _values(family, most, rng)
        return CodeTest(values, evaluate(steps, ending, [*values]))

    def exercises_last_step(test: CodeTest) -> bool:
        """Return whether a test exercises the last step."""
        return evaluate(steps[:-1], ending, [*test.values]) != test.answer

    shown = [
        _first(lambda: draw(4), lambda t: exercises_last_step(t) != blind) for _ in range(public)
    ]
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


def _first(draw: Callable[[], CodeTest], accepts: Callable[[CodeTest], bool]) -> CodeTest:
    """Draw until a test is accepted; return it, or the last one if none is."""
    for _ in range(_TRIES):
        test = draw()
        if accepts(test):
            break
    return test


def _values(family: Family, most: int, rng: Random) -> tuple[int, ...]:
    """Draw the integers of an input: 3 to ``most``, or two; sometimes with repeats."""
    count = 2 if family == "pair" else 3 + int(rng.random() * (most - 2))
    bound = 12 if rng.random() < 0.3 else 40
    return tuple(int(rng.random() * bound) for _ in range(count))
