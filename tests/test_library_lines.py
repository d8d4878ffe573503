"""Warnings of libraries are hidden, their errors are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import gapft
from tests.kit.plugins import write_plugin

NOISY = """
import logging
import warnings

log = logging.getLogger("noisy")
log.warning("failed to load a kernel: no module named kernels")
warnings.warn("this way is deprecated", FutureWarning)
"""


@pytest.mark.parametrize(
    ("more", "expected"), [("", ""), ('log.error("the disk is on fire")', "the disk is on fire")]
)
def test_hides_library_warnings_but_not_errors(more: str, expected: str, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "noisy.py", NOISY + more, verifiers=[])
    done = gapft("list", "plugins", "--plugin", plugin)
    assert done.returncode == 0
    assert done.stderr == (f"noisy: {expected}\n" if expected else "")
