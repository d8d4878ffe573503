"""Before a command changes the results of a finished run, it warns, and asks on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kit.kills import list_changed_files, read_files
from tests.kit.runs import BaseRun

RunAt = Callable[..., BaseRun]


@pytest.mark.thorough
def test_warns_before_headline_changes(run_at: RunAt) -> None:
    done = run_at("reported", "demo").resume("--seed", 14)
    assert done.returncode == 0, done.stderr
    message = " ".join(done.stderr.split())
    assert message.index("under seeds 13, 14") < message.index("✓ train")


def test_asks_on_terminal_before_change(run_at: RunAt) -> None:
    run = run_at("reported", "demo")
    before = read_files(run.path)
    main, side = pty.openpty()
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", str(run.path), "--seed", "14"]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        os.write(main, b"n\n")
        output = b""
        while True:
            try:
                output += (part := os.read(main, 4096))
            except OSError:  # the command has ended
                break
            if not part:
                break
    os.close(main)
    assert process.returncode == 2, output.decode()
    assert list_changed_files(before, read_files(run.path)) == []
