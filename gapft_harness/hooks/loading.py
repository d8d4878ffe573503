"""Finds plugins (bundled, installed, single files) and lets each register what it offers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from gapft_harness.core.errors import PluginError, describe, did_you_mean
from gapft_harness.hooks import specs as hookspecs
from gapft_harness.hooks.code import SOURCES, code_hash
from gapft_harness.hooks.registered import FAULTS, KINDS, Registered, home_of, own_line

ENTRY_POINT_GROUP = hookspecs.PROJECT

_BUNDLED = "gapft_harness."

#: The plugins that ship, by their modules' names within the package.
BUNDLED = (
    "plugins.executors.local",
    "plugins.executors.ray",
    "plugins.response_rules.paper_rules",
    "plugins.samplers.dummy",
    "plugins.samplers.hf",
    "plugins.samplers.recorded",
    "plugins.samplers.server",
    "plugins.samplers.sglang",
    "plugins.samplers.vllm",
    "plugins.selectors.allocation",
    "plugins.selectors.evidence_states",
    "plugins.trackers.accelerate_trackers",
    "plugins.trainers.lora",
    "plugins.verifiers.boxed_math",
    "plugins.verifiers.option_letter",
    "plugins.verifiers.program_tests",
    "plugins.verifiers.task_metric",
    "experiments.allocation",
    "experiments.scaling",
)

#: What imports a plugin.
Loader = Callable[[], Any]

#: What a registration may declare, by kind, and of which type.
_OPTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "verifier": {"rejudge": (bool,)},
    "selector": {"budget": (str,), "repeats": (bool,), "gold": (bool,), "responses": (str,)},
    "response rule": {"stops_early": (bool,)},
    "sampler": {"own_process": (bool,)},
    "trainer": {"needs_problems": (bool,)},
    "tracker": {"needs": (list, tuple)},
}

#: What an option may say, its default first.
_WORDS = {"budget": ("matched", "own"), "responses": ("kept", "verified", "borrowed")}


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
    for caller in callers:
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin:
                _call(implementation.function, caller.name, name, home_of(plugin), registered)
    if name.startswith(_BUNDLED):
        return registered
    module = getattr(plugin, "__name__", "")
    return [replace(r, code=code_hash(r.value, r.options, module)) for r in registered]


def _call(
    function: Callable[..., Any], hook: str, plugin: str, home: str, registered: list[Registered]
) -> None:
    """Calls a plugin's hook with a ``register`` that knows whose it is."""
    try:
        function(register=_registrar(registered, KINDS[hook], plugin, home))
    except PluginError:
        raise
    except FAULTS as error:
        raise PluginError(
            f"plugin {plugin}: {hook} failed: {describe(error)}{own_line(error, home)}"
        ) from error


def _registrar(
    registered: list[Registered], kind: str, plugin: str, home: str
) -> Callable[..., None]:
    """The ``register`` function one plugin gets for one hook."""
    allowed = _OPTIONS.get(kind, {})

    def register(name: str, value: Callable[..., Any], **options: Any) -> None:
        if not isinstance(name, str) or not name or any(c in name for c in "/\\ \n"):
            raise PluginError(
                f"plugin {plugin}: a {kind}'s name must be a word without spaces or slashes, "
                f"found {name!r}"
            )
        if not callable(value):
            raise PluginError(f"plugin {plugin}: {kind} {name!r} is not callable: {value!r}")
        if unknown := sorted(set(options) - allowed.keys()):
            raise PluginError(
                f"plugin {plugin}: {kind} {name!r} is registered with the unknown option "
                f"{unknown[0]!r}; {did_you_mean(unknown[0], allowed)}"
            )
        for option, value_of in options.items():
            words = option == "needs" and not all(isinstance(word, str) for word in value_of)
            if not isinstance(value_of, allowed[option]) or words:
                wanted = "a list of texts" if option == "needs" else allowed[option][0].__name__
                raise PluginError(
                    f"plugin {plugin}: {kind} {name!r} has {option}={value_of!r}; expected {wanted}"
                )
        for option, words_of in _WORDS.items():
            if options.get(option, words_of[0]) not in words_of:
                raise PluginError(
                    f"plugin {plugin}: {kind} {name!r} has {option}={options[option]!r}; "
                    f"expected {' or '.join(map(repr, words_of))}"
                )
        registered.append(Registered(kind, name, plugin, value, options, home))

    return register


def _bundled() -> list[tuple[str, Loader]]:
    """The plugins that ship."""
    names = [f"{_BUNDLED}{name}" for name in BUNDLED]
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
    if not path.is_file():
        raise PluginError(f"--plugin {file}: there is no such file")
    name = f"gapft_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"--plugin {file}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    SOURCES[name] = path.read_text(encoding="utf-8", errors="replace")
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise PluginError(f"--plugin {file}, line {error.lineno}: {error.msg}") from error
    except FAULTS as error:
        raise PluginError(
            f"--plugin {file}: fails on import: {describe(error)}{own_line(error, file)}"
        ) from error
    return module
