"""Output of programs and models is read in linear time and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

#: Texts that a pattern or parser of the harness looks for, and their neighbours.
PIECES = [
    *(" ", "\n", "\t", "\r\n", "9", "1", ".", "e", "-", "+", ",", "1_", "inf", "x", "A", "B)"),
    *("(C)", "A/", "and B ", "The answer is ", "not ", "wait, ", "if ", "so ", "option ", "best "),
    *("clearly ", "`", "```", "```python", "~~~", "~~", "<", "<s>", "<think>", "</think>"),
    *("[THINK]", "<|channel|>", "analysis", "final", "<|message|>", "'<thought>'"),
    *("\\boxed", "\\boxed{", "{", "}", "\\", "$", "_", "*", "'", '"', "[", "]", "[-", "{+", "-]"),
    *("(", ")", ":", ";", "#", ">", "|", 'File "/', "  | ", "Traceback", "/usr/lib/python3.11/"),
    *("/proc/self/fd/1", "^", "{1}", "said ", "🙂", "１", "\u2028", "\xa0", "\0", "\x1f", "+}"),
    *("\\frac", "1 1/2 ", "**", "$1 ", "1,234", "(1, ", "\\(", "\\text{", "~", "Answer: "),
]
RUN = st.lists(st.sampled_from(PIECES) | st.text(min_size=1, max_size=2), min_size=1, max_size=4)


class Reader:
    """Runs the reading process; starts a new one after the kernel ended it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def read(self, runs: list[str]) -> None:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.reading"],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        requests, answers = self._pipes()
        requests.write(json.dumps(runs) + "\n")
        requests.flush()
        reader = ""
        while (line := answers.readline().strip()) != "read":
            if not line:
                status = self.end()
                pytest.fail(f"{runs} is too much for the reader {reader!r} (status {status})")
            reader = line

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def end(self) -> int:
        if self.process is None:
            return 0
        for pipe in self._pipes():
            pipe.close()
        status = self.process.wait()
        self.process = None
        return status


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader_process = Reader()
    yield reader_process
    reader_process.end()


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=st.lists(RUN.map("".join), min_size=1, max_size=3))
@example(runs=["9", "x"])
@example(runs=["9", ".5."])
@example(runs=["9", "e"])
@example(runs=["`", "x", "\n```"])
@example(runs=["-", "x"])
@example(runs=["+", "x"])
@example(runs=["x", " ", "y"])
@example(runs=["[", "]"])
@example(runs=["99", " "])
@example(runs=["~~~\n"])
@example(runs=["\\boxed{"])
@example(runs=["\\boxed", " "])
@example(runs=["A", " ", "x"])
@example(runs=["'\"", "1."])
@pytest.mark.thorough
def test_reads_any_text_in_linear_time(reader: Reader, runs: list[str]) -> None:
    reader.read(runs)
