"""The message by which a worker reports the end of a test, as packed numbers.

Packing writes to a few memory pages, JSON to many; after each fork, the kernel must copy every page
that a worker writes to.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_ENDING = Struct("=idd4s?")


class Ending(NamedTuple):
    """The end of a test's process. The program cannot forge any of it.

    Attributes:
        exit: the exit status, or minus the signal that ended the process.
        cpu_s: CPU seconds from the fork to the end.
        wall_s: wall seconds over the same period.
        stopped: ``cpu`` or ``wall`` if the process was stopped at that limit, else empty.
        compiled: whether the program compiled.
        setup: the reason why the process could not be confined and ran nothing, or empty.
    """

    exit: int
    cpu_s: float
    wall_s: float
    stopped: str
    compiled: bool
    setup: str


def pack_ending(ending: Ending) -> bytes:
    """Pack an ending into one small message."""
    status, cpu_s, wall_s, stopped, compiled, setup = ending
    numbers = _ENDING.pack(status, cpu_s, wall_s, stopped.encode(), compiled)
    return numbers + setup.encode()


def unpack_ending(message: bytes) -> Ending:
    """Unpack a message of ``pack_ending``."""
    status, cpu_s, wall_s, stopped, compiled = _ENDING.unpack_from(message)
    setup = message[_ENDING.size :].decode()
    return Ending(status, cpu_s, wall_s, stopped.rstrip(b"\0").decode(), compiled, setup)
