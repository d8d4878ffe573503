"""Find plugins (bundled, installed, single files) and collect what each registers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os.path
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pluggy

from gapft_harness.core.errors import FAULTS, PluginError, describe_error, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.text import describe_read_error
from gapft_harness.hooks import specs as hookspecs
from gapft_harness.hooks.imports import find_imported_files
from gapft_harness.hooks.registration import (
    KINDS,
    TRAIT_CLASSES,
    Registration,
    Traits,
    describe_plugin_line,
    find_source_root,
)

ENTRY_POINT_GROUP = hookspecs.PROJECT

_BUNDLED = "gapft_harness."

#: Files with this line register something; other files in these folders are only imported.
_HOOK_MARKER = re.compile(r"^@(api\.)?hookimpl$", re.MULTILINE)

#: A function that imports a plugin.
Loader = Callable[[], Any]


def find_plugins(files: Sequence[str]) -> list[tuple[str, Loader]]:
    """Return the name of every plugin with the function that imports it."""
    return [
        *_find_bundled(),
        *_find_installed(),
        *((file, partial(_load_from_file, file)) for file in files),
    ]


def collect_registrations(name: str, plugin: Any) -> list[Registration]:
    """Collect what one plugin registers.

    Raises:
        PluginError: it has an unknown hook, implements none, or fails.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)  # one each, to isolate broken plugins
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
            f"plugin {name}: {' '.join(str(error).split())}; a hook has one parameter, register"
        ) from error
    callers = manager.get_hookcallers(plugin)
    if not callers:
        raise PluginError(
            f"plugin {name} implements no hook: mark functions such as "
            f"{next(iter(KINDS))} with @hookimpl (from gapft_harness.api import hookimpl)"
        )
    registered: list[Registration] = []
    source_root = find_source_root(plugin)
    module = None if name.startswith(_BUNDLED) else getattr(plugin, "__name__", "")
    for caller in callers:
        register = _build_register(registered, KINDS[caller.name], name, source_root, module)
        for implementation in caller.get_hookimpls():
            if implementation.plugin is not plugin:
                continue
            try:
                implementation.function(register=register)
            except PluginError:
                raise
            except FAULTS as error:
                raise PluginError(
                    f"plugin {name}: {caller.name} failed: {describe_error(error)}"
                    f"{describe_plugin_line(error, source_root)}"
                ) from error
    return registered


def _build_register(
    registered: list[Registration], kind: str, plugin: str, source_root: str, module: str | None
) -> Callable[..., None]:
    """Build the ``register`` function that one plugin gets for one hook.

    A bundled plugin has no ``module``.
    """

    def register(name: str, value: Callable[..., Any], **options: Any) -> None:
        if not isinstance(name, str) or not name or any(c in name for c in "/\\ \n"):
            raise PluginError(
                f"plugin {plugin}: a {kind}'s name must be a word without spaces or slashes, "
                f"found {name!r}"
            )
        if not callable(value):
            raise PluginError(f"plugin {plugin}: {kind} {name!r} is not callable: {value!r}")
        traits = _build_traits(kind, options, f"plugin {plugin}: {kind} {name!r}")
        code_hash = "" if module is None else _hash_code(value, module)
        registered.append(Registration(kind, name, plugin, value, traits, source_root, code_hash))

    return register


def _hash_code(value: Any, module: str) -> str:
    """Hash the file that registers a component, the file that defines it, and their imports.

    Python's own modules and installed packages that these files import are not hashed.

    Returns:
        SHA-256 in hex (of a single file: of its bytes); empty if there is no file.
    """
    defining_module = value.__module__ if isinstance(value, type | FunctionType) else module
    modules = [
        name for name in dict.fromkeys([module, defining_module]) if not name.startswith(_BUNDLED)
    ]
    names = [getattr(sys.modules.get(name), "__file__", None) or "" for name in modules]
    files = [Path(file) for file in names if os.path.isfile(file)]
    imported = {name: of for file in files for name, of in find_imported_files(file).items()}
    files = list(dict.fromkeys(path.resolve() for path in [*files, *imported.values()]))
    digests = [sha256(file) for file in files]
    if len(digests) > 1:
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    return next(iter(digests), "")


def _build_traits(kind: str, options: Mapping[str, Any], subject: str) -> Traits:
    """Build the declared traits and check them against the types of the kind's class."""
    trait_class = TRAIT_CLASSES.get(kind, Traits)
    types = get_type_hints(trait_class)
    for option, value in options.items():
        if option not in types:
            raise PluginError(
                f"{subject} is registered with an unknown option {option!r}; "
                f"{did_you_mean(option, types)}"
            )
        if expected := _describe_expected(types[option], value):
            raise PluginError(f"{subject} has {option}={value!r}; expected {expected}")
    return trait_class(
        **{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    )


def _describe_expected(expected_type: Any, value: Any) -> str:
    """Describe the expected type of a declared value; return ``""`` if the value fits."""
    if expected_type is bool:
        return "" if isinstance(value, bool) else "bool"
    if get_origin(expected_type) is Literal:
        choices = get_args(expected_type)
        return "" if value in choices else " or ".join(map(repr, choices))
    if get_origin(expected_type) is tuple:
        is_text_list = isinstance(value, list | tuple) and all(
            isinstance(word, str) for word in value
        )
        return "" if is_text_list else "a list of strings"
    return "" if value is None or callable(value) else "a function"


def list_bundled_modules(package: Path = Path(__file__).parents[1]) -> list[str]:
    """List the bundled plugins by their module names within the package."""
    patterns = ("plugins/*/*.py", "outcomes/*.py", "experiments/*.py", "experiments/*/__init__.py")
    files = [file for place in patterns for file in sorted(package.glob(place))]
    plugin_files = [file for file in files if _HOOK_MARKER.search(file.read_text("utf-8"))]
    names = [".".join(file.relative_to(package).with_suffix("").parts) for file in plugin_files]
    return [name.removesuffix(".__init__") for name in names]


def _find_bundled() -> list[tuple[str, Loader]]:
    names = [f"{_BUNDLED}{name}" for name in list_bundled_modules()]
    return [(name, partial(importlib.import_module, name)) for name in names]


def _find_installed() -> list[tuple[str, Loader]]:
    """Find plugins that installed packages offer through the entry-point group."""
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    return [
        (f"{p.name} (package {_name_package(p)})", partial(_load_from_package, p)) for p in points
    ]


def _name_package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


def _load_from_package(point: EntryPoint) -> Any:
    try:
        return point.load()
    except FAULTS as error:
        raise PluginError(
            f"plugin {point.name} of package {_name_package(point)} cannot be loaded from "
            f"{point.value!r}: {describe_error(error)}{_describe_package_line(error, point.module)}"
        ) from error


def _describe_package_line(error: BaseException, module: str) -> str:
    """Describe the last traceback line in a module's package, which may not be loaded."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return ""
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return describe_plugin_line(error, folders[0] if folders else (spec and spec.origin) or "")


def _load_from_file(file: str) -> ModuleType:
    """Import a single-file plugin under a unique module name."""
    path = Path(file)
    if not os.path.isfile(file):
        raise PluginError(f"--plugin {file}: no such file")
    try:
        digest = sha256(path)
    except OSError as error:
        raise PluginError(f"--plugin {describe_read_error(path, error)}") from error
    # Two files of the same name become two modules; all processes use the same module name.
    name = f"gapft_plugin_{path.stem}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"--plugin {file}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise PluginError(f"--plugin {file}, line {error.lineno}: {error.msg}") from error
    except FAULTS as error:
        raise PluginError(
            f"--plugin {file}: fails on import: {describe_error(error)}"
            f"{describe_plugin_line(error, file)}"
        ) from error
    return module
