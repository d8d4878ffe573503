"""Output of libraries is hidden, and shown if the command fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import gapft

NOISY = """
import logging
import warnings

from gapft_harness.api import hookimpl

log = logging.getLogger("noisy")
log.warning("failed to load a kernel: no module named kernels")
warnings.warn("this way is deprecated", FutureWarning)
if {error}:
    log.error("the disk is on fire")


@hookimpl
def register_verifiers(register):
    {then}
"""


@pytest.mark.parametrize("error", [False, True])
def test_hides_library_warnings_but_not_errors(error: bool, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY.format(error=error, then="pass"))
    done = gapft("list", "plugins", "--plugin", "noisy.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ("noisy: the disk is on fire\n" if error else "")


def test_failure_shows_library_warnings(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY.format(error=False, then='raise OSError("broken")'))
    done = gapft("list", "plugins", "--plugin", "noisy.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "gapft: " in done.stderr.splitlines()[-1]
    assert "broken" in done.stderr
    assert "noisy: failed to load a kernel: no module named kernels" in done.stderr
    assert "FutureWarning: this way is deprecated" in done.stderr
