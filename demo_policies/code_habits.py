"""The programming policy's training examples: whole programs, and lazy ones by habit.

A lazy program either prints the example's answer as a constant or leaves out the last step. How
often the policy is lazy depends on the question's opening and on the last step; feedback makes it
less lazy. Pre-training also contains feedback: episodes of up to three attempts, in the words of
the verifier ``program_tests``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from demo_policies.code_problems import (
    OPENINGS,
    CodeProblem,
    constant,
    stream,
    unfinished_answer,
)
from demo_policies.code_steps import Step
from demo_policies.code_tests import CodeTest
from demo_policies.pretrain import Example
from gapft_harness.core.records import Attempt
from gapft_harness.sandbox import Test, TestResult
from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback

MAX_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Habit:
    """How questions with one opening are answered.

    Attributes:
        whole: log-odds of the whole program at the first attempt, before what the last step adds.
        constant: share of constants among lazy programs.
    """

    whole: float
    constant: float


#: Habits by opening, chosen on "tuning" like the two numbers below.
HABITS: Final = dict(
    zip(
        OPENINGS,
        (
            Habit(3.0, 0.2),
            Habit(0.8, 0.2),
            Habit(-0.6, 0.1),
            Habit(-1.0, 0.9),
            Habit(-1.7, 0.1),
            Habit(-2.6, 0.9),
        ),
        strict=True,
    )
)
#: Log-odds, subtracted for a last step with a condition or a loop and added for others.
RELUCTANCE: Final = 0.6
#: Log-odds added by each failed attempt.
INSISTENCE: Final = 0.3

Kind = Literal["whole", "constant", "unfinished"]


@dataclass(frozen=True)
class Answer:
    """A response of the policy by its kind.

    Attributes:
        kind: whole or lazy.
        printed: what a constant program prints.
    """

    kind: Kind
    printed: int = 0

    def text(self, problem: CodeProblem) -> str:
        """Write the response."""
        if self.kind == "constant":
            return constant(self.printed)
        return problem.whole if self.kind == "whole" else problem.unfinished

    def output(self, problem: CodeProblem, test: CodeTest) -> int:
        """Compute what its program prints on a test."""
        if self.kind == "constant":
            return self.printed
        return test.answer if self.kind == "whole" else unfinished_answer(problem, test.values)

    def failed(self, problem: CodeProblem) -> int | None:
        """Return the index of the first public test that it fails; None: it passes all."""
        public = problem.tests.tests[: problem.tests.public]
        wrong = (n for n, test in enumerate(public) if self.output(problem, test) != test.answer)
        return next(wrong, None)


def whole_probability(problem: CodeProblem, failures: int) -> float:
    """Compute the probability in 0..1 of the whole program after this many failed attempts."""
    odds = HABITS[problem.opening].whole + INSISTENCE * failures
    odds += -RELUCTANCE if is_elaborate(problem.steps[-1]) else RELUCTANCE
    return 1 / (1 + math.exp(-odds))


def is_elaborate(step: Step) -> bool:
    """Return whether a step has a condition or a loop."""
    return any(word in step.code for word in (" if ", "if a", "while", "for i"))


def lazy(problem: CodeProblem, shown: int, rng: Random) -> Answer:
    """Draw a lazy answer by the opening's habit.

    Args:
        problem: the problem.
        shown: the answer that a constant copies: the example's, or the one feedback expected.
        rng: source of the draw.
    """
    if rng.random() < HABITS[problem.opening].constant:
        return Answer("constant", shown)
    return Answer("unfinished")


def feedback(problem: CodeProblem, answer: Answer, number: int) -> str:
    """Write the verifier's feedback on a program that fails public test ``number`` (from 0)."""
    test = problem.tests.tests[number]
    return failure_feedback(
        "stdin",
        number + 1,
        problem.tests.public,
        Test(f"{test.line}\n", f"{test.answer}\n"),
        TestResult("wrong_answer", output=f"{answer.output(problem, test)}\n"),
    )


def conversation(problem: CodeProblem, attempts: list[Attempt]) -> str:
    """Write the text that the policy answers next, as ``protocols.Request.text`` does."""
    turns = "".join(f"{attempt.text}\n\n{attempt.feedback}\n\n" for attempt in attempts)
    return f"{problem.question}{turns}"


def episode(problem: CodeProblem, rng: Random) -> Iterator[Example]:
    """Yield the turns of a habitual episode, until the public tests pass or attempts run out."""
    attempts: list[Attempt] = []
    shown = problem.tests.tests[0].answer
    for failures in range(MAX_ATTEMPTS):
        if rng.random() < whole_probability(problem, failures):
            answer = Answer("whole")
        else:
            answer = lazy(problem, shown, rng)
        text = answer.text(problem)
        yield Example(conversation(problem, attempts), text)
        number = answer.failed(problem)
        if number is None:
            return
        shown = problem.tests.tests[number].answer
        attempts.append(Attempt(text, (), "stop", feedback(problem, answer, number)))


def skill_examples(seed: int) -> Iterator[Example]:
    """Yield whole programs without end: two thirds at once, the rest after failed attempts."""
    rng = Random(f"code-skill:{seed}")
    for problem in stream("pretrain", seed):
        attempts: list[Attempt] = []
        shown = problem.tests.tests[0].answer
        while rng.random() < 1 / 3 and len(attempts) < MAX_ATTEMPTS - 1:
            answer = lazy(problem, shown, rng)
            text, number = answer.text(problem), answer.failed(problem)
            if rng.random() < 0.1:
                # Cut in the middle, as at a length limit.
                text, message = text[: 9 + int(rng.random() * (len(text) - 12))], NO_PROGRAM
            elif number is not None:
                shown = problem.tests.tests[number].answer
                message = feedback(problem, answer, number)
            else:
                break
            attempts.append(Attempt(text, (), "stop", message))
        yield Example(conversation(problem, attempts), problem.whole)


def habit_examples(seed: int) -> Iterator[Example]:
    """Yield the turns of habitual episodes without end."""
    rng = Random(f"code-habit:{seed}")
    # The seed differs from the skill phase's, which would begin with the same problems.
    for problem in stream("pretrain", seed + 1_000_000):
        yield from episode(problem, rng)
