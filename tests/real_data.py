"""Find the real benchmark files, which are never copied into the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def find_real_file(relative: str) -> Path:
    """Return a file below GAPFT_DATA_DIR; skip the test with a message if it is missing."""
    folder = os.environ.get("GAPFT_DATA_DIR")
    if not folder:
        pytest.skip(f"GAPFT_DATA_DIR is not set: NOT TESTED on the real {relative}")
    path = Path(folder) / relative
    if not path.is_file():
        pytest.skip(f"GAPFT_DATA_DIR has no {relative}: NOT TESTED on it")
    return path
