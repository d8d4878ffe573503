"""What the harness and a worker tell each other of a job, as packed numbers.

Packing touches a few pages of memory where JSON touches many, and after each fork every page that a
worker touches must be made its own again.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

_JOB = Struct("=dd?")
_ENDING = Struct("=idd4s?dI")
_ANSWERED = Struct("=ddQQQ")


class Spent(NamedTuple):
    """What a test took.

    Attributes:
        cpu_s: CPU seconds.
        wall_s: wall seconds.
        stopped: the limit that it was beyond, ``cpu`` or ``wall``, or empty.
    """

    cpu_s: float
    wall_s: float
    stopped: str


class Answered(NamedTuple):
    """A call that was answered, and followed by another one.

    Attributes:
        cpu_s: CPU seconds that it took.
        wall_s: wall seconds.
        report: bytes of its report, in the file of answers.
        errors: bytes of standard error, behind that.
        output_bytes: the most that it wrote to any of its files.
    """

    cpu_s: float
    wall_s: float
    report: int
    errors: int
    output_bytes: int


class Ending(NamedTuple):
    """What became of a job.

    Attributes:
        exit: exit status of the last test, or minus a signal; 0 if its call was answered.
        spent: what the last test took.
        answered: the calls before it.
        compiled: whether the program compiled.
        busy_s: seconds that it occupied the worker.
        setup: why the program's process could not be confined, or empty.
    """

    exit: int
    spent: Spent
    answered: Sequence[Answered]
    compiled: bool
    busy_s: float
    setup: str


def pack_job(cpu_s: float, wall_s: float, compat: bool) -> bytes:
    """CPU and wall limit of a test, and whether LiveCodeBench's way of running is wanted."""
    return _JOB.pack(cpu_s, wall_s, compat)


def unpack_job(message: bytes) -> tuple[float, float, bool]:
    """The reverse of ``pack_job``."""
    return _JOB.unpack(message)


def pack_ending(ending: Ending) -> bytes:
    """One message, as small as it can be."""
    status, (cpu_s, wall_s, stopped), answered, compiled, busy_s, setup = ending
    head = _ENDING.pack(status, cpu_s, wall_s, stopped.encode(), compiled, busy_s, len(answered))
    return b"".join([head, *[_ANSWERED.pack(*one) for one in answered], setup.encode()])


def unpack_ending(message: bytes) -> Ending:
    """The reverse of ``pack_ending``."""
    status, cpu_s, wall_s, stopped, compiled, busy_s, count = _ENDING.unpack_from(message)
    end = _ENDING.size + count * _ANSWERED.size
    answered = [Answered(*one) for one in _ANSWERED.iter_unpack(message[_ENDING.size : end])]
    spent = Spent(cpu_s, wall_s, stopped.rstrip(b"\0").decode())
    return Ending(status, spent, answered, compiled, busy_s, message[end:].decode())
