"""docs/columns.md says what every column means, but those that experiments declare."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from gapft_harness import experiments
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.report.frame import Column
from gapft_harness.stages.experiment import every_experiment

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "columns.md").read_text("utf-8")

#: Which part of the page is about the tables of which room.
PARTS = {
    "report": "The report",
    "compare": "gapft compare",
    "gap": "gapft gap",
    "forecast": "gapft gap, of a run",
    "rejudge": "gapft rejudge",
    "study": "gapft study",
    "experiments": "Experiments",
    "exporting": "gapft export",
    "interactive": "In Python",
}


def documented(part: str) -> list[str]:
    """The columns that a part of the page, to the next heading of its level, gives a row."""
    text = PAGE.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \| ", text, re.M)
    return [name.replace("\\|", "|") for cell in cells for name in re.findall("`(.*?)`", cell)]


def known(pattern: str, names: list[str]) -> bool:
    return any(re.fullmatch(pattern, name) for name in names)


@cache
def modules() -> dict[Path, ast.Module]:
    """Every module of the package."""
    files = sorted((ROOT / "gapft_harness").rglob("*.py"))
    return {file: ast.parse(file.read_text("utf-8")) for file in files}


@dataclass(frozen=True)
class Scope:
    """Where names of a module's code are looked up: in a function, then in its module."""

    function: ast.FunctionDef
    module: ast.Module

    def values(self, name: str) -> Iterator[ast.expr]:
        """All that is assigned or added to a name."""
        for place in (ast.walk(self.function), iter(self.module.body)):
            found = [
                node.value
                for node in place
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name) and target.id == name
            ]
            if found:
                return iter(found)
        return iter(())

    def called(self, name: str) -> Scope | None:
        for node in self.module.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return Scope(node, self.module)
        return None


def listed(node: ast.expr, scope: Scope, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """What may be in a list, as regular expressions: what the code computes matches any text."""
    match node:
        case ast.List() | ast.Tuple():
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    yield from listed(item.value, scope, seen)
                else:
                    yield from element(item)
        case ast.GeneratorExp() | ast.ListComp():
            yield from element(node.elt)
        case ast.Dict():
            for value in node.values:
                yield from element(value)
        case ast.IfExp():
            for part in (node.body, node.orelse):
                yield from listed(part, scope, seen)
        case ast.BinOp():
            for part in (node.left, node.right):
                yield from listed(part, scope, seen)
        case ast.Subscript() | ast.Attribute(attr="values"):
            yield from listed(node.value, scope, seen)
        case ast.Name(id=name) if name not in seen:
            for value in scope.values(name):
                yield from listed(value, scope, seen | {name})
        case ast.Attribute(attr=name) if name not in seen:  # a constant of another module
            for module in modules().values():
                for value in Scope(scope.function, module).values(name):
                    yield from listed(value, Scope(scope.function, module), seen | {name})
        case ast.Call(func=ast.Name(id=name)) if name not in seen and (
            called := scope.called(name)
        ):
            for statement in ast.walk(called.function):
                if isinstance(statement, ast.Return) and statement.value:
                    yield from listed(statement.value, called, seen | {name})
            for argument in node.args:
                yield from listed(argument, scope, seen)
        case ast.Call(func=ast.Attribute(attr="values")):
            yield from listed(node.func, scope, seen)
        case ast.Call():
            for argument in node.args:
                yield from listed(argument, scope, seen)


def element(node: ast.expr) -> Iterator[str]:
    """A column's name as a regular expression; nothing for one that is computed whole."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield re.escape(text)
        case ast.JoinedStr():
            parts = [
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+"
                for part in node.values
            ]
            yield "".join(parts)
        case ast.IfExp():
            yield from element(node.body)
            yield from element(node.orelse)
        case ast.BoolOp():
            for value in node.values:
                yield from element(value)


def makes_tables(module: ast.Module) -> bool:
    """Whether its ``Table`` is the one that pages and terminals show."""
    return any(
        isinstance(node, ast.ImportFrom)
        and (
            (
                node.module == "gapft_harness.report.rendering.blocks"
                and any(name.name == "Table" for name in node.names)
            )
            or (node.module == "gapft_harness" and any(name.name == "api" for name in node.names))
        )
        for node in module.body
    )


def tables(room: str) -> Iterator[tuple[str, set[str]]]:
    """Where each table of a room is made, and its columns."""
    for file, module in modules().items():
        if file.relative_to(ROOT).parts[1] != room or not makes_tables(module):
            continue
        if file.name == "frame.py":  # its columns are declared: see the last test
            continue
        for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) in ("Table", "api.Table")
                    and node.args
                ):
                    where = f"{file.relative_to(ROOT)}:{node.lineno}"
                    yield where, set(listed(node.args[0], Scope(function, module)))


def test_every_room_that_makes_tables_has_a_part() -> None:
    rooms = {
        file.relative_to(ROOT).parts[1]
        for file, module in modules().items()
        if makes_tables(module)
    }
    assert rooms == set(PARTS)


@pytest.mark.parametrize("room", PARTS)
def test_every_column_of_every_table_is_documented(room: str) -> None:
    names, found = documented(PARTS[room]), dict(tables(room))
    assert found, f"no table is made in {room}"
    assert [where for where, columns in found.items() if not columns] == []
    missing = {
        where: lacking
        for where, columns in found.items()
        if (lacking := sorted(one for one in columns if not known(one, names)))
    }
    assert missing == {}, f"docs/columns.md, {PARTS[room]!r}, lacks columns"


def test_what_an_experiments_module_declares_its_part_names() -> None:
    """From there it goes into docs/recipe-keys.md, which tests/test_documents.py holds fresh."""
    declared = set()
    for found in pkgutil.iter_modules(experiments.__path__, f"{experiments.__name__}."):
        for value in vars(import_module(found.name)).values():
            if isinstance(value, tuple):
                declared |= {column for column in value if isinstance(column, Column)}
    parts = [each.part() for each in every_experiment(load_plugins())]
    columns = {column for part in parts if part for column in part.columns}
    assert len(columns) > 40
    assert {str(column.title) for column in declared - columns if column.title} == set()
