"""Support ``open("/dev/stdin")``, ``/dev/fd/N`` and ``/proc/self/fd/N`` without ``/dev``.

Linux provides these names through ``/proc``, which programs cannot see, so descriptors are copied.
A copy shares the position of the original, as a pipe does outside the sandbox: a second open does
not read from the start, and opening for writing does not truncate.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
from collections.abc import Callable
from typing import Any

#: Names that must exist, since programs may check for them; in the order of their descriptors.
NAMES = ("/dev/stdin", "/dev/stdout", "/dev/stderr")

_NUMBERED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,4})")


def patch_open() -> None:
    """Make ``open`` and ``os.open`` support the names. Called once, in the worker."""
    builtins.open = io.open = _PatchedOpen(io.open, "file", _open_with_opener)
    os.open = _PatchedOpen(os.open, "path", _copy_descriptor)
    os.supports_dir_fd.add(os.open)


class _PatchedOpen:
    """A replacement of an open function, with a special case for these names.

    It is not a Python function, which would become a method as an attribute of a class.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        parameter: str,
        open_descriptor: Callable[..., Any],
    ) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._parameter = parameter  # the name of the first parameter
        self._open_descriptor = open_descriptor

    def __call__(self, *args: Any, **options: Any) -> Any:
        file = args[0] if args else options.get(self._parameter)
        descriptor = None if isinstance(file, int) else _find_descriptor(file)
        if descriptor is None:
            return self._original(*args, **options)
        return self._open_descriptor(self._original, descriptor, *args, **options)


def _find_descriptor(file: Any) -> int | None:
    try:
        name = os.fsdecode(file)
    except (TypeError, ValueError):
        return None  # not a path: the real function raises
    if name in NAMES:
        return NAMES.index(name)
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def _open_with_opener(
    original: Callable[..., Any], descriptor: int, *args: Any, **options: Any
) -> Any:
    if len(args) < 8:  # otherwise the program passed its own opener
        options.setdefault("opener", lambda *_: os.dup(descriptor))
    return original(*args, **options)


def _copy_descriptor(original: Callable[..., Any], descriptor: int, *_: Any, **options: Any) -> int:
    return os.dup(descriptor)
