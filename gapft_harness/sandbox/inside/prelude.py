"""Names that programs know without importing them: those of plain Python, or LiveCodeBench's too.

LiveCodeBench puts a list of imports before every program, and a higher recursion limit. A program
that needs them fails in plain Python, so they are given only where they were asked for. The modules
are in its order: later names win.
"""

from __future__ import annotations

import builtins
import importlib
import site
import sys
from typing import Any

_ALL_NAMES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
    *("builtins", "typing"),
)
_MODULES = _ALL_NAMES[:-2]
_DEPTH = 50_000

#: Imported before the first program, so that importing them costs a program nothing.
WARM = (
    *_ALL_NAMES,
    *("abc", "array", "ast", "cmath", "contextlib", "dataclasses", "decimal", "enum", "fractions"),
    *("numbers", "pprint", "queue", "resource", "select", "signal", "struct", "textwrap"),
    *("threading", "time", "traceback", "types", "warnings"),
)


class Prelude:
    """LiveCodeBench's names beside the builtins of this process and its forks, or plain Python.

    In the program's own namespace they would cost each fork some hundred copied pages: Python
    counts references in the objects themselves.
    """

    def __init__(self) -> None:
        names: dict[str, Any] = {}
        for name in _ALL_NAMES:
            exec(f"from {name} import *", names)
        for name in _MODULES:
            names[name] = importlib.import_module(name)
        self._names = {k: v for k, v in names.items() if k not in builtins.__dict__}
        self._plain_depth = sys.getrecursionlimit()
        self._given = False

    def give(self, wanted: bool) -> None:
        """The names, and its recursion limit, from now on; or none of them."""
        if wanted is self._given:
            return
        self._given = wanted
        sys.setrecursionlimit(_DEPTH if wanted else self._plain_depth)
        for name, value in self._names.items():
            if wanted:
                builtins.__dict__[name] = value
            else:
                builtins.__dict__.pop(name, None)


def add_what_site_adds() -> None:
    """``exit``, ``quit``, ``help``: the interpreter of a worker starts without ``site``."""
    for add in (site.setquit, site.setcopyright, site.sethelper):
        add()
