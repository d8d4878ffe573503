"""What programs find without asking: plain Python, or also what LiveCodeBench provides.

LiveCodeBench puts a list of imports and a higher recursion limit before every program, and its
runner raises Python's limit on the digits of an integer. A program that needs them fails in plain
Python, so they are provided only on request. The modules are in LiveCodeBench's order: later names
override earlier ones.
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
#: The recursion limit of ``lcb_runner/evaluation/testing_util.py``.
_DEPTH = 50_000
#: The limit on digits of ``lcb_runner/evaluation/compute_code_generation_metrics.py``.
_DIGITS = 50_000

#: Modules that are imported before the first program, so that programs need no time to import them.
WARM = (
    *_ALL_NAMES,
    *("abc", "array", "ast", "cmath", "contextlib", "dataclasses", "decimal", "enum", "fractions"),
    *("numbers", "pprint", "queue", "resource", "select", "signal", "struct", "textwrap"),
    *("threading", "time", "traceback", "types", "warnings"),
)


def add_livecodebench_names() -> None:
    """Add LiveCodeBench's names and limits to this process and its forks.

    In the program's own namespace the names would cost each fork about a hundred copied pages,
    since Python stores reference counts in the objects.
    """
    names: dict[str, Any] = {}
    for name in _ALL_NAMES:
        exec(f"from {name} import *", names)
    for name in _MODULES:
        names[name] = importlib.import_module(name)
    for name, value in names.items():
        builtins.__dict__.setdefault(name, value)
    sys.setrecursionlimit(_DEPTH)
    sys.set_int_max_str_digits(_DIGITS)


def add_site_builtins() -> None:
    """Add ``exit``, ``quit``, ``help``; a worker's interpreter starts without ``site``."""
    for add in (site.setquit, site.setcopyright, site.sethelper):
        add()
