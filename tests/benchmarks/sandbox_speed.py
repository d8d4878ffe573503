"""Executions per second, compared with an unprotected interpreter per test."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.benchmarks.measure import Figure, time_in_turn

WORKERS, ROUNDS = 2, 9
_LIMITS = Limits(memory_bytes=256 << 20)
_USUAL = (
    "import string, re, datetime, collections, heapq, bisect, copy, math, random, statistics, "
    "itertools, functools, operator, io, sys, json, typing\n"
)
_SUM = "n = int(input())\nprint(sum(int(x) for x in input().split()))\n"
_GIVEN, _EXPECTED = "5\n1 2 3 4 5\n", "15\n"
_FUNCTION = """
class Solution:
    def f(self, numbers, k):
        best = {}
        for i, x in enumerate(sorted(numbers)):
            best[x % k] = best.get(x % k, 0) + x * i
        return sorted(best.values())
"""


def measure(folder: Path) -> list[Figure]:
    """Measure both tiers in turn with plain execution, on the same number of processes."""
    return [figure for tier in TIERS for figure in measure_tier(tier, folder)]


def measure_tier(tier: str, folder: Path) -> list[Figure]:
    with Sandbox(tier=tier, workers=WORKERS, limits=_LIMITS) as sandbox:
        return [
            measure_stdin(sandbox, folder, "stdin, a fork a test", _SUM, 240, 2.5),
            measure_stdin(sandbox, folder, "stdin with the usual imports", _USUAL + _SUM, 80, 8.0),
            measure_function(sandbox, folder),
        ]


def measure_stdin(
    sandbox: Sandbox, folder: Path, name: str, source: str, count: int, times: float
) -> Figure:
    path = folder / "program.py"
    path.write_text(source)

    def ours() -> None:
        results = sandbox.judge([(Program(source), [Test(_GIVEN, _EXPECTED)])] * count)
        assert {result.verdict for result in results} == {"accepted"}

    def plain() -> None:
        def run_program(_: int) -> bytes:
            command = [sys.executable, "-I", "-S", str(path)]
            return subprocess.run(command, input=_GIVEN.encode(), capture_output=True).stdout

        with ThreadPoolExecutor(WORKERS) as pool:
            assert set(pool.map(run_program, range(count))) == {_EXPECTED.encode()}

    ratio, own_s, plain_s = time_in_turn(ours, plain, ROUNDS)
    detail = f"{count / own_s:.0f} a second against {count / plain_s:.0f}; {1 / ratio:.2f} times"
    return Figure(f"{sandbox.tier}: {name}, time / plain", ratio, 1 / times, detail=detail)


def measure_function(sandbox: Sandbox, folder: Path) -> Figure:
    """Compare 20 inputs per function with one plain child process that runs them."""
    programs, inputs = 40, 20
    calls = [[list(range(i, i + 200)), 7 + i] for i in range(inputs)]
    space: dict[str, type] = {}
    exec(_FUNCTION, space)
    expected = [space["Solution"]().f(*call) for call in calls]
    tests = [
        Test("\n".join(map(json.dumps, call)), json.dumps(value))
        for call, value in zip(calls, expected, strict=True)
    ]
    runner = folder / "runner.py"
    runner.write_text(
        "import json, sys\n"
        f"{_USUAL}"
        "job = json.load(sys.stdin)\n"
        "space = {}\n"
        "exec(job['source'], space)\n"
        "solution = space['Solution']()\n"
        "print(all(solution.f(*c) == e for c, e in zip(job['calls'], job['expected'])))\n"
    )
    job = json.dumps({"source": _FUNCTION, "calls": calls, "expected": expected}).encode()

    def ours() -> None:
        program = Program(_FUNCTION, "function", "f")
        results = sandbox.judge([(program, tests)] * programs)
        assert {result.verdict for result in results} == {"accepted"}

    def plain() -> None:
        def run_program(_: int) -> bytes:
            command = [sys.executable, "-I", "-S", str(runner)]
            return subprocess.run(command, input=job, capture_output=True).stdout

        with ThreadPoolExecutor(WORKERS) as pool:
            assert set(pool.map(run_program, range(programs))) == {b"True\n"}

    ratio, own_s, plain_s = time_in_turn(ours, plain, ROUNDS)
    detail = f"{programs / own_s:.0f} programs a second against {programs / plain_s:.0f}"
    name = f"{sandbox.tier}: {inputs} calls a program, time / one plain child each"
    return Figure(name, ratio, 1.0, detail=detail)
