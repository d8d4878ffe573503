"""Read UTF-8 text, plain or gzipped, with errors that name the line.

JSON strings may contain lone surrogates, which UTF-8 cannot encode; ``replace_surrogates`` replaces
them.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from gapft_harness.core.errors import UserError

Json = TypeVar("Json")

_GZIP = b"\x1f\x8b"

#: Exceptions that reading a plain or gzipped file may raise.
_READ_ERRORS = (OSError, EOFError, zlib.error)


def read_text(path: Path) -> str:
    """Read a UTF-8 text file without its byte order mark; a gzip file is decompressed.

    Raises:
        UserError: the file cannot be read, or is not UTF-8; the message names the line.
    """
    try:
        with _open_unpacked(path) as file:
            content = file.read()
    except _READ_ERRORS as error:
        raise UserError(describe_read_error(path, error)) from error
    return decode(content, str(path))


def _open_unpacked(path: Path) -> BufferedReader | gzip.GzipFile:
    """Open a file for reading bytes; a gzip file, recognised by its first bytes, is decompressed.

    Raises:
        OSError: the file cannot be opened. Reading from it may raise any of ``_READ_ERRORS``.
    """
    file = path.open("rb")
    if not file.seekable() or file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return file  # a pipe cannot be opened twice, so it is returned as it is
    file.close()
    return gzip.GzipFile(path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers from 1, one in memory at a time.

    Args:
        path: a UTF-8 text file, plain or gzipped.

    Raises:
        UserError: the file cannot be read, or is not UTF-8; the message names the line.
    """
    try:
        with _open_unpacked(path) as lines:
            for number, line in enumerate(lines, start=1):
                yield number, decode(line, str(path), number)
    except _READ_ERRORS as error:
        raise UserError(describe_read_error(path, error)) from error


def describe_read_error(path: Path, error: Exception) -> str:
    """Return the error message for a file that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, IsADirectoryError):
        reason = "it is a folder"
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        reason = f"its gzip data is damaged or truncated: {error}"
    return f"{path}: cannot be read: {reason}"


def decode(content: bytes, place: str, first: int = 1) -> str:
    """Decode UTF-8; a byte order mark at the start of a file is left out.

    Args:
        content: a file's content, or a line of it.
        place: the source of the bytes, such as the file's path; the message begins with it.
        first: number of the first line in ``content``.

    Raises:
        UserError: ``content`` is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + first
        raise UserError(
            f"{place}, line {number}: expected UTF-8 text, found the byte "
            f"0x{content[error.start]:02x}"
        ) from error


def replace_text_surrogates(text: str) -> str:
    r"""Replace every lone surrogate in a text with U+FFFD.

    >>> replace_text_surrogates("hi \ud83d") == "hi \ufffd"
    True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_surrogates(value: Json) -> Json:
    """Replace every lone surrogate in a JSON value with U+FFFD, so that UTF-8 can encode it.

    Args:
        value: a text, or a list or object; its texts and keys are replaced at any depth.
    """
    if isinstance(value, str):
        return replace_text_surrogates(value)  # type: ignore[return-value]
    if isinstance(value, list):
        return [replace_surrogates(item) for item in value]  # type: ignore[return-value]
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}  # type: ignore[return-value]
    return value


def natural_sort_key(text: str) -> tuple[tuple[str, int, str], ...]:
    """Return a sort key that orders names by the numbers in them: ``c2`` before ``c10``.

    >>> sorted(["c10", "c2", "b"], key=natural_sort_key)
    ['b', 'c2', 'c10']
    """
    parts = re.findall(r"([^0-9]*)([0-9]*)", text)[:-1]
    numbers = ((word.lower(), number.lstrip("0")) for word, number in parts)
    return (*((word, len(number), number) for word, number in numbers), (text, 0, ""))
