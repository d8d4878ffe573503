"""The inside of a worker process: how it begins, and its parent as it sees it."""

from __future__ import annotations

import importlib
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from gapft_harness.core.processes.garbage import collect_seldom

#: How a frame begins: the bytes that follow.
LENGTH = struct.Struct(">I")


def framed(content: bytes) -> bytes:
    """JSON as it goes over a pipe."""
    return LENGTH.pack(len(content)) + content


def resolve(function: str) -> Callable[..., Any]:
    """The function that ``module:name`` names."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def begin(serve: str, pipes: Sequence[int], arguments: Sequence[Any]) -> None:
    """What a worker does first: it keeps to its pipes and calls what it is there for.

    Args:
        serve: ``module:name`` of a function of a ``Parent`` and ``arguments``.
        pipes: the ends that messages arrive on and reports leave by.
        arguments: further arguments.
    """
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for fd in pipes:
        os.set_inheritable(fd, False)
    for stream in (sys.stdout, sys.stderr):
        # Both are a file here, and what is still buffered in a killed process is lost.
        cast(Any, stream).reconfigure(line_buffering=True, errors="backslashreplace")
    resolve(serve)(Parent(*pipes), *arguments)


class Parent:
    """The parent of this process."""

    def __init__(self, messages: int, reports: int) -> None:
        """Takes the pipes' ends that messages arrive on and reports leave by."""
        self._messages = os.fdopen(messages, "rb")
        self._reports = reports

    def messages(self) -> Iterator[bytes]:
        """Yields its messages, JSON each, until it closes the pipe or dies."""
        while len(head := self._messages.read(LENGTH.size)) == LENGTH.size:
            (length,) = LENGTH.unpack(head)
            content = self._messages.read(length)
            if len(content) < length:
                return
            yield content

    def tell(self, content: bytes) -> None:
        """Sends it a report, JSON; ends this process if it is gone."""
        view = memoryview(framed(content))
        try:
            while view:
                view = view[os.write(self._reports, view) :]
        except BrokenPipeError:
            os._exit(1)
