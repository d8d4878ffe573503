"""Folders that the workers of one test session make once and share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder's content if no worker of this session has made it; return the folder.

    Args:
        folder: below the folder that all workers share; a name of its own for each content.
        make: writes the content into the empty folder.
    """
    finished = folder.with_suffix(".finished")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder
