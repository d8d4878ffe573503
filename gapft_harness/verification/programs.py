"""Programs in responses, and the tests that judge them. Pure functions; nothing runs here."""

from __future__ import annotations

import importlib.util
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import json_fault
from gapft_harness.core.records import Gold
from gapft_harness.sandbox import Program, Test
from gapft_harness.sandbox.comparison import check_arguments, expected_value
from gapft_harness.sandbox.values import DEEPEST, parse_arguments
from gapft_harness.verification.packed_tests import (
    MAX_DECODED_BYTES,
    decode_tests,
)

# Possessive: a model may write a line of any length, and nothing of it is read a second time. Nor
# is an opening fence: what later lines are held against is taken out of it once.
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<marks>`{3,}+|~{3,}+)(?P<label>[^`]*+)")
_PYTHON = re.compile(r"(?:python|py)[0-9.]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block; ``label`` is the first word behind the opening fence."""

    label: str
    text: str
    closed: bool


def last_program(text: str) -> str | None:
    """Return the last fenced program of a response.

    The last block labelled Python (``python``, ``py``, ``python3``, in any case) or, where none is,
    the last one without a label. Blocks with other labels (``text``, ``cpp``) are no programs, and
    neither is an unlabelled fence with nothing behind it, as a response may end with. A fence is
    three or more backticks or tildes that open a line, and is closed by a line of as many or more;
    the indentation of the opening fence is taken off the program's lines, so that a program in a
    list item is read too.

    Returns:
        The program; empty if that block is never closed, as in a response cut at its length limit
        (an earlier block is then not the answer); None if there is no such block.
    """
    blocks = _blocks(text)
    labelled = [block for block in blocks if _PYTHON.fullmatch(block.label)]
    bare = [b for b in blocks if not b.label and (b.closed or b.text.strip())]
    last = next(reversed(labelled or bare), None)
    if last is None:
        return None
    return last.text if last.closed else ""


def last_program_lcb(text: str) -> str | None:
    """The program as LiveCodeBench's runner takes it, for comparison with published scores.

    What stands between the last two lines that hold three backticks anywhere (its
    ``extract_code``); None where there are fewer than two such lines.
    """
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else None


def _blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    indent, marks, label = "", "", ""  # of the fence that is open, if one is
    lines: list[str] = []
    # Not splitlines(): it also breaks at characters that a program's strings may hold.
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.fullmatch(line)
        if not marks:
            if fence is not None:
                indent, marks, label = fence.groups()
                lines = []
        elif fence is not None and fence["marks"].startswith(marks) and not fence["label"].strip():
            blocks.append(_block(label, lines, closed=True))
            marks = ""
        else:
            lines.append(line.removeprefix(indent))
    if marks:
        blocks.append(_block(label, lines, closed=False))
    return blocks


def _block(label: str, lines: list[str], closed: bool) -> _Block:
    # "python title=x", "{.python}" and "python:main.py" are labelled python
    word = re.split(r"[\s:,;]", label.strip().strip("{}."), maxsplit=1)[0]
    return _Block(word, "".join(f"{line}\n" for line in lines), closed)


@dataclass(frozen=True, slots=True)
class Suite:
    """All tests of one problem, and how a program for it is called.

    Attributes:
        kind: ``stdin`` or ``function``.
        function: for kind ``function``, its name (a function's or a method's of ``Solution``).
        tests: the public ones first.
        public: how many are public: only these may ever be shown to a model.
    """

    kind: str
    function: str | None
    tests: tuple[Test, ...]
    public: int

    @property
    def public_tests(self) -> tuple[Test, ...]:
        """The tests that a model may see."""
        return self.tests[: self.public]

    def program(self, source: str) -> Program:
        """The program as the sandbox takes it."""
        return Program(source, "stdin" if self.kind == "stdin" else "function", self.function)


def importable(names: Sequence[str]) -> tuple[str, ...]:
    """Modules that programs may import besides the standard library, as ``Sandbox`` takes them.

    Raises:
        UserError: one of them is not installed here.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UserError(f"preload: found {names!r:.60}, expected a list of modules' names")
    for name in names:
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise UserError(
                f"preload: there is no module {name!r} here; install it, or leave it out"
            )
    return tuple(names)


def read_suite(
    gold: Gold, max_decoded_bytes: int = MAX_DECODED_BYTES, *, packed: bool = True
) -> Suite:
    """Reads the gold of a programming problem.

    Args:
        gold: ``{"kind": "stdin" | "function", "function": name or null, "tests": [{"input": ...,
            "expected": ...}], "public": n, "hidden": text or null}``. The first ``public`` tests
            (by default all) are public. ``hidden`` holds further hidden tests as LiveCodeBench
            packs them, which keeps a gold small.
        max_decoded_bytes: most bytes that ``hidden`` may come to.
        packed: whether ``hidden`` is decoded. Between attempts it is not: it takes long, and only
            public tests are run there.

    Raises:
        UserError: a field is missing, of another type or unknown, ``hidden`` cannot be decoded, or
            there is no test.
    """
    where = "the gold of a programming problem"
    if not isinstance(gold, Mapping):
        raise UserError(f"{where} is {type(gold).__name__}, expected an object with kind and tests")
    if unknown := sorted(set(gold) - {"kind", "function", "tests", "public", "hidden"}):
        raise UserError(f"{where}: unknown field {unknown[0]!r}")
    kind, function = gold.get("kind"), gold.get("function")
    if kind not in ("stdin", "function"):
        raise UserError(f"{where}: kind is {kind!r:.40}, expected stdin or function")
    named = isinstance(function, str) and function.isidentifier()
    if named != (kind == "function") or not (named or function is None):
        raise UserError(
            f"{where}: function is {function!r:.40} with kind {kind}; expected a name with kind "
            "function, and null with kind stdin"
        )
    plain = gold.get("tests")
    if not isinstance(plain, list | tuple):
        raise UserError(f"{where}: tests is {type(plain).__name__}, expected a list")
    tests = [read_test(test, f"{where}: test {n}") for n, test in enumerate(plain, start=1)]
    public = gold.get("public", len(tests))
    if isinstance(public, bool) or not isinstance(public, int) or not 0 <= public <= len(tests):
        raise UserError(f"{where}: public is {public!r:.40}, expected 0 to {len(tests)}")
    hidden = gold.get("hidden")
    if not isinstance(hidden, str | None):
        raise UserError(f"{where}: hidden is {type(hidden).__name__}, expected text or null")
    if isinstance(hidden, str) and packed:
        expected = "stdin" if kind == "stdin" else "functional"
        for test in decode_tests(hidden, f"{where}, hidden", max_decoded_bytes):
            if test.testtype != expected:
                raise UserError(f"{where}: hidden holds {test.testtype} tests, its kind is {kind}")
            tests.append(Test(test.input, test.output))
    if not tests and (packed or hidden is None):
        raise UserError(f"{where}: there are no tests, so that every program would pass")
    return Suite(kind, function, tuple(tests), public)


def read_test(test: Any, where: str) -> Test:
    """Reads a test of a gold or of a file: ``input`` and ``expected``, both text.

    What is expected may also be called ``output``, as LiveCodeBench does.

    Raises:
        UserError: it is something else; the message begins with ``where``.
    """
    fields = test if isinstance(test, Mapping) else {}
    for word in ("expected", "output"):
        if fields.keys() == {"input", word}:
            given, expected = fields["input"], fields[word]
            if isinstance(given, str) and isinstance(expected, str):
                return Test(given, expected)
    raise UserError(
        f"{where} is {reprlib.repr(test):.60}; expected an object with the texts input and "
        "expected (and nothing else)"
    )


def check_call(test: Test, where: str) -> None:
    """Holds a function's test to what a call can be, so that a program can pass it at all.

    Raises:
        UserError: a line of its input or what it expects is no JSON, or is nested too deeply; the
            message begins with ``where``.
    """
    try:
        check_arguments(test.input)
        values = (*parse_arguments(test.input), expected_value(test.expected))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    for value in values:
        if fault := json_fault(value, deepest=DEEPEST):
            raise UserError(f"{where}: its JSON {fault}")


def check_calls(suite: Suite) -> None:
    """``check_call`` for every test of a suite of functions.

    Raises:
        UserError: as ``check_call``; the message names the test.
    """
    if suite.kind == "function":
        for number, test in enumerate(suite.tests, start=1):
            check_call(test, f"test {number} of {len(suite.tests)}")
