r"""The programming demo: short Python programs that are executed.

A question asks for one to three steps on the integers of one line, and shows one example:

    Write code: read a line of integers, keep those above 4, add 3 to each, print the sum.
    Example: 3 9 8 gives 23

Each single step occurs in pre-training: the audit tests the composition of steps. A program
without the last step of one request is the whole program of a shorter one, possibly of another
split.

The public tests are few and small, as in contests. In some problems they do not exercise the last
step, so a program without it passes them all. The hidden tests distinguish the whole program from
every program without one step, and from every constant.

The policy's lazy programs print the example's answer as a constant, or leave out the last step. How
often it is lazy depends on the question's opening and on the last step; feedback makes it less
lazy. Pre-training also contains feedback: episodes of up to three attempts, in the words of the
verifier ``program_tests``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from types import CodeType
from typing import Final, NamedTuple

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
from gapft_harness.demo import find_code_policy
from gapft_harness.sandbox import Test, TestResult
from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback

MAX_ATTEMPTS: Final = 3
HIDDEN_TESTS: Final = 4
#: Share of the problems whose public tests do not exercise the last step, if such tests exist.
BLIND: Final = 0.4
#: Larger answers are hard to read.
LARGEST_ANSWER: Final = 9_999
#: Number of draws before a problem is given up.
TRIES: Final = 30

#: Log-odds of the whole program at the first attempt, and the share of constants among lazy
#: programs, by opening. These and the two numbers below were chosen on "tuning".
HABITS: Final = {
    "Carefully": (3.0, 0.2),
    "Write code": (0.8, 0.2),
    "In Python": (-0.6, 0.1),
    "Short program": (-1.0, 0.9),
    "Quick one": (-1.7, 0.1),
    "Sketch": (-2.6, 0.9),
}
#: Log-odds, subtracted for a last step with a condition or a loop and added for others.
RELUCTANCE: Final = 0.6
#: Log-odds added by each failed attempt.
INSISTENCE: Final = 0.3


class Part(NamedTuple):
    """A part of a request and of its program: how the input is read, a step, or what is printed.

    Attributes:
        words: how a question asks for it; ``{n}`` is its number.
        code: its line of Python on ``x`` (a line of integers) or ``a`` and ``b`` (a pair).
        numbers: possible numbers; empty: the part has no number.
    """

    words: str
    code: str
    numbers: range = range(0)


READINGS: Final = {
    "line": Part("read a line of integers", "x = list(map(int, input().split()))"),
    "pair": Part("read integers a and b", "a, b = map(int, input().split())"),
}

STEPS: Final = {
    "line": (
        Part("keep the even ones", "x = [v for v in x if v % 2 == 0]"),
        Part("keep the odd ones", "x = [v for v in x if v % 2 == 1]"),
        Part("keep those above {n}", "x = [v for v in x if v > {n}]", range(3, 25)),
        Part("keep those below {n}", "x = [v for v in x if v < {n}]", range(5, 30)),
        Part("drop the multiples of {n}", "x = [v for v in x if v % {n}]", range(2, 8)),
        Part("add {n} to each", "x = [v + {n} for v in x]", range(1, 20)),
        Part("subtract {n} from each", "x = [v - {n} for v in x]", range(1, 20)),
        Part("multiply each by {n}", "x = [v * {n} for v in x]", range(2, 8)),
        Part("take each modulo {n}", "x = [v % {n} for v in x]", range(3, 20)),
        Part("drop the first", "x = x[1:]"),
        Part("drop the last", "x = x[:-1]"),
        Part("sort them", "x = sorted(x)"),
        Part("drop repeats", "x = list(dict.fromkeys(x))"),
        Part("add to each all before it", "for i in range(1, len(x)): x[i] += x[i - 1]"),
    ),
    "pair": (
        Part("add {n} to a", "a += {n}", range(1, 20)),
        Part("add {n} to b", "b += {n}", range(1, 20)),
        Part("subtract {n} from a", "a -= {n}", range(1, 20)),
        Part("subtract {n} from b", "b -= {n}", range(1, 20)),
        Part("multiply a by {n}", "a *= {n}", range(2, 10)),
        Part("multiply b by {n}", "b *= {n}", range(2, 10)),
        Part("take a modulo {n}", "a %= {n}", range(3, 20)),
        Part("take b modulo {n}", "b %= {n}", range(3, 20)),
        Part("halve a while it is above {n}", "while a > {n}: a //= 2", range(2, 15)),
        Part("add b to a {n} times", "for i in range({n}): a += b", range(2, 8)),
        Part("swap them if a is above b", "if a > b: a, b = b, a"),
        Part("add {n} to b if a is even", "if a % 2 == 0: b += {n}", range(1, 20)),
        Part("add {n} to a if a is below b", "if a < b: a += {n}", range(1, 20)),
    ),
}

ENDINGS: Final = {
    "line": (
        Part("print the sum", "print(sum(x))"),
        Part("print how many there are", "print(len(x))"),
        Part("print the largest or 0", "print(max(x, default=0))"),
        Part("print the smallest or 0", "print(min(x, default=0))"),
    ),
    "pair": (
        Part("print a plus b", "print(a + b)"),
        Part("print a minus b", "print(a - b)"),
        Part("print a times b", "print(a * b)"),
        Part("print the larger", "print(max(a, b))"),
        Part("print the smaller", "print(min(a, b))"),
    ),
}


def write_response(lines: Sequence[str]) -> str:
    """Write the response with a program of these lines."""
    return "\n".join(["```python", *lines, "```"])


@lru_cache(maxsize=16)
def _compile(response: str) -> CodeType:
    program = response.removeprefix("```python\n").removesuffix("```")
    return compile(program, "<program>", "exec")


def run(response: str, text: str) -> str:
    """Execute the program of a response; return what it prints for an input."""
    printed: list[int] = []
    exec(_compile(response), {"input": lambda: text, "print": printed.append})
    return f"{printed[0]}\n"


def draw(split: Split, rng: Random) -> Problem | None:
    """Draw a problem; None: it is of another split, or a step makes no difference."""
    family = "line" if rng.random() < 0.6 else "pair"
    parts = [READINGS[family]]
    # One step is drawn less often, because there are few requests of one step.
    for _ in range(choose((1, 2, 2, 3, 3), rng)):
        words, code, numbers = choose(STEPS[family], rng)
        number = choose(numbers, rng) if numbers else 0
        parts.append(Part(words.format(n=number), code.format(n=number)))
    parts.append(choose(ENDINGS[family], rng))
    content = ", ".join(part.words for part in parts) + "."
    if find_split(content) != split:
        return None
    digest = compute_digest(content)
    lines = [part.code for part in parts]
    public, hidden = draw_suite(family, lines, Random(f"tests:{digest}"))
    if not hidden:
        return None

    def record(opening: str) -> Record:
        example = f"{public[0].input.strip()} gives {public[0].expected.strip()}"
        return {
            "id": f"program-{digest[:12]}",
            "question": f"{opening}: {content}\nExample: {example}\n\n",
            "opening": opening,
            "family": family,
            "steps": len(lines) - 2,
            "kind": "stdin",
            "function": None,
            "public": len(public),
            "tests": [{"input": t.input, "output": t.expected} for t in (*public, *hidden)],
            "solution": write_response(lines),
        }

    return Problem(content, record)


def draw_suite(family: str, lines: Sequence[str], rng: Random) -> tuple[list[Test], list[Test]]:
    """Draw the public and the hidden tests of a program.

    There are no hidden tests if no drawn inputs show the absence of each step.
    """
    whole = write_response(lines)
    without_step = [write_response([*lines[:i], *lines[i + 1 :]]) for i in range(1, len(lines) - 1)]
    public_count = 1 + (rng.random() < 0.5)
    blind = rng.random() < BLIND

    def draw_test(most: int) -> Test:
        count = 2 if family == "pair" else choose(range(3, most + 1), rng)
        # Small numbers have repeats.
        bound = 12 if rng.random() < 0.3 else 40
        text = " ".join(str(choose(range(bound), rng)) for _ in range(count)) + "\n"
        return Test(text, run(whole, text))

    public = []
    for _ in range(public_count):
        for _ in range(TRIES):
            test = draw_test(most=4)
            exercises_last_step = run(without_step[-1], test.input) != test.expected
            if exercises_last_step != blind:
                break
        public.append(test)
    for _ in range(TRIES):
        hidden = [draw_test(most=7) for _ in range(HIDDEN_TESTS)]
        tests = [*public, *hidden]
        if (
            len({test.expected for test in hidden}) > 1
            and len({test.expected for test in public}) == public_count
            and len({test.input for test in tests}) == len(tests)
            and all(abs(int(test.expected)) <= LARGEST_ANSWER for test in tests)
            and all(
                any(run(response, test.input) != test.expected for test in hidden)
                for response in without_step
            )
        ):
            return public, hidden
    return public, []


def draw_lazy(record: Record, shown: Test, rng: Random) -> str:
    """Draw a lazy response by the opening's habit; a constant is the answer shown last."""
    _, constants = HABITS[record["opening"]]
    if rng.random() < constants:
        return write_response([f"print({shown.expected.strip()})"])
    *lines, _, ending, fence = record["solution"].split("\n")
    return "\n".join([*lines, ending, fence])


def compute_whole_probability(record: Record, failures: int) -> float:
    """Compute the probability of the whole program after this many failed attempts."""
    last_step = record["solution"].split("\n")[-3]
    is_elaborate = any(word in last_step for word in (" if ", "if a", "while", "for i"))
    odds = HABITS[record["opening"]][0] + INSISTENCE * failures
    odds += -RELUCTANCE if is_elaborate else RELUCTANCE
    return 1 / (1 + math.exp(-odds))


def read_public_tests(record: Record) -> list[Test]:
    """Read the public tests of a record."""
    return [Test(test["input"], test["output"]) for test in record["tests"][: record["public"]]]


def find_failure(response: str, tests: Sequence[Test]) -> tuple[Test, str] | None:
    """Return the first public test that a response fails, and the verifier's feedback."""
    for number, test in enumerate(tests, 1):
        output = run(response, test.input)
        if output != test.expected:
            result = TestResult("wrong_answer", output=output)
            return test, failure_feedback("stdin", number, len(tests), test, result)
    return None


def teach_skill(record: Record, rng: Random) -> Iterator[Example]:
    """Yield the whole program: in two thirds at once, in the rest after failed attempts."""
    conversation = record["question"]
    tests = read_public_tests(record)
    shown = tests[0]
    failures = 0
    while rng.random() < 1 / 3 and failures < MAX_ATTEMPTS - 1:
        response = draw_lazy(record, shown, rng)
        failure = find_failure(response, tests)
        if rng.random() < 0.1:
            # Cut in the middle, as at a length limit.
            response = response[: choose(range(9, len(response) - 3), rng)]
            feedback = NO_PROGRAM
        elif failure is not None:
            shown, feedback = failure
        else:
            break
        conversation += f"{response}\n\n{feedback}\n\n"
        failures += 1
    yield conversation, record["solution"]


def teach_habit(record: Record, rng: Random) -> Iterator[Example]:
    """Yield the turns of a habitual episode, until the public tests pass or attempts run out."""
    conversation = record["question"]
    tests = read_public_tests(record)
    shown = tests[0]
    for failures in range(MAX_ATTEMPTS):
        is_whole = rng.random() < compute_whole_probability(record, failures)
        response = record["solution"] if is_whole else draw_lazy(record, shown, rng)
        yield conversation, response
        failure = find_failure(response, tests)
        if failure is None:
            return
        shown, feedback = failure
        conversation += f"{response}\n\n{feedback}\n\n"


DEMO: Final = Demo(
    stream="code:",
    words=tuple(HABITS),
    draw=draw,
    files={"pool": (216, 30_011), "audit": (144, 77_419)},
    policy=find_code_policy(),
    phases=(
        Phase("code-skill", teach_skill, steps=1_500, peak=3e-3, warmup=100),
        Phase("code-habit", teach_habit, steps=400, peak=1e-3, warmup=20),
    ),
)
