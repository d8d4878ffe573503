"""Derive verdicts from the outcomes of executions. This runs outside the sandbox."""

from __future__ import annotations

import json
import signal
from typing import Any

from gapft_harness.sandbox.comparison import (
    check_arguments,
    compare_outputs,
    compare_values,
    parse_expected_value,
)
from gapft_harness.sandbox.outcome import TestOutcome
from gapft_harness.sandbox.records import Limits, Test, TestResult, VerdictName
from gapft_harness.sandbox.values import parse_deep_json

#: Maximum characters of a program's output and of its error in a result.
MAX_TEXT = 4096

_Finding = tuple[VerdictName, str]


def judge_stdin(outcome: TestOutcome, test: Test, limits: Limits) -> TestResult:
    """Judge one execution of a stdin program."""
    output = outcome.output.decode("utf-8", "replace")
    failure = _find_failure(outcome, _read_last_report(outcome, "raised"), limits)
    if failure is None and outcome.exit:
        failure = ("runtime_error", f"exit status {outcome.exit}")
    if failure is None:
        failure = _convert_difference(compare_outputs(outcome.output, test.expected))
    return _build_result(outcome, failure, output)


def judge_call(outcome: TestOutcome, test: Test, limits: Limits) -> TestResult:
    """Judge one call of a function program.

    Raises:
        UserError: the input is not JSON, so no program could have passed.
    """
    value = _read_last_report(outcome, "value")
    failure = _find_failure(outcome, _read_last_report(outcome, "raised"), limits)
    if failure is not None:
        check_arguments(test.input)
    if failure is None and (value is None or outcome.exit):
        ending = "returned no value" if value is None else "had returned"
        failure = ("runtime_error", f"it ended with status {outcome.exit} and {ending}")
    if failure is None:
        assert value is not None
        failure = _convert_difference(compare_values(value[0], parse_expected_value(test.expected)))
    return _build_result(outcome, failure, "" if value is None else _dump_value(value[0]))


def _convert_difference(difference: str) -> _Finding:
    return ("wrong_answer", difference) if difference else ("accepted", "")


def _find_failure(
    outcome: TestOutcome, raised: list[Any] | None, limits: Limits
) -> _Finding | None:
    """Find a failure of an execution other than a wrong answer; None if there is none."""
    if outcome.output_bytes > limits.output_bytes:
        return "output_limit", f"more than {limits.output_bytes} bytes of output"
    if outcome.stopped == "cpu" or outcome.exit == -signal.SIGXCPU:
        return "time_limit", f"more than {limits.cpu_s:g} s of CPU time"
    if outcome.stopped == "wall":
        return "time_limit", f"still running after {limits.wall_s:g} s"
    # A program that did not compile did not run, so it cannot have forged this report.
    if not outcome.compiled and (error := _read_last_report(outcome, "compile_error")):
        return "compile_error", _format_report(error)
    if raised:
        summary = _format_report(raised)
        memory = summary.partition(":")[0].endswith("MemoryError")
        return ("memory_limit", "out of memory") if memory else ("runtime_error", summary)
    if outcome.exit < 0:
        return "runtime_error", f"killed by {_format_signal(-outcome.exit)}"
    if not outcome.compiled:
        return "compile_error", "process ended during compilation"
    return None


def _build_result(outcome: TestOutcome, finding: _Finding, output: str) -> TestResult:
    raised = _read_last_report(outcome, "raised")
    traceback = raised[1] if raised and len(raised) > 1 else ""
    error = traceback if isinstance(traceback, str) else ""
    error = error or outcome.errors.decode("utf-8", "replace")
    verdict, reason = finding
    return TestResult(
        verdict,
        _replace_surrogates(reason),
        _replace_surrogates(output[:MAX_TEXT]),
        _replace_surrogates(error[-MAX_TEXT:]),
        outcome.cpu_s,
        outcome.wall_s,
    )


def _read_last_report(outcome: TestOutcome, kind: str) -> list[Any] | None:
    """Return the fields of the last reported line if it has this kind, else None."""
    fields = _parse_report_line(outcome.report.rstrip(b"\n").rpartition(b"\n")[2])
    return fields[1:] if fields and fields[0] == kind and len(fields) > 1 else None


def _parse_report_line(line: bytes) -> list[Any] | None:
    """Parse a reported line; None if it is empty, or the program made it unreadable."""
    if not line:
        return None
    try:
        fields = parse_deep_json(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, list) and fields else None


def _format_report(fields: list[Any]) -> str:
    """Return the reported failure if it is text; untrusted values of other types are not used."""
    return fields[0][:300] if isinstance(fields[0], str) else "(an unreadable report)"


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _dump_value(value: Any) -> str:
    try:
        return json.dumps(value)
    except (ValueError, RecursionError, TypeError):  # TypeError: a ``Decimal``
        return "(a value too deep or too long to show)"


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
