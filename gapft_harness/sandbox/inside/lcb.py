"""Run programs in the same way as LiveCodeBench, for comparison with published scores.

LiveCodeBench's runner (``lcb_runner/evaluation/testing_util.py``, commit 28fef95e) makes a stdin
program a function body with a replaced standard input, collects the text printed through
``sys.stdout``, and ignores ``exit``. Some correct programs fail under it; this module reproduces
these failures (``docs/sandbox.md`` lists them).
"""

from __future__ import annotations

import ast
import io
import os
import sys
import types
from typing import Any

_NAME = "wrapped_function"


def rewrite_program(source: str, is_function: bool) -> str:
    """Rewrite a program as LiveCodeBench's runner does.

    A stdin program is wrapped in a function: its imports stay outside, and a ``__main__`` guard at
    its end is unwrapped. A function program is unchanged.

    Raises:
        SyntaxError: the program is no Python, or imports from ``__future__``: the runner puts its
            own imports before it.
    """
    body = ast.parse(source).body
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in body):
        raise SyntaxError("from __future__ imports must occur at the beginning of the file")
    if is_function:
        return source
    if body and isinstance(body[-1], ast.If):
        guard = body[-1]
        if ast.unparse(guard.test) == "__name__ == '__main__'":
            body = [*body[:-1], *guard.body]
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    rest: list[ast.stmt] = [node for node in body if node not in imports]
    function = ast.parse(f"def {_NAME}(): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = rest or [ast.Pass()]
    rewritten = ast.unparse(ast.Module([*imports, function], []))
    # The runner creates a Solution of the module, which has none: the class is in the function.
    return f"{rewritten}\nSolution()" if "class Solution" in rewritten else rewritten


def run_stdin(code: types.CodeType, module: types.ModuleType) -> None:
    """Run a rewritten program, then write its printed text to descriptor 1."""
    from unittest.mock import mock_open, patch

    with open(0, encoding="utf-8", newline="", closefd=False) as file:
        text = file.read()
    module.__name__ = "tmp_sol"
    module.__dict__["open"] = open  # bound by the runner's imports, so not the replacement below
    exec(code, module.__dict__)
    lines = iter(text.split("\n"))
    printed = io.StringIO()
    printed.close = lambda _: 1  # type: ignore
    real, sys.stdout = sys.stdout, printed
    try:
        with (
            # The methods of the real stdin, which ``from sys import stdin`` found, then stdin.
            patch("sys.stdin.read", lambda *_: text),
            patch("sys.stdin.readlines", lambda *_: text.split("\n")),
            patch("sys.stdin.readline", lambda *_: next(lines)),
            patch("sys.stdin", _Stdin(text)),
            patch("builtins.open", mock_open(read_data=text)),
        ):
            module.__dict__[_NAME]()
    except SystemExit:
        pass
    finally:
        sys.stdout = real
    real.flush()
    os.ftruncate(1, 0)  # LiveCodeBench ignores output that bypasses sys.stdout
    os.lseek(1, 0, os.SEEK_SET)
    real.write(printed.getvalue())


class _Buffer:
    def __init__(self, text: str) -> None:
        self._data = text.encode()

    def read(self, *_: Any) -> bytes:
        return self._data

    def readline(self, *_: Any) -> bytes:
        return self._data.split(b"\n")[0] + b"\n"


class _Stdin:
    """LiveCodeBench's stdin: not iterable, and with a ``buffer`` of two methods."""

    def __init__(self, text: str) -> None:
        self._text = io.StringIO(text)
        self.buffer = _Buffer(text)

    def read(self, *_: Any) -> str:
        return self._text.getvalue()

    def readline(self, *_: Any) -> str:
        return self._text.readline()

    def readlines(self, *_: Any) -> list[str]:
        return self._text.getvalue().split("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._text, name)


def disable_functions() -> None:
    """Disable what LiveCodeBench's ``reliability_guard`` does and a correct program might use."""
    import builtins

    builtins.quit = builtins.help = None  # type: ignore[assignment]
    for name in ("kill", "system", "putenv", "remove", "unlink", "rename", "getcwd", "chdir"):
        setattr(os, name, None)
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
