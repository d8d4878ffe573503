"""The code of what a plugin registers, as one hash: new when that code is, and only then.

A plugin's file may hold several things, and more may be added to it while a run goes on. So the
hash is over the statements of the module that the registered object rests on: its own definition,
those that it names, those that these name, and every statement that does more than define names.
Of an object that is neither a function nor a class of the module, such as a ``functools.partial``,
it is over the whole file that registers it. What a module imports is not followed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import symtable
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

#: The source of plugin files as they were when they were loaded, by the module's name.
SOURCES: dict[str, str] = {}


#: Methods of an experiment that only look at what it made: they may change while that is there.
LOOKS = (
    "part", "conditions", "reads", "answered", "check", "differences", "plan", "decodes",
)  # fmt: skip


def code_hash(
    value: Any, options: Mapping[str, Any], module: str, without: Collection[str] = ()
) -> str:
    """The hash of a registered object's code, and of what was declared of it.

    Args:
        value: what was registered.
        options: with what options.
        module: the name of the module that registered it.
        without: methods of the registered class that do not count, nor what they alone rest on.

    Returns:
        SHA-256 in hex; empty if there is no source.
    """
    source = _source(str(getattr(value, "__module__", "")))
    name = str(getattr(value, "__qualname__", ""))
    if source and isinstance(value, type | FunctionType) and name.isidentifier():
        code = _closure(source, name, without)
    else:  # a partial, a closure or an instance: made of more than its definition
        code = _source(module) or source
    said = f"{json.dumps(dict(options), sort_keys=True, default=_named)}\n{code}"
    return hashlib.sha256(said.encode()).hexdigest() if code else ""


def _named(value: Any) -> str:
    """A declared function by its name, which is the same in every process."""
    return str(getattr(value, "__qualname__", value))


def _source(module: str) -> str:
    if module in SOURCES:
        return SOURCES[module]
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not file.endswith(".py"):
        return ""
    return Path(file).read_text(encoding="utf-8", errors="replace")


def _closure(source: str, name: str, without: Collection[str] = ()) -> str:
    """The lines of the statements that a name rests on; all of them if it is not defined."""
    left_out = set[int]()
    try:
        body = ast.parse(source).body
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                free = [each for each in node.body if getattr(each, "name", "") in without]
                left_out.update(row for each in free for row in _rows(each))
                node.body = [each for each in node.body if each not in free] or [ast.Pass()]
        tables = [symtable.symtable(ast.unparse(node), name, "exec") for node in body]
    except (SyntaxError, ValueError):
        return source
    defined = [set(_defined(table)) for table in tables]
    if not any(name in names for names in defined):
        return source
    wanted, seen = {name}, set[int]()
    grown = True
    while grown:
        grown = False
        for row, node in enumerate(body):
            loose = _acts(node) or not (defined[row] or _is_text(node))
            if row not in seen and (loose or wanted & defined[row]):
                seen.add(row)
                wanted.update(_read(tables[row]))
                grown = True
    lines = source.split("\n")  # as the parser counts them: a form feed ends none
    rows = (row for statement in sorted(seen) for row in _rows(body[statement]))
    return "\n".join(lines[row] for row in rows if row not in left_out)


def _defined(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the module that a statement defines, in blocks and as ``global`` too."""
    for symbol in table.get_symbols():
        if symbol.is_global() and (symbol.is_assigned() or symbol.is_imported()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _defined(inner)


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a statement takes from the module; a class may have them by the same name."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "class"):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _read(inner)


def _acts(node: ast.AST) -> bool:
    """Whether a statement or one in its blocks calls something or fills it when it is imported."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    calls = isinstance(node, ast.Expr) and not _is_text(node)
    fills = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
    return calls or fills or any(_acts(inner) for inner in ast.iter_child_nodes(node))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _rows(node: ast.stmt) -> range:
    """The lines of a statement, from 0, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return range(first - 1, node.end_lineno or first)
