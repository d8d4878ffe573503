"""Write files atomically: write a temporary file in the same folder, flush it, rename it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.text import replace_text_surrogates

#: Error numbers for a full disk, an exceeded quota and an exceeded file size limit.
_DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Suffix of files that are being written.
PARTIAL = ".partial"


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a temporary file in the folder of ``path`` and rename it into place.

    Args:
        path: the file; it is complete or absent at any time.
        write: a function of the path to write to.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_writable_error(path, error) from error
        raise


def require_folder(folder: Path, option: str = "--out") -> None:
    """Check that a folder can be created and written; nothing is left behind.

    Args:
        folder: the folder that a command will write to.
        option: the option that named it, for messages.

    Raises:
        UserError: the folder cannot be created or written.
    """
    existing = next(path for path in (folder, *folder.parents, Path(".")) if os.path.lexists(path))
    if not os.path.isdir(existing):
        raise UserError(f"{option} {folder}: {existing} is a file; expected a folder")
    try:
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    except OSError as error:
        raise UserError(f"{option} {folder}: cannot be written: {error.strerror}") from error


def require_absent(folder: Path, names: Sequence[str], *, overwrite: bool = False) -> None:
    """Check that a folder has none of the given files, so that no file is overwritten silently.

    Args:
        folder: the folder that a command will write to.
        names: the files that the command will write.
        overwrite: allow existing files.

    Raises:
        UserError: a file exists and ``overwrite`` is false, or the folder cannot be written.
    """
    require_folder(folder)
    for name in () if overwrite else names:
        if (folder / name).exists():
            raise UserError(
                f"--out {folder}: the folder already has a {name}; give a different folder, or "
                "--overwrite to replace the file"
            )


def is_disk_full(error: Exception) -> bool:
    """Check whether an error reports a full disk."""
    text = str(error)  # errors of native libraries have no errno
    return getattr(error, "errno", None) in _DISK_FULL_CODES or any(
        os.strerror(code) in text for code in _DISK_FULL_CODES
    )


def not_writable_error(path: Path, error: Exception) -> GapftError:
    """Return the error for a file that could not be written; for a full disk, with a remedy."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    advice = "; free disk space and run the same command to continue" if is_disk_full(error) else ""
    return GapftError(f"{path}: cannot be written: {reason}{advice}")


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename is durable before later writes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush all files and folders below a folder to the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; a lone surrogate becomes U+FFFD."""
    replace_file(
        path,
        lambda temporary: temporary.write_text(replace_text_surrogates(text), encoding="utf-8"),
    )


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically, keys in the given order, with a newline at the end.

    Args:
        path: the file; it is complete or absent at any time.
        content: a JSON value.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_text(path, format_json(content))


def format_json(content: Any) -> str:
    """Return the text that ``write_json`` writes."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, or of a folder's files by relative name, in hex.

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
