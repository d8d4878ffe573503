"""Many programs with a few loops, slow programs under load, and leaks of 5,000 executions."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.benchmarks.measure import Figure

PROGRAMS, LOOPING, EXECUTIONS = 10_000, 20, 5_000
_MEMORY = 256 << 20


def measure(folder: Path) -> list[Figure]:
    """Measure the scale in the tier that ``auto`` selects, and leaks in both tiers."""
    return [
        measure_idle_share(),
        measure_slow_programs(),
        *(figure for tier in TIERS for figure in measure_traces(tier)),
    ]


def measure_idle_share() -> Figure:
    """Measure the share of time in which workers were idle."""
    right = [
        ("print(sum(int(x) for x in input().split()))", "1 2 3", "6"),
        ("import sys\nprint(len(sys.stdin.read().split()))", "a b c", "3"),
        ("print(sorted(map(int, input().split()))[-1])", "3 1 2", "3"),
    ]
    every = PROGRAMS // LOOPING
    items = []
    for i in range(PROGRAMS):
        source, stdin, expected = right[i % 3]
        source = "while True: pass" if i % every == every // 2 else source
        items.append((Program(source), [Test(stdin, expected)]))
    limits = Limits(cpu_s=2, wall_s=20, memory_bytes=_MEMORY)
    with Sandbox(workers=2, limits=limits) as sandbox:
        start = time.perf_counter()
        results = sandbox.judge(items)
        seconds = time.perf_counter() - start
    verdicts = [result.verdict for result in results]
    assert verdicts.count("time_limit") == LOOPING
    assert verdicts.count("accepted") == PROGRAMS - LOOPING
    busy = sum(result.busy_s for result in results) / (2 * seconds)
    detail = f"{PROGRAMS} programs, {LOOPING} loop; {seconds:.0f} s, workers busy {busy:.1%}"
    return Figure("workers idle while programs wait", 1 - busy, 0.1, "of the time", detail)


def measure_slow_programs() -> Figure:
    """Run 20 slow but correct programs, 8 at once, with 1.7 times their own CPU time."""
    need = 0.5
    source = f"import time\nwhile time.process_time() < {need}: pass\nprint(1)"
    limits = Limits(cpu_s=1.7 * need, wall_s=120, memory_bytes=_MEMORY)
    with Sandbox(workers=8, limits=limits) as sandbox:
        results = sandbox.judge([(Program(source), [Test("", "1")])] * 20)
    failed = sum(result.verdict != "accepted" for result in results)
    detail = f"20 programs, 8 at once on {os.cpu_count()} cores"
    return Figure("slow but correct programs that failed", failed, 0, "programs", detail)


def measure_traces(tier: str) -> list[Figure]:
    """Measure the growth of memory, processes, descriptors and mounts."""
    source = (
        "import sys\nx = [0] * 100_000\n"
        "try: open('/tmp/x', 'w').write('x' * 10_000)\nexcept OSError: pass\nprint(input())"
    )
    items = [(Program(source), [Test("1", "1")])] * (EXECUTIONS // 10)
    with Sandbox(tier=tier, workers=1, limits=Limits(memory_bytes=_MEMORY)) as sandbox:
        sandbox.judge(items)
        before = read_state()
        for _ in range(9):
            sandbox.judge(items)
        after = read_state()
    counts = sum(abs(after[key] - before[key]) for key in ("descriptors", "mounts", "processes"))
    memory = max(after[key] / before[key] for key in ("own memory", "workers' memory"))
    detail = f"{EXECUTIONS} executions; {after}"
    return [
        Figure(f"{tier}: growth of descriptors, mounts, processes", counts, 0, "", detail),
        Figure(f"{tier}: growth of memory", memory, 1.02, "times"),
    ]


def read_state() -> dict[str, int]:
    time.sleep(0.2)
    family = list_processes()
    return {
        "descriptors": len(os.listdir("/proc/self/fd"))
        + sum(
            len(os.listdir(f"/proc/{pid}/fd")) for pid in family if os.access(f"/proc/{pid}/fd", 4)
        ),
        "mounts": sum(
            len(Path(f"/proc/{pid}/mounts").read_text().splitlines())
            for pid in ("self", *family)
            if os.access(f"/proc/{pid}/mounts", 4)
        ),
        "processes": len(family),
        "own memory": read_resident_size("self"),
        "workers' memory": sum(read_resident_size(pid) for pid in family),
    }


def list_processes() -> list[int]:
    """List descendants of this process."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
    processes: list[int] = []
    generation = {os.getpid()}
    while generation := {pid for pid, parent in parents.items() if parent in generation}:
        processes += generation
    return processes


def read_resident_size(process: int | str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0
