"""Finds plugins, lets each register what it offers, and answers look-ups by name."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from gapft_harness import hookspecs
from gapft_harness.errors import GapftError, PluginError, UserError, did_you_mean
from gapft_harness.protocols import (
    Executor,
    ResponseRule,
    Sampler,
    SamplerSettings,
    Selector,
    Verifier,
)
from gapft_harness.records import Adapter

ENTRY_POINT_GROUP = hookspecs.PROJECT

_BUNDLED = "gapft_harness.plugins."

#: Hook name -> what one registration is called in messages, in the order of hookspecs.py.
KINDS = {
    "register_verifiers": "verifier",
    "register_selectors": "selector",
    "register_response_rules": "response rule",
    "register_samplers": "sampler",
    "register_trainers": "trainer",
    "register_trackers": "tracker",
    "register_executors": "executor",
    "register_report_sections": "report section",
}


#: What a registration may declare, by kind.
_OPTIONS = {
    "verifier": frozenset({"rejudge"}),
    "selector": frozenset({"budget", "repeats", "gold"}),
    "response rule": frozenset({"stops_early"}),
    "sampler": frozenset({"own_process"}),
    "tracker": frozenset({"needs"}),
}


@dataclass(frozen=True, slots=True)
class Registered:
    """One thing a plugin registered: its kind and name, the plugin, the object, its options."""

    kind: str
    name: str
    plugin: str
    value: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the object's docstring, for listings."""
        return (inspect.getdoc(self.value) or "").partition("\n")[0]


class Plugins:
    """All that the loaded plugins registered, by kind and name."""

    def __init__(self, registered: Sequence[Registered]) -> None:
        self._by_kind: dict[str, dict[str, Registered]] = {kind: {} for kind in KINDS.values()}
        for entry in registered:
            names = self._by_kind[entry.kind]
            if entry.name in names:
                raise PluginError(
                    f"two plugins register the {entry.kind} {entry.name!r}: "
                    f"{names[entry.name].plugin} and {entry.plugin}; rename one"
                )
            names[entry.name] = entry

    def all(self) -> list[Registered]:
        """Everything registered, by kind and then by name."""
        return [
            names[name]
            for kind in KINDS.values()
            for names in [self._by_kind[kind]]
            for name in sorted(names)
        ]

    def get(self, kind: str, name: str) -> Registered:
        """Looks one up.

        Raises:
            UserError: nothing of that kind has that name.
        """
        names = self._by_kind[kind]
        if name not in names:
            raise UserError(f"unknown {kind} {name!r}; {did_you_mean(name, names)}")
        return names[name]

    @contextlib.contextmanager
    def blaming(self, kind: str, name: str) -> Iterator[Registered]:
        """Runs a plugin's code: what it raises becomes an error that names it.

        Our own errors pass as they are, and so does what bundled plugins raise by mistake.

        Raises:
            PluginError: the plugin's code raised something else.
        """
        entry = self.get(kind, name)
        try:
            yield entry
        except GapftError:
            raise
        except Exception as error:
            if entry.plugin.startswith(_BUNDLED):
                raise
            hook = next(hook for hook, of in KINDS.items() if of == kind)
            raise PluginError(
                f"{kind} {name!r} (plugin {entry.plugin}, hook {hook}) failed: {_one_line(error)}"
            ) from error

    def verifier(self, name: str, params: Mapping[str, Any]) -> Verifier:
        """Makes a verifier; an unknown parameter is the user's mistake."""
        entry = self.get("verifier", name)
        try:
            inspect.signature(entry.value).bind(**params)
        except TypeError as error:
            raise UserError(
                f"verifier {name!r} does not take these parameters: {dict(params)} ({error})"
            ) from error
        with self.blaming("verifier", name):
            made: Verifier = entry.value(**params)
        return made

    def selector(self, name: str) -> tuple[Selector, Registered]:
        """The selector and its declarations (budget, repeats, gold)."""
        entry = self.get("selector", name)
        return entry.value, entry

    def response_rule(self, name: str) -> ResponseRule:
        """The rule that picks the verified sample to keep."""
        return self.get("response rule", name).value

    def sampler(self, settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
        """Makes a sampler with the model loaded."""
        with self.blaming("sampler", settings.backend) as entry:
            made: Sampler = entry.value(settings, adapter)
        return made

    def executor(self, settings: Mapping[str, Any], files: Sequence[str]) -> Executor:
        """Makes the executor the recipe names."""
        with self.blaming("executor", settings["name"]) as entry:
            made: Executor = entry.value(settings, files)
        return made

    def report_sections(self) -> list[tuple[str, Callable[[Mapping[str, Any]], str]]]:
        """Plugins' report sections, by name."""
        names = self._by_kind["report section"]
        return [(name, names[name].value) for name in sorted(names)]


def load_plugins(files: Sequence[str] = ()) -> Plugins:
    """Loads bundled plugins, installed ones (entry points) and ``files``.

    Args:
        files: paths of single-file plugins, as given by ``--plugin``.

    Raises:
        PluginError: a plugin fails to load, has a misspelt hook, offers nothing, or takes a name
            that is taken. The message names the plugin and the hook.
    """
    return _load(tuple(dict.fromkeys(str(Path(file).resolve()) for file in files)))


@lru_cache(maxsize=8)
def _load(files: tuple[str, ...]) -> Plugins:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for module in _bundled():
        manager.register(module, name=module.__name__)
    for name, module in [*_installed(), *((file, _from_file(file)) for file in files)]:
        manager.register(module, name=name)
        if not manager.get_hookcallers(module):
            raise PluginError(
                f"plugin {name} implements no hook: mark functions such as "
                f"{next(iter(KINDS))} with @hookimpl (from gapft_harness import hookimpl)"
            )
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        plugin = manager.get_name(error.plugin) or str(error.plugin)
        hook = str(error).partition("unknown hook ")[2].partition(" ")[0].strip("'\"")
        raise PluginError(
            f"plugin {plugin} implements an unknown hook {hook!r}; {did_you_mean(hook, KINDS)}"
        ) from error
    return Plugins(_collect(manager))


def _bundled() -> list[ModuleType]:
    """Every module of gapft_harness.plugins that implements a hook."""
    import gapft_harness.plugins as package

    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(info.name) for info in found if not info.ispkg]


def _installed() -> list[tuple[str, ModuleType]]:
    """Plugins that installed packages offer by the entry-point group."""
    loaded = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda p: p.name):
        package = point.dist.name if point.dist else "an unknown package"
        try:
            loaded.append((f"{point.name} (package {package})", point.load()))
        except Exception as error:
            raise PluginError(
                f"plugin {point.name} of package {package} cannot be loaded from "
                f"{point.value!r}: {_one_line(error)}"
            ) from error
    return loaded


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
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise PluginError(f"--plugin {file}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise PluginError(f"--plugin {file}: fails on import: {_one_line(error)}") from error
    return module


def _collect(manager: pluggy.PluginManager) -> list[Registered]:
    """Calls each plugin's hooks with a ``register`` that knows whose it is."""
    registered: list[Registered] = []
    for hook, kind in KINDS.items():
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            try:
                implementation.function(register=_registrar(registered, kind, plugin))
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(f"plugin {plugin}: {hook} failed: {_one_line(error)}") from error
    return registered


def _registrar(registered: list[Registered], kind: str, plugin: str) -> Callable[..., None]:
    """The ``register`` function one plugin gets for one hook."""
    allowed = _OPTIONS.get(kind, frozenset())

    def register(name: str, value: Callable[..., Any], **options: Any) -> None:
        if not isinstance(name, str) or not name or any(c in name for c in "/\\ \n"):
            raise PluginError(
                f"plugin {plugin}: a {kind}'s name must be a word without spaces or slashes, "
                f"found {name!r}"
            )
        if not callable(value):
            raise PluginError(f"plugin {plugin}: {kind} {name!r} is not callable: {value!r}")
        if unknown := sorted(set(options) - allowed):
            raise PluginError(
                f"plugin {plugin}: {kind} {name!r} is registered with the unknown option "
                f"{unknown[0]!r}; {did_you_mean(unknown[0], allowed)}"
            )
        if options.get("budget", "matched") not in ("matched", "own"):
            raise PluginError(
                f"plugin {plugin}: {kind} {name!r} has budget={options['budget']!r}; "
                "expected 'matched' or 'own'"
            )
        registered.append(Registered(kind, name, plugin, value, options))

    return register


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
