"""``open("/dev/stdin")`` without ``/dev``: the names of descriptors, opened as the descriptors.

Linux makes these names from ``/proc``, which a program does not see. Here they give a copy of the
descriptor, as a pipe's name would outside: what was read is gone, what was written stays.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
from collections.abc import Callable
from typing import Any

#: Names that must be there, if only for a program that asks whether they are.
NAMES = ("/dev/stdin", "/dev/stdout", "/dev/stderr")

_NUMBERED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,4})")


def open_by_name() -> None:
    """Makes ``open`` and ``os.open`` know the names. Called once, in the worker."""
    builtins.open = io.open = _Open(io.open, _with_opener)
    os.open = _Open(os.open, _copy)  # type: ignore[assignment]
    os.supports_dir_fd.add(os.open)


class _Open:
    """A function that opens, with a way of its own for these names.

    No Python function: that would become a method where a class has it as an attribute.
    """

    def __init__(self, plain: Callable[..., Any], named: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self._plain, self._named = plain, named

    def __call__(self, file: Any, *args: Any, **settings: Any) -> Any:
        descriptor = None if isinstance(file, int) else _descriptor(file)
        if descriptor is None:
            return self._plain(file, *args, **settings)
        return self._named(self._plain, descriptor, file, *args, **settings)


def _descriptor(file: Any) -> int | None:
    try:
        name = os.fsdecode(file)
    except (TypeError, ValueError):
        return None  # no path: the real function says so
    if name in NAMES:
        return NAMES.index(name)
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def _with_opener(
    plain: Callable[..., Any], descriptor: int, file: Any, *args: Any, **settings: Any
) -> Any:
    if len(args) < 7:  # else the program gave an opener itself
        settings.setdefault("opener", lambda *_: os.dup(descriptor))
    return plain(file, *args, **settings)


def _copy(plain: Callable[..., Any], descriptor: int, *_: Any, **settings: Any) -> int:
    return os.dup(descriptor)
