"""Support ``open("/dev/stdin")`` and similar names without ``/dev``, by copying descriptors.

Linux provides these names through ``/proc``, which programs cannot see. The copied descriptor
behaves like a pipe outside: data that was read is gone, and data that was written stays.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
from collections.abc import Callable
from typing import Any

#: Names that must exist, since programs may check for them.
NAMES = ("/dev/stdin", "/dev/stdout", "/dev/stderr")

_NUMBERED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,4})")


def open_by_name() -> None:
    """Make ``open`` and ``os.open`` support the names. Called once, in the worker."""
    builtins.open = io.open = _Open(io.open, _with_opener)
    os.open = _Open(os.open, _copy)  # type: ignore[assignment]
    os.supports_dir_fd.add(os.open)


class _Open:
    """A replacement of an open function, with a special case for these names.

    It is not a Python function, which would become a method as an attribute of a class.
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
        return None  # not a path: the real function raises
    if name in NAMES:
        return NAMES.index(name)
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def _with_opener(
    plain: Callable[..., Any], descriptor: int, file: Any, *args: Any, **settings: Any
) -> Any:
    if len(args) < 7:  # otherwise the program passed its own opener
        settings.setdefault("opener", lambda *_: os.dup(descriptor))
    return plain(file, *args, **settings)


def _copy(plain: Callable[..., Any], descriptor: int, *_: Any, **settings: Any) -> int:
    return os.dup(descriptor)
