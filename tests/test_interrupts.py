"""Ctrl-C, once or repeated, at any time, ends a command with one line and status 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.letters_run import find_workers
from tests.kit.patience import PATIENCE_S

GOES_ON = "gapft: interrupted; run the same command again to continue\n"


def start_command(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command as a terminal does: it leads the process group that Ctrl-C interrupts."""
    with (folder / "stderr").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "gapft_harness.cli.main", *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            # the test process may ignore SIGINT, and children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def wait_until(holds: Callable[[], bool], command: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert command.poll() is None, "the command ended before the interrupt"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def press_ctrl_c(command: subprocess.Popen[bytes], times: int = 1, pause_s: float = 0.0) -> None:
    for _ in range(times):
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGINT)
            time.sleep(pause_s)


def read_stderr(folder: Path) -> str:
    return (folder / "stderr").read_text()


@pytest.mark.parametrize(
    ("moment", "times"),
    [("search has begun", 1), ("a model loads", 3), ("responses are stored", 2)],
)
def test_interrupted_run_can_be_continued(tmp_path: Path, moment: str, times: int) -> None:
    command = start_command(tmp_path, "run", "demo", "--set", "search.chunk=20")
    manifest = tmp_path / "runs/demo/manifest.json"
    moments = {
        "search has begun": lambda: "search at" in read_stderr(tmp_path),
        "a model loads": lambda: manifest.exists() and '"rests_on"' in manifest.read_text(),
        "responses are stored": lambda: any(tmp_path.glob("runs/.store/generate/*/[!.]*.jsonl")),
    }
    wait_until(moments[moment], command)
    workers = find_workers(command)
    press_ctrl_c(command, times, 0.002)
    assert command.wait(60) == 130
    assert read_stderr(tmp_path).count(GOES_ON) == 1
    assert read_stderr(tmp_path).endswith(GOES_ON)
    assert "Traceback" not in read_stderr(tmp_path)
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == []
    assert (tmp_path / "runs/demo/recipe.yaml").exists()


#: Press Ctrl-C again at each step of printing the line, each time in a new child process.
AT_EVERY_STEP = """
import os, signal, sys
from gapft_harness.cli import interrupts

def pressed_at(step):
    steps = 0

    def trace(frame, event, argument):
        nonlocal steps
        if frame.f_code is not interrupts._print_message.__code__:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        if event == "opcode" and steps == step:
            signal.raise_signal(signal.SIGINT)
        return trace

    with interrupts.report_interrupts():
        sys.settrace(trace)
        signal.raise_signal(signal.SIGINT)
    assert False, "not reached"

for step in range(1, 100):
    child = os.fork()
    if not child:
        try:
            pressed_at(step)
        except SystemExit as error:
            os._exit(error.code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130, step
"""


def test_prints_one_line_for_repeated_ctrl_c() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EVERY_STEP],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stderr.splitlines() == ["gapft: interrupted"] * 99
