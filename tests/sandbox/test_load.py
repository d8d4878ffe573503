"""A program's verdict does not depend on load, workers or other programs."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator

import pytest

from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.sandbox.conftest import LIMITS

NEED = 0.1
BUSY = f"import time\nwhile time.process_time() < {NEED}: pass\n"
THREADS = (
    "from concurrent.futures import ThreadPoolExecutor as Pool\nimport time\n"
    "with Pool(30) as p: list(p.map(time.sleep, [0.02] * 30))\nprint(int(input()) + 1)"
)
BOMB = (
    "import threading, time\nthreading.stack_size(1 << 16)\nfor i in range(3000):\n"
    "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
)
#: Programs that add one to 41, or fail, with their verdicts.
STDIN = [
    ("print(int(input()) + 1)", "accepted"),
    ("print(input())", "wrong_answer"),
    ("raise SystemExit(3)", "runtime_error"),
    ("print(", "compile_error"),
    (f"{BUSY}print(int(input()) + 1)", "accepted"),
    (
        "import threading, time\ndef f():\n"
        f"    while time.process_time() < {NEED}: pass\n    print(int(input()) + 1)\n"
        "threading.Thread(target=f).start()",
        "accepted",
    ),
    ("import time\ntime.sleep(0.2)\nprint(int(input()) + 1)", "accepted"),
    (THREADS, "accepted"),
    ("while True: pass", "time_limit"),
    ("import time\ntime.sleep(60)", "time_limit"),
    (f"{BUSY}time.sleep(60)", "time_limit"),
    ("x = bytes(1 << 30)", "memory_limit"),
    ("print('x' * (2 << 20))", "output_limit"),
    ("import signal, time\nsignal.setitimer(0, 0.05)\ntime.sleep(60)", "runtime_error"),
    (BOMB, "runtime_error"),
]
CALLS = [
    ("def f(x): return x + 1", "accepted"),
    ("def f(x): return x", "wrong_answer"),
    (f"import time\ndef f(x):\n    {BUSY.splitlines()[1]}\n    return x + 1", "accepted"),
    ("def f(x):\n    while True: pass", "time_limit"),
]


@pytest.mark.parametrize("tier", TIERS)
def test_many_workers_give_the_right_verdicts(tier: str) -> None:
    limits = dataclasses.replace(LIMITS, cpu_s=2.5 * NEED, wall_s=3)
    items = [(Program(source), [Test("41", "42")]) for source, _ in STDIN]
    items += [(Program(s, "function", "f"), [Test("41", "42")] * 2) for s, _ in CALLS]
    with Sandbox(tier=tier, workers=16, limits=limits) as sandbox:
        results = sandbox.judge(items)
    verdicts = [(source, r.verdict) for (source, _), r in zip(STDIN + CALLS, results, strict=True)]
    assert verdicts == STDIN + CALLS


@pytest.fixture
def single_core() -> Iterator[None]:
    """Run everything on one core."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    yield
    os.sched_setaffinity(0, all_of_them)


@pytest.mark.parametrize("tier", TIERS)
def test_waiting_for_a_cpu_stops_no_program(single_core: None, tier: str) -> None:
    """Programs share a core, so each needs more wall time than a waiting program may take."""
    limits = dataclasses.replace(LIMITS, cpu_s=2 * NEED, wall_s=2 * NEED)
    busy = Program(f"{BUSY}print(1)"), [Test("", "1")]
    idle = Program("import time\ntime.sleep(60)"), [Test("", "")]
    with Sandbox(tier=tier, workers=4, limits=limits) as sandbox:
        results = sandbox.judge([*([busy] * 3), idle])
    assert [result.verdict for result in results] == [*["accepted"] * 3, "time_limit"], results


@pytest.mark.parametrize("tier", TIERS)
def test_neighbours_threads_are_not_counted(tier: str) -> None:
    """Without a namespace, the kernel counts threads per user."""
    stop = threading.Event()
    neighbours = [threading.Thread(target=stop.wait) for _ in range(2 * LIMITS.threads)]
    patient = Program("import time\ntime.sleep(1)\n" + THREADS)
    limits = dataclasses.replace(LIMITS, wall_s=20)
    with Sandbox(tier=tier, workers=1, limits=limits) as sandbox:
        # they start while the program runs; a worker that starts later would count them
        bomb = threading.Timer(0.1, lambda: [thread.start() for thread in neighbours])
        bomb.start()
        try:
            (result,) = sandbox.judge([(patient, [Test("41", "42")])])
        finally:
            bomb.join()
            stop.set()
            for thread in neighbours:
                thread.join()
    assert result.verdict == "accepted", result
