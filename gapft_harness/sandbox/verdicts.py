"""Derive verdicts from the outcomes of executions. This runs outside the sandbox."""

from __future__ import annotations

import json
import signal
from typing import Any

from gapft_harness.sandbox.comparison import (
    check_arguments,
    expected_value,
    same_output,
    same_value,
)
from gapft_harness.sandbox.outcome import TestOutcome
from gapft_harness.sandbox.records import Limits, Test, TestResult, VerdictName
from gapft_harness.sandbox.values import parse

#: Maximum characters of a program's output and of its error in a result.
KEEP = 4096

_Finding = tuple[VerdictName, str]


def judge_stdin(outcome: TestOutcome, test: Test, limits: Limits, ignore_exit: bool) -> TestResult:
    """Judge one execution of a stdin program."""
    output = outcome.output.decode("utf-8", "replace")
    failure = _failure(outcome, _last(outcome, "raised"), limits)
    if failure is None and outcome.exit and not ignore_exit:
        failure = ("runtime_error", f"exit status {outcome.exit}")
    if failure is None:
        failure = _compared(same_output(outcome.output, test.expected, lcb=ignore_exit))
    return _result(outcome, failure, output)


def judge_call(outcome: TestOutcome, test: Test, limits: Limits) -> TestResult:
    """Judge one call of a function program.

    Raises:
        UserError: the input is not JSON, so no program could have passed.
    """
    value = _last(outcome, "value")
    failure = _failure(outcome, _last(outcome, "raised"), limits)
    if failure is not None:
        check_arguments(test.input)
    if failure is None and (value is None or outcome.exit):
        said = "returned no value" if value is None else "had returned"
        failure = ("runtime_error", f"it ended with status {outcome.exit} and {said}")
    if failure is None:
        assert value is not None
        failure = _compared(same_value(value[0], expected_value(test.expected)))
    return _result(outcome, failure, "" if value is None else _text(value[0]))


def _compared(difference: str) -> _Finding:
    return ("wrong_answer", difference) if difference else ("accepted", "")


def _failure(outcome: TestOutcome, raised: list[Any] | None, limits: Limits) -> _Finding | None:
    """Find a failure of an execution other than a wrong answer; None if there is none."""
    if outcome.output_bytes > limits.output_bytes:
        return "output_limit", f"more than {limits.output_bytes} bytes of output"
    if outcome.stopped == "cpu" or outcome.exit == -signal.SIGXCPU:
        return "time_limit", f"more than {limits.cpu_s:g} s of CPU time"
    if outcome.stopped == "wall":
        return "time_limit", f"still running after {limits.wall_s:g} s"
    # A program that did not compile did not run, so it cannot have forged this report.
    if not outcome.compiled and (error := _last(outcome, "compile_error")):
        return "compile_error", _line(error)
    if raised:
        summary = _line(raised)
        memory = summary.partition(":")[0].endswith("MemoryError")
        return ("memory_limit", "out of memory") if memory else ("runtime_error", summary)
    if outcome.exit < 0:
        return "runtime_error", f"killed by {_signal_name(-outcome.exit)}"
    if not outcome.compiled:
        return "compile_error", "process ended during compilation"
    return None


def _result(outcome: TestOutcome, found: _Finding, output: str) -> TestResult:
    raised = _last(outcome, "raised")
    traceback = raised[1] if raised and len(raised) > 1 else ""
    error = traceback if isinstance(traceback, str) else ""
    error = error or outcome.errors.decode("utf-8", "replace")
    verdict, reason = found
    return TestResult(
        verdict,
        _writable(reason),
        _writable(output[:KEEP]),
        _writable(error[-KEEP:]),
        outcome.cpu_s,
        outcome.wall_s,
    )


def _last(outcome: TestOutcome, kind: str) -> list[Any] | None:
    """Return the fields of the last reported line if it has this kind, else None."""
    fields = _fields(outcome.report.rstrip(b"\n").rpartition(b"\n")[2])
    return fields[1:] if fields and fields[0] == kind and len(fields) > 1 else None


def _fields(line: bytes) -> list[Any] | None:
    """Parse a reported line; None if it is empty, or the program made it unreadable."""
    if not line:
        return None
    try:
        fields = parse(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, list) and fields else None


def _line(fields: list[Any]) -> str:
    """Return the reported failure if it is text; untrusted values of other types are not used."""
    return fields[0][:300] if isinstance(fields[0], str) else "(an unreadable report)"


def _writable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _text(value: Any) -> str:
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "(a value too deep or too long to show)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
