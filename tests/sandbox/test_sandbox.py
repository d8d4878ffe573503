"""The interface: verdicts, limits, isolation, order, errors, refusal, cleanliness."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import InfrastructureError, Limits, Program, Sandbox, Test, probe_tiers
from gapft_harness.sandbox.probes import _CANARIES, _build_canary
from gapft_harness.sandbox.records import TIERS
from tests.kit.patience import PATIENCE_S
from tests.sandbox.conftest import LIMITS
from tests.sandbox.outside_world import count_descendants, list_living_descendants, list_mounts

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
    assert {result.tier for result in results} == {sandbox.tier}
    reasons = [result.tests[0].reason for result in results]
    assert reasons[:3] == ["", "line 1: 'no', expected 'yes'", "ValueError: why"]
    assert "line 2" in results[2].tests[0].error
    assert "raise ValueError('why')" in results[2].tests[0].error
    assert results[2].tests[0].output == "1\n"


def test_busy_time_covers_process_setup_and_cleanup(sandbox):
    tests = [Test("a", "a"), Test("b", "b")]
    start = time.monotonic()
    results = sandbox.judge(
        [(ECHO, tests), (build_call("def f(x): return x"), [Test("1", "1")] * 3)]
    )
    elapsed = time.monotonic() - start
    for result in results:
        assert result.verdict == "accepted"
        # including the start and cleanup of its process
        assert result.busy_s > sum(test.wall_s for test in result.tests)
    assert sum(result.busy_s for result in results) < elapsed


def test_looping_program_reports_cpu_time():
    with Sandbox(workers=1, limits=dataclasses.replace(LIMITS, wall_s=60)) as sandbox:
        (result,) = sandbox.judge([(Program("while True: pass"), [Test("", "")])])
    assert result.tests[0].reason == "more than 0.4 s of CPU time"


def test_stops_at_first_failure_by_default(sandbox):
    tests = [Test("1", "1"), Test("2", "3"), Test("3", "3"), Test("4", "5")]
    (short,) = sandbox.judge([(ECHO, tests)])
    (whole,) = sandbox.judge([(ECHO, tests)], run_all=True)
    expected = ["accepted", "wrong_answer", "accepted", "wrong_answer"]
    assert [t.verdict for t in short.tests] == expected[:2]
    assert [t.verdict for t in whole.tests] == expected
    assert short.verdict == whole.verdict == "wrong_answer"


@pytest.mark.parametrize("isolate", ["test", "program"])
def test_both_isolations_give_the_same_verdicts(sandbox, isolate):
    source = """
def f(x):
    if x == 3: raise KeyError(x)
    if x == 4:
        while True: pass
    if x == 6: raise SystemExit
    return x
"""
    tests = [Test(str(i), str(i)) for i in range(6)] + [Test("6", "6"), Test("7", "8")]
    (result,) = sandbox.judge([(build_call(source), tests)], isolate=isolate, run_all=True)
    assert [t.verdict for t in result.tests] == [
        *["accepted"] * 3,
        *("runtime_error", "time_limit", "accepted", "runtime_error", "wrong_answer"),
    ]


def test_calls_share_no_state(sandbox):
    """A function that fails only after other calls passes with a process per call."""
    once = "called = []\ndef f(x):\n    called.append(x)\n    return x if len(called) < 3 else None"
    tests = [Test(str(i), str(i)) for i in range(5)]
    (result,) = sandbox.judge([(build_call(once), tests)])
    assert result.verdict == "accepted"


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


def test_missing_function_is_a_runtime_error(sandbox):
    (result,) = sandbox.judge([(build_call("def g(x): return x"), [Test("1", "1")] * 2)])
    assert result.verdict == "runtime_error"
    assert result.tests[0].reason == "NameError: the program defines no 'f'"


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return {1: 2}",
        "def f(x): return {'1': 2, 3: 4}",
        "def f(x): return {1, 2}",
        "def f(x): return object()",
        "def f(x): return b'1'",
        "def f(x): return float('nan')",
        "def f(x): return '1'",
    ],
)
def test_distinguishes_values_that_json_makes_equal(sandbox, source):
    tests = [Test("1", '{"1": 2}')], [Test("1", "null")], [Test("1", "1")]
    results = sandbox.judge([(build_call(source), t) for t in tests])
    assert {result.verdict for result in results} == {"wrong_answer"}


@pytest.mark.parametrize(
    "forged",
    [
        "b'[\"value\", ' + b'[' * 900 + b']' * 900 + b']'",
        "b'[\"raised\", ' + b'[' * 900 + b']' * 900 + b']'",
        "b'[\"compile_error\", {}]'",
        'b\'["raised", "\\\\ud800", "\\\\ud800"]\'',
        "b'[\"value\", ' + b'9' * 10000 + b']'",
        "b'11\\n' * 300000",
        "b'[]'",
        "b'\\xff\\x00'",
        "b'[\"value\"]'",
        "b''",
    ],
)
def test_forged_reports_are_judged_as_answers(sandbox, forged):
    """The harness handles any data on the report's descriptor."""
    source = f"""
import os
def f(x):
    os.ftruncate(3, 0)
    os.lseek(3, 0, 0)
    os.write(3, {forged} + b'\\n')
    os._exit(0)
"""
    for isolate in ("test", "program"):
        (result,) = sandbox.judge([(build_call(source), [Test("1", "2")] * 2)], isolate=isolate)
        assert result.verdict in ("wrong_answer", "runtime_error"), result
        json.dumps([result.tests[0].reason, result.tests[0].error]).encode()
        (result.tests[0].reason + result.tests[0].error + result.tests[0].output).encode()


def test_forged_value_must_still_be_correct(sandbox):
    """A forged value passes only if it equals the expected value."""
    source = "import os\ndef f(x):\n    os.write(3, b'[\"value\", %d]\\n')\n    os._exit(0)"
    programs = [(build_call(source % value), [Test("1", "2")]) for value in (2, 3)]
    results = sandbox.judge(programs)
    assert [result.verdict for result in results] == ["accepted", "wrong_answer"]


def test_results_are_ordered_and_lazy(sandbox):
    read_items = []

    def read_next_items():
        for i in range(60):
            read_items.append(i)
            yield ECHO, [Test(str(i), str(i if i % 7 else -1))]

    counts: list[int] = []
    results = sandbox.judge(read_next_items(), progress=counts.append)
    assert [r.verdict for r in results] == [
        "accepted" if i % 7 else "wrong_answer" for i in range(60)
    ]
    assert counts == list(range(1, 61))
    read_items.clear()
    stream = sandbox.stream(read_next_items())
    next(stream)
    assert len(read_items) <= 4, "a stream must not read ahead of its workers"
    stream.close()
    assert sandbox.judge([(ECHO, [Test("after", "after")])])[0].verdict == "accepted"


def test_requires_a_test(sandbox):
    with pytest.raises(UserError, match="program number 1 has no tests"):
        sandbox.judge([(ECHO, [Test("", "")]), (ECHO, [])])


def test_expected_value_must_be_json(sandbox):
    with pytest.raises(UserError, match="must be JSON"):
        sandbox.judge([(build_call("def f(x): return x"), [Test("1", "one")])])


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


def test_invalid_json_input_is_the_tests_error(sandbox):
    with pytest.raises(UserError, match=r"one JSON value per line; found '1\\n\[2'"):
        sandbox.judge([(build_call("def f(x, y): return x"), [Test("1\n[2", "1")])])


def test_calls_functions_without_arguments(sandbox):
    (result,) = sandbox.judge([(build_call("def f(): return 1"), [Test("", "1")])])
    assert result.verdict == "accepted"


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


def test_slow_programs_do_not_delay_others():
    """One of 101 programs loops; meanwhile the other worker runs the rest."""
    long = Limits(cpu_s=4, wall_s=60, memory_bytes=256 << 20)
    with Sandbox(workers=2, limits=long) as sandbox:
        items = [(ECHO, [Test(str(i), str(i))]) for i in range(100)]
        items.insert(3, (Program("while True: pass"), [Test("", "")]))
        order = [index for index, _ in sandbox.stream(items)]
        assert order.index(3) > 30
        assert sorted(order) == list(range(101))


def test_slow_correct_programs_pass_under_load():
    """CPU time decides: eight programs on fewer cores, each with 1.7 times its own need."""
    need = 0.2
    source = f"""
import time
while time.process_time() < {need}: pass
print(1)
"""
    limits = Limits(cpu_s=1.7 * need, wall_s=60, memory_bytes=256 << 20)
    with Sandbox(workers=8, limits=limits) as sandbox:
        results = sandbox.judge([(Program(source), [Test("", "1")])] * 10)
    assert [r.verdict for r in results] == ["accepted"] * 10


@pytest.mark.parametrize("tier", TIERS)
def test_hundreds_of_executions_leak_nothing(tier):
    """Memory, descriptors, mounts and processes stay the same, here and in the worker."""
    programs = [
        *(ECHO, Program("x = 'x' * 10_000_000\nprint(x[0])"), Program("1 / 0")),
        Program("try: open('/tmp/x', 'w').write('x' * 100_000)\nexcept OSError: pass"),
        Program("import threading, time\n[threading.Thread(target=time.sleep, args=(9,), "
                "daemon=True).start() for _ in range(5)]"),
    ]  # fmt: skip
    items = [(programs[i % 5], [Test("1", "1")]) for i in range(150)]
    others = list_living_descendants()  # of earlier tests
    with Sandbox(tier=tier, workers=1, limits=LIMITS) as sandbox:
        footprints = [measure_footprint(sandbox, items, others) for _ in range(4)]
    for name in ("memory", "worker memory"):
        sizes = [footprint.pop(name) for footprint in footprints]
        # A leak grows in every round; an allocator may grow in one or two.
        least = min(later - earlier for earlier, later in pairwise(sizes))
        assert least <= 150, (name, sizes)  # KB: less than 1 KB per execution
    assert footprints == footprints[:1] * 4
    assert count_descendants(others) == 0


def measure_footprint(sandbox, items, others):
    sandbox.judge(items)
    worker = sandbox._schedule.workers[0].process.pid
    if sandbox.tier == "namespaces":
        (worker,) = list_children(worker)
    gc.collect()  # uncollected garbage is not a leak
    return {
        "memory": read_status("self", "VmRSS"),
        "worker memory": read_status(worker, "VmRSS"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "worker descriptors": count_entries(f"/proc/{worker}/fd"),
        "mounts": list_mounts(),
        "descendants": count_descendants(others),
    }


def count_entries(folder):
    try:
        return len(os.listdir(folder))
    except PermissionError:  # a worker is not dumpable; only root may read it
        return None


def read_status(process, key):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise AssertionError(key)


def list_children(parent):
    children = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:  # it has ended
            continue
        if stat.rpartition(")")[2].split()[1] == str(parent):
            children.append(int(entry))
    return children


def test_killed_worker_is_replaced_and_test_repeated(sandbox):
    slow = Program("import time\ntime.sleep(0.5)\nprint(1)")
    workers = sandbox._schedule.workers
    threading.Timer(0.2, lambda: os.kill(workers[0].process.pid, signal.SIGKILL)).start()
    (result,) = sandbox.judge([(slow, [Test("", "1")])])
    assert result.verdict == "accepted"


def test_repeatedly_failing_sandbox_stops_without_verdict(sandbox):
    stop = threading.Event()
    own = sandbox._schedule

    def keep_killing():
        while not stop.wait(0.3):
            for worker in list(own.workers):
                os.kill(worker.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=keep_killing)
    killer.start()
    try:
        with pytest.raises(InfrastructureError, match="no verdict"):
            sandbox.judge([(Program("import time\ntime.sleep(2)"), [Test("", "")])])
    finally:
        stop.set()
        killer.join()
    assert sandbox.judge([(ECHO, [Test("1", "1")])])[0].verdict == "accepted"


def test_killing_the_harness_leaves_nothing():
    source = """
import sys, threading, os
from gapft_harness.sandbox import *
sandbox = Sandbox(workers=1, limits=Limits(cpu_s=50, wall_s=60, memory_bytes=256 << 20))
sandbox.start()
print(sandbox._schedule.workers[0].process.pid, flush=True)
sandbox.judge([(Program("while True: pass"), [Test("", "")])])
"""
    harness = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    worker = int(harness.stdout.readline())
    family = [worker]
    deadline = time.monotonic() + PATIENCE_S
    while len(family) < 2 and time.monotonic() < deadline:
        family = [worker, *list_children(worker)]
        family += [child for parent in family[1:] for child in list_children(parent)]
    harness.kill()
    harness.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) for pid in family) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family) > 1
    assert not [pid for pid in family if is_alive(pid)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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


def test_unknown_preload_module_is_an_error():
    with pytest.raises(UserError, match="no_such_module"):
        Sandbox(workers=1, preload=("no_such_module",), limits=LIMITS).start()


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


@pytest.mark.parametrize("name", ["\ufb01nd", "find", "\u2118rime", "\U0001d425ong"])
@pytest.mark.parametrize("method", [False, True])
def test_finds_function_by_normalized_name(sandbox, name, method):
    source = f"def {name}(*x): return x[-1]"
    source = f"class Solution:\n    {source}" if method else source
    (result,) = sandbox.judge([(Program(source, "function", name), [Test("1", "1")])])
    assert result.verdict == "accepted", result


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
    assert str(outcomes[0]) == f"{tier}, start: holds (workers start confined)"


REFUSING = """
import sys
from tests.sandbox.test_sandbox import refuse_calls
refuse_calls({calls!r})
from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import *
limits = Limits(memory_bytes=256 << 20)
try:
    with Sandbox(tier={tier!r}, workers=1, limits=limits) as sandbox:
        print("tier", sandbox.tier, [p.tier for p in sandbox.probes if not p.holds])
except UserError as error:
    print("refused", error)
"""

UNSHARE, LANDLOCK = {"unshare": 272}, {"landlock_create_ruleset": 444}


def refuse_calls(calls):
    """Make system calls fail in this process and its children, as a container may."""
    from gapft_harness.sandbox.confinement.namespaces import forbid_new_privileges
    from gapft_harness.sandbox.confinement.syscalls import check_result, libc

    forbid_new_privileges()
    # BPF: load the call's number; a call to refuse returns EPERM, any other one is allowed.
    steps = [(0x20, 0, 0, 0)]
    for call in calls.values():
        steps += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    check_result(libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0), "seccomp")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86_64")
@pytest.mark.parametrize(
    ("calls", "tier", "expected"),
    [
        ({}, "auto", "tier namespaces []"),
        (UNSHARE, "auto", "tier landlock ['namespaces']"),
        (LANDLOCK, "auto", "tier namespaces []"),
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
        for name, remedy in (("unshare", "user namespaces"), ("landlock_", "lsm= boot")):
            if any(call.startswith(name) for call in calls):
                assert f"{name}" in done.stdout
                assert remedy in done.stdout
        assert "nothing was generated" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tier": "docker"}, "found 'docker', expected auto or namespaces or landlock"),
        ({"workers": 0}, "found 0, expected an integer of at least 1"),
        ({"workers": 1.5}, "found 1.5, expected an integer of at least 1"),
        ({"workers": float("nan")}, "found nan, expected an integer of at least 1"),
        ({"workers": 10_000}, "expected at most the .* GiB that this machine"),
    ],
)
def test_rejects_wrong_arguments(arguments, message):
    with pytest.raises(UserError, match=message):
        Sandbox(**arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Program("", "stdio"), "expected stdin or function"),
        (lambda: Program("", "function"), "expected a name"),
        (lambda: Program("", "stdin", "f"), "expected a name"),
        (lambda: Program("", "function", "f\tg"), "expected a Python name"),
        (lambda: Limits(cpu_s=0), "cpu_s: found 0"),
        (lambda: Limits(wall_s=1), "expected at least cpu_s"),
        (lambda: Limits(cpu_s=float("nan")), "cpu_s: found nan, expected more than 0"),
        (lambda: Limits(wall_s=float("inf")), "wall_s: found inf, expected at most 604,800"),
        (lambda: Limits(cpu_s="6"), "cpu_s: found '6', expected a number"),
        (lambda: Limits(cpu_s=True), "cpu_s: found True, expected a number"),
        (lambda: Limits(memory_bytes=1e9), "memory_bytes: found 1000000000.0, expected an integer"),
        (lambda: Limits(threads=2.5), "threads: found 2.5, expected an integer"),
        (lambda: Limits(output_bytes=1 << 70), "output_bytes: found .*, expected at most 1,125,"),
    ],
)
def test_rejects_wrong_records(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rejects_unknown_machine(monkeypatch):
    from gapft_harness.sandbox.confinement.syscalls import Refused, find_machine

    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(
        Refused, match="found Linux on riscv64; the sandbox supports 64-bit Linux on"
    ):
        find_machine()
