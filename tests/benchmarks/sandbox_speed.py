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
_RUNNER = f"""import json, sys
{_USUAL}
job = json.load(sys.stdin)
space = {{}}
exec(job["source"], space)
solution = space["Solution"]()
print(all(solution.f(*call) == value for call, value in zip(job["calls"], job["expected"])))
"""


def measure(folder: Path) -> list[Figure]:
    """Measure both tiers in turn with plain execution, on the same number of processes."""
    return [figure for tier in TIERS for figure in measure_tier(tier, folder)]


def measure_tier(tier: str, folder: Path) -> list[Figure]:
    """Measure programs that read stdin, and functions with 20 calls.

    The sandbox runs each call in its own process, plain execution all calls in one.
    """
    stdin_tests = [Test(_GIVEN, _EXPECTED)]
    calls = [[list(range(i, i + 200)), 7 + i] for i in range(20)]
    space: dict[str, type] = {}
    exec(_FUNCTION, space)
    expected = [space["Solution"]().f(*call) for call in calls]
    function_tests = [
        Test("\n".join(map(json.dumps, call)), json.dumps(value))
        for call, value in zip(calls, expected, strict=True)
    ]
    job = json.dumps({"source": _FUNCTION, "calls": calls, "expected": expected})
    with Sandbox(tier=tier, workers=WORKERS, limits=_LIMITS) as sandbox:
        pairs = [
            ("stdin, a fork a test", Program(_SUM), stdin_tests, _SUM, _GIVEN, 240, 1 / 2.5),
            ("20 calls", Program(_FUNCTION, "function", "f"), function_tests, _RUNNER, job, 20, 4),
        ]
        return [compare(sandbox, folder, *pair) for pair in pairs]


def compare(
    sandbox: Sandbox,
    folder: Path,
    name: str,
    program: Program,
    tests: list[Test],
    plain_source: str,
    plain_input: str,
    count: int,
    limit: float,
) -> Figure:
    """Compare a program in the sandbox with plain child processes, one for each program."""
    path = folder / "program.py"
    path.write_text(plain_source)

    def judge() -> None:
        results = sandbox.judge([(program, tests)] * count)
        assert {result.verdict for result in results} == {"accepted"}

    def run_plainly() -> None:
        def run_program(_: int) -> bytes:
            command = [sys.executable, "-I", "-S", str(path)]
            return subprocess.run(command, input=plain_input.encode(), capture_output=True).stdout

        with ThreadPoolExecutor(WORKERS) as pool:
            assert set(pool.map(run_program, range(count))) <= {_EXPECTED.encode(), b"True\n"}

    ratio, own_s, plain_s = time_in_turn(judge, run_plainly, ROUNDS)
    detail = f"{count / own_s:.0f} a second against {count / plain_s:.0f}; {1 / ratio:.2f} times"
    return Figure(f"{sandbox.tier}: {name}, time / plain", ratio, limit, detail=detail)
