"""No program learns expected values or results from another program.

Programs could pass each other their wrong guesses by notes in the page cache of readable files, if
they saw it, and if a wrong guess changed which tests follow.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from gapft_harness.sandbox import Program, Test
from gapft_harness.sandbox.process import SandboxWorker

#: Golds of yes-or-no tests; the inputs are the test numbers.
GOLDS = [word == "y" for word in "nyynnynyynyn"]

#: A small readable file that nothing else reads.
FILE = Path(sysconfig.get_path("stdlib"), "encodings", "cp037.py")


def build_suite(kind: str, golds: list[bool]) -> list[Test]:
    words = ("no", "yes") if kind == "stdin" else ("false", "true")
    return [Test(str(number), words[gold]) for number, gold in enumerate(golds)]


@pytest.mark.parametrize("kind", ["stdin", "function"])
def test_executions_do_not_depend_on_expected_values(sandbox, monkeypatch, kind):
    """The executions and their order do not depend on the golds."""
    body = "\nif test == 9: 1 / 0\n"
    source = "test = int(input())" + body + "print(['no', 'yes'][%d])"
    program = Program(source % 0), Program(source % 1)
    if kind == "function":
        source = "def f(test):" + body.replace("\n", "\n    ") + "return bool(%d)"
        program = tuple(Program(source % word, "function", "f") for word in (0, 1))
    sent: list[tuple[bytes, bytes]] = []
    send = SandboxWorker.send

    def record(worker, source, test_input):
        sent.append((source, test_input))
        send(worker, source, test_input)

    monkeypatch.setattr(SandboxWorker, "send", record)
    runs = []
    for golds in (GOLDS, [not gold for gold in GOLDS], [True] * 12, [False] * 12):
        sent.clear()
        results = sandbox.judge([(p, build_suite(kind, golds)) for p in program * 3])
        runs.append(list(sent))
        for n, result in enumerate(results):  # results end at the first failure, as usual
            wrong = [i for i in range(9) if golds[i] != n % 2]
            assert len(result.tests) == (wrong[0] if wrong else 9) + 1
            assert result.verdict == ("wrong_answer" if wrong else "runtime_error")
    assert all(run == runs[0] for run in runs)
    assert len(runs[0]) == 6 * 10, "a program that fails by itself is not run further"


#: Channels from an earlier program, and the result of a program that uses them.
TRIES = {
    "advice on a file": (
        "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)",
        "None",
    ),
    "readahead": ("check(libc.readahead(file, 0, 4096))", "PermissionError"),
    "a read that does not wait": ("os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)", "OSError"),
    "a read that is not cached": ("os.preadv(file, [bytearray(1)], 0, 128)", "OSError"),
    "a write that does not wait": ("os.pwritev(1, [b''], 0, os.RWF_NOWAIT)", "OSError"),
    "a plain read of many": ("os.preadv(file, [bytearray(1)], 0)", "1"),
    "mincore": ("check(libc.mincore(page, 4096, bytes(1)))", "PermissionError"),
    "cachestat": ("check(libc.syscall(451, file, bytes(16), bytes(40), 0))", "PermissionError"),
    "advice to take pages out": ("check(libc.madvise(page, 4096, 21))", "OSError"),
    "advice that pages are cold": ("check(libc.madvise(page, 4096, 20))", "OSError"),
    "advice to merge pages": ("check(libc.madvise(page, 4096, 12))", "OSError"),
    "advice on memory of its own": ("mmap.mmap(-1, 8192).madvise(mmap.MADV_DONTNEED)", "None"),
    "numbers of mounts": (
        "check(libc.syscall(STATX, -100, b'/', 0, 0x4000, ctypes.create_string_buffer(256)))",
        "OSError",
    ),
    "an unnamed file": ("os.open('.', os.O_TMPFILE | os.O_RDWR)", "OSError"),
    "load and free memory": (
        "check(libc.sysinfo(ctypes.create_string_buffer(256)))",
        "PermissionError",
    ),
    "another's clock": ("time.clock_gettime(~os.getppid() << 3 | 2)", "OSError"),
    "another clock's resolution": ("time.clock_getres(~os.getppid() << 3 | 2)", "OSError"),
    "a timer of another's clock": (
        "check(libc.timer_create(~os.getppid() << 3 | 2, bytes(64), bytes(8)))",
        "OSError",
    ),
    "another's group": ("os.getpgid(os.getpid() + 1)", "PermissionError"),
    "its own group": ("os.getpgid(0) >= 0", "True"),
    "its own clock": ("time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0", "True"),
    "a thread's clock": (
        "time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())) >= 0",
        "True",
    ),
    "a temporary file": ("len(tempfile.TemporaryFile().read())", None),
}


TRY = """
import ctypes, mmap, os, platform, tempfile, threading, time
STATX = {{"x86_64": 332, "aarch64": 291}}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
def check(result):
    if result == -1: raise OSError(ctypes.get_errno(), "refused")
file = os.open(os.__file__, os.O_RDONLY)
page = ctypes.c_void_p(libc.mmap(None, 4096, 1, 2, file, 0))
try:
    {first}
    print({last})
except OSError as error:
    print(type(error).__name__)
"""


def test_rejects_channels_from_earlier_programs(sandbox):
    sources = {}
    for way, (attempt, _) in TRIES.items():
        *lines, last = attempt.splitlines()
        sources[way] = TRY.format(first="; ".join(lines), last=last)
    results = sandbox.judge([(Program(source), [Test("", "")]) for source in sources.values()])
    outputs = [result.tests[0].output.strip() for result in results]
    # tier landlock has no place for a temporary file
    temporary = "0" if sandbox.tier == "namespaces" else "FileNotFoundError"
    assert dict(zip(TRIES, outputs, strict=True)) == {
        way: expected or temporary for way, (_, expected) in TRIES.items()
    }


def test_advice_leaves_the_page_cache_unchanged(sandbox):
    """The call reports success, since advice is not binding, but has no effect."""
    with open(FILE, "rb") as file:
        file.read()
        source = f"import os\nf = os.open({str(FILE)!r}, 0)\nos.posix_fadvise(f, 0, 0, 4)\nprint(1)"
        (result,) = sandbox.judge([(Program(source), [Test("", "1")])])
        assert result.verdict == "accepted", result
        assert os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1


@pytest.mark.parametrize("kind", ["stdin", "function"])
def test_own_files_reveal_nothing_of_other_programs(sandbox, kind):
    """Its files are identical and fresh each time, whatever the previous program did."""
    look = """
import os
def look():
    kept = []
    for file in (*range(4), "/", "."):
        try: status = os.stat(file)
        except OSError: continue
        kept.append((file, status.st_ino, status.st_mode, status.st_dev, status.st_nlink))
        if isinstance(file, int): kept.append(os.get_blocking(file))
    return repr(kept)
"""
    move = """
import fcntl, mmap, os
def move():
    for _ in range(3000): mmap.mmap(-1, 4096).close()
    for file in range(4):
        for change in (
            lambda: os.fchmod(file, 0o123), lambda: os.utime(file, (1, 1)),
            lambda: os.set_blocking(file, False), lambda: os.lseek(file, 77, 0),
            lambda: fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND),
        ):
            try: change()
            except OSError: pass
"""

    def program(body: str, name: str) -> Program:
        if kind == "stdin":
            return Program(f"{body}\nprint({name}())")
        return Program(f"{body}\ndef f(): return {name}()", "function", "f")

    order = [program(look, "look"), program(move, "move"), program(look, "look")]
    gold = "" if kind == "stdin" else "0"
    first, _, second = sandbox.judge([(program_sent, [Test("", gold)]) for program_sent in order])
    assert first.tests[0].output.count("(") >= 5, first
    assert first.tests[0].output == second.tests[0].output
