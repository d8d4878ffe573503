"""Output of programs and models is read in linear time and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
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


def read(examples: list[list[str]]) -> None:
    """Pass examples to every reader, in a process that the kernel ends if one takes too much."""
    requests = "".join(f"{json.dumps(runs)}\n" for runs in examples)
    done = subprocess.run(
        [sys.executable, "-m", "tests.reading"],
        cwd=Path(__file__).parents[1],
        input=requests,
        capture_output=True,
        text=True,
        check=False,
    )
    names = done.stdout.split("\n")[:-1]
    count = names.count("read")
    if done.returncode or count < len(examples):
        status = f"(status {done.returncode})"
        pytest.fail(f"{examples[count]} is too much for the reader {names[-1]!r} {status}")


#: Examples that were too much for a reader.
KNOWN = [
    ["9", "x"], ["9", ".5."], ["9", "e"], ["`", "x", "\n```"], ["-", "x"], ["+", "x"],
    ["x", " ", "y"], ["[", "]"], ["99", " "], ["~~~\n"], ["\\boxed{"], ["\\boxed", " "],
    ["A", " ", "x"], ["'\"", "1."],
]  # fmt: skip


@pytest.mark.thorough
def test_reads_known_texts_in_linear_time() -> None:
    read(KNOWN)


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(RUN.map("".join), min_size=1, max_size=3), min_size=3, max_size=3))
@pytest.mark.thorough
def test_reads_any_text_in_linear_time(examples: list[list[str]]) -> None:
    read(examples)
