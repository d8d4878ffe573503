"""A program's verdict does not depend on load, workers or other programs."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Limits, Program, Sandbox, Test, api
from gapft_harness.sandbox.inside.crowd import Crowd
from gapft_harness.sandbox.inside.forking import OneCpu
from gapft_harness.sandbox.records import TIERS
from tests.sandbox.conftest import LIMITS
from tests.sandbox.outside_world import list_living_descendants

NEED = 0.1
BUSY = f"import time\nwhile time.process_time() < {NEED}: pass\n"
STDIN = {
    "right": ("print(int(input()) + 1)", "accepted"),
    "wrong": ("print(input())", "wrong_answer"),
    "raises": ("raise SystemExit(3)", "runtime_error"),
    "no program": ("print(", "compile_error"),
    "slow": (f"{BUSY}print(int(input()) + 1)", "accepted"),
    "slow in a thread": (
        "import threading, time\ndef f():\n"
        f"    while time.process_time() < {NEED}: pass\n    print(int(input()) + 1)\n"
        "threading.Thread(target=f).start()",
        "accepted",
    ),
    "waits": ("import time\ntime.sleep(0.2)\nprint(int(input()) + 1)", "accepted"),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as Pool\nimport time\n"
        "with Pool(30) as p: list(p.map(time.sleep, [0.02] * 30))\nprint(int(input()) + 1)",
        "accepted",
    ),
    "too slow": ("while True: pass", "time_limit"),
    "sleeps": ("import time\ntime.sleep(60)", "time_limit"),
    "slow, then sleeps": (f"{BUSY}time.sleep(60)", "time_limit"),
    "too large": ("x = bytes(1 << 30)", "memory_limit"),
    "too much": ("print('x' * (2 << 20))", "output_limit"),
    "alarm": (
        "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(60)",
        "runtime_error",
    ),
    "thread bomb": (
        "import threading, time\nthreading.stack_size(1 << 16)\nfor i in range(3000):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "runtime_error",
    ),
}  # fmt: skip
CALLS = {
    "right": ("def f(x): return x + 1", "accepted"),
    "wrong": ("def f(x): return x", "wrong_answer"),
    "slow": (f"import time\ndef f(x):\n    {BUSY.splitlines()[1]}\n    return x + 1", "accepted"),
    "too slow": ("def f(x):\n    while True: pass", "time_limit"),
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("workers", [1, 4, 16])
def test_verdicts_do_not_depend_on_number_of_workers(tier, workers):
    limits = dataclasses.replace(LIMITS, cpu_s=2.5 * NEED, wall_s=0.6)
    items = [(Program(source), [Test("41", "42")]) for source, _ in STDIN.values()]
    items += [(Program(s, "function", "f"), [Test("41", "42")] * 2) for s, _ in CALLS.values()]
    expected = [verdict for _, verdict in (*STDIN.values(), *CALLS.values())]
    with Sandbox(tier=tier, workers=workers, limits=limits) as sandbox:
        results = sandbox.judge(items)
    names = [*STDIN, *(f"{name} (call)" for name in CALLS)]
    verdicts = [result.verdict for result in results]
    assert dict(zip(names, verdicts, strict=True)) == dict(zip(names, expected, strict=True))


@pytest.fixture
def single_core():
    """Run everything on one core."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    yield
    os.sched_setaffinity(0, all_of_them)


@pytest.mark.parametrize("tier", TIERS)
def test_programs_and_workers_may_use_every_cpu(tier):
    """Only confining a program uses a single CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    ask = "import os\n"
    items = [
        (Program(f"{ask}print(sorted(os.sched_getaffinity(0)))"), [Test("", f"{cpus}")] * 2),
        (
            Program(f"{ask}def f(x): return sorted(os.sched_getaffinity(0))", "function", "f"),
            [Test("1", f"{cpus}")] * 3,
        ),
    ]
    others = list_living_descendants()  # from earlier tests in this process
    with Sandbox(tier=tier, workers=1, limits=LIMITS) as sandbox:
        results = sandbox.judge(items)
        workers = [sorted(os.sched_getaffinity(pid)) for pid in list_living_descendants(others)]
    assert [result.verdict for result in results] == ["accepted"] * 2, results
    assert workers == [cpus] * (2 if tier == "namespaces" else 1)


def test_worker_stays_on_its_cpu():
    def watch():
        cpu = OneCpu()
        cpu.pin()
        held = os.sched_getaffinity(0)
        cpu.unpin()
        return held, os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as pool:  # a thread's own affinity
        held, released = pool.submit(watch).result()
    assert len(held) == 1
    assert held <= released == os.sched_getaffinity(0)


def test_leaves_cpus_alone_when_affinity_is_forbidden(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    cpu, before = OneCpu(), os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    cpu.pin()
    cpu.unpin()
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("tier", TIERS)
def test_waiting_for_a_cpu_is_not_idle_time(single_core, tier):
    """Six programs share a core, so each needs more wall time than the idle limit."""
    limits = dataclasses.replace(LIMITS, cpu_s=2 * NEED, wall_s=2 * NEED)
    items = [(Program(f"{BUSY}print(1)"), [Test("", "1")])] * 6
    items.append((Program("import time\ntime.sleep(60)"), [Test("", "")]))
    with Sandbox(tier=tier, workers=7, limits=limits) as sandbox:
        results = sandbox.judge(items)
    verdicts = [result.verdict for result in results]
    assert verdicts == [*["accepted"] * 6, "time_limit"], results


@pytest.mark.parametrize("tier", TIERS)
def test_bystanders_cpu_use_is_not_idle_time(single_core, tier):
    """The kernel reports the wait, since a single worker cannot observe other processes."""
    limits = dataclasses.replace(LIMITS, cpu_s=2 * NEED, wall_s=2 * NEED)
    with Sandbox(tier=tier, workers=1, limits=limits) as sandbox:
        loop = [sys.executable, "-S", "-c", "while True: pass"]
        bystanders = [subprocess.Popen(loop) for _ in range(4)]
        try:
            (result,) = sandbox.judge([(Program(f"{BUSY}print(1)"), [Test("", "1")])])
        finally:
            for bystander in bystanders:
                bystander.kill()
                bystander.wait()
    assert result.verdict == "accepted", result


def test_finds_process_by_its_handle():
    crowd = Crowd(1, None)
    with subprocess.Popen(["sleep", "60"]) as process:
        handle = os.pidfd_open(process.pid)
        try:
            crowd.watch_process(handle)
            assert crowd._find_pid() == str(process.pid)
        finally:
            process.kill()
    os.close(handle)
    os.close(crowd._proc)


def test_estimates_waiting_and_counts_threads_without_counters():
    crowd = Crowd(3, LIMITS.threads)
    null = os.open(os.devnull, os.O_RDONLY)  # not a process handle
    crowd.watch_process(null)
    assert crowd.compute_excused_time(2.0) == 6.0
    with pytest.raises(IndexError):
        crowd.check_threads(os.getpid())
    os.close(null)
    os.close(crowd._proc)


def test_jointly_waiting_threads_count_once(tmp_path):
    """Sixty threads that wait for each other do not get sixty times the allowance."""
    folder = tmp_path / "77" / "task"

    def set_waits(*seconds):
        for number, wait in enumerate(seconds):
            (folder / str(number)).mkdir(parents=True, exist_ok=True)
            (folder / str(number) / "schedstat").write_text(f"1 {int(wait * 1e9)} 1\n")

    crowd = Crowd(1, None)
    os.close(crowd._proc)
    crowd._proc = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    crowd.watch_process(5)
    (tmp_path / "self" / "fdinfo").mkdir(parents=True)
    (tmp_path / "self" / "fdinfo" / "5").write_text("pos:\t0\nPid:\t77\n")
    try:
        set_waits(*[0.0625] * 60)
        assert crowd.compute_excused_time(0.5) == 0.5 + 0.0625
        set_waits(0.5625, *[0.0625] * 59)  # one thread alone
        assert crowd.compute_excused_time(0.5) == 0.5 + 0.5625
        set_waits(0.5625, 1.0625, *[0.125] * 59)  # then another thread, and a new one
        assert crowd.compute_excused_time(1) == 1 + 1.5625
        crowd.watch_process(5)
        assert crowd.compute_excused_time(0) == 1.0625
    finally:
        os.close(crowd._proc)


@pytest.mark.parametrize("tier", TIERS)
def test_neighbours_threads_are_not_counted(tier):
    """Without a namespace, the kernel counts threads per user."""
    stop = threading.Event()
    neighbours = [threading.Thread(target=stop.wait) for _ in range(2 * LIMITS.threads)]
    patient = Program("import time\ntime.sleep(1)\n" + STDIN["threads"][0])
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


def test_container_limits_set_number_of_workers(monkeypatch):
    """Values read on another machine: 2.5 CPUs, 3 GiB."""
    monkeypatch.setattr(api, "count_usable_cores", lambda: 2.5)
    monkeypatch.setattr(api, "read_usable_memory", lambda: 3 << 30)
    assert Sandbox(limits=Limits())._count == 2
    assert Sandbox(limits=Limits(memory_bytes=2 << 30))._count == 1
    assert Sandbox(limits=Limits(memory_bytes=8 << 30))._count == 1
    assert Sandbox(workers=3)._count == 3
    with pytest.raises(UserError, match=r"found 4 x 1.00 GiB, expected at most the 3.0 GiB"):
        Sandbox(workers=4)
    monkeypatch.setattr(api, "count_usable_cores", lambda: 0.5)
    assert Sandbox()._count == 1
