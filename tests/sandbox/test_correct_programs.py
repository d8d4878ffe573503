# ruff: noqa: E501 - a program a line
"""Correct programs are accepted, however they read and write."""

from __future__ import annotations

import json

import pytest

from gapft_harness.sandbox import Program, Test

NUMBERS = "3\n1 2 3\n"
WAYS = {
    "input": "n = int(input())\nprint(sum(map(int, input().split())))",
    "iteration over stdin": "import sys\nx = [l.split() for l in sys.stdin]\nprint(sum(map(int, x[1])))",
    "stdin.read": "import sys\nx = sys.stdin.read().split()\nprint(sum(map(int, x[1:])))",
    "stdin.readline": "import sys\ninput = sys.stdin.readline\ninput()\nprint(sum(map(int, input().split())))",
    "stdin.readlines": "import sys\nprint(sum(map(int, sys.stdin.readlines()[1].split())))",
    "stdin.buffer": "import sys\nx = sys.stdin.buffer.read().split()\nprint(sum(map(int, x[1:])))",
    "stdin.buffer.readline": "import sys\ni = sys.stdin.buffer.readline\ni()\nprint(sum(map(int, i().split())))",
    "open(0)": "x = open(0).read().split()\nprint(sum(map(int, x[1:])))",
    "open(0, 'rb')": "import io\nx = open(0, 'rb', buffering=0).read().split()\nprint(sum(map(int, x[1:])))",
    "os.read": "import os\nx = os.read(0, 1 << 20).split()\nprint(sum(map(int, x[1:])))",
    "os.fstat": "import os, io\nx = io.BytesIO(os.read(0, os.fstat(0).st_size))\nx.readline()\nprint(sum(map(int, x.readline().split())))",
    "mmap of stdin": "import mmap\nx = mmap.mmap(0, 0, prot=mmap.PROT_READ)\nprint(sum(map(int, x[:].split()[1:])))",
    "fileinput": "import fileinput\nx = list(fileinput.input())\nprint(sum(map(int, x[1].split())))",
    "os.write": "import os\nos.write(1, b'6\\n')",
    "stdout.write": "import sys\nsys.stdout.write('6')",
    "print to buffer": "import sys\nsys.stdout.buffer.write(b'6\\n')",
    "print with file": "import sys\nprint(6, file=sys.stdout, flush=True)",
    "replaced stdout": "import io, os, sys\nsys.stdout = io.StringIO()\nprint(6)\nos.write(1, sys.stdout.getvalue().encode())",
    "own stdout": "import sys\nsys.stdout = open(1, 'w', closefd=False)\nprint(6)",
    "unflushed file": "out = open(1, 'w', closefd=False)\nout.write('6')",
    "fdopen": "import os\nwith os.fdopen(1, 'w') as out: out.write('6')",
    "at exit": "import atexit\nprint('', end='')\natexit.register(print, 6)",
    "thread": "import threading\nt = threading.Thread(target=lambda: print(6))\nt.start()",
    "thread with a large stack": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\ndef f(n): return 0 if n == 0 else f(n - 1)\nt = threading.Thread(target=lambda: print(6 + f(100000)))\nt.start()\nt.join()",
    "thread pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as e: print(sum(e.map(int, '123')))",
    "main guard": "def main(): print(6)\nif __name__ == '__main__': main()",
    "main guard first": "if __name__ == '__main__':\n    x = 6\nprint(x)",
    "import of __main__": "import __main__\nx = 6\nprint(__main__.x)",
    "exit in the end": "import sys\nprint(6)\nsys.exit()",
    "exit(0)": "print(6)\nexit(0)",
    "os._exit after flushing": "import os\nprint(6, flush=True)\nos._exit(0)",
    "global": "total = 0\ndef add(x):\n    global total\n    total += x\nadd(6)\nprint(total)",
    "module state": "memo = {}\ndef f(n):\n    memo[n] = n\n    return memo\nf(6)\nprint(*memo)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(100000) - 99994)",
    "deep recursion through C": "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\nn = 40000 if sys.version_info < (3, 12) else 400\n@lru_cache(None)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(n) - n + 6)",
    "future import": "from __future__ import annotations\nprint(6)",
    "unusual imports": "import fractions, array, bisect, zlib, hashlib, csv, decimal, xml.dom.minidom, colorsys, unittest, asyncio\nprint(6)",
    "a file of its own": "import os, tempfile\ntry:\n    open('x', 'w').write('6')\n    print(open('x').read())\nexcept OSError:\n    print(6)",
    "random and time": "import random, time, uuid\nrandom.random(); time.sleep(0.001); uuid.uuid4()\nprint(6)",
    "windows line ends": "print('6', end='\\r\\n')",
    "decimals": "print('6.000')",
    "dataclass and pickle": "import pickle\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(pickle.loads(pickle.dumps(A(6))).x)",
    "ctypes": "import ctypes\nprint(ctypes.c_int(6).value)",
    "signal handler": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: print(6))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nimport time\ntime.sleep(0.1)",
    "stack without limit": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\nprint(6)",
    "stack to a size": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 29, resource.RLIM_INFINITY))\nprint(6)",
    "stack to its own limit": "import resource\nhard = resource.getrlimit(resource.RLIMIT_STACK)[1]\nresource.setrlimit(resource.RLIMIT_STACK, (hard, hard))\nprint(6)",
    "open('/dev/stdin')": "x = open('/dev/stdin').read().split()\nprint(sum(map(int, x[1:])))",
    "open('/dev/stdin', 'rb')": "with open('/dev/stdin', 'rb', buffering=0) as file: x = file.read().split()\nprint(sum(map(int, x[1:])))",
    "open('/dev/fd/0')": "x = open('/dev/fd/0').readlines()\nprint(sum(map(int, x[1].split())))",
    "open('/proc/self/fd/0')": "import io\nx = io.open('/proc/self/fd/0').readlines()\nprint(sum(map(int, x[1].split())))",
    "/dev/stdin as a path": "import pathlib\nx = pathlib.Path('/dev/stdin').read_text().split()\nprint(sum(map(int, x[1:])))",
    "/dev/stdin if it is there": "import os, sys\nif os.path.exists('/dev/stdin'): sys.stdin = open('/dev/stdin')\ninput()\nprint(sum(map(int, input().split())))",
    "os.open('/dev/stdin')": "import os\nx = os.read(os.open(b'/dev/stdin', os.O_RDONLY), 999).split()\nprint(sum(map(int, x[1:])))",
    "os.open('/dev/stdout')": "import os\nos.write(os.open('/dev/stdout', os.O_WRONLY | os.O_TRUNC), b'6')",
    "fileinput of /dev/stdin": "import fileinput\nx = list(fileinput.input('/dev/stdin'))\nprint(sum(map(int, x[1].split())))",
    "open('/dev/stdout', 'w')": "print('6', end='', flush=True)\nwith open('/dev/stdout', 'w') as out: print('.', end='', file=out)\nprint('0')",
    "open('/dev/stderr', 'w')": "print('noise', file=open('/dev/stderr', 'w'))\nprint(6)",
    "interrupts itself": "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    print(6)",
    "kills itself softly": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: print(6))\nos.kill(os.getpid(), signal.SIGUSR1)",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_accepts_every_ordinary_program(sandbox, way):
    (result,) = sandbox.judge([(Program(WAYS[way]), [Test(NUMBERS, "6\n")])])
    assert result.verdict == "accepted", result.tests[0]


FUNCTIONS = {
    "method": "class Solution:\n    def f(self, x, y): return [x, y]",
    "function": "def f(x, y): return [x, y]",
    "tuple": "def f(x, y): return x, y",
    "annotated": "from typing import List, Optional\nclass Solution:\n    def f(self, x: List[int], y: Optional[int]) -> List: return [x, y]",
    "prints": "def f(x, y):\n    print('noise')\n    return [x, y]",
    "main guard": "def f(x, y): return [x, y]\nif __name__ == '__main__': print(f(int(input()), 1))",
    "state": "seen = []\ndef f(x, y):\n    seen.append(x)\n    return [seen[-1], y]",
    "bool for int": "def f(x, y): return [x, y] if y != 1 else [x, True]",
}


@pytest.mark.parametrize("way", FUNCTIONS)
@pytest.mark.parametrize("isolate", ["test", "program"])
def test_accepts_functions(sandbox, way, isolate):
    tests = [Test(f"{i}\n1", json.dumps([i, 1])) for i in range(3)]
    program = Program(FUNCTIONS[way], "function", "f")
    (result,) = sandbox.judge([(program, tests)], isolate=isolate)
    assert result.verdict == "accepted", result
    assert len(result.tests) == 3


def test_nested_tuples_equal_lists(sandbox):
    program = Program("def f(x): return [(x, (x,)), x]", "function", "f")
    (result,) = sandbox.judge([(program, [Test("1", "[[1, [1]], 1]")])])
    assert result.verdict == "accepted"


#: Programs that end by a signal's default action.
ENDS = {
    "SIGALRM": "signal.setitimer(signal.ITIMER_REAL, 0.02)\ntime.sleep(0.3)",
    "SIGVTALRM": "signal.setitimer(signal.ITIMER_VIRTUAL, 0.02)\nwhile time.process_time() < 0.2: pass",
    "SIGPROF": "signal.setitimer(signal.ITIMER_PROF, 0.02)\nwhile time.process_time() < 0.2: pass",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGABRT": "os.abort()",
    "SIGHUP": "signal.raise_signal(signal.SIGHUP)",
    "SIGINT": "signal.signal(signal.SIGINT, signal.SIG_DFL)\nsignal.raise_signal(signal.SIGINT)",
    "SIGSEGV": "import ctypes\nctypes.string_at(0)",
}


@pytest.mark.parametrize("name", ENDS)
def test_signals_default_action_ends_the_program(sandbox, name):
    """The program is not the first process of a namespace, which would ignore the signal."""
    source = f"import os, signal, time\n{ENDS[name]}\nprint(6)"
    (result,) = sandbox.judge([(Program(source), [Test("", "6")])])
    assert result.verdict == "runtime_error", result
    assert result.tests[0].reason == f"killed by {name}"
