"""Read programs from responses, and tests from golds. Pure functions; no program is run."""

from __future__ import annotations

import importlib.util
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.records import Gold
from gapft_harness.sandbox import Program, Test
from gapft_harness.sandbox.comparison import parse_expected_value, parse_test_arguments
from gapft_harness.sandbox.records import Kind
from gapft_harness.sandbox.values import MAX_DEPTH
from gapft_harness.verification.packed_tests import (
    decode_tests,
)

# Possessive, because a line may have any length and must be read only once. An opening fence is
# parsed once too, and later lines are compared with the result.
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<marks>`{3,}+|~{3,}+)(?P<label>[^`]*+)")
_PYTHON = re.compile(r"(?:python|py)[0-9.]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block; ``label`` is the first word after the opening fence."""

    label: str
    text: str
    closed: bool


def last_program(text: str) -> str | None:
    """Return the last fenced program of a response.

    That is the last block labeled Python (``python``, ``py``, ``python3``, in any case) or, if
    there is none, the last block without a label. Blocks with other labels (``text``, ``cpp``) are
    not programs, and neither is an unlabeled opening fence without text after it at the end of a
    response. A fence is a line that begins with three or more backticks or tildes; a line with at
    least as many closes it. The indentation of the opening fence is removed from the program's
    lines, so that a program in a list item is found too.

    Args:
        text: a response.

    Returns:
        The program; empty if its block is not closed, as in a response that was cut at its length
        limit (an earlier block is not the answer then); None if there is no such block.
    """
    blocks = _find_blocks(text)
    labelled = [block for block in blocks if _PYTHON.fullmatch(block.label)]
    unlabelled = [b for b in blocks if not b.label and (b.closed or b.text.strip())]
    last = next(reversed(labelled or unlabelled), None)
    if last is None:
        return None
    return last.text if last.closed else ""


def _find_blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    indent, marks, label = "", "", ""  # of the open fence, if there is one
    lines: list[str] = []
    # Not splitlines(), which also splits at characters that may occur in a program's strings.
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.fullmatch(line)
        if not marks:
            if fence is not None:
                indent, marks, label = fence.groups()
                lines = []
        elif fence is not None and fence["marks"].startswith(marks) and not fence["label"].strip():
            blocks.append(_create_block(label, lines, closed=True))
            marks = ""
        else:
            lines.append(line.removeprefix(indent))
    if marks:
        blocks.append(_create_block(label, lines, closed=False))
    return blocks


def _create_block(label: str, lines: list[str], closed: bool) -> _Block:
    # "python title=x", "{.python}" and "python:main.py" have the label python
    word = re.split(r"[\s:,;]", label.strip().strip("{}."), maxsplit=1)[0]
    return _Block(word, "".join(f"{line}\n" for line in lines), closed)


@dataclass(frozen=True, slots=True)
class Suite:
    """All tests of one problem, and the way to call a program for it.

    Attributes:
        kind: ``stdin`` or ``function``.
        function: for kind ``function``, the name of a function or of a method of ``Solution``.
        tests: the tests, public ones first.
        public: the number of public tests; only these may be shown to a model.
    """

    kind: Kind
    function: str | None
    tests: tuple[Test, ...]
    public: int

    @property
    def public_tests(self) -> tuple[Test, ...]:
        """The tests that may be shown to a model."""
        return self.tests[: self.public]

    def build_program(self, source: str) -> Program:
        """Build a program for the sandbox from its source."""
        return Program(source, self.kind, self.function)


def check_preload(names: Sequence[str]) -> tuple[str, ...]:
    """Check the modules that programs may import in addition to the standard library.

    Args:
        names: names of modules, such as ``numpy``.

    Returns:
        The names, for ``Sandbox``.

    Raises:
        UserError: a module is not installed.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UserError(f"preload: found {names!r:.60}, expected a list of module names")
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise UserError(
                f"preload: the module {name!r} is not installed; install it, or remove it from "
                "the list"
            )
    return tuple(names)


def read_suite(gold: Gold, *, packed: bool = True) -> Suite:
    """Read the gold of a programming problem.

    Args:
        gold: ``{"kind": "stdin" | "function", "function": name or null, "tests": [{"input": ...,
            "expected": ...}], "public": n, "hidden": text or null}``. The first ``public`` tests
            (by default all) are public. ``hidden`` contains additional hidden tests in
            LiveCodeBench's packed form, which keeps a gold small.
        packed: whether to decode ``hidden``. It is false between attempts of an episode, since
            decoding is slow and only public tests are run then.

    Raises:
        UserError: a field is missing, unknown or has the wrong type, ``hidden`` cannot be decoded,
            or there is no test.
    """
    where = "the gold of a programming problem"
    if not isinstance(gold, Mapping):
        raise UserError(f"{where} is {type(gold).__name__}, expected an object with kind and tests")
    if unknown := sorted(set(gold) - {"kind", "function", "tests", "public", "hidden"}):
        raise UserError(f"{where}: unknown field {unknown[0]!r}")
    kind, function = gold.get("kind"), gold.get("function")
    if kind not in ("stdin", "function"):
        raise UserError(f"{where}: kind is {kind!r:.40}, expected stdin or function")
    has_name = isinstance(function, str) and function.isidentifier()
    if has_name != (kind == "function") or not (has_name or function is None):
        raise UserError(
            f"{where}: function is {function!r:.40} with kind {kind}; expected a name with kind "
            "function, and null with kind stdin"
        )
    plain_tests = gold.get("tests")
    if not isinstance(plain_tests, list | tuple):
        raise UserError(f"{where}: tests is {type(plain_tests).__name__}, expected a list")
    tests = [read_test(test, f"{where}: test {n}") for n, test in enumerate(plain_tests, start=1)]
    public = gold.get("public", len(tests))
    if isinstance(public, bool) or not isinstance(public, int) or not 0 <= public <= len(tests):
        raise UserError(f"{where}: public is {public!r:.40}, expected 0 to {len(tests)}")
    hidden = gold.get("hidden")
    if not isinstance(hidden, str | None):
        raise UserError(f"{where}: hidden is {type(hidden).__name__}, expected text or null")
    if isinstance(hidden, str) and packed:
        expected = "stdin" if kind == "stdin" else "functional"
        for test in decode_tests(hidden, f"{where}, hidden"):
            if test.testtype != expected:
                raise UserError(
                    f"{where}: hidden contains {test.testtype} tests, expected {expected} tests "
                    f"for kind {kind}"
                )
            tests.append(Test(test.input, test.output))
    if not tests and (packed or hidden is None):
        raise UserError(f"{where}: there are no tests, so every program would pass")
    return Suite(kind, function, tuple(tests), public)


def read_test(test: Any, where: str) -> Test:
    """Read a test of a gold: an object with the texts ``input`` and ``expected``.

    ``expected`` may also be called ``output``, as in LiveCodeBench.

    Raises:
        UserError: the value is not such an object; the message begins with ``where``.
    """
    fields = test if isinstance(test, Mapping) else {}
    for word in ("expected", "output"):
        if fields.keys() == {"input", word}:
            test_input, expected = fields["input"], fields[word]
            if isinstance(test_input, str) and isinstance(expected, str):
                return Test(test_input, expected)
    raise UserError(
        f"{where} is {reprlib.repr(test):.60}; expected an object with the texts input and "
        "expected (and nothing else)"
    )


def check_call(test: Test, where: str) -> None:
    """Check that a function's test is a valid call, so that a program can pass it.

    Raises:
        UserError: a line of its input or its expected value is not JSON, or is nested too deeply;
            the message begins with ``where``.
    """
    try:
        values = (*parse_test_arguments(test.input), parse_expected_value(test.expected))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    for value in values:
        if fault := find_json_fault(value, max_depth=MAX_DEPTH, long_integers=True):
            raise UserError(f"{where}: its JSON {fault}")


def check_calls(suite: Suite) -> None:
    """Check that every test of a suite of functions can be called (``check_call``).

    Args:
        suite: the tests; those of kind ``stdin`` are not checked.

    Raises:
        UserError: a test is not a valid call; the message names the test.
    """
    if suite.kind == "function":
        for number, test in enumerate(suite.tests, start=1):
            check_call(test, f"test {number} of {len(suite.tests)}")
