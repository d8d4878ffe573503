"""Derive verdicts from the outcomes of executions. This runs outside the sandbox."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any

from gapft_harness.sandbox.comparison import (
    compare_outputs,
    compare_values,
    parse_expected_value,
    parse_test_arguments,
)
from gapft_harness.sandbox.inside.messages import Ending
from gapft_harness.sandbox.records import Kind, Limits, Test, TestResult, VerdictName
from gapft_harness.sandbox.values import MAX_DEPTH, call_deeply, parse_json

#: Maximum characters of a program's output and of its error in a result.
MAX_TEXT = 4096

_Finding = tuple[VerdictName, str]
#: The kind of a program's last report -> its fields; empty if there is no readable report.
_Reported = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of a test, before its output is compared.

    Attributes:
        ending: the end of its process, as the worker saw it.
        output: standard output, up to the limit.
        output_bytes: the size of standard output, standard error or the report, whichever is
            largest.
        errors: the end of standard error.
        report: lines of JSON from the program's process; the program may have forged them.
    """

    ending: Ending
    output: bytes
    output_bytes: int
    errors: bytes
    report: bytes


def judge_outcome(kind: Kind, outcome: TestOutcome, test: Test, limits: Limits) -> TestResult:
    """Judge one execution of a program.

    Args:
        kind: the program's kind.
        outcome: the outcome of the execution.
        test: the test that was executed.
        limits: the limits of the test.

    Raises:
        UserError: the input of a function is not JSON, so no program could have passed.
    """
    reported = _read_last_report(outcome.report)
    finding = _find_failure(outcome, reported, limits)
    if kind == "stdin":
        output = outcome.output.decode("utf-8", "replace")
        finding = finding or _judge_output(outcome, test)
    else:
        value = reported.get("value")
        output = "" if value is None else _dump_value(value[0])
        finding = finding or _judge_value(outcome, value, test)
        if finding[0] not in ("accepted", "wrong_answer"):
            parse_test_arguments(test.input)
    return _build_result(outcome, reported, finding, output)


def _judge_output(outcome: TestOutcome, test: Test) -> _Finding:
    if outcome.ending.exit:
        return "runtime_error", f"exit status {outcome.ending.exit}"
    return _convert_difference(compare_outputs(outcome.output, test.expected))


def _judge_value(outcome: TestOutcome, value: list[Any] | None, test: Test) -> _Finding:
    status = outcome.ending.exit
    if value is None or status:
        ending = "returned no value" if value is None else "had returned"
        return "runtime_error", f"it ended with status {status} and {ending}"
    return _convert_difference(compare_values(value[0], parse_expected_value(test.expected)))


def _convert_difference(difference: str) -> _Finding:
    return ("wrong_answer", difference) if difference else ("accepted", "")


def _find_failure(outcome: TestOutcome, reported: _Reported, limits: Limits) -> _Finding | None:
    """Find a failure of an execution other than a wrong answer; None if there is none."""
    ending = outcome.ending
    if outcome.output_bytes > limits.output_bytes:
        return "output_limit", f"more than {limits.output_bytes} bytes of output"
    if ending.stopped == "cpu" or ending.exit == -signal.SIGXCPU:
        return "time_limit", f"more than {limits.cpu_s:g} s of CPU time"
    if ending.stopped == "wall":
        return "time_limit", f"still running after {limits.wall_s:g} s"
    # A program that did not compile did not run, so it cannot have forged this report.
    if not ending.compiled and "compile_error" in reported:
        return "compile_error", _format_report(reported["compile_error"])
    if "raised" in reported:
        summary = _format_report(reported["raised"])
        memory = summary.partition(":")[0].endswith("MemoryError")
        return ("memory_limit", "out of memory") if memory else ("runtime_error", summary)
    if ending.exit < 0:
        return "runtime_error", f"killed by {_format_signal(-ending.exit)}"
    if not ending.compiled:
        return "compile_error", "process ended during compilation"
    return None


def _build_result(
    outcome: TestOutcome, reported: _Reported, finding: _Finding, output: str
) -> TestResult:
    traceback = reported.get("raised", [])[1:]
    error = traceback[0] if traceback and isinstance(traceback[0], str) else ""
    error = error or outcome.errors.decode("utf-8", "replace")
    verdict, reason = finding
    return TestResult(
        verdict,
        _replace_surrogates(reason),
        _replace_surrogates(output[:MAX_TEXT]),
        _replace_surrogates(error[-MAX_TEXT:]),
        outcome.ending.cpu_s,
        outcome.ending.wall_s,
    )


def _read_last_report(report: bytes) -> _Reported:
    """Read the last reported line: a list of its kind and at least one more field.

    The program may have written the line itself, so it may have any form.
    """
    line = report.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        fields = parse_json(line, max_depth=MAX_DEPTH + 1)  # a list around a value
    except ValueError:
        return {}
    is_report = isinstance(fields, list) and len(fields) > 1 and isinstance(fields[0], str)
    return {fields[0]: fields[1:]} if is_report else {}


def _format_report(fields: list[Any]) -> str:
    """Return the reported failure if it is text; untrusted values of other types are not used."""
    return fields[0][:300] if isinstance(fields[0], str) else "(an unreadable report)"


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _dump_value(value: Any) -> str:
    try:
        return call_deeply(json.dumps, value)
    except (ValueError, TypeError):  # a long integer, also as a ``Decimal``
        return "(a value too long to show)"


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
