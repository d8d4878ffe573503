"""Correct programs are accepted, and every program ends as in CPython.

The programs are in correct_programs.jsonl: ways to read and write, headers that people paste before
a solution, ends of programs, and signals that end one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.sandbox import Program, Sandbox, Test, TestResult

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("correct_programs.jsonl").read_text("utf-8").splitlines()
]
NUMBERS = "3\n1 2 3\n4 5 6\n7 8 9\n"
SOLVE = "for _ in range(int(input())):\n    print(sum(map(int, input().split())))\n"
#: The solution as a function; each call ends like a program, so a header finds its names then.
CALL = "class Solution:\n    def f(self, x):\n        print('noise', x)\n        return x + 1\n"


@pytest.fixture(
    params=["one per mechanism", pytest.param("all", marks=pytest.mark.thorough)],
)
def select(request: pytest.FixtureRequest) -> Callable[[str], dict[str, str]]:
    """Return a function that selects the sources of a kind, by name."""

    def select_sources(kind: str) -> dict[str, str]:
        rows = [row for row in ROWS if row["kind"] == kind]
        if request.param != "all":
            rows = [row for row in rows if row["every_time"]]
        return {row["name"]: row["source"] for row in rows}

    return select_sources


def judge_one(sandbox: Sandbox, source: str, given: str, expected: str) -> TestResult:
    (result,) = sandbox.judge([(Program(source), [Test(given, expected)])])
    return result.tests[0]


def run_plain(folder: Path, source: str) -> tuple[str, int]:
    """Run a plain interpreter on files; return output and exit status."""
    path = folder / "program.py"
    path.write_bytes(source.encode())
    with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as output:
        input_file.write(NUMBERS.encode())
        input_file.seek(0)
        done = subprocess.run(
            [sys.executable, "-I", "-X", "utf8", str(path)],
            stdin=input_file,
            stdout=output,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        output.seek(0)
        return output.read().decode(), done.returncode


def find_different_end(sandbox: Sandbox, folder: Path, source: str) -> object:
    """Return what differs from the program's end in a plain interpreter, if anything."""
    output, status = run_plain(folder, source)
    result = judge_one(sandbox, source, NUMBERS, output)
    is_same = result.verdict == ("runtime_error" if status else "accepted")
    if status not in (0, 1):
        is_same = is_same and result.output == output
    if status > 1 and "SystemExit" in source:
        is_same = is_same and result.reason == f"exit status {status}"
    return None if is_same else (output, status, result)


def test_programs_end_as_in_plain_python(
    sandbox: Sandbox, tmp_path: Path, select: Callable[[str], dict[str, str]]
) -> None:
    sources = select("end")
    sources |= {name: header + SOLVE for name, header in select("header").items()}
    different = {name: find_different_end(sandbox, tmp_path, s) for name, s in sources.items()}
    assert {name: end for name, end in different.items() if end} == {}


def test_pasted_header_works_before_a_function(
    sandbox: Sandbox, select: Callable[[str], dict[str, str]]
) -> None:
    headers = select("header")
    tests = [Test(str(i), str(i + 1)) for i in range(3)]
    items = [(Program(header + CALL, "function", "f"), tests) for header in headers.values()]
    results = sandbox.judge(items)
    failed = {n: r for n, r in zip(headers, results, strict=True) if r.verdict != "accepted"}
    assert failed == {}


def test_accepts_every_ordinary_program(sandbox: Sandbox) -> None:
    sources = {row["name"]: row["source"] for row in ROWS if row["kind"] == "way"}
    results = {n: judge_one(sandbox, s, "3\n1 2 3\n", "6\n") for n, s in sources.items()}
    assert {name: r for name, r in results.items() if r.verdict != "accepted"} == {}


def test_signals_default_action_ends_the_program(sandbox: Sandbox) -> None:
    """The program is not the first process of a namespace, which would ignore the signal."""
    sources = {
        row["name"]: f"import os, signal, time\n{row['source']}\nprint(6)"
        for row in ROWS
        if row["kind"] == "signal"
    }
    results = {name: judge_one(sandbox, source, "", "6") for name, source in sources.items()}
    assert {name: (result.verdict, result.reason) for name, result in results.items()} == {
        name: ("runtime_error", f"killed by {name}") for name in sources
    }


#: Functions of two arguments that return them as a list.
FUNCTIONS = [
    "class Solution:\n    def f(self, x, y): return [x, y]",
    "def f(x, y): return x, y",
    "from typing import List\nclass Solution:\n    def f(self, x: int, y) -> List: return x, y",
    "def f(x, y):\n    print('noise')\n    return [x, y]",
    "def f(x, y): return [x, y]\nif __name__ == '__main__': print(f(int(input()), 1))",
    "seen = []\ndef f(x, y):\n    seen.append(x)\n    return [seen[-1], y]",
    "def f(x, y): return [x, True]",
]


def test_accepts_every_ordinary_function(sandbox: Sandbox) -> None:
    tests = [Test(f"{i}\n1", json.dumps([i, 1])) for i in range(3)]
    items = [(Program(source, "function", "f"), tests) for source in FUNCTIONS]
    items.append((Program("def f(): return 1", "function", "f"), [Test("", "1")]))
    nested = Program("def f(x): return [(x, (x,)), x]", "function", "f")
    items.append((nested, [Test("1", "[[1, [1]], 1]")]))
    # Python reads names in one normal form.
    for name in ("\ufb01nd", "\u2118rime", "\U0001d425ong"):
        for source in (f"def {name}(x): return x", f"class Solution:\n def {name}(s, x): return x"):
            items.append((Program(source, "function", name), [Test("1", "1")]))
    results = sandbox.judge(items)
    assert [result for result in results if result.verdict != "accepted"] == []
