"""Read programs from responses, and tests from golds. Pure functions; no program is run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.records import Gold
from gapft_harness.core.validation import describe_fault
from gapft_harness.sandbox import Program, Test
from gapft_harness.sandbox.comparison import parse_expected_value, parse_test_arguments
from gapft_harness.sandbox.records import Kind
from gapft_harness.sandbox.values import MAX_DEPTH
from gapft_harness.verification.packed_tests import decode_tests

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


class _GoldTest(BaseModel):
    """A test of a gold; ``expected`` may also be called ``output``, as in LiveCodeBench."""

    model_config = ConfigDict(extra="forbid")

    input: str
    expected: str = Field(validation_alias=AliasChoices("expected", "output"))


class _ProgramGold(BaseModel):
    """The gold of a programming problem.

    Attributes:
        kind: see ``Suite``.
        function: see ``Suite``.
        tests: the tests.
        public: the number of tests, from the first, that are public; missing (-1): all.
        hidden: further, hidden tests in LiveCodeBench's packed form, which keeps a gold small.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    function: str | None = None
    tests: tuple[_GoldTest, ...]
    public: int = Field(-1, strict=True, ge=0)
    hidden: str | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        has_name = self.function is not None and self.function.isidentifier()
        if has_name != (self.kind == "function") or not (has_name or self.function is None):
            raise ValueError("expected a function's name with kind function, null with kind stdin")
        if self.public > len(self.tests):
            raise ValueError(f"expected public from 0 to {len(self.tests)}")
        return self


def read_suite(gold: Gold, *, packed: bool = True) -> Suite:
    """Read the gold of a programming problem.

    Args:
        gold: an object with the keys of ``_ProgramGold``.
        packed: whether to decode ``hidden``. It is false between attempts of an episode, since
            decoding is slow and only public tests are run then.

    Raises:
        UserError: a field is missing, unknown or has the wrong type, ``hidden`` cannot be decoded,
            or there is no test.
    """
    where = "the gold of a programming problem"
    try:
        read = _ProgramGold.model_validate(gold)
    except ValidationError as error:
        fault = error.errors()[0]
        raise UserError(f"{where}: {describe_fault(fault, fault['loc'])}") from error
    tests = [Test(test.input, test.expected) for test in read.tests]
    public = len(tests) if read.public < 0 else read.public
    if read.hidden is not None and packed:
        expected = "stdin" if read.kind == "stdin" else "functional"
        for test in decode_tests(read.hidden, f"{where}, hidden"):
            if test.testtype != expected:
                raise UserError(
                    f"{where}: hidden contains {test.testtype} tests, expected {expected} tests "
                    f"for kind {read.kind}"
                )
            tests.append(Test(test.input, test.output))
    if not tests and (packed or read.hidden is None):
        raise UserError(f"{where}: there are no tests, so every program would pass")
    return Suite(read.kind, read.function, tuple(tests), public)


def check_calls(suite: Suite) -> None:
    """Check that every test of a function is a valid call, so that a program can pass it.

    Args:
        suite: the tests; those of kind ``stdin`` are not checked.

    Raises:
        UserError: a line of an input or an expected value is not JSON, or is nested too deeply; the
            message names the test.
    """
    for number, test in enumerate(suite.tests if suite.kind == "function" else (), start=1):
        where = f"test {number} of {len(suite.tests)}"
        try:
            values = (*parse_test_arguments(test.input), parse_expected_value(test.expected))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        for value in values:
            if fault := find_json_fault(value, max_depth=MAX_DEPTH, long_integers=True):
                raise UserError(f"{where}: its JSON {fault}")
