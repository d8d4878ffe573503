# ruff: noqa: E501 - programs as people paste them
"""A program ends as in CPython: pasted templates behave as in a plain interpreter."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from gapft_harness.sandbox import Program, Test

GIVEN = "3\n1 2 3\n4 5 6\n7 8 9\n"

#: The core of the templates that competitive programmers paste before their code.
_FAST_IO = """
import os
import sys
from io import BytesIO, IOBase

class FastIO(IOBase):
    newlines = 0

    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None

    def read(self):
        while True:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            if not b:
                break
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines = 0
        return self.buffer.read()

    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()

    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)

class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.read = lambda: self.buffer.read().decode("ascii")
        self.readline = lambda: self.buffer.readline().decode("ascii")
"""
_WRAPPED = _FAST_IO + "sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)\n"
_SOLVE = "for _ in range(int(input())):\n    print(sum(map(int, input().split())))\n"

#: Headers before a solution, for stdin and function programs.
HEADERS = {
    "nothing": "",
    "FastIO": _WRAPPED + "input = lambda: sys.stdin.readline().rstrip('\\r\\n')\n",
    "FastIO in main": _FAST_IO + "def main():\n    print(end='')\nsys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')\nif __name__ == '__main__':\n    main()\n",
    "FastIO for output": _FAST_IO + "sys.stdout = IOWrapper(sys.stdout)\n",
    "print of FastIO": _WRAPPED + "def print(*args, **kwargs):\n    sep, file = kwargs.pop('sep', ' '), kwargs.pop('file', sys.stdout)\n    file.write(sep.join(map(str, args)) + kwargs.pop('end', '\\n'))\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')\n",
    "region without flush": "import os, sys\nfrom io import BytesIO, IOBase\nclass Out(IOBase):\n    def __init__(self): self.data = []\n    def write(self, text): self.data.append(text)\n    def flush(self):\n        os.write(1, ''.join(self.data).encode())\n        self.data.clear()\nsys.stdout = Out()\n",
    "readline": "import sys\ninput = sys.stdin.readline\n",
    "buffer.readline": "import sys\ninput = sys.stdin.buffer.readline\n",
    "BytesIO": "import io, os\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\n",
    "StringIO": "import sys, io\nsys.stdin = io.StringIO(sys.stdin.read())\n",
    "lines of open(0)": "it = iter(open(0).read().split('\\n'))\ninput = lambda: next(it)\n",
    "detached": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8', line_buffering=False)\n",
    "detached both": "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.detach(), encoding='utf-8')\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8', newline='\\n')\n",
    "wrapped buffer": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8', errors='replace')\n",
    "codecs.getwriter": "import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())\n",
    "codecs on a buffer": "import codecs, sys\nsys.stdout = codecs.getwriter('utf8')(sys.stdout.buffer)\nsys.stdin = codecs.getreader('utf8')(sys.stdin.buffer)\n",
    "reconfigure": "import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=False)\nsys.stdin.reconfigure(encoding='utf-8')\n",
    "write and flush alone": "import os, sys\nclass Out:\n    def __init__(self): self.data = []\n    def write(self, text): self.data.append(text)\n    def flush(self):\n        os.write(1, ''.join(self.data).encode()); self.data = []\nsys.stdout = Out()\n",
    "a class around stdout": "import sys\nclass Unbuffered:\n    def __init__(self, stream): self.stream = stream\n    def write(self, data):\n        self.stream.write(data); self.stream.flush()\n    def __getattr__(self, name): return getattr(self.stream, name)\nsys.stdout = Unbuffered(sys.stdout)\n",
    "fdopen": "import os, sys\nsys.stdout = os.fdopen(1, 'w', 1 << 16)\n",
    "fdopen without close": "import os, sys\nsys.stdout = os.fdopen(1, 'w', closefd=False)\n",
    "open(1)": "import sys\nsys.stdout = open(1, 'w')\n",
    "StringIO out, atexit": "import atexit, io, sys\nout = io.StringIO()\nsys.stdout = out\natexit.register(lambda: sys.__stdout__.write(out.getvalue()))\n",
    "BytesIO out, atexit": "import atexit, io, os, sys\nbuffer = io.BytesIO()\nsys.stdout = io.TextIOWrapper(buffer)\n@atexit.register\ndef write():\n    sys.stdout.flush()\n    os.write(1, buffer.getvalue())\n",
    "print collected, atexit": "import atexit, sys\n_lines = []\ndef print(*args, sep=' ', end='\\n', **_): _lines.append(sep.join(map(str, args)) + end)\natexit.register(lambda: sys.stdout.write(''.join(_lines)))\n",
    "limits": "import sys, resource\nsys.setrecursionlimit(10**6)\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 26, resource.getrlimit(resource.RLIMIT_STACK)[1]))\nsys.set_int_max_str_digits(0)\n",
    "bootstrap": "from types import GeneratorType\ndef bootstrap(f, stack=[]):\n    def wrapped(*args, **kwargs):\n        if stack: return f(*args, **kwargs)\n        to = f(*args, **kwargs)\n        while True:\n            if type(to) is GeneratorType:\n                stack.append(to); to = next(to)\n            else:\n                stack.pop()\n                if not stack: break\n                to = stack[-1].send(to)\n        return to\n    return wrapped\n@bootstrap\ndef deep(n):\n    if n: yield (yield deep(n - 1))\n    yield 0\nassert deep(5000) == 0\n",
    "byte order mark": "\ufeffimport sys\n",
    "coding line": "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\nname = 'größe'\n",
    "byte order mark and coding line": "\ufeff# coding: utf-8\nname = 'größe'\n",
    "future": "from __future__ import annotations, division, print_function\n",
    "__file__": "import os, sys\nhere = os.path.dirname(os.path.abspath(__file__))\nos.chdir(os.path.dirname(__file__))\nif os.path.exists(os.path.join(here, 'input.txt')): sys.stdin = open('input.txt')\nassert os.path.basename(__file__) == 'program.py'\n",
    "local files": "import os, sys\nif os.path.exists('in.txt') or os.environ.get('LOCAL') or 'local' in sys.argv:\n    sys.stdin, sys.stdout = open('in.txt'), open('out.txt', 'w')\n",
    "Python 2 or 3": "import sys\ntry:\n    input = raw_input\n    range = xrange\nexcept NameError:\n    pass\nif sys.version_info[0] < 3: sys.exit(1)\ntry:\n    import threading\n    threading.stack_size(2 ** 27)\nexcept ImportError:\n    pass\n",
    "dataclass of __main__": "import sys, pickle\nfrom dataclasses import dataclass, field, replace\nfrom typing import List, NamedTuple, get_type_hints\n@dataclass(order=True)\nclass A:\n    x: int\n    y: 'List[A]' = field(default_factory=list)\nassert get_type_hints(A)['y'] == List[A] and sys.modules[__name__].A is A\nassert pickle.loads(pickle.dumps(A(1))) == A(1)\n",
    "inspect": "import inspect\ndef g(): return 1\nclass K:\n    pass\nassert 'return 1' in inspect.getsource(g) and 'pass' in inspect.getsource(K)\n",
    "redirected": "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as got: print('hidden')\nassert got.getvalue() == 'hidden\\n'\n",
    "decimal and random": "from decimal import getcontext, Decimal\nimport random\ngetcontext().prec = 50\nrandom.seed(1)\n",
    "warnings and logging": "import logging, warnings\nwarnings.filterwarnings('ignore')\nlogging.basicConfig(level=logging.DEBUG)\nlogging.info('noise')\n",
    "faulthandler and gc": "import gc, faulthandler\nfaulthandler.enable()\ngc.disable()\n",
    "signals": "import signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(1))\n",
    "nice": "import os\nos.nice(0)\nos.sched_setaffinity(0, os.sched_getaffinity(0))\n",
}  # fmt: skip

#: Complete programs, mostly about their end.
PROGRAMS = {
    "threads with a big stack": "import sys, threading\nsys.setrecursionlimit(1 << 20)\nthreading.stack_size(1 << 26)\ndef main():\n    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n    print(f(20000) + int(input()))\nthread = threading.Thread(target=main)\nthread.start()\nthread.join()",
    "thread not joined": "import threading, time\ndef late():\n    time.sleep(0.05)\n    print('late')\nthreading.Thread(target=late).start()\nprint('early')",
    "thread, then atexit, then __del__": "import atexit, threading, time\nclass A:\n    def __del__(self): print('del')\na = A()\natexit.register(print, 'exit')\nthreading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\nprint('body')",
    "pool without shutdown": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(print, 'from a pool')",
    "daemon": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('done')",
    "order of atexit": "import atexit\nfor i in range(3): atexit.register(print, i)",
    "atexit that fails": "import atexit\natexit.register(print, 'after')\natexit.register(lambda: 1 / 0)\nprint('body')",
    "atexit that leaves": "import atexit, sys\natexit.register(sys.exit, 3)\nprint('body')",
    "atexit in atexit": "import atexit\natexit.register(lambda: atexit.register(print, 'inner'))",
    "__del__ with names": "import math\nclass A:\n    def __del__(self): print('del', math.floor(2.5), helper())\ndef helper(): return 7\na = A()",
    "__del__ in a cycle": "class A:\n    def __init__(self): self.me = self\n    def __del__(self): print('del', type(self).__name__)\nA()\nprint('body')",
    "two of them": "class A:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('del', self.n)\na, b = A(1), A(2)\nprint('body')",
    "many of them": "class A:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('del', self.n)\nkept = [A(i) for i in range(5)]\nkept[2].other = kept\nlast = A(9)\nprint('body')",
    "kept by typing": "from typing import List\nclass A:\n    def __del__(self): print('del')\nx: List[A] = [A()]\nout = open(1, 'w', closefd=False)\nout.write('unflushed ')",
    "kept by its own module": "import sys\nme = sys.modules[__name__]\nclass A:\n    def __del__(self): print('del')\nme.a = A()",
    "__del__ into an own stream": "import sys\nclass Out:\n    def __init__(self): self.data = []\n    def write(self, text): self.data.append(text)\n    def flush(self):\n        sys.__stdout__.write(''.join(self.data))\n        self.data.clear()\nsys.stdout = Out()\nclass A:\n    def __del__(self): print('del')\na = A()\nprint('body')",
    "unflushed files": "import os\none = open(1, 'w', closefd=False)\none.write('one ')\ntwo = open(os.dup(1), 'w')\ntwo.write('two ')",
    "two streams at once": "import sys\nout = sys.stdout\nsys.stdout = open(1, 'w', closefd=False)\nprint('second')\nout.write('first\\n')",
    "closed stdout": "import sys\nprint('x')\nsys.stdout.close()",
    "no stdout": "import os, sys\nsys.stdout = None\nprint('x')\nos.write(1, b'y')",
    "deleted stdout": "import sys\nprint('x')\ndel sys.stdout",
    "detached and left": "import sys\nraw = sys.stdout.detach()\nraw.write(b'x')",
    "write alone": "import os, sys\nclass Out:\n    def write(self, text): os.write(1, text.encode())\nsys.stdout = Out()\nprint('x')",
    "flush that fails": "import os, sys\nclass Out:\n    def write(self, text): os.write(1, text.encode())\n    def flush(self): raise ValueError('no')\nsys.stdout = Out()\nprint('x')",
    "stderr whose flush fails": "import sys\nclass Err:\n    def flush(self): raise ValueError('no')\nsys.stderr = Err()\nprint('x')",
    "closed is odd": "import os, sys\nclass Out:\n    closed = property(lambda self: 1 / 0)\n    def write(self, text): pass\n    def flush(self): os.write(1, b'flushed')\nsys.stdout = Out()\nprint('x')",
    "stdout is stderr": "import sys\nsys.stdout = sys.stderr\nprint('x')",
    "C prints": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.printf(b'%d\\n', 42)\nlibc.puts(b'from C')\nprint('from Python')",
    "C prints and flushes": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'from C')\nlibc.fflush(None)\nprint('from Python')",
    "C reads": "import ctypes\nlibc = ctypes.CDLL(None)\nn = ctypes.c_int()\nlibc.scanf(b'%d', ctypes.byref(n))\nprint(n.value)",
    "exit": "import sys\nprint('x')\nsys.exit()",
    "exit 0": "exit(0)",
    "exit None": "print('x')\nraise SystemExit(None)",
    "exit True": "raise SystemExit(True)",
    "exit False": "raise SystemExit(False)",
    "exit 256": "raise SystemExit(256)",
    "exit -1": "raise SystemExit(-1)",
    "exit 10**30": "raise SystemExit(10**30)",
    "exit with text": "import sys\nprint('x')\nsys.exit('an error')",
    "exit with a tuple": "raise SystemExit((1, 2))",
    "exit with a float": "raise SystemExit(0.0)",
    "exit with text and no stderr": "import sys\nsys.stderr = None\nsys.exit('an error')",
    "exit in a thread": "import sys, threading\nthreading.Thread(target=sys.exit, args=(3,)).start()\nprint('x')",
    "exit with atexit": "import atexit, sys\natexit.register(print, 'at exit')\nsys.exit(0)",
    "exception with atexit": "import atexit\natexit.register(print, 'at exit')\n1 / 0",
    "exception in a thread": "import threading\nthreading.Thread(target=lambda: 1 / 0).start()\nprint('x')",
    "excepthook": "import sys\nsys.excepthook = lambda kind, *_: print('hook', kind.__name__)\n1 / 0",
    "excepthook that leaves well": "import os, sys\ndef hook(*_):\n    print('hook')\n    sys.exit(0)\nsys.excepthook = hook\n1 / 0",
    "generator with finally": "def g():\n    try:\n        yield\n    finally:\n        print('finally')\nx = g()\nnext(x)",
    "weakref.finalize": "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('body')",
    "context manager left open": "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield\n    print('never')\nx = c()\nx.__enter__()",
    "__builtins__": "print(hasattr(__builtins__, 'print'), type(__builtins__).__name__)\n__builtins__.answer = 7\nprint(answer)",
    "its names": "print(sorted(k for k in globals() if k not in ('__loader__', '__spec__', '__cached__')), __name__, __doc__, __annotations__)",
    "annotations of a module": "x: int = 3\nprint(__annotations__, __import__('__main__').__annotations__)",
    "asyncio": "import asyncio\nasync def one(i):\n    await asyncio.sleep(0.001 * i)\n    return i\nasync def main(): print(await asyncio.gather(*map(one, range(5))))\nasyncio.run(main())",
    "asyncio and threads": "import asyncio\nasync def main():\n    print(await asyncio.to_thread(int, '7'))\n    queue = asyncio.Queue()\n    asyncio.get_running_loop().run_in_executor(None, print, 'x')\n    async with asyncio.timeout(1) if hasattr(asyncio, 'timeout') else asyncio.Lock(): await asyncio.sleep(0)\nasyncio.run(main())",
    "asyncio the old way": "import asyncio\nloop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\nasync def f(): return 3\nprint(loop.run_until_complete(f()))\nloop.close()",
    "a pair of sockets": "import socket\na, b = socket.socketpair()\na.send(b'xy')\nb.sendall(b'z')\nprint(b.recv(9), a.recv(9))",
    "zoneinfo": "import datetime, zoneinfo\nprint(datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())",
    "sleeping threads": "import threading, time\nts = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(20)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nprint('x')",
    "gc is off": "import gc\ngc.disable()\nclass A:\n    def __init__(self): self.me = self\n    def __del__(self): print('del')\nA()\nprint('body')",
    "os._exit unflushed": "import os\nprint('lost')\nos._exit(0)",
    "interleaved": "import os, sys\nprint('one')\nsys.stdout.flush()\nos.write(1, b'two\\n')\nsys.stdout.buffer.write(b'three\\n')\nprint('four', file=sys.stdout)",
    "end without newline": "print(*[1, 2, 3], sep='', end='')",
    "form feed and CRLF": "\x0cx = 1\r\nif x:\r\n    print('yes')\r\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory):
    """A function that runs a plain interpreter on files; it returns output and exit status."""
    path = tmp_path_factory.mktemp("plain") / "program.py"

    def run(source: str) -> tuple[str, int]:
        path.write_bytes(source.encode())
        with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as output:
            input_file.write(GIVEN.encode())
            input_file.seek(0)
            done = subprocess.run(
                [sys.executable, "-I", "-X", "utf8", str(path)],
                stdin=input_file,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd=path.parent,
            )
            output.seek(0)
            return output.read().decode(), done.returncode

    return run


def check_same_end(sandbox, plain_python, source):
    output, status = plain_python(source)
    (result,) = sandbox.judge([(Program(source), [Test(GIVEN, output)])])
    expected = "runtime_error" if status else "accepted"
    assert result.verdict == expected, (output, status, result.tests[0])
    if status and status not in (0, 1):
        assert result.tests[0].output == output, (output, result.tests[0])
    return result


@pytest.mark.parametrize("name", HEADERS)
def test_pasted_header_works_as_in_plain_python(sandbox, plain_python, name):
    result = check_same_end(sandbox, plain_python, HEADERS[name] + _SOLVE)
    assert result.verdict == "accepted"


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_ends_as_in_plain_python(sandbox, plain_python, name):
    check_same_end(sandbox, plain_python, PROGRAMS[name])


@pytest.mark.parametrize("isolate", ["test", "program"])
@pytest.mark.parametrize("name", HEADERS)
def test_pasted_header_works_before_a_function(sandbox, name, isolate):
    """Each call ends like a program, so a header finds its names at the end."""
    body = "class Solution:\n    def f(self, x):\n        print('noise', x)\n        return x + 1\n"
    tests = [Test(str(i), str(i + 1)) for i in range(3)]
    program = Program(HEADERS[name] + body, "function", "f")
    (result,) = sandbox.judge([(program, tests)], isolate=isolate)
    assert result.verdict == "accepted", result
