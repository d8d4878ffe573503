"""Handle Ctrl-C: the first one ends the command in order, the second one at once.

Both print one line to standard error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

#: The exit status by which a shell recognizes "ended by Ctrl-C".
EXIT_STATUS = 130

_message = "interrupted"


@contextlib.contextmanager
def announce_resumable() -> Iterator[None]:
    """Report, on Ctrl-C inside the block, that the same command continues from here.

    Use it around work that keeps its finished parts when it is interrupted.
    """
    global _message
    previous_message, _message = _message, "interrupted; run the same command again to continue"
    yield
    # An interruption skips this line: the message is printed later, outside the block.
    _message = previous_message


@contextlib.contextmanager
def report_interrupts() -> Iterator[None]:
    """Print a line and exit with status 130 if Ctrl-C interrupts the block, which is the command.

    This holds whichever exception reaches it: libraries turn KeyboardInterrupt into other
    exceptions or into a silent exit. If the process ignores Ctrl-C from the start, as under nohup,
    this does nothing.
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
        _print_message()
        sys.exit(EXIT_STATUS)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Exit immediately; the worker processes end when this process ends."""
    _print_message()
    os._exit(EXIT_STATUS)


def _print_message() -> None:
    """Print the message once, bypassing buffers, which may hold an unfinished line."""
    global _message
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # otherwise the line may be lost or printed twice
    if _message:
        os.write(2, f"gapft: {_message}\n".encode())
    _message = ""
    signal.signal(signal.SIGINT, _end_at_once)
