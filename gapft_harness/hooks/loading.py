"""Load plugins (bundled, installed, single files) and collect what each registers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from gapft_harness.core.errors import FAULTS, PluginError, describe_error, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.hooks import specs
from gapft_harness.hooks.registration import (
    KINDS,
    Registration,
    Traits,
    find_hook,
    find_setting_fault,
    find_type_fault,
)

#: Kinds of components by the names of their hooks.
_KINDS = {find_hook(kind): kind for kind in KINDS}

_PACKAGE = "gapft_harness."

#: The packages and modules with bundled plugins. Modules without a hook are helpers of the others.
_BUNDLED_PACKAGES = (
    "plugins.executors",
    "plugins.response_rules",
    "plugins.samplers",
    "plugins.selectors",
    "plugins.trainers",
    "plugins.verifiers",
    "experiments",
)
_BUNDLED_MODULES = ("outcomes.formats",)

#: A function that imports a plugin.
Loader = Callable[[], Any]


def load_registrations(files: Sequence[str]) -> tuple[list[Registration], list[str]]:
    """Load all plugins and collect what they register.

    Args:
        files: the files of ``--plugin``.

    Returns:
        The registrations, and the fault of each plugin that is broken.
    """
    manager = pluggy.PluginManager(specs.PROJECT)
    manager.add_hookspecs(specs)
    registrations: dict[tuple[str, str], Registration] = {}
    faults = []
    for name, load in _find_plugins(files):
        try:
            for entry in _collect_registrations(manager, name, load()):
                other = registrations.setdefault((entry.kind, entry.name), entry)
                if other is not entry:
                    raise PluginError(
                        f"two plugins register the {entry.kind} {entry.name!r}: {other.plugin} "
                        f"and {entry.plugin}; rename one, or leave one out"
                    )
        except PluginError as error:
            faults.append(str(error))
        except FAULTS as error:
            faults.append(f"plugin {name}: {describe_error(error)}{_describe_last_line(error)}")
    return list(registrations.values()), faults


def _find_plugins(files: Sequence[str]) -> Iterator[tuple[str, Loader]]:
    """Yield the name of every plugin with the function that imports it."""
    for package in _BUNDLED_PACKAGES:
        folders = importlib.import_module(f"{_PACKAGE}{package}").__path__
        for module in pkgutil.iter_modules(folders, f"{_PACKAGE}{package}."):
            yield module.name, partial(importlib.import_module, module.name)
    for name in _BUNDLED_MODULES:
        yield f"{_PACKAGE}{name}", partial(importlib.import_module, f"{_PACKAGE}{name}")
    for point in sorted(entry_points(group=specs.PROJECT), key=lambda point: point.name):
        package = point.dist.name if point.dist else "an unknown package"
        yield f"{point.name} (package {package})", point.load
    for file in files:
        yield file, partial(_load_file, Path(file))


def _load_file(path: Path) -> ModuleType:
    """Import a single-file plugin under a module name that is the same in all processes."""
    if not path.is_file():
        raise PluginError(f"--plugin {path}: no such file")
    # Two files of the same name become two modules.
    name = f"gapft_plugin_{path.stem}_{sha256(path)[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"--plugin {path}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _describe_last_line(error: BaseException) -> str:
    """Describe the line of code that raised an error."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _collect_registrations(
    manager: pluggy.PluginManager, name: str, plugin: Any
) -> list[Registration]:
    """Collect what one plugin registers.

    Raises:
        PluginError: it has an unknown hook, implements none, or registers something wrong.
    """
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        if manager.is_registered(plugin):
            manager.unregister(plugin)
        hook = str(error).partition("unknown hook ")[2].partition(" ")[0].strip("'\"")
        hint = did_you_mean(hook, _KINDS) if hook else "a hook has one parameter, register"
        raise PluginError(f"plugin {name}: {' '.join(str(error).split())}; {hint}") from error
    callers = manager.get_hookcallers(plugin) or []
    is_bundled = name.startswith(_PACKAGE) and name == getattr(plugin, "__name__", None)
    if not callers and not is_bundled:
        raise PluginError(
            f"plugin {name} implements no hook: mark functions such as "
            f"{next(iter(_KINDS))} with @hookimpl (from gapft_harness.api import hookimpl)"
        )
    registrations: list[Registration] = []

    def register(kind: str, component_name: str, component: Any, /, **options: Any) -> None:
        traits = _build_traits(f"plugin {name}", kind, component_name, component, options)
        code_hash = "" if is_bundled else hash_code(plugin, component)
        registrations.append(Registration(kind, component_name, name, component, traits, code_hash))

    others = manager.get_plugins() - {plugin}
    for caller in callers:
        call = manager.subset_hook_caller(caller.name, others)
        try:
            call(register=partial(register, _KINDS[caller.name]))
        except PluginError:
            raise
        except FAULTS as error:
            raise PluginError(
                f"plugin {name}: {caller.name}: {describe_error(error)}{_describe_last_line(error)}"
            ) from error
    return registrations


def _build_traits(
    plugin: str, kind: str, name: Any, component: Any, options: Mapping[str, Any]
) -> Traits:
    """Check the arguments of ``register``, and build the component's options.

    Raises:
        PluginError: an argument is wrong.
    """
    if not isinstance(name, str) or not name or any(c in name for c in "/\\ \n"):
        raise PluginError(
            f"{plugin}: {kind} name: expected a word without spaces or slashes, found {name!r}"
        )
    subject = f"{plugin}: {kind} {name!r}"
    if not callable(component):
        raise PluginError(f"{subject}: expected a function, found {component!r}")
    traits_class = KINDS[kind]
    if fault := find_setting_fault(traits_class, options):
        raise PluginError(f"{subject}: {fault}")
    traits = traits_class(**options)
    if fault := find_type_fault(traits, traits_class):
        raise PluginError(f"{subject}: {fault}")
    return traits


def hash_code(plugin: Any, component: Any) -> str:
    """Hash the code of a plugin, and of the package that defines a component.

    The code is the plugin's package, with its data files, or its file with all Python files and
    packages beside it. Code elsewhere is not hashed.

    Args:
        plugin: a module, or an object that has the hooks.
        component: the registered function, class or object.

    Returns:
        SHA-256 in hex; empty if there is no file.
    """
    while isinstance(component, partial):
        component = component.func
    plugin_name = plugin.__name__ if isinstance(plugin, ModuleType) else plugin.__module__
    lines = {
        f"{file.relative_to(root).as_posix()} {sha256(file)}"
        for name in (plugin_name, getattr(component, "__module__", None))
        if name in sys.modules
        and name.partition(".")[0] not in (*sys.stdlib_module_names, _PACKAGE.rstrip("."))
        for root, file in _list_code_files(sys.modules[name])
    }
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest() if lines else ""


def _list_code_files(module: ModuleType) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a module's package or of its folder, each after the folder."""
    package = sys.modules.get(module.__name__.partition(".")[0], module)
    pattern = "*" if package.__file__ else "*.py"  # a namespace package may hold much else
    for folder in map(Path, getattr(package, "__path__", ())):
        for file in folder.rglob(pattern):
            if file.is_file() and "__pycache__" not in file.parts:
                yield folder, file
    if not hasattr(package, "__path__") and module.__file__:
        file = Path(module.__file__)
        is_installed = any(file.parent.glob("*.dist-info"))
        for path in (file,) if is_installed else _list_python_files(file.parent):
            yield file.parent, path


def _list_python_files(folder: Path) -> Iterator[Path]:
    """List the Python files of a folder, and those of the packages in it."""
    yield from folder.glob("*.py")
    for init_file in folder.glob("*/__init__.py"):
        yield from _list_python_files(init_file.parent)
