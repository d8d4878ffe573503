"""Run one program inside its own confined process, which has no access to expected outputs.

The program can forge the reports to the parent (JSON lines on descriptor ``REPORT``). This is
harmless: a forged value is compared like any other answer, and a forged failure only fails. The
program cannot forge ``STAGE``, which is closed before the program starts.
"""

from __future__ import annotations

import atexit
import builtins
import collections
import contextlib
import gc
import json
import linecache
import os
import random
import sys
import threading
import traceback
import types
import weakref
from _thread import _count as count_threads
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gapft_harness.sandbox.confinement.syscalls import libc
from gapft_harness.sandbox.values import call_deeply, encode_value, parse_arguments

#: The descriptors of a program's process: the test's input, then 1 and 2 as usual, reports to the
#: harness, the program, and the stage of this module's work.
INPUT, REPORT, SOURCE, STAGE = 0, 3, 4, 5
#: The word on ``STAGE`` after the program has compiled.
COMPILED = b"+"

_FILE = "program.py"
_Value = TypeVar("_Value")
#: Flushes the C library's buffers; resolved once, in the worker.
_flush_c = libc.fflush


def main() -> NoReturn:
    """Run the program of descriptor ``SOURCE`` and exit. Call it from the outermost frame."""
    try:
        status = _run_program()
    except BaseException:
        status = 1
    os._exit(status)


def seed_random() -> None:
    """Seed ``random`` and ``numpy.random``, so that every test starts from the same state."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(0)


def read_all(descriptor: int) -> bytes:
    """Read a complete file from its beginning."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    data = os.pread(descriptor, size, 0)
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    return data


def _run_program() -> int:
    """Run the program and return its exit status."""
    head, _, body = read_all(SOURCE).partition(b"\n")
    kind, function = head.decode().split("\t")
    source = body.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
    try:
        code = compile(source, _FILE, "exec", dont_inherit=True)
    except MemoryError as error:
        _write_report("raised", "MemoryError", str(error))
        return 1
    except Exception as error:  # SyntaxError, ValueError, RecursionError, ...
        _write_report("compile_error", "".join(traceback.format_exception_only(error)).strip())
        return 1
    os.write(STAGE, COMPILED)
    os.close(STAGE)
    os.close(SOURCE)
    atexit._clear()
    for name in (_FILE, _program_path()):
        linecache.lazycache(name, {"__name__": name, "__loader__": _SourceLoader(source)})
    if kind == "function":
        return _answer_call(code, function)
    return _finalize("__main__", _run_as_main(code))


def _program_path() -> str:
    """Return the program's ``__file__``; no such file exists."""
    return os.path.join(os.getcwd(), _FILE)


def _create_module(name: str) -> types.ModuleType:
    """Create the program's module.

    Only ``sys.modules`` refers to it, so that ``_finalize`` can end it.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    names = module.__dict__
    names["__file__"] = _program_path()
    if name == "__main__":
        names |= {"__annotations__": {}, "__builtins__": builtins, "__cached__": None}
        gc.collect(0)  # so that the next collection comes at the same point as in an interpreter
    sys.argv = [_FILE]
    return module


class _SourceLoader:
    """A loader that provides the program's source lines to tracebacks."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        return self._source


def _run_as_main(code: types.CodeType) -> int:
    """Run a stdin program and return the exit status that the interpreter would have."""
    try:
        try:
            exec(code, _create_module("__main__").__dict__)
        finally:
            for name in ("stderr", "stdout"):
                with contextlib.suppress(BaseException):
                    getattr(sys, name).flush()
    except SystemExit as leave:
        return _exit_status(leave)
    except BaseException as error:
        hook = getattr(sys, "excepthook", None)
        if hook is not None and hook is not sys.__excepthook__:
            try:
                hook(type(error), error, error.__traceback__)
            except SystemExit as leave:
                return _exit_status(leave)
            except BaseException as other:
                _report_exception(other)
        _report_exception(error)
        return 1
    return 0


def _exit_status(leave: SystemExit) -> int:
    """Return the exit status of a ``SystemExit``; print a code that is not a number.

    As in the interpreter, a number that does not fit into a C long becomes -1.
    """
    code = leave.code
    if code is None or isinstance(code, int):
        number = code or 0
        return (number if -(1 << 63) <= number < 1 << 63 else -1) & 0xFF
    if (stream := getattr(sys, "stderr", None)) is not None:
        with contextlib.suppress(BaseException):
            print(code, file=stream)
    return 1


def _answer_call(code: types.CodeType, name: str) -> int:
    """Call the program's function, finalize as the interpreter would; return the exit status."""
    text = read_all(INPUT).decode("utf-8", "surrogatepass")
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, INPUT)
    os.close(empty)
    try:
        status = _call_function(code, name, text)
    except BaseException as error:
        # This includes SystemExit: the call returned no value.
        _report_exception(error)
        return 1
    return status or _finalize("solution", 0)


def _call_function(code: types.CodeType, name: str, text: str) -> int:
    module = _create_module("solution")
    arguments = _call_without_digit_limit(lambda: parse_arguments(text))
    exec(code, module.__dict__)
    function = _find_function(module, name)
    if function is None:
        _write_report("raised", f"NameError: the program defines no {name!r}", "")
        return 1
    value = function(*arguments)
    encoded = _call_without_digit_limit(lambda: call_deeply(encode_value, value))
    _write_line(f'["value", {encoded}]')
    return 0


def _call_without_digit_limit(convert: Callable[[], _Value]) -> _Value:
    """Call without Python's limit on the digits of an integer: it is for the program's own text."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return convert()
    finally:
        sys.set_int_max_str_digits(digits)


def _find_function(module: types.ModuleType, name: str) -> Callable[..., Any] | None:
    solution = module.__dict__.get("Solution")
    if isinstance(solution, type) and hasattr(solution, name):
        method: Callable[..., Any] = getattr(solution(), name)
        return method
    return module.__dict__.get(name)


def _finalize(name: str, status: int) -> int:
    """End a program's module in the order of ``Py_FinalizeEx`` and return the exit status.

    First wait for threads, call exit functions and flush the streams; then delete the module, and
    flush the output of its objects' finalizers. Modules that all programs share are kept: deleting
    them would copy most of the worker's pages for each test.
    """
    with contextlib.suppress(BaseException):  # the interpreter prints it and continues
        if count_threads() or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not _is_closed(stream):
                stream.flush()
        except BaseException as error:
            _report_exception(error)
            status = 120
    del stream
    for kind in ("stdin", "stdout", "stderr"):
        setattr(sys, kind, getattr(sys, f"__{kind}__", None))
    if gc.isenabled():
        gc.collect()
    with contextlib.suppress(BaseException):  # out of memory, or a signal handler raised
        _end_module(name)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):  # closed, detached, None
            stream.flush()
    _flush_c(None)
    return status


def _is_closed(stream: Any) -> bool:
    """Check whether a stream is closed as the interpreter does: without an answer, it is open."""
    try:
        return bool(stream.closed)
    except BaseException:
        return False


def _end_module(name: str) -> None:
    """End the program's objects: by reference counts, by the collector, then by clearing names.

    References from elsewhere (such as a class in ``typing``'s cache) keep the module's names alive.
    In this case each name is set to None, names with one leading underscore first.
    """
    module = sys.modules.pop(name, None)
    if type(module) is not types.ModuleType:
        return
    module.__dict__[""] = mark = set[str]()  # has the lifetime of the names
    reference = weakref.ref(mark)
    del module, mark
    gc.collect()
    if reference() is None or count_threads():
        return
    for names in gc.get_referrers(reference()):
        if type(names) is dict and names.get("") is reference():
            program_names = [key for key in names if isinstance(key, str) and key != "__builtins__"]
            for key in sorted(program_names, key=lambda key: key[:1] != "_" or key[1:2] == "_"):
                names[key] = None
    gc.collect()


def _report_exception(error: BaseException) -> None:
    """Report an exception and print the last frames of its traceback."""
    try:
        _keep_last_frames(error)
        text = "".join(traceback.format_exception(error, limit=-8))
    except BaseException:
        text = ""
    try:
        summary = traceback.format_exception_only(error)[-1].strip()[:300]
    except BaseException:
        summary = type(error).__name__
    try:
        _write_report("raised", summary, text[-4000:])
        os.write(2, text.encode("utf-8", "replace"))
    except BaseException:
        os._exit(1)  # out of memory even for this; the exit status reports the failure


def _keep_last_frames(error: BaseException, count: int = 8) -> None:
    """Drop all but the last frames of an exception and of those that it follows.

    ``limit`` of ``traceback`` examines all frames, which for a deep recursion takes longer than the
    recursion itself and counts as the program's time.
    """
    waiting = [error]
    seen = set[int]()
    while waiting:
        error = waiting.pop()
        seen.add(id(error))
        frames = collections.deque[types.TracebackType](maxlen=count)
        frame = error.__traceback__
        while frame is not None:
            frames.append(frame)
            frame = frame.tb_next
        if frames:
            error.__traceback__ = frames[0]
        followed = (error.__cause__, error.__context__)
        waiting += [other for other in followed if other is not None and id(other) not in seen]


def _write_report(*fields: Any) -> None:
    _write_line(json.dumps(fields))


def _write_line(line: str) -> None:
    data = memoryview(line.encode("ascii") + b"\n")
    while data:
        data = data[os.write(REPORT, data) :]
