"""Adapter folders that are whole or absent: written beside their place, flushed, renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from gapft_harness.core.files import sync_folder, unwritable


@contextlib.contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """Gives an empty neighbour of ``output`` to fill, which takes its place at the end.

    Args:
        output: the folder; it does not exist yet.

    Raises:
        GapftError: it cannot be written; nothing is left then.
    """
    partial = output.with_name(f".{output.name}.partial")
    try:
        if partial.exists():  # of a command that was killed
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        yield partial
        for file in partial.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        partial.rename(output)
        sync_folder(output.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # safetensors has an error of its own for a full disk
        if isinstance(error, OSError | SafetensorError):
            raise unwritable(output, error) from error
        raise
