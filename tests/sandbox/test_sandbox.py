"""The interface: verdicts, limits, isolation, order, errors, refusal, cleanliness."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import InfrastructureError, Limits, Program, Sandbox, Test, probe_tiers
from gapft_harness.sandbox.probes import _CANARIES, _build_canary
from gapft_harness.sandbox.records import TIERS
from tests.kit.running_commands import wait_for_end
from tests.sandbox.confined_machine import LANDLOCK, UNSHARE
from tests.sandbox.conftest import LIMITS
from tests.sandbox.outside_world import list_living_descendants

ECHO = Program("print(input())")


def build_call(body: str, name: str = "f") -> Program:
    return Program(body, "function", name)


def test_verdicts_have_details(sandbox):
    programs = {
        "accepted": "print(input())",
        "wrong_answer": "print('no')",
        "runtime_error": "print(1)\nraise ValueError('why')",
        "compile_error": "def",
        "time_limit": "while True: pass",
        "memory_limit": "x = 'x' * (1 << 40)",
        "output_limit": "print('x' * (2 << 20))",
    }
    results = sandbox.judge([(Program(s), [Test("yes", "yes")]) for s in programs.values()])
    assert [result.verdict for result in results] == list(programs)
    assert results[0].tests[0].reason == ""
    assert "ValueError: why" in results[2].tests[0].reason
    assert "line 2" in results[2].tests[0].error
    assert "raise ValueError('why')" in results[2].tests[0].error
    assert results[2].tests[0].output == "1\n"


def test_each_input_has_the_full_cpu_limit(sandbox):
    """Together they exceed the limit; each alone does not."""
    slow = """
import time
def f(x):
    start = time.process_time()
    while time.process_time() - start < 0.16: pass
    return x
"""
    tests = [Test(str(i), str(i)) for i in range(5)]
    (result,) = sandbox.judge([(build_call(slow), tests)])
    assert result.verdict == "accepted", result


def test_results_are_ordered_and_lazy(sandbox):
    read_items = []

    def read_next_items():
        for i in range(60):
            read_items.append(i)
            yield ECHO, [Test(str(i), str(i if i % 7 else -1))]

    results = sandbox.judge(read_next_items())
    assert [r.verdict for r in results] == [
        "accepted" if i % 7 else "wrong_answer" for i in range(60)
    ]
    read_items.clear()
    stream = sandbox.stream(read_next_items())
    next(stream)
    assert len(read_items) <= 4, "a stream must not read ahead of its workers"
    stream.close()
    assert sandbox.judge([(ECHO, [Test("after", "after")])])[0].verdict == "accepted"


def test_wrong_tests_are_named(sandbox):
    call = build_call("def f(x): return x")
    for items, named in (
        ([(ECHO, [Test("", "")]), (ECHO, [])], "program number 1"),
        ([(call, [Test("1", "one")])], "'one'"),
        ([(call, [Test("1\n[2", "1")])], r"'1\\n\[2'"),
    ):
        with pytest.raises(UserError, match=named):
            sandbox.judge(items)


def test_namespaces_tier_restricts_what_programs_see():
    """Check each layer separately, since one layer could hide another's absence."""
    source = """
import json, os
def flags(path): return os.statvfs(path).f_flag & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV)
everything = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
print(os.getpid(), os.getppid(), os.listdir("/etc"), os.path.exists("/proc"))
print(sorted(os.listdir("/dev")), os.listdir())
print(flags("/") == everything, flags(json.__file__) == everything)
print(flags(os.getcwd()) == os.ST_NOSUID | os.ST_NODEV, os.path.isdir(os.__file__ + "/.."))
packages = [os.path.dirname(os.__file__) + "/" + name for name in ("site-packages",)]
print([os.listdir(name) for name in packages if os.path.isdir(name)] in ([], [[]]))
"""
    with Sandbox(tier="namespaces", workers=1, limits=LIMITS) as sandbox:
        (result,) = sandbox.judge([(Program(source), [Test("", "")])])
    assert result.tests[0].output.splitlines() == [
        "2 0 [] False",
        "['null', 'random', 'stderr', 'stdin', 'stdout', 'urandom', 'zero'] []",
        "True True",
        "True False",
        "True",
    ], result


def test_closed_sandbox_ends_its_stream_quietly() -> None:
    with Sandbox(workers=1) as own:
        stream = own.stream([(Program("print(1)"), [Test("", "1")])] * 3)
        next(stream)
    stream.close()  # its worker ended with the sandbox


def test_open_stream_is_an_error(sandbox):
    stream = sandbox.stream([(ECHO, [Test("1", "1")])] * 3)
    next(stream)
    with pytest.raises(ValueError, match="still open"):
        sandbox.judge([(ECHO, [Test("1", "1")])])
    stream.close()
    assert sandbox.judge([(ECHO, [Test("1", "1")])])[0].verdict == "accepted"


def test_threads_do_not_mix_results(sandbox):
    outputs = {}

    def work(name):
        items = [(ECHO, [Test(f"{name} {i}", f"{name} {i}")]) for i in range(20)]
        outputs[name] = [result.tests[0].output for result in sandbox.judge(items)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {name: [f"{name} {i}\n" for i in range(20)] for name in "abc"}


@pytest.mark.parametrize("tier", TIERS)
def test_executions_leak_no_memory(tier):
    """Neither here nor in the worker, the youngest process of the sandbox."""
    programs = [ECHO, Program("x = 'x' * 10_000_000\nprint(x[0])"), Program("1 / 0")]
    items = [(programs[i % 3], [Test("1", "1")]) for i in range(150)]
    others = list_living_descendants()  # of earlier tests
    with Sandbox(tier=tier, workers=1, limits=LIMITS) as sandbox:
        sizes = []
        for _ in range(4):
            sandbox.judge(items)
            gc.collect()  # uncollected garbage is not a leak
            worker = list_living_descendants(others)[-1]
            sizes.append([read_memory(process) for process in (os.getpid(), worker)])
    # A leak grows in every round; an allocator may grow in one or two.
    growth = [[b - a for a, b in pairwise(steps)] for steps in zip(*sizes, strict=True)]
    assert all(min(steps) <= 150 for steps in growth), sizes  # KB: less than 1 KB per execution


def read_memory(process):
    """Return the resident memory of a process in KB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_killed_worker_is_replaced_and_test_repeated(sandbox, world):
    slow = Program("import time\ntime.sleep(0.5)\nprint(1)")
    threading.Timer(0.2, lambda: os.kill(world.find_workers()[0], signal.SIGKILL)).start()
    (result,) = sandbox.judge([(slow, [Test("", "1")])])
    assert result.verdict == "accepted"


def test_repeatedly_failing_sandbox_stops_without_verdict(sandbox, world):
    stop = threading.Event()

    def keep_killing():
        while not stop.wait(0.3):
            for worker in world.find_workers():
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=keep_killing)
    # the program is still running when the killer gets a turn, also on a busy machine
    limits = dataclasses.replace(LIMITS, wall_s=120)
    patient = Program("import time\ntime.sleep(120)")
    with Sandbox(tier=sandbox.tier, workers=1, limits=limits) as killed:
        killer.start()
        try:
            with pytest.raises(InfrastructureError):
                killed.judge([(patient, [Test("", "")])])
        finally:
            stop.set()
            killer.join()
        assert killed.judge([(ECHO, [Test("1", "1")])])[0].verdict == "accepted"
    assert sandbox.judge([(ECHO, [Test("1", "1")])])[0].verdict == "accepted"


def test_killing_the_harness_leaves_nothing():
    source = """
from gapft_harness.sandbox import *
with Sandbox(workers=1, limits=Limits(cpu_s=50, wall_s=60, memory_bytes=256 << 20)) as sandbox:
    print("started", flush=True)
    sandbox.judge([(Program("while True: pass"), [Test("", "")])])
"""
    others = list_living_descendants()
    harness = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert harness.stdout.readline() == "started\n"
    deadline = time.monotonic() + 120
    while len(family := list_living_descendants(others)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family) > 2
    harness.kill()
    harness.communicate()
    wait_for_end(family)


def test_preloaded_modules_can_be_imported():
    source = (
        "import numpy as np\nprint(np.fft.fft(np.arange(4)).real.sum() + np.random.rand() // 1)"
    )
    values = "import numpy as np\ndef f(x): return [np.int64(x), np.float64(x)]"
    for tier in TIERS:
        with Sandbox(tier=tier, workers=1, preload=("numpy",), limits=LIMITS) as sandbox:
            first, second = sandbox.judge(
                [(Program(source), [Test("", "0")]), (build_call(values), [Test("1", "[1, 1.0]")])]
            )
        assert first.verdict == "accepted", first
        assert second.verdict == "accepted", second
    with Sandbox(workers=1, limits=LIMITS) as sandbox:
        (result,) = sandbox.judge([(Program("import numpy"), [Test("", "")])])
        assert result.tests[0].reason == "ModuleNotFoundError: No module named 'numpy'"


def test_workers_start_without_standard_streams(tmp_path):
    """As for a user of the library: sandbox and pool return their usual verdicts."""
    out = tmp_path / "out"
    code = f"""
import os
for descriptor in range(3):
    os.close(descriptor)
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness import load_verifier
with Sandbox(workers=2) as sandbox:
    (result,) = sandbox.judge([(Program("print(input())"), [Test("1", "1")])])
with load_verifier("boxed_math", workers=2) as verifier:
    (verdict,) = verifier.verify([r"\\boxed{{x+x}}"], ["2x"])
open({str(out)!r}, "w").write(f"{{result.verdict}} {{verdict.status}}")
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert out.read_text() == "accepted pass"


def test_every_canary_works_unconfined():
    """Unconfined, each canary succeeds, so a refusal is the sandbox's effect."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        canary = Path(folder) / "canary"
        canary.write_text("untouched")
        inputs = {
            "file": str(canary),
            "port": server.getsockname()[1],
            "pid": os.getpid(),
            "shell": "/bin/sh",
            "too_much": 1000,
        }
        for name, body in _CANARIES.items():
            done = subprocess.run(
                [sys.executable, "-c", _build_canary(body)],
                input=json.dumps(inputs),
                capture_output=True,
                text=True,
            )
            assert done.stdout.split() == ["done"], (name, done)
        assert canary.read_text() == "untouchedx"


@pytest.mark.parametrize("tier", TIERS)
def test_probe_names_tier_and_outcomes(tier):
    outcomes = probe_tiers(tier)
    assert {p.tier for p in outcomes} == {tier}
    assert len(outcomes) >= 10
    assert all(p.holds for p in outcomes), "\n".join(map(str, outcomes))


REFUSING = """
from tests.kit.running_commands import wait_for_end
from tests.sandbox.confined_machine import refuse_calls
refuse_calls({calls!r})
from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import *
limits = Limits(memory_bytes=256 << 20)
try:
    with Sandbox(tier={tier!r}, workers=1, limits=limits) as sandbox:
        print("tier", sandbox.tier)
except UserError as error:
    print("refused", error)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86_64")
@pytest.mark.parametrize(
    ("calls", "tier", "expected"),
    [
        ({}, "auto", "tier namespaces"),
        (UNSHARE, "auto", "tier landlock"),
        (LANDLOCK, "auto", "tier namespaces"),
        (LANDLOCK, "landlock", "refused "),
        (UNSHARE, "namespaces", "refused "),
        (UNSHARE | LANDLOCK, "auto", "refused "),
    ],
)
def test_unavailable_protection_is_reported_never_replaced(calls, tier, expected):
    done = subprocess.run(
        [sys.executable, "-c", REFUSING.format(calls=calls, tier=tier)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.startswith(expected), done
    if expected == "refused ":
        assert [call for call in calls if call.partition("_")[0] not in done.stdout] == []


@pytest.mark.parametrize(
    ("make", "error", "key"),
    [
        (lambda: Sandbox(tier="docker").start(), UserError, "'docker'"),
        (lambda: Sandbox(workers=0).start(), UserError, "workers"),
        (lambda: Sandbox(workers=10_000).start(), UserError, "workers"),
        (lambda: Sandbox(prelude="all").start(), UserError, "prelude"),
        (lambda: Sandbox(preload=("no_such_module",)).start(), UserError, "no_such_module"),
        (lambda: Program("", "stdio"), ValueError, "kind"),
        (lambda: Program("", "function"), ValueError, "function"),
        (lambda: Program("", "function", "f\tg"), ValueError, "function"),
        (lambda: Limits(wall_s=1), ValueError, "wall_s"),
        (lambda: Limits(cpu_s=float("nan")), ValueError, "cpu_s"),
        (lambda: Limits(cpu_s=True), ValueError, "cpu_s"),
        (lambda: Limits(threads=2.5), ValueError, "threads"),
        (lambda: Limits(output_bytes=1 << 70), ValueError, "output_bytes"),
    ],
)
def test_wrong_value_is_named(make, error, key):
    with pytest.raises(error, match=key):
        make()


def test_unknown_machine_is_refused(monkeypatch):
    from gapft_harness.sandbox.confinement.syscalls import Refused, find_machine

    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(Refused, match="riscv64"):
        find_machine()
