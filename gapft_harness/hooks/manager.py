"""Load plugins and look up what they registered by kind and name."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Any, cast

from gapft_harness.core.errors import PluginError, UnknownPluginError, UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Adapter
from gapft_harness.hooks.checked import (
    CheckedSampler,
    checked_section,
    require_methods,
)
from gapft_harness.hooks.loading import find_plugins, registrations
from gapft_harness.hooks.protocols import (
    Executor,
    Sampler,
    SamplerSettings,
    Selector,
    Verifier,
)
from gapft_harness.hooks.registered import (
    KINDS,
    LogReaderTraits,
    Owned,
    Registered,
    SamplerTraits,
    SelectorTraits,
    VerifierTraits,
    setting_fault,
)
from gapft_harness.hooks.thoughts import VerifierWithoutThoughts

__all__ = [
    "KINDS",
    "OtherVerifier",
    "Plugins",
    "Registered",
    "examine_plugins",
    "load_plugins",
]


@dataclass(frozen=True, slots=True)
class OtherVerifier:
    """A verifier that reads the same golds but accepts more, or fewer, forms of answers.

    Attributes:
        permissive: True if it accepts more forms; False if it accepts fewer.
    """

    permissive: bool
    name: str
    params: Mapping[str, Any]


class Plugins:
    """All registrations of the loaded plugins, by kind and name."""

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
        """Return every registration, by kind and then by name."""
        return [
            names[name]
            for kind in KINDS.values()
            for names in [self._by_kind[kind]]
            for name in sorted(names)
        ]

    def get(self, kind: str, name: str) -> Registered:
        """Return one registration.

        Raises:
            UnknownPluginError: the kind has no registration of that name.
        """
        names = self._by_kind[kind]
        if name not in names:
            raise UnknownPluginError.of(kind, name, names)
        return names[name]

    def has(self, kind: str, name: str) -> bool:
        """Return whether a kind has a registration of that name."""
        return name in self._by_kind[kind]

    def code(self, kind: str, name: str) -> str | None:
        """Return the code hash of a registration; None if it is unknown, empty if it is bundled."""
        found = self._by_kind[kind].get(name)
        return None if found is None else found.code

    def origins(self) -> dict[str, dict[str, str]]:
        """Describe the origin of each registration that is not bundled, by kind and name.

        Returns:
            Per registration ``from``, the file or package; for a file also its ``sha256``.
        """
        found = {}
        for entry in self.all():
            if entry.code:
                found[f"{entry.kind} {entry.name}"] = said = {"from": entry.plugin}
                if os.path.isfile(entry.plugin):
                    said["sha256"] = sha256(Path(entry.plugin))
        return found

    def verifier(self, name: str, params: Mapping[str, Any]) -> Verifier:
        """Create a verifier that gets responses without thoughts, with its owner for messages.

        Raises:
            UserError: a parameter is unknown.
            PluginError: the plugin failed, or its object has no ``verify``.
        """
        entry = self.get("verifier", name)
        if fault := setting_fault(entry.value, params):
            raise UserError(f"verifier {name!r} cannot take the parameters {dict(params)}: {fault}")
        with entry.blamed():
            made: Verifier = entry.value(**params)
        require_methods(entry, made, "verify")
        shown = Owned if entry.declared(VerifierTraits).sees_thoughts else VerifierWithoutThoughts
        return cast(Verifier, shown(made, entry))

    def rejudges(self, name: str) -> bool:
        """Return whether ``gapft verify`` runs a verifier again."""
        return self.get("verifier", name).declared(VerifierTraits).rejudge

    def other_rule(self, name: str, params: Mapping[str, Any]) -> OtherVerifier | None:
        """Find the permissive or strict rule that a verifier's verdicts are compared with.

        Raises:
            UserError: the declared verifier does not exist.
            PluginError: its declaration failed, or has the wrong type.
        """
        entry = self.get("verifier", name)
        traits = entry.declared(VerifierTraits)
        for kind, declared in (("permissive", traits.permissive), ("strict", traits.strict)):
            if declared is None:
                continue
            with entry.blamed():
                found: Any = declared(params)
            if found is None:
                continue
            if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
                raise entry.broke(
                    f"returned {short(found)} as its {kind} rule; expected a verifier's name and "
                    "parameters, or None",
                    declared,
                )
            self.get("verifier", found[0])
            return OtherVerifier(kind == "permissive", found[0], dict(found[1]))
        return None

    def selector(self, name: str) -> tuple[Selector, Registered]:
        """Return a selector with its registration (budget, repeats, check_gold)."""
        entry = self.get("selector", name)
        return entry.value, entry

    def selector_traits(self, name: str) -> SelectorTraits:
        """Return the traits that a selector declares; the defaults if it is not loaded."""
        loaded = self.has("selector", name)
        return self.get("selector", name).declared(SelectorTraits) if loaded else SelectorTraits()

    def sampler(self, settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
        """Create a sampler with the model loaded.

        Raises:
            UserError: start tokens are set, but the backend does not support them.
        """
        self.require_start_tokens(settings.backend, settings.start_tokens)
        with self.get("sampler", settings.backend).blamed() as entry:
            made = entry.value(settings, adapter)
        return CheckedSampler(entry, made)

    def default_chat_template(self, settings: SamplerSettings) -> bool:
        """Return whether a backend renders chats by default; no weights are loaded.

        Raises:
            UserError: the tokenizer, which decides it, cannot be loaded.
        """
        with self.get("sampler", settings.backend).blamed() as entry:
            decide = entry.declared(SamplerTraits).chat_template
            return decide is not None and bool(decide(settings))

    def require_start_tokens(self, backend: str, count: int | None) -> None:
        """Check that the backend supports a fixed number of start tokens.

        Raises:
            UserError: it does not; the message names the backends that do.
        """
        if count is None or self.get("sampler", backend).declared(SamplerTraits).start_tokens:
            return
        able = [
            name
            for name, entry in sorted(self._by_kind["sampler"].items())
            if entry.declared(SamplerTraits).start_tokens
        ]
        raise UserError(
            f"model.start_tokens: found {count}, but the backend {backend!r} does not send token "
            f"ids and cannot set it; remove the key, or use {', '.join(able)}"
        )

    def executor(self, settings: Mapping[str, Any], files: Sequence[str]) -> Executor:
        """Create the executor that the recipe names."""
        with self.get("executor", settings["name"]).blamed() as entry:
            made: Executor = entry.value(settings, files)
        return made

    def log_reader(self, path: Path) -> Registered | None:
        """Find the reader of a file or folder of logged responses; None if no reader fits.

        A plugin's reader comes before a bundled one.

        Raises:
            UserError: two plugins recognise the path.
            PluginError: a plugin failed.
        """
        found = []
        for entry in self._by_kind["log reader"].values():
            recognises = entry.declared(LogReaderTraits).recognises
            with entry.blamed():
                if recognises is not None and recognises(path):
                    found.append(entry)
        own = [entry for entry in found if entry.code]
        if len(own) > 1:
            raise UserError(
                f"{path}: recognised by {own[0].who} and by {own[1].who}; load only one of them"
            )
        return next(iter([*own, *found]), None)

    def report_sections(self) -> list[tuple[str, Callable[[Mapping[str, Any]], str]]]:
        """List the plugins' report sections with checked renderers, by name."""
        names = self._by_kind["report section"]
        return [(name, checked_section(names[name])) for name in sorted(names)]


def load_plugins(files: Sequence[str] = ()) -> Plugins:
    """Load bundled plugins, installed plugins (entry points) and ``files``.

    Args:
        files: paths of single-file plugins, as given by ``--plugin``.

    Raises:
        PluginError: a plugin fails to load, has an unknown hook, implements none, or registers a
            name that is in use. The message names the plugin and the hook.
    """
    return _load(tuple(dict.fromkeys(str(Path(file).resolve()) for file in files)))


@lru_cache(maxsize=8)
def _load(files: tuple[str, ...]) -> Plugins:
    plugins, faults = examine_plugins(files)
    if faults:
        raise PluginError("\n".join(faults))
    return plugins


def examine_plugins(files: Sequence[str] = ()) -> tuple[Plugins, list[str]]:
    """Load all plugins that can be loaded, and describe the fault of each of the others.

    For diagnosis only: a run must not continue without one of its plugins, so ``load_plugins``
    raises instead.
    """
    plugins, faults = Plugins([]), []
    for name, load in find_plugins(files):
        try:
            plugins = Plugins([*plugins.all(), *registrations(name, load())])
        except PluginError as error:
            faults.append(str(error))
    return plugins, faults
