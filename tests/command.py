"""Runs the real ``gapft`` command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def gapft(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Runs ``gapft ARGUMENTS``; output is captured, the exit status is the caller's to check."""
    return subprocess.run(
        [sys.executable, "-m", "gapft_harness.cli.main", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def succeed(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Runs ``gapft ARGUMENTS`` and insists on exit status 0."""
    done = gapft(*arguments, cwd=cwd, env=env, timeout=timeout)
    assert done.returncode == 0, f"gapft {arguments}\n{done.stdout}\n{done.stderr}"
    return done
