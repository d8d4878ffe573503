"""Programs per second, compared with an unprotected interpreter for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.benchmarks.measure import Figure, time_in_turn

COUNT, WORKERS, ROUNDS = 240, 2, 9
SUM = "n = int(input())\nprint(sum(int(x) for x in input().split()))\n"
GIVEN, EXPECTED = "5\n1 2 3 4 5\n", "15\n"


def measure(folder: Path) -> Iterator[Figure]:
    """Measure both tiers in turn with plain execution, on the same number of processes."""
    path = folder / "program.py"
    path.write_text(SUM)
    items = COUNT * [(Program(SUM), [Test(GIVEN, EXPECTED)])]

    def run_program(_: object) -> bytes:
        command = [sys.executable, "-I", "-S", str(path)]
        return subprocess.run(command, input=GIVEN.encode(), capture_output=True).stdout

    def run_plainly() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            assert {*pool.map(run_program, items)} == {EXPECTED.encode()}

    def judge() -> None:
        assert {result.verdict for result in sandbox.judge(items)} == {"accepted"}

    for tier in TIERS:
        limits = Limits(memory_bytes=256 << 20)
        with Sandbox(tier=tier, workers=WORKERS, limits=limits) as sandbox:
            ratio, own_s, plain_s = time_in_turn(judge, run_plainly, ROUNDS)
        detail = f"{COUNT / own_s:.0f} a second against {COUNT / plain_s:.0f}"
        yield Figure(f"{tier}: a fork a program, time / plain", ratio, 1 / 2.5, detail=detail)
