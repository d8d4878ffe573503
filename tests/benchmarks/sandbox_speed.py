"""Executions per second, compared with an unprotected interpreter per test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
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


def measure_tier(tier: str, folder: Path) -> Iterator[Figure]:
    """Measure programs that read stdin, and functions with 20 calls.

    The sandbox runs each call in its own process, plain execution all calls in one.
    """
    calls = [[list(range(i, i + 200)), 7 + i] for i in range(20)]
    space: dict[str, type] = {}
    exec(_FUNCTION, space)
    expected = [space["Solution"]().f(*call) for call in calls]
    function_tests = [
        Test("\n".join(map(json.dumps, call)), json.dumps(value))
        for call, value in zip(calls, expected, strict=True)
    ]
    job = json.dumps({"source": _FUNCTION, "calls": calls, "expected": expected})
    sums = Program(_SUM), [Test(_GIVEN, _EXPECTED)]
    function = Program(_FUNCTION, "function", "f"), function_tests
    with Sandbox(tier=tier, workers=WORKERS, limits=_LIMITS) as sandbox:
        ratio, detail = compare(sandbox, 240 * [sums], folder, _SUM, _GIVEN)
        yield Figure(f"{tier}: stdin, a fork a test, time / plain", ratio, 1 / 2.5, detail=detail)
        ratio, detail = compare(sandbox, 20 * [function], folder, _RUNNER, job)
        yield Figure(f"{tier}: 20 calls, time / plain", ratio, 4, detail=detail)


def compare(
    sandbox: Sandbox,
    items: list[tuple[Program, list[Test]]],
    folder: Path,
    plain_source: str,
    plain_input: str,
) -> tuple[float, str]:
    """Compare programs in the sandbox with plain child processes, one for each program."""
    (folder / "program.py").write_text(plain_source)
    command = [sys.executable, "-I", "-S", str(folder / "program.py")]

    def run_program(_: object) -> bytes:
        return subprocess.run(command, input=plain_input.encode(), capture_output=True).stdout

    def judge() -> None:
        assert {result.verdict for result in sandbox.judge(items)} == {"accepted"}

    def run_plainly() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            assert set(pool.map(run_program, items)) <= {_EXPECTED.encode(), b"True\n"}

    ratio, own_s, plain_s = time_in_turn(judge, run_plainly, ROUNDS)
    return ratio, f"{len(items) / own_s:.0f} a second against {len(items) / plain_s:.0f}"
