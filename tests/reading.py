"""Read texts of any shape as the harness reads program output or responses.

``python -m tests.reading`` takes shapes, one line of JSON each, and passes each to every reader. It
prints the reader's name first. The kernel ends the process if a reader uses more CPU time or memory
than a linear reader does. Only test_linear_time.py uses it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from gapft_harness.core.records import Verdict
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.plugins.verifiers.boxed_math import compare_directly
from gapft_harness.plugins.verifiers.option_letter import OptionLetter
from gapft_harness.plugins.verifiers.reasoning_gym import extract_marked, remove_wrapping
from gapft_harness.presentation.explorer import _list_heads
from gapft_harness.presentation.page import _join_intervals, escape_markdown
from gapft_harness.sandbox import Limits, Test
from gapft_harness.sandbox.inside.messages import Ending
from gapft_harness.sandbox.verdicts import TestOutcome, judge_outcome
from gapft_harness.verification.boxes import last_box
from gapft_harness.verification.feedback import failure_feedback, strip_foreign_frames
from gapft_harness.verification.mathematics.comparing import check_answer
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.responses import find_boxed_answer, find_written_answer
from gapft_harness.verification.programs import last_program
from gapft_harness.verification.reasons import classify_reason

CPU_S = 30
MEMORY = 1 << 29
LONG, SHORT = 1 << 20, 1 << 16

_GOLD = {"answer": "B", "options": ["one", "two", "three", "four"]}


def _build_outcome(output: bytes = b"", report: bytes = b"", code: int = 0) -> TestOutcome:
    ending = Ending(code, 0.1, 0.1, "", compiled=True, setup="")
    return TestOutcome(ending, output, len(output), output[-4096:], report)


def _read_printed(text: str) -> None:
    outcome = _build_outcome(text.encode("utf-8", "surrogatepass"))
    # A different end or other spaces: the comparison reads the complete text.
    for expected in ("1", f"{text[:-1]}1", text.replace(" ", "  ")):
        judge_outcome("stdin", outcome, Test("", expected), Limits())


def _read_returned(text: str) -> None:
    for report in (f'["value", {text}]', f'["value", [{text}]]', f'["value", {json.dumps(text)}]'):
        outcome = _build_outcome(report=report.encode("utf-8", "replace"))
        judge_outcome("function", outcome, Test("", "1"), Limits())


def _read_failed(text: str) -> None:
    report = json.dumps(["raised", text, text]).encode()
    outcome = _build_outcome(text.encode("utf-8", "replace"), report, 1)
    test = Test("", "1")
    result = judge_outcome("stdin", outcome, test, Limits())
    failure_feedback("stdin", 1, 1, test, result)


READERS: dict[str, tuple[int, Callable[[str], object]]] = {
    "output": (LONG, _read_printed),
    "value": (LONG, _read_returned),
    "failure": (LONG, _read_failed),
    "thoughts": (LONG, remove_thoughts),
    "written answer": (LONG, find_written_answer),
    "mathematics": (LONG, lambda text: check_answer("1", tidy_answer(text))),
    "marked answer": (LONG, lambda text: remove_wrapping(extract_marked(text), "1")),
    "program": (LONG, last_program),
    "box": (LONG, find_boxed_answer),
    "boxed": (LONG, lambda text: find_boxed_answer(rf"\boxed{{{text}}}")),
    "whole_response": (LONG, lambda text: OptionLetter().verify([text], [_GOLD])),
    "permissive": (LONG, lambda text: OptionLetter("permissive").verify([text], [_GOLD])),
    # Takes a tenth of a millisecond for each single letter.
    "first_explicit": (SHORT, lambda text: OptionLetter("first_explicit").verify([text], [_GOLD])),
    "reason": (LONG, lambda text: classify_reason(Verdict("fail", text))),
    "report": (LONG, escape_markdown),
    "explorer": (LONG, lambda text: _list_heads([text, f"{text}x"])),
    "integers": (LONG, lambda text: compare_directly("7", last_box(rf"\boxed{{{text}}}") or "")),
    "intervals": (LONG, _join_intervals),
    "traceback": (LONG, strip_foreign_frames),
}


def main() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, 2 * (pages * resource.getpagesize() + MEMORY,))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        runs = json.loads(line)
        for name, (size, read) in READERS.items():
            print(name, flush=True)
            text = "".join(run * (size // len(runs) // len(run)) for run in runs)
            usage = resource.getrusage(resource.RUSAGE_SELF)
            used = int(usage.ru_utime + usage.ru_stime)
            resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_S, resource.RLIM_INFINITY))
            read(text)
        print("read", flush=True)


if __name__ == "__main__":
    main()
