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


def patch_open() -> None:
    """Make ``open`` and ``os.open`` support the names. Called once, in the worker."""
    builtins.open = io.open = _PatchedOpen(io.open, _open_with_opener)
    os.open = _PatchedOpen(os.open, _copy_descriptor)  # type: ignore[assignment]
    os.supports_dir_fd.add(os.open)


class _PatchedOpen:
    """A replacement of an open function, with a special case for these names.

    It is not a Python function, which would become a method as an attribute of a class.
    """

    def __init__(self, original: Callable[..., Any], open_descriptor: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._plain, self._named = original, open_descriptor

    def __call__(self, file: Any, *args: Any, **settings: Any) -> Any:
        descriptor = None if isinstance(file, int) else _find_descriptor(file)
        if descriptor is None:
            return self._plain(file, *args, **settings)
        return self._named(self._plain, descriptor, file, *args, **settings)


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
    original: Callable[..., Any], descriptor: int, file: Any, *args: Any, **settings: Any
) -> Any:
    if len(args) < 7:  # otherwise the program passed its own opener
        settings.setdefault("opener", lambda *_: os.dup(descriptor))
    return original(file, *args, **settings)


def _copy_descriptor(
    original: Callable[..., Any], descriptor: int, *_: Any, **settings: Any
) -> int:
    return os.dup(descriptor)
