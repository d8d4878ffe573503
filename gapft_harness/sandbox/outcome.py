"""Read the outcomes of tests from a worker's message and from a program's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from gapft_harness.sandbox.inside.messages import ERROR_BYTES, Ending


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of a test, before its output is compared.

    Attributes:
        exit: the exit status, or minus the signal that ended it; 0 for a call that was answered.
        stopped: ``cpu`` or ``wall`` if the test was stopped at that limit, else empty.
        compiled: whether the program compiled. Its process cannot forge this.
        cpu_s: CPU seconds.
        wall_s: wall seconds.
        output: standard output, up to the limit.
        output_bytes: the size of standard output, standard error or the report, whichever is
            largest.
        errors: the end of standard error.
        report: lines of JSON from the program's process; the program may have forged them.
    """

    exit: int
    stopped: str
    compiled: bool
    cpu_s: float
    wall_s: float
    output: bytes
    output_bytes: int
    errors: bytes
    report: bytes


def read_outcomes(ending: Ending, files: Sequence[int], limit: int) -> list[TestOutcome]:
    """Read the outcomes of a program's tests in one process, at least of the first test.

    Args:
        ending: the worker's message.
        files: descriptors of standard output, standard error and the report, and for function
            programs of the file with earlier answers.
        limit: maximum bytes to read from a file.
    """
    output, errors, report, *answer_files = files
    outcomes, start = [], 0
    for call in ending.answered:
        middle = start + call.report
        outcomes.append(
            TestOutcome(
                exit=0,
                compiled=True,
                stopped="",
                cpu_s=call.cpu_s,
                wall_s=call.wall_s,
                output=b"",
                output_bytes=call.output_bytes,
                errors=_read_range(answer_files[0], middle, call.errors),
                report=_read_range(answer_files[0], start, call.report),
            )
        )
        start = middle + call.errors
    sizes = [os.fstat(file).st_size for file in files[:3]]
    last = TestOutcome(
        exit=ending.exit,
        compiled=ending.compiled,
        **ending.spent._asdict(),
        output=_read_range(output, 0, min(sizes[0], limit)),
        output_bytes=max(sizes),
        errors=_read_range(errors, max(0, sizes[1] - ERROR_BYTES), ERROR_BYTES),
        report=_read_range(report, 0, min(sizes[2], limit)),
    )
    return [*outcomes, last]


def _read_range(file: int, start: int, size: int) -> bytes:
    data = b""
    while size > len(data) and (more := os.pread(file, size - len(data), start + len(data))):
        data += more
    return data
