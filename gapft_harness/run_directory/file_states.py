"""Whether files are as they were: by their hashes, and of large ones by size and time first.

A state is ``[size, time of the last change in ns, SHA-256]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.files import sha256

#: Bytes up to which a file is always hashed: a tenth of a second.
_SMALL = 64 << 20


def states(files: Iterable[Path]) -> dict[str, list[Any]]:
    """The states of files by their paths; those that are gone are left out."""
    return {str(file): _state(file) for file in sorted(set(files)) if file.is_file()}


def compare(recorded: Mapping[str, list[Any]]) -> tuple[list[str], list[str]]:
    """Compares files with their recorded states.

    Returns:
        The paths of those that changed, and of those that are not here.
    """
    changed, absent = [], []
    for name, state in recorded.items():
        if not Path(name).is_file():
            absent.append(name)
        elif not _holds(Path(name), state):
            changed.append(name)
    return changed, absent


def _state(file: Path) -> list[Any]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, sha256(file)]


def _holds(file: Path, state: list[Any]) -> bool:
    size, time, digest = state
    found = file.stat()
    if found.st_size > _SMALL and [found.st_size, found.st_mtime_ns] == [size, time]:
        return True
    return bool(found.st_size == size and sha256(file) == digest)
