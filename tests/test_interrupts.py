"""Ctrl-C while its message is printed: one line and status 130.

Ctrl-C in every stage is a row of ``tests/laws/test_resume.py``.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.kit.patience import PATIENCE_S

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
