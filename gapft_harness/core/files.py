"""Writing files so that none is ever half there: written beside, flushed, renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.text import whole_text

#: What the system says where there is no room: on the disk, in a quota, under a size limit.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Ends the names of files that are being written.
PARTIAL = ".partial"

#: What would show that a file was changed; last, when the system saw its last change.
_Look = tuple[str, int, int, int, int, int]

#: By path what a file or folder looked like when it was hashed in this process, and its hash.
_HASHED: dict[Path, tuple[list[_Look], str]] = {}

#: What was changed less long before it was hashed is hashed again: a further change in the same
#: tick of the file system's clock would leave it looking the same.
SETTLED_NS = 2 * 10**9


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a temporary neighbour of ``path`` and rename it into place.

    Args:
        path: the file, which is complete or absent at any time.
        write: gets the path to write to.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    beside = path.with_name(f".{path.name}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise


def require_folder(folder: Path, option: str = "--out") -> None:
    """Holds a folder that a command will write to be one that can be made and written.

    Raises:
        UserError: it cannot; nothing is left behind.
    """
    there = next(path for path in (folder, *folder.parents, Path(".")) if os.path.lexists(path))
    if not os.path.isdir(there):
        raise UserError(f"{option} {folder}: {there} is a file; expected a folder")
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        raise UserError(f"{option} {folder}: cannot be written: {error.strerror}") from error


def require_free(folder: Path, names: Sequence[str], *, overwrite: bool = False) -> None:
    """Holds a folder to have none of some files, so that none is overwritten silently.

    Raises:
        UserError: it has, and not ``overwrite``; or it cannot be written.
    """
    require_folder(folder)
    for name in () if overwrite else names:
        if (folder / name).exists():
            raise UserError(
                f"--out {folder}: holds {name} already; give another folder, or --overwrite "
                "(in Python overwrite=True) to replace it"
            )


def is_full(error: Exception) -> bool:
    """Whether an error says that the disk has no room."""
    text = str(error)  # libraries in other languages give no number
    return getattr(error, "errno", None) in _FULL or any(os.strerror(of) in text for of in _FULL)


def unwritable(path: Path, error: Exception) -> GapftError:
    """The error for a file that could not be written, with what to do about a full disk."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    advice = "; make room: the same command goes on from what is finished" if is_full(error) else ""
    return GapftError(f"{path}: cannot be written: {reason}{advice}")


def sync_folder(folder: Path) -> None:
    """Has a folder's entries on the disk: a rename is there before what follows it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Writes a text that is whole or absent; a lone surrogate in it becomes U+FFFD."""
    replace_file(path, lambda beside: beside.write_text(whole_text(text), encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON for people and programs: indented, keys in the order given, newline at end.

    Args:
        path: the file, which is complete or absent at any time.
        content: a JSON value.

    Raises:
        GapftError: as ``replace_file``.
    """
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """The text that ``write_json`` writes."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256_once(path: Path) -> str:
    """The hash of a file or folder, which is read again only if it may have changed.

    What would show a change, of every file: its name, inode, size, and the times of its last
    write and of its last change. The system sets the latter, and no program can set it back. So
    what is written, truncated or replaced is read again. A write through a shared memory map is
    not seen for sure: the system may set the times later, when the pages go to the disk, or not
    at all for a page that the program had written to before.
    """
    place, start = path.resolve(), time.time_ns()
    looks = _looks(place)
    if place in _HASHED and _HASHED[place][0] == looks:
        return _HASHED[place][1]
    found = sha256(place)
    if all(changed < start - SETTLED_NS for *_, changed in looks):
        _HASHED[place] = (looks, found)
    return found


def _looks(path: Path) -> list[_Look]:
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [
        (str(f), s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for f, s in ((file, file.stat()) for file in files)
    ]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's files by relative name, in hex.

    Args:
        path: the file or folder.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()} {sha256(file)}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
