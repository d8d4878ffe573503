"""Ctrl-C: once, the command ends in order; twice, at once. Either way it says so in one line."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

#: What a shell takes for "ended by Ctrl-C".
EXIT_STATUS = 130

_said = "interrupted"


@contextlib.contextmanager
def goes_on() -> Iterator[None]:
    """Inside, an interruption loses nothing that is finished, and the line says so."""
    global _said
    before, _said = _said, "interrupted; the same command goes on from here"
    yield
    _said = before  # not where the block was interrupted: the line is still to be said


@contextlib.contextmanager
def told() -> Iterator[None]:
    """The whole command: whatever an interruption makes of it, a line is said and the status 130.

    Libraries turn the exception into others, or into an exit without a word. Where Ctrl-C is
    ignored from the start, as under nohup, it stays so.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield
        return
    interrupted = False

    def end_in_order(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, _end_at_once)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end_in_order)
    try:
        yield
    except BaseException as error:
        if not interrupted or (isinstance(error, SystemExit) and not error.code):
            raise
        _say()
        sys.exit(EXIT_STATUS)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Workers end with this process, however it ends."""
    _say()
    os._exit(EXIT_STATUS)


def _say() -> None:
    """Once, and not through buffers: what is written there may be in the middle of a line."""
    global _said
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # or the line is lost, or said twice
    if _said:
        os.write(2, f"gapft: {_said}\n".encode())
    _said = ""
    signal.signal(signal.SIGINT, _end_at_once)
