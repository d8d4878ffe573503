"""A program answers each test once, with the same verdict alone or among other tests."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS


def build_call(source: str) -> Program:
    return Program(textwrap.dedent(source), "function", "f")


#: Programs that answer depending on other running tests or on the order.
TELLING = {
    "the inputs in the frames": """
        import sys
        def f(x):
            frame, longest = sys._getframe(), 0
            while frame:
                for value in list(frame.f_locals.values()):
                    if type(value) is list and value[:1] == ["1"]:
                        longest = max(longest, len(value))
                frame = frame.f_back
            return longest > 1
        """,
    "the inputs in the collector": """
        import gc
        def f(x):
            gc.unfreeze()
            return any(type(v) is list and v[:2] == ["1", "1"] for v in gc.get_objects())
        """,
    "chance": "import os\ndef f(x): return os.urandom(1) < b'\\x80'",
    "what was written": """
        import os
        def f(x):
            before = os.lseek(3, 0, os.SEEK_CUR)
            os.write(3, b"x\\n")
            return before > 0
        """,
}


def test_opposite_golds_are_never_both_met(sandbox: Sandbox) -> None:
    """With one answer per test, a program can be right on at most one of the two."""
    golds = [[Test("1", value)] * 12 for value in ("true", "false")]
    both = {}
    for way, source in TELLING.items():
        results = sandbox.judge([(build_call(source), tests) for tests in golds])
        both[way] = [result.verdict for result in results].count("accepted") == 2
    assert both == dict.fromkeys(TELLING, False)


def test_guesses_are_right_half_the_time(sandbox: Sandbox) -> None:
    """A second guess would give 3/4; the limit is 1/2 plus six standard deviations."""
    tests = [Test("1", "true")] * 300
    (result,) = sandbox.judge([(build_call(TELLING["chance"]), tests)], run_all=True)
    assert [test.verdict for test in result.tests].count("accepted") < 202


def test_call_finds_its_own_input_only(sandbox: Sandbox) -> None:
    """No descriptor leads to an input, not even to its own; standard input is empty."""
    source = """
        import os, sys
        def f(x):
            read = sys.stdin.read()
            for descriptor in range(64):
                try:
                    read += os.pread(descriptor, 1 << 16, 0).decode()
                except OSError:
                    pass
            return [x, read]
        """
    tests = [Test(f"{number}", f'[{number}, ""]') for number in (4711, 4712, 4713)]
    (result,) = sandbox.judge([(build_call(source), tests)])
    assert result.verdict == "accepted", result


@pytest.mark.parametrize("first", ["", "os.close(3); ", "os.close(4); ", "os.closerange(0, 9); "])
def test_large_inputs_arrive_through_closed_channels(sandbox: Sandbox, first: str) -> None:
    large = json.dumps("x" * 700_000)
    source = f"import os\ndef f(x):\n    {first}return len(x)"
    tests = [Test(large, "700000")] * 3
    (result,) = sandbox.judge([(build_call(source), tests)], run_all=True)
    expected = "runtime_error" if first else "accepted"
    assert [test.verdict for test in result.tests] == [expected] * 3


#: What a call could leave to the next one: imports, an expression that is true where something was
#: left, and a statement that leaves it.
LEFT = {
    "module": ("calls = []", "calls", "calls.append(x)"),
    "another module": ("sys", "hasattr(sys, 'left')", "sys.left = 1"),
    "environment": ("os", "'LEFT' in os.environ", "os.environ['LEFT'] = ''"),
    "file": (
        "os, contextlib",
        "os.path.exists('/tmp/left')",
        "with contextlib.suppress(OSError): open('/tmp/left', 'w').close()",
    ),
    "descriptor": ("os", "os.dup(1) > 9", "[os.dup(1) for _ in range(9)]"),
    "random numbers": (
        "import random; first = random.random()",
        "(first, random.random()) != (0.8444218515250481, 0.7579544029403025)",
        "pass",
    ),
    "thread": (
        "threading, time",
        "threading.active_count() > 1",
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    ),
    "closed stream": ("sys", "sys.stdout.closed", "print('x'); sys.stdout.close()"),
    "timer": (
        "signal", "signal.getitimer(signal.ITIMER_REAL)[0]",
        "signal.setitimer(signal.ITIMER_REAL, 9)",
    ),
    "blocked signal": (
        "signal",
        "signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {10})",
    ),
    "umask": ("os", "os.umask(0o22) != 0o22", "os.umask(0o77)"),
    "mode of the folder": (
        "os, contextlib", "os.stat('/tmp').st_mode & 0o777 == 0o700",
        "with contextlib.suppress(OSError): os.chmod('/tmp', 0o700)",
    ),
    "current folder": ("os", "os.getcwd() == '/dev'", "os.chdir('/dev')"),
    "lowered limit": (
        "resource",
        "len({*resource.getrlimit(7)}) == 2",
        "resource.setrlimit(7, (9, resource.getrlimit(7)[1]))",
    ),
}  # fmt: skip


def build_leaving_source(start: str, is_left: str, leave: str) -> str:
    """Build a function that returns its argument where nothing was left, and leaves something."""
    start = start if "=" in start or not start else f"import {start}"
    return f"{start}\ndef f(x):\n    if {is_left}: return None\n    {leave}\n    return x"


def summarize_result(result: Any) -> list[tuple[str, str, str]]:
    """Summarize a result without the kind of time limit, which depends on the load."""
    return [
        (test.verdict, test.reason if test.verdict != "time_limit" else "", test.output)
        for test in result.tests
    ]


def judge_alone_and_together(
    sandbox: Sandbox, programs: dict[str, Program], tests: list[Test]
) -> dict[str, Any]:
    """Return each program's summary, which is the same for all tests together and each alone."""
    together = sandbox.judge([(program, tests) for program in programs.values()], run_all=True)
    single_items = [(program, [test]) for program in programs.values() for test in tests]
    rows = [summarize_result(result)[0] for result in sandbox.judge(single_items)]
    alone = [rows[start : start + len(tests)] for start in range(0, len(rows), len(tests))]
    assert alone == [summarize_result(result) for result in together]
    return dict(zip(programs, alone, strict=True))


#: Each function returns its argument.
NUMBERS = [Test(str(number), str(number)) for number in range(5)]


def test_executions_share_no_state(sandbox: Sandbox) -> None:
    """Neither calls of a function nor programs that read their input."""
    sources = {name: build_leaving_source(*row) for name, row in LEFT.items()}
    programs = {name: build_call(source) for name, source in sources.items()}
    programs |= {
        f"{name}, stdin": Program(f"{source}\nprint(f(int(input())))")
        for name, source in sources.items()
        if "stdout" not in source
    }
    summaries = judge_alone_and_together(sandbox, programs, NUMBERS)
    verdicts = {name: {row[0] for row in summary} for name, summary in summaries.items()}
    assert verdicts == {name: {"accepted"} for name in programs}


#: Functions with the verdict of the third of five tests, whose input is 2.
ENDING = {
    "prints": ("accepted", "def f(x):\n    print('x' * 400_000)\n    return x"),
    "leaves a file open": (
        "accepted",
        "def f(x):\n    global out\n    out = open(1, 'w', closefd=False)\n    out.write('noise')\n"
        "    return x",
    ),
    "a pool of threads": (
        "accepted",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
        "def f(x): return pool.submit(int, x).result()",
    ),
    "long values": ("accepted", "def f(x): return x if x != 3 else 'x' * 300_000"),
    "raises": ("runtime_error", "def f(x): return x if x != 2 else [][x]"),
    "leaves": ("runtime_error", "import sys\ndef f(x): return x if x != 2 else sys.exit(0)"),
    "leaves at once": ("runtime_error", "import os\ndef f(x): return x if x != 2 else os._exit(0)"),
    "dies": (
        "runtime_error",
        "import os\ndef f(x): return x if x != 2 else os.kill(os.getpid(), 9)",
    ),
    "does not end": ("time_limit", "def f(x):\n    while x == 2: pass\n    return x"),
    "floods": ("output_limit", "def f(x):\n    while x == 2: print('x' * 9999)\n    return x"),
    "takes all memory": ("memory_limit", "def f(x): return x if x != 2 else len(bytes(1 << 40))"),
    "does not compile": ("compile_error", "def f(x) return x"),
    "is not there": ("runtime_error", "def g(x): return x"),
    "fails in its body": ("runtime_error", "def f(x): return x\n1 / 0"),
}
#: What makes a program fail after its last value, which it returns for the input 4.
BAD_ENDS = [
    "atexit.register(os._exit, 3)",
    "atexit.register(os.abort)",
    "atexit.register(lambda: [0 for _ in iter(int, 1)])",
    "atexit.register(os.write, 1, b'x' * (3 << 20))",
    "threading.Thread(target=lambda: (time.sleep(0.05), os._exit(3))).start()",
]


def build_bad_end(action: str) -> Program:
    start = "import atexit, os, threading, time"
    return build_call(f"{start}\ndef f(x):\n    if x == 4: {action}\n    return x")


def test_function_verdicts_do_not_depend_on_other_tests(sandbox: Sandbox) -> None:
    programs = {name: build_call(source) for name, (_, source) in ENDING.items()}
    summaries = judge_alone_and_together(sandbox, programs, NUMBERS)
    assert {name: summary[2][0] for name, summary in summaries.items()} == {
        name: verdict for name, (verdict, _) in ENDING.items()
    }


@pytest.mark.parametrize("count", [1, 2, 5])
def test_failure_after_the_last_value_counts(sandbox: Sandbox, count: int) -> None:
    """A program that answers and then fails has failed, for any number of tests."""
    tests = [*([Test("2", "2")] * (count - 1)), Test("4", "4")]
    items = [(build_bad_end(action), tests) for action in BAD_ENDS]
    assert "accepted" not in [result.verdict for result in sandbox.judge(items)]


def test_random_numbers_repeat_across_workers() -> None:
    source = """
        import random
        import numpy
        def f(x): return [random.random(), random.gauss(0, 1), float(numpy.random.rand())]
        """
    item = build_call(source), [Test("1", "0")] * 3
    outputs = set()
    for tier in TIERS:
        limits = Limits(memory_bytes=256 << 20)
        with Sandbox(tier=tier, workers=1, preload=("numpy",), limits=limits) as sandbox:
            (result,) = sandbox.judge([item], run_all=True)
            outputs |= {test.output for test in result.tests}
    assert len(outputs) == 1, outputs
    assert len(json.loads(outputs.pop())) == 3
