"""As root, run the sandbox tests that depend on a user's rights again as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests already run as an ordinary user")
def test_sandbox_tests_pass_as_ordinary_user():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.sandbox.ordinary_user"),
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
            *("-m", "not thorough"),
            *("tests/sandbox/test_hostile.py", "tests/sandbox/test_correct_programs.py"),
            *("tests/sandbox/test_crossing.py", "tests/sandbox/test_load.py"),
            *("tests/sandbox/test_sandbox.py", "-k", "not slow and not canary and not wrong"),
        ],
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
        capture_output=True,
        text=True,
    )
    if "unshare(NEWNS)" in done.stderr:
        pytest.skip(f"root may not mount here, so it cannot play a user: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
