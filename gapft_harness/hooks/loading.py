"""Finds plugins (bundled, installed, single files) and lets each register what it offers.

What is registered has one hash of its code, new when that code is, and only then. A plugin's file
may hold several things, and more may be added to it while a run goes on. So the hash is over the
statements of the module that the registered object rests on: its own definition, those that it
names, those that these name, and every statement that does more than define names. Of an object
that is neither a function nor a class of the module, such as a ``functools.partial``, it is over
the whole file that registers it. What a module imports is not followed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import json
import os.path
import re
import symtable
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pluggy

from gapft_harness.core.errors import FAULTS, PluginError, describe, did_you_mean
from gapft_harness.core.text import unreadable
from gapft_harness.hooks import specs as hookspecs
from gapft_harness.hooks.registered import (
    KINDS,
    TRAITS,
    Registered,
    Traits,
    home_of,
    own_line,
)

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


ENTRY_POINT_GROUP = hookspecs.PROJECT

_BUNDLED = "gapft_harness."

#: A file that has this line registers something; others in these folders are what it imports.
_HOOKED = re.compile(r"^@(api\.)?hookimpl$", re.MULTILINE)

#: What imports a plugin.
Loader = Callable[[], Any]


def find_plugins(files: Sequence[str]) -> list[tuple[str, Loader]]:
    """The name of every plugin, and what imports it."""
    return [*_bundled(), *_installed(), *((file, partial(_from_file, file)) for file in files)]


def registrations(name: str, plugin: Any) -> list[Registered]:
    """Lets one plugin register what it offers.

    Raises:
        PluginError: it has a misspelt hook, offers nothing, or fails.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)  # its own: what is broken stays in it
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        hook = str(error).partition("unknown hook ")[2].partition(" ")[0].strip("'\"")
        if hook:
            raise PluginError(
                f"plugin {name} implements an unknown hook {hook!r}; {did_you_mean(hook, KINDS)}"
            ) from error
        raise PluginError(
            f"plugin {name}: {' '.join(str(error).split())}; a hook takes one argument, register"
        ) from error
    callers = manager.get_hookcallers(plugin)
    if not callers:
        raise PluginError(
            f"plugin {name} implements no hook: mark functions such as "
            f"{next(iter(KINDS))} with @hookimpl (from gapft_harness.api import hookimpl)"
        )
    registered: list[Registered] = []
    home = home_of(plugin)
    module = None if name.startswith(_BUNDLED) else getattr(plugin, "__name__", "")
    for caller in callers:
        register = _registrar(registered, KINDS[caller.name], name, home, module)
        for implementation in caller.get_hookimpls():
            if implementation.plugin is not plugin:
                continue
            try:
                implementation.function(register=register)
            except PluginError:
                raise
            except FAULTS as error:
                raise PluginError(
                    f"plugin {name}: {caller.name} failed: {describe(error)}{own_line(error, home)}"
                ) from error
    return registered


def _registrar(
    registered: list[Registered], kind: str, plugin: str, home: str, module: str | None
) -> Callable[..., None]:
    """The ``register`` function one plugin gets for one hook. A bundled one has no ``module``."""

    def register(name: str, value: Callable[..., Any], **options: Any) -> None:
        if not isinstance(name, str) or not name or any(c in name for c in "/\\ \n"):
            raise PluginError(
                f"plugin {plugin}: a {kind}'s name must be a word without spaces or slashes, "
                f"found {name!r}"
            )
        if not callable(value):
            raise PluginError(f"plugin {plugin}: {kind} {name!r} is not callable: {value!r}")
        traits = _traits(kind, options, f"plugin {plugin}: {kind} {name!r}")
        looks = LOOKS if kind == "experiment" else ()
        code = "" if module is None else code_hash(value, options, module, looks)
        registered.append(Registered(kind, name, plugin, value, traits, home, code))

    return register


def _traits(kind: str, options: Mapping[str, Any], who: str) -> Traits:
    """What a plugin declares, held to the types of its kind's declarations."""
    of = TRAITS.get(kind, Traits)
    types = get_type_hints(of)
    for option, given in options.items():
        if option not in types:
            raise PluginError(
                f"{who} is registered with the unknown option {option!r}; "
                f"{did_you_mean(option, types)}"
            )
        if expected := _declaration_fault(types[option], given):
            raise PluginError(f"{who} has {option}={given!r}; expected {expected}")
    return of(**{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()})


def _declaration_fault(declared: Any, given: Any) -> str:
    """What was expected in place of a declared value, or ``""``."""
    if declared is bool:
        return "" if isinstance(given, bool) else "bool"
    if get_origin(declared) is Literal:
        known = get_args(declared)
        return "" if given in known else " or ".join(map(repr, known))
    if get_origin(declared) is tuple:
        texts = isinstance(given, list | tuple) and all(isinstance(word, str) for word in given)
        return "" if texts else "a list of texts"
    return "" if given is None or callable(given) else "a function"


def bundled(package: Path = Path(__file__).parents[1]) -> list[str]:
    """The plugins that ship, by their modules' names within the package's folder."""
    places = ("plugins/*/*.py", "importing/*.py", "experiments/*.py", "experiments/*/__init__.py")
    files = [file for place in places for file in sorted(package.glob(place))]
    hooked = [file for file in files if _HOOKED.search(file.read_text("utf-8"))]
    names = [".".join(file.relative_to(package).with_suffix("").parts) for file in hooked]
    return [name.removesuffix(".__init__") for name in names]


def _bundled() -> list[tuple[str, Loader]]:
    names = [f"{_BUNDLED}{name}" for name in bundled()]
    return [(name, partial(importlib.import_module, name)) for name in names]


def _installed() -> list[tuple[str, Loader]]:
    """Plugins that installed packages offer by the entry-point group."""
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    return [(f"{p.name} (package {_package(p)})", partial(_from_package, p)) for p in points]


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


def _from_package(point: EntryPoint) -> Any:
    try:
        return point.load()
    except FAULTS as error:
        raise PluginError(
            f"plugin {point.name} of package {_package(point)} cannot be loaded from "
            f"{point.value!r}: {describe(error)}{_line_within(error, point.module)}"
        ) from error


def _line_within(error: BaseException, module: str) -> str:
    """The last line of a traceback that is of a module's package, which may not be loaded."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return ""
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return own_line(error, folders[0] if folders else (spec and spec.origin) or "")


def _from_file(file: str) -> ModuleType:
    """Imports a single-file plugin under a name of its own."""
    path = Path(file)
    if not os.path.isfile(file):
        raise PluginError(f"--plugin {file}: there is no such file")
    try:
        source = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PluginError(f"--plugin {unreadable(path, error)}") from error
    # Files of one name are different modules, and a file has one name in all processes.
    name = f"gapft_plugin_{path.stem}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"--plugin {file}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    SOURCES[name] = source
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise PluginError(f"--plugin {file}, line {error.lineno}: {error.msg}") from error
    except FAULTS as error:
        raise PluginError(
            f"--plugin {file}: fails on import: {describe(error)}{own_line(error, file)}"
        ) from error
    return module
