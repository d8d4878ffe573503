"""Runs one program, inside its own confined process. Nothing here knows an expected output.

What is told to the parent (descriptor ``REPORT``, a JSON line each) can be forged by the program,
and that is no harm: a forged value is an answer like any other, a forged failure only fails. Only
``STAGE`` cannot: it is closed before the program starts.
"""

from __future__ import annotations

import atexit
import contextvars
import json
import linecache
import os
import random
import resource
import signal
import sys
import threading
import traceback
import types
from _thread import _count as count_threads
from collections.abc import Callable
from typing import Any, NoReturn

from gapft_harness.sandbox.inside import lcb
from gapft_harness.sandbox.values import DEEPEST, encode, parse_arguments

REPORT, SOURCE, STAGE = 3, 4, 5
#: Where a function program's calls come from, once the source is read: a length, then the input.
CALLS = SOURCE
LENGTH_BYTES = 8
#: What is written there for a call: with the answer before, and if that one left no trace.
NEXT, LAST = b"+", b"."
#: The stage of a program that compiled.
COMPILED = b"+"

_FILE = "program.py"
#: The recursion limit that a program starts with: the one that its fork began with.
_depth: list[int] = []
#: A call that took more memory is the last of its process: what it leaves may not fit another.
_SMALL_KB = 64 << 10


def main() -> NoReturn:
    """Runs the program of descriptor ``SOURCE``, and ends. Called with nothing on the stack."""
    try:
        status = _run()
    except BaseException:
        status = 1
    os._exit(status)


def same_random() -> None:
    """The state that ``random`` starts from in every test, whoever runs it."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(0)


def read_all(descriptor: int) -> bytes:
    """The whole of a file, from its beginning."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    data = os.pread(descriptor, size, 0)
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    return data


def _run() -> int:
    """Runs it. Returns its exit status."""
    _depth[:] = [sys.getrecursionlimit()]
    head, _, body = read_all(SOURCE).partition(b"\n")
    kind, function, compat = head.decode().split("\t")
    source = body.decode("utf-8", "surrogatepass")
    is_function = kind == "function"
    try:
        if compat and not is_function:
            source = lcb.rewrite(source)
        code = compile(source, _FILE, "exec", dont_inherit=True)
    except MemoryError as error:
        _report("raised", "MemoryError", str(error))
        return 1
    except Exception as error:  # SyntaxError, ValueError, RecursionError, ...
        _report("compile_error", "".join(traceback.format_exception_only(error)).strip())
        return 1
    os.write(STAGE, COMPILED)
    os.close(STAGE)
    atexit._clear()
    linecache.lazycache(_FILE, {"__name__": _FILE, "__loader__": _Source(source)})
    if is_function:
        return _answer_calls(code, function, bool(compat))
    os.close(SOURCE)
    module = _module("__main__")
    if compat:
        status = _guarded(lambda: lcb.run_stdin(code, module))
    else:
        status = _guarded(lambda: exec(code, module.__dict__))
    return _finish(module, status)


def _module(name: str) -> types.ModuleType:
    """The program's module, new, in surroundings that every program starts with."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.argv = [_FILE]
    sys.setrecursionlimit(_depth[0])
    return module


class _Source:
    """Gives tracebacks the program's lines, when one is printed."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        return self._source


def _guarded(work: Callable[[], object]) -> int:
    """Runs it; the exit status is what the interpreter's would be."""
    try:
        work()
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return _status(leave.code or 0)
        print(leave.code, file=sys.stderr)
    except BaseException as error:
        _tell(error)
    else:
        return 0
    return 1


def _status(code: int) -> int:
    """As the interpreter: a number beyond a C long is -1."""
    return (code if -(1 << 63) <= code < 1 << 63 else -1) & 0xFF


def _answer_calls(code: types.CodeType, name: str, tagged: bool) -> int:
    """Answers one call after another. An input is given only for the answer to the one before.

    The program's body is run anew for each, so that what it keeps in its module, its classes and
    its defaults is that of a first call. A call that leaves something elsewhere is the last one of
    this process; the others get processes of their own.
    """
    os.dup2(0, CALLS)
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    streams = sys.stdin, sys.stdout, sys.stderr
    before, most = _surroundings(), _peak_kb() + _SMALL_KB
    word = NEXT
    while (text := _next_call(word)) is not None:
        if status := contextvars.Context().run(_answer, code, name, tagged, text):
            return status
        sys.stdin, sys.stdout, sys.stderr = streams
        same_random()
        word = NEXT if _surroundings() == before and _peak_kb() < most else LAST
    return 0


def _next_call(word: bytes) -> str | None:
    """Says that the last answer stands, and takes an input; None if there is no other."""
    os.write(CALLS, word)
    length = _read(LENGTH_BYTES)
    if not length:
        return None
    return _read(int.from_bytes(length, "little")).decode("utf-8", "surrogatepass")


def _read(size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (more := os.read(CALLS, size - len(data))):
        data += more
    return bytes(data)


def _answer(code: types.CodeType, name: str, tagged: bool, text: str) -> int:
    """Answers one call, and finishes as the interpreter would. Returns the exit status."""
    module = _module("solution")
    try:
        arguments = parse_arguments(text)
        exec(code, module.__dict__)
        function = _find(module, name)
        if function is None:
            _report("raised", f"NameError: the program defines no {name!r}", "")
            return 1
        _write(f'["value", {_encoded(function(*arguments), tagged)}]')
    except BaseException as error:
        # SystemExit too: the call returned no value.
        _tell(error)
        return 1
    return _finish(module, 0)


def _encoded(value: object, tagged: bool) -> str:
    """The value's JSON, whatever recursion limit the program has."""
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * DEEPEST)
    try:
        return encode(value, tagged)
    finally:
        sys.setrecursionlimit(depth)


def _find(module: types.ModuleType, name: str) -> Callable[..., Any] | None:
    solution = module.__dict__.get("Solution")
    if isinstance(solution, type) and hasattr(solution, name):
        found: Callable[..., Any] = getattr(solution(), name)
        return found
    return module.__dict__.get(name)


def _surroundings() -> object:
    """What a call can leave to the next one of its process, outside of the program's module."""
    free = os.dup(REPORT)
    os.close(free)
    return (
        free,
        count_threads(),
        threading.main_thread().is_alive(),
        os.getcwd(),
        *map(signal.getitimer, (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)),
        [stream.closed for stream in (sys.stdin, sys.stdout, sys.stderr)],
        sum(map(len, _shared)),
    )


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


#: The names of all modules that every program shares; a name more, and something was left there.
_shared: list[dict[str, Any]] = []


def remember_modules() -> None:
    """Notes the modules that are loaded. Called once, in the worker."""
    found = [getattr(module, "__dict__", {}) for module in sys.modules.values()]
    _shared[:] = [*found, vars(os.environ)["_data"]]


def _finish(module: types.ModuleType, status: int) -> int:
    """What the interpreter does at its end: waits for threads, calls what was registered, flushes.

    Clearing the module closes files the program left open, so that their buffers are written.
    """
    try:
        if count_threads():  # can be done once: ``_surroundings`` notices
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        module.__dict__.clear()
        for stream in (sys.stdout, sys.__stdout__, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException as error:
        _tell(error)
        return 120
    return status


def _tell(error: BaseException) -> None:
    """Reports an exception and prints its traceback, its last frames only."""
    try:
        text = "".join(traceback.format_exception(error, limit=-8))
    except BaseException:
        text = ""
    try:
        summary = traceback.format_exception_only(error)[-1].strip()[:300]
    except BaseException:
        summary = type(error).__name__
    try:
        _report("raised", summary, text[-4000:])
        os.write(2, text.encode("utf-8", "replace"))
    except BaseException:
        os._exit(1)  # no memory even for this: the exit status says enough


def _report(*fields: Any) -> None:
    _write(json.dumps(fields))


def _write(line: str) -> None:
    data = memoryview(line.encode("ascii") + b"\n")
    while data:
        data = data[os.write(REPORT, data) :]
