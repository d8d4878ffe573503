"""Runs one program, inside its own confined process. Nothing here knows an expected output.

What is told to the parent (descriptor ``REPORT``, a JSON line each) can be forged by the program,
and that is no harm: a forged value is an answer like any other, a forged failure only fails. Only
``STAGE`` cannot: it is closed before the program starts.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import contextvars
import gc
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
import warnings
import weakref
from _signal import getsignal, pthread_sigmask  # type: ignore[import-not-found]
from _thread import _count as count_threads
from collections.abc import Callable
from typing import Any, NoReturn

from gapft_harness.sandbox.confinement.syscalls import libc
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
#: What C code printed and the C library keeps: looked up once, in the worker.
_flush_c = libc.fflush
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
    if not compat:  # a byte order mark is no character of a program, but LiveCodeBench leaves it
        source = source.removeprefix("\ufeff")
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
    for name in (_FILE, _path()):
        linecache.lazycache(name, {"__name__": name, "__loader__": _Source(source)})
    if is_function:
        return _answer_calls(code, function, bool(compat))
    os.close(SOURCE)
    if compat:
        status = _guarded(lambda: lcb.run_stdin(code, _module("__main__")))
    else:
        status = _guarded(lambda: exec(code, _module("__main__").__dict__))
    return _finish("__main__", status)


def _path() -> str:
    """The program's ``__file__``: where it would be."""
    return os.path.join(os.getcwd(), _FILE)


def _module(name: str) -> types.ModuleType:
    """The program's module, new, in surroundings that every program starts with.

    Only ``sys.modules`` holds it, so that ``_finish`` can end it.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    names = module.__dict__
    names["__file__"] = _path()
    if name == "__main__":
        names |= {"__annotations__": {}, "__builtins__": builtins, "__cached__": None}
        gc.collect(0)  # the collector meets a program's objects before it, as in an interpreter
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
        try:
            work()
        finally:
            for name in ("stderr", "stdout"):
                with contextlib.suppress(BaseException):
                    getattr(sys, name).flush()
    except SystemExit as leave:
        return _left(leave)
    except BaseException as error:
        hook = getattr(sys, "excepthook", None)
        if hook is not None and hook is not sys.__excepthook__:
            try:
                hook(type(error), error, error.__traceback__)
            except SystemExit as leave:
                return _left(leave)
            except BaseException as other:
                _tell(other)
        _tell(error)
        return 1
    return 0


def _left(leave: SystemExit) -> int:
    """The exit status of a ``SystemExit``; what is no number is printed."""
    code = leave.code
    if code is None or isinstance(code, int):
        return _status(code or 0)
    if (stream := getattr(sys, "stderr", None)) is not None:
        with contextlib.suppress(BaseException):
            print(code, file=stream)
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
        word = NEXT if _unchanged(before) and _peak_kb() < most else LAST
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
    try:
        status = _call(code, name, tagged, text)
    except BaseException as error:
        # SystemExit too: the call returned no value.
        _tell(error)
        return 1
    return status or _finish("solution", 0)


def _call(code: types.CodeType, name: str, tagged: bool, text: str) -> int:
    module = _module("solution")
    arguments = parse_arguments(text)
    exec(code, module.__dict__)
    function = _find(module, name)
    if function is None:
        _report("raised", f"NameError: the program defines no {name!r}", "")
        return 1
    _write(f'["value", {_encoded(function(*arguments), tagged)}]')
    return 0


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
    os.umask(mask := os.umask(0o77))
    main = threading.main_thread()
    return (
        free,
        mask,
        count_threads(),
        (main.is_alive(), main.name),
        os.getcwd(),
        *map(signal.getitimer, (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)),
        [*map(getsignal, range(1, signal.NSIG))],
        pthread_sigmask(signal.SIG_BLOCK, ()),
        [*map(resource.getrlimit, range(resource.RLIMIT_RTPRIO))],
        [_is_open(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        (sys.path[:], sys.path_hooks[:], sys.meta_path[:], [*warnings.filters]),
        sys.get_int_max_str_digits(),
        (sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), gc.isenabled()),
        [value for name, value in vars(sys).items() if name != "argv"],
        [*vars(builtins).values()],
        {**_environment},
        len(sys.modules),
        sum(map(len, _shared)),
    )


def _unchanged(before: object) -> bool:
    try:
        return _surroundings() == before
    except Exception:  # what a program left there cannot be compared
        return False


def _is_open(stream: Any) -> bool:
    try:
        return not stream.closed
    except ValueError:  # detached
        return False


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


#: The names of all modules that every program shares; a name more, and something was left there.
_shared: list[dict[str, Any]] = []
_environment: dict[bytes, bytes] = vars(os.environ)["_data"]


def remember_modules() -> None:
    """Notes the modules that are loaded. Called once, in the worker."""
    _shared[:] = [getattr(module, "__dict__", {}) for module in sys.modules.values()]


def _finish(name: str, status: int) -> int:
    """Ends a program's module as ``Py_FinalizeEx`` does, in its order. Returns the exit status.

    Threads are waited for, exit functions called, the streams flushed; only then does the module
    go, and what its objects print at their end is flushed too. The modules that all programs share
    stay: taking them down would copy most of the worker's pages for each test.
    """
    with contextlib.suppress(BaseException):  # which is told, and changes nothing
        # Can be done once: ``_surroundings`` notices.
        if count_threads() or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not _is_closed(stream):
                stream.flush()
        except BaseException as error:
            _tell(error)
            status = 120
    del stream
    for kind in ("stdin", "stdout", "stderr"):
        setattr(sys, kind, getattr(sys, f"__{kind}__", None))
    if gc.isenabled():
        gc.collect()
    with contextlib.suppress(BaseException):  # no memory, or a signal's handler raises
        _end_module(name)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):  # closed, detached, None
            stream.flush()
    _flush_c(None)
    return status


def _is_closed(stream: Any) -> bool:
    """As the interpreter asks at its end: what does not say that it is closed is open."""
    try:
        return bool(stream.closed)
    except BaseException:
        return False


def _end_module(name: str) -> None:
    """Ends the program's objects: by their counts, by the collector, and at last by their names.

    As long as anything runs or is kept elsewhere that refers to the module's names (a class in
    ``typing``'s cache), they live. Then each name loses its value, those with an underscore first.
    """
    module = sys.modules.pop(name, None)
    if type(module) is not types.ModuleType:
        return
    module.__dict__[""] = mark = set[str]()  # lives as long as the names
    known = weakref.ref(mark)
    del module, mark
    gc.collect()
    if known() is None or count_threads():
        return
    for names in gc.get_referrers(known()):
        if type(names) is dict and names.get("") is known():
            ours = [key for key in names if isinstance(key, str) and key != "__builtins__"]
            for key in sorted(ours, key=lambda key: key[:1] != "_" or key[1:2] == "_"):
                names[key] = None
    gc.collect()


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
