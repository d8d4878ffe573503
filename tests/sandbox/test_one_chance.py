"""A program answers each test once, with the same verdict alone or among other tests."""

from __future__ import annotations

import json
import textwrap

import pytest

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS

ISOLATIONS = ("test", "program")


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
    "a counter elsewhere": """
        import builtins
        def f(x):
            builtins.turn = getattr(builtins, "turn", 0) + 1
            return builtins.turn % 2 == 0
        """,
    "a counter in a file": """
        def f(x):
            try:
                with open("/tmp/turn", "a+") as file:
                    return file.write("x") and file.tell() % 2 == 0
            except OSError:
                return False
        """,
    "the clock": """
        import time
        def f(x): return time.perf_counter_ns() % 2 == 0
        """,
    "chance": """
        import os
        def f(x): return os.urandom(1) < b"\\x80"
        """,
    "what was written": """
        import os
        def f(x):
            before = os.lseek(3, 0, os.SEEK_CUR)
            os.write(3, b"x\\n")
            return before > 0
        """,
}


@pytest.mark.parametrize("way", TELLING)
def test_opposite_golds_are_never_both_met(sandbox, way):
    """With one answer per test, a program can be right on at most one of the two."""
    golds = [[Test("1", value)] * 12 for value in ("true", "false")]
    program = build_call(TELLING[way])
    results = sandbox.judge([(program, tests) for tests in golds])
    accepted = [result.verdict for result in results].count("accepted")
    assert accepted <= 1, results


def test_guesses_are_right_half_the_time(sandbox):
    """A second guess would give 3/4; the limit is 1/2 plus six standard deviations."""
    guess = "import os\ndef f(x): return os.urandom(1) < b'\\x80'"
    (result,) = sandbox.judge([(build_call(guess), [Test("1", "true")] * 300)], run_all=True)
    assert [test.verdict for test in result.tests].count("accepted") < 202


def test_answers_cannot_change_after_next_input(sandbox):
    source = """
        import os
        seen = []
        def f(x):
            if x:
                os.pwrite(3, b'["value", 7]\\n', 0)
            return 5
        """
    tests = [Test("0", "7"), Test("1", "5"), Test("0", "5")]
    (result,) = sandbox.judge([(build_call(source), tests)], run_all=True)
    assert [test.verdict for test in result.tests] == ["wrong_answer", "accepted", "accepted"]


@pytest.mark.parametrize("word", [b"+", b".", b"+" * 50])
def test_requesting_next_input_submits_the_answer(sandbox, word):
    """A program that imitates the harness's protocol thereby submits its answer."""
    source = f"""
        import os, time
        def f(x):
            if x == 1:
                os.write(4, {word!r})
                time.sleep(0.1)
                os.read(4, 1 << 16)
            return x
        """
    tests = [Test("1", "1"), Test("2", "2"), Test("3", "3")]
    (result,) = sandbox.judge([(build_call(source), tests)], run_all=True)
    verdicts = [test.verdict for test in result.tests]
    assert verdicts[0] == "runtime_error", result
    assert verdicts.count("accepted") <= 2


@pytest.mark.parametrize("first", ["", "os.close(3); ", "os.close(4); ", "os.closerange(0, 9); "])
def test_large_inputs_arrive_through_closed_channels(sandbox, first):
    large = json.dumps("x" * 700_000)
    source = f"import os\ndef f(x):\n    {first}return len(x)"
    tests = [Test(large, "700000")] * 3
    (result,) = sandbox.judge([(build_call(source), tests)], run_all=True)
    expected = "runtime_error" if first else "accepted"
    assert [test.verdict for test in result.tests] == [expected] * 3


#: Functions whose verdicts would depend on other tests without the sandbox's isolation.
FUNCTIONS = {
    "right": "def f(x): return x",
    "a counter in the module": """
        calls = []
        def f(x):
            calls.append(x)
            return x if len(calls) == 1 else None
        """,
    "a cache in a default": "def f(x, seen={}): return seen.setdefault('x', x)",
    "a cache in a class": """
        class Solution:
            best = []
            def f(self, x):
                self.best.append(x)
                return max(self.best) if len(self.best) == 1 else None
        """,
    "a counter in another module": """
        import sys
        def f(x):
            sys.turn = getattr(sys, "turn", 0) + 1
            return x if sys.turn == 1 else None
        """,
    "a counter in the environment": """
        import os
        def f(x):
            os.environ["X"] = os.environ.get("X", "") + "x"
            return x if len(os.environ["X"]) == 1 else None
        """,
    "a file": """
        import os
        def f(x):
            if os.path.exists("/tmp/left"): return None
            try: open("/tmp/left", "w").close()
            except OSError: pass
            return x
        """,
    "descriptors": """
        import os
        def f(x):
            os.dup(1); os.dup(1)
            return x if os.dup(1) < 12 else None
        """,
    "the precision of decimals": """
        from decimal import Decimal, getcontext
        def f(x):
            if x == 2: getcontext().prec = 3
            return str(Decimal(1) / 3)[:8] and x if len(str(Decimal(1) / 3)) > 9 or x == 2 else None
        """,
    "random numbers": """
        import random
        first = random.random()
        def f(x): return x if (first, random.random()) == (%s) else None
        """,
    "a thread that goes on": """
        import threading, time
        def f(x):
            if threading.active_count() > 1: return None
            threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
            return x
        """,
    "a pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        def f(x): return pool.submit(int, x).result()
        """,
    "a closed stream": """
        import sys
        def f(x):
            print("noise")
            if x == 1: sys.stdout.close()
            return x
        """,
    "a replaced stream": """
        import io, sys
        def f(x):
            if type(sys.stdout) is io.StringIO: return None
            sys.stdout = io.StringIO()
            return x
        """,
    "a timer": """
        import signal
        def f(x):
            if signal.getitimer(signal.ITIMER_REAL)[0]: return None
            signal.setitimer(signal.ITIMER_REAL, 9)
            return x
        """,
    "much memory": """
        import json
        def f(x):
            if hasattr(json.loads, "kept"): return None
            json.loads.kept = bytearray(100 << 20)
            return x
        """,
    "an entry of sys.path": """
        import sys
        def f(x):
            if "/left" in sys.path: return None
            sys.path.append("/left")
            return x
        """,
    "a signal handler": """
        import signal
        def f(x):
            if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL: return None
            signal.signal(signal.SIGUSR1, print)
            return x
        """,
    "a blocked signal": """
        import signal
        def f(x):
            return None if signal.pthread_sigmask(signal.SIG_BLOCK, {10}) else x
        """,
    "the umask": """
        import os
        def f(x): return x if os.umask(0o77) == 0o22 else None
        """,
    "a lowered limit": """
        import resource
        def f(x):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
            return x if soft == hard else None
        """,
    "the limit of digits": """
        import sys
        def f(x):
            before = sys.get_int_max_str_digits()
            sys.set_int_max_str_digits(0)
            return x if before else None
        """,
    "warnings": """
        import warnings
        def f(x):
            if warnings.filters[0][0] == "error": return None
            warnings.simplefilter("error")
            return x
        """,
    "a thread's name": """
        import threading
        def f(x):
            if threading.current_thread().name == "left": return None
            threading.current_thread().name = "left"
            return x
        """,
    "a name replaced in builtins": """
        import builtins
        def f(x):
            if builtins.len is not len: return None
            if builtins.abs(1) != 1: return None
            builtins.abs = lambda x: 7
            return x
        """,
    "a name replaced in sys": """
        import sys
        def f(x):
            if sys.getsizeof(1) == 7: return None
            sys.getsizeof = lambda x: 7
            return x
        """,
    "a changed variable of the environment": """
        import os
        def f(x):
            if os.environ["HOME"] == "left": return None
            os.environ["HOME"] = "left"
            return x
        """,
    "a module of its own import": """
        import colorsys
        def f(x):
            colorsys.turn = getattr(colorsys, "turn", 0) + 1
            return x if colorsys.turn == 1 else None
        """,
    "a detached stream": """
        import sys
        def f(x):
            print("noise")
            if x == 1: sys.stdout = open(sys.stdout.detach().fileno(), "w", closefd=False)
            return x
        """,
    "a trace function": """
        import sys
        def f(x):
            if sys.getprofile(): return None
            sys.setprofile(lambda *a: None)
            return x
        """,
    "a file that is not closed": """
        def f(x):
            out = open(1, "w", closefd=False)
            out.write("noise")
            globals()["out"] = out
            return x
        """,
    "prints": "def f(x):\n    print('x' * 400_000)\n    return x",
    "long values": "def f(x): return x if x != 3 else 'x' * 300_000",
    "raises": "def f(x): return x if x != 2 else [][x]",
    "leaves": "import sys\ndef f(x): return x if x != 2 else sys.exit(0)",
    "leaves at once": "import os\ndef f(x): return x if x != 2 else os._exit(0)",
    "dies": "import os\ndef f(x): return x if x != 2 else os.kill(os.getpid(), 9)",
    "does not end": "def f(x):\n    while x == 2: pass\n    return x",
    "floods": "def f(x):\n    while x == 2: print('x' * 9999)\n    return x",
    "takes all memory": "def f(x): return x if x != 2 else len(bytes(1 << 40))",
    "does not compile": "def f(x) return x",
    "is not there": "def g(x): return x",
    "fails in its body": "def f(x): return x\n1 / 0",
    "ends badly": "import atexit, os\natexit.register(os._exit, 3)\ndef f(x): return x",
    "dies at its end": """
        import atexit, os
        def f(x):
            if x == 4: atexit.register(os.abort)
            return x
        """,
    "does not end at its end": """
        import atexit
        def loop():
            while True: pass
        def f(x):
            if x == 4: atexit.register(loop)
            return x
        """,
    "floods at its end": """
        import atexit, os
        def f(x):
            if x == 4: atexit.register(os.write, 1, b"x" * (3 << 20))
            return x
        """,
    "a thread that fails it at its end": """
        import os, threading, time
        def late():
            time.sleep(0.05)
            os._exit(3)
        def f(x):
            if x == 4: threading.Thread(target=late).start()
            return x
        """,
}
_FIRST_NUMBERS = "0.8444218515250481, 0.7579544029403025"
ENDS_BADLY = [name for name in FUNCTIONS if name.endswith(("badly", "its end"))]


@pytest.mark.parametrize("way", FUNCTIONS)
def test_function_verdicts_do_not_depend_on_other_tests(sandbox, way):
    source = FUNCTIONS[way]
    source = source % _FIRST_NUMBERS if way == "random numbers" else source
    tests = [Test(str(i), str(i)) for i in range(5)]
    alone, together = (
        sandbox.judge([(build_call(source), tests)], isolate=isolate, run_all=True)[0]
        for isolate in ISOLATIONS
    )
    assert summarize_result(alone) == summarize_result(together)
    right = [*FUNCTIONS][: [*FUNCTIONS].index("prints")]
    assert way not in right or alone.verdict == "accepted", alone


def summarize_result(result):
    """Summarize a result without the kind of time limit, which depends on the load."""
    return [
        (test.verdict, test.reason if test.verdict != "time_limit" else "", test.output)
        for test in result.tests
    ]


@pytest.mark.parametrize("way", ENDS_BADLY)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_failure_after_the_last_value_counts(sandbox, way, count):
    """A program that answers and then fails has failed, for any number of tests."""
    tests = [*([Test("2", "2")] * (count - 1)), Test("4", "4")]
    verdicts = {
        isolate: sandbox.judge([(build_call(FUNCTIONS[way]), tests)], isolate=isolate)[0].verdict
        for isolate in ISOLATIONS
    }
    assert verdicts["test"] == verdicts["program"] != "accepted"


STDIN = (
    "print(input())",
    "print(1); exit(3)",
    "1 / 0",
    "while True: pass",
    "print('x' * (2 << 20))",
)


def test_stdin_verdicts_do_not_depend_on_other_tests(sandbox):
    tests = [Test(str(i), str(i)) for i in range(3)]
    items = [(Program(source), tests) for source in STDIN]
    verdicts = [
        [summarize_result(result) for result in sandbox.judge(items, isolate=isolate, run_all=True)]
        for isolate in ISOLATIONS
    ]
    single = [
        [summarize_result(sandbox.judge([(program, [test])])[0])[0] for test in tests]
        for program, tests in items
    ]
    assert verdicts == [single, single]


@pytest.mark.parametrize("tier", TIERS)
def test_random_numbers_repeat_across_workers(tier):
    source = """
        import random
        import numpy
        def f(x): return [random.random(), random.gauss(0, 1), float(numpy.random.rand())]
        """
    outputs = set()
    for _ in range(2):
        limits = Limits(memory_bytes=256 << 20)
        with Sandbox(tier=tier, workers=1, preload=("numpy",), limits=limits) as sandbox:
            for isolate in ISOLATIONS:
                (result,) = sandbox.judge(
                    [(build_call(source), [Test("1", "0")] * 3)], isolate=isolate, run_all=True
                )
                outputs |= {test.output for test in result.tests}
    assert len(outputs) == 1, outputs
    assert len(json.loads(outputs.pop())) == 3
