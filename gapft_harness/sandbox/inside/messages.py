"""The messages between the harness and a worker about a job, as packed numbers.

Packing writes to a few memory pages, JSON to many; after each fork, the kernel must copy every page
that a worker writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

#: The bytes of a call's length, before its input.
LENGTH_BYTES = 8
#: A process older than this, in CPU or wall seconds, gets no further call: if an earlier answer was
#: wrong, the time would be wasted.
MAX_SHARED_AGE_S = 0.5
#: Maximum bytes of a call's standard error that are stored.
ERROR_BYTES = 4096

_JOB = Struct("=dd")
_ENDING = Struct("=idd4s?dI")
_ANSWERED_CALL = Struct("=ddQQQ")


class Usage(NamedTuple):
    """The time that a test used.

    Attributes:
        cpu_s: CPU seconds.
        wall_s: wall seconds.
        stopped: the limit that it exceeded, ``cpu`` or ``wall``, or empty.
    """

    cpu_s: float
    wall_s: float
    stopped: str


class AnsweredCall(NamedTuple):
    """An answered call that was followed by a further call.

    Attributes:
        cpu_s: CPU seconds used.
        wall_s: wall seconds used.
        report: size of its report in the file of answers, in bytes.
        errors: size of its standard error, which follows the report, in bytes.
        output_bytes: the size of the largest of its files.
    """

    cpu_s: float
    wall_s: float
    report: int
    errors: int
    output_bytes: int


class Ending(NamedTuple):
    """The result of a job.

    Attributes:
        exit: the exit status of the last test, or minus a signal; 0 if its call was answered.
        spent: the time that the last test used.
        answered: the calls before it.
        compiled: whether the program compiled.
        busy_s: seconds that the job occupied the worker.
        setup: the reason why the program's process could not be confined, or empty.
    """

    exit: int
    spent: Usage
    answered: Sequence[AnsweredCall]
    compiled: bool
    busy_s: float
    setup: str


def pack_job(cpu_s: float, wall_s: float) -> bytes:
    """Pack the CPU and wall limits of a test."""
    return _JOB.pack(cpu_s, wall_s)


def unpack_job(message: bytes) -> tuple[float, float]:
    """Unpack a message of ``pack_job``."""
    return _JOB.unpack(message)


def pack_ending(ending: Ending) -> bytes:
    """Pack an ending into one small message."""
    status, (cpu_s, wall_s, stopped), answered, compiled, busy_s, setup = ending
    head = _ENDING.pack(status, cpu_s, wall_s, stopped.encode(), compiled, busy_s, len(answered))
    return b"".join([head, *[_ANSWERED_CALL.pack(*call) for call in answered], setup.encode()])


def unpack_ending(message: bytes) -> Ending:
    """Unpack a message of ``pack_ending``."""
    status, cpu_s, wall_s, stopped, compiled, busy_s, count = _ENDING.unpack_from(message)
    end = _ENDING.size + count * _ANSWERED_CALL.size
    answered = [
        AnsweredCall(*fields) for fields in _ANSWERED_CALL.iter_unpack(message[_ENDING.size : end])
    ]
    spent = Usage(cpu_s, wall_s, stopped.rstrip(b"\0").decode())
    return Ending(status, spent, answered, compiled, busy_s, message[end:].decode())
