"""Look up what the loaded plugins registered, by kind and name."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import PluginError, UnknownPluginError, UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Adapter
from gapft_harness.hooks.checked import CheckedExecutor, CheckedSampler
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.loading import load_registrations
from gapft_harness.hooks.protocols import Executor, Sampler, SamplerSettings
from gapft_harness.hooks.registration import (
    KINDS,
    LogReaderTraits,
    Registration,
    SamplerTraits,
    VerifierTraits,
    find_setting_fault,
)
from gapft_harness.hooks.thoughts import (
    THINK_END_TOKEN,
    split_think_end_token,
)


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

    def __init__(self, registrations: Sequence[Registration]) -> None:
        self._by_kind: dict[str, dict[str, Registration]] = {kind: {} for kind in KINDS}
        for entry in sorted(registrations, key=lambda entry: entry.name):
            self._by_kind[entry.kind][entry.name] = entry

    def all(self) -> list[Registration]:
        """Return every registration, by kind and then by name."""
        return [entry for names in self._by_kind.values() for entry in names.values()]

    def get(self, kind: str, name: str) -> Registration:
        """Return one registration.

        Raises:
            UnknownPluginError: the kind has no registration of that name.
        """
        if not self.has(kind, name):
            raise UnknownPluginError.for_name(kind, name, self._by_kind[kind])
        return self._by_kind[kind][name]

    def has(self, kind: str, name: str) -> bool:
        """Return whether a kind has a registration of that name."""
        return name in self._by_kind[kind]

    def find_code_hash(self, kind: str, name: str) -> str | None:
        """Return the code hash of a registration; None if it is unknown, empty if it is bundled."""
        return self.get(kind, name).code_hash if self.has(kind, name) else None

    def require_code(self, hashes: Iterable[str]) -> None:
        """Require the code in the key of an output; a plugin may be edited during a command.

        Args:
            hashes: code hashes; empty ones are of bundled components.

        Raises:
            UserError: no registration has such a hash.
        """
        if not {*hashes} <= {"", *(entry.code_hash for entry in self.all())}:
            raise UserError("a plugin was edited during this command; run the same command again")

    def describe_origins(self) -> dict[str, dict[str, str]]:
        """Describe the origin of each registration that is not bundled, by kind and name.

        Returns:
            Per registration ``from``, the file or package; for a file also its ``sha256``.
        """
        origins = {}
        for entry in self.all():
            if entry.code_hash:
                origins[f"{entry.kind} {entry.name}"] = origin = {"from": entry.plugin}
                if os.path.isfile(entry.plugin):
                    origin["sha256"] = sha256(Path(entry.plugin))
        return origins

    def create_verifier(self, name: str, params: Mapping[str, Any]) -> Judge:
        """Create a verifier.

        Args:
            name: its registered name.
            params: its own parameters, and ``think_end_token``, which every verifier may have.

        Raises:
            UserError: a parameter is unknown.
            PluginError: the created object has no ``verify``.
        """
        entry = self.get("verifier", name)
        think_end_token, own_params = split_think_end_token(params)
        if fault := find_setting_fault(entry.value, own_params):
            raise UserError(f"verifier {name!r} cannot take the parameters {own_params}: {fault}")
        with entry.wrap_errors():
            verifier = entry.value(**own_params)
        sees_thoughts = entry.require_traits(VerifierTraits).sees_thoughts
        return Judge(verifier, entry, think_end_token=think_end_token, sees_thoughts=sees_thoughts)

    def can_read_answers(self, name: str) -> bool:
        """Return whether a verifier's class has the method ``answer``; False if it is unknown."""
        if not self.has("verifier", name):
            return False
        return callable(getattr(self.get("verifier", name).value, "answer", None))

    def find_other_verifier(self, name: str, params: Mapping[str, Any]) -> OtherVerifier | None:
        """Find the permissive or strict rule that a verifier's verdicts are compared with.

        Raises:
            UserError: the declared verifier does not exist.
            PluginError: its declaration has the wrong type.
        """
        entry = self.get("verifier", name)
        traits = entry.require_traits(VerifierTraits)
        think_end_token, own_params = split_think_end_token(params)
        for is_permissive, find_rule in ((True, traits.permissive), (False, traits.strict)):
            if find_rule is None:
                continue
            rule = entry.call(find_rule, own_params, returns=tuple[str, Mapping[str, Any]] | None)
            if rule is None:
                continue
            self.get("verifier", rule[0])
            shared = {} if think_end_token is None else {THINK_END_TOKEN: think_end_token}
            return OtherVerifier(is_permissive, rule[0], {**rule[1], **shared})
        return None

    def create_sampler(self, settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
        """Create a sampler with the model loaded.

        Raises:
            UserError: start tokens are set, but the backend does not support them.
        """
        self.require_start_tokens(settings.backend, settings.start_tokens)
        with self.get("sampler", settings.backend).wrap_errors() as entry:
            sampler = entry.value(settings, adapter)
        return CheckedSampler(entry, sampler)

    def is_chat_template_default(self, settings: SamplerSettings) -> bool:
        """Return whether a backend renders chats by default; no weights are loaded.

        Raises:
            UserError: the tokenizer, which decides it, cannot be loaded.
        """
        with self.get("sampler", settings.backend).wrap_errors() as entry:
            is_default = entry.require_traits(SamplerTraits).chat_template
            return is_default is not None and bool(is_default(settings))

    def require_start_tokens(self, backend: str, count: int | None) -> None:
        """Check that the backend supports a fixed number of start tokens.

        Raises:
            UserError: it does not; the message names the backends that do.
        """
        if count is None or self.get("sampler", backend).require_traits(SamplerTraits).start_tokens:
            return
        supporting = [
            name
            for name, entry in self._by_kind["sampler"].items()
            if entry.require_traits(SamplerTraits).start_tokens
        ]
        raise UserError(
            f"model.start_tokens: found {count}, but the backend {backend!r} does not send token "
            f"ids and cannot set it; remove the key, or use {', '.join(supporting)}"
        )

    def create_executor(self, settings: Mapping[str, Any], files: Sequence[str]) -> Executor:
        """Create the executor that the recipe names."""
        with self.get("executor", settings["name"]).wrap_errors() as entry:
            executor = entry.value(settings, files)
        return CheckedExecutor(entry, executor)

    def find_log_reader(self, path: Path) -> Registration | None:
        """Find the reader of a file or folder of logged responses; None if no reader fits.

        A plugin's reader comes before a bundled one.

        Raises:
            UserError: two plugins recognise the path.
        """
        readers = []
        for entry in self._by_kind["log reader"].values():
            recognises = entry.require_traits(LogReaderTraits).recognises
            with entry.wrap_errors():
                if recognises is not None and recognises(path):
                    readers.append(entry)
        plugin_readers = [entry for entry in readers if entry.code_hash]
        if len(plugin_readers) > 1:
            raise UserError(
                f"{path}: recognised by {plugin_readers[0].label} and by "
                f"{plugin_readers[1].label}; load only one of them"
            )
        return next(iter([*plugin_readers, *readers]), None)


def load_plugins(files: Sequence[str] = ()) -> Plugins:
    """Load bundled plugins, installed plugins (entry points) and ``files``.

    Args:
        files: paths of single-file plugins, as given by ``--plugin``.

    Raises:
        PluginError: a plugin fails to load, has an unknown hook, implements none, or registers a
            name that is in use. The message names the plugin and the hook.
    """
    return _load_cached(tuple(dict.fromkeys(str(Path(file).resolve()) for file in files)))


@lru_cache(maxsize=8)
def _load_cached(files: tuple[str, ...]) -> Plugins:
    plugins, faults = examine_plugins(files)
    if faults:
        raise PluginError("\n".join(faults))
    return plugins


def examine_plugins(files: Sequence[str] = ()) -> tuple[Plugins, list[str]]:
    """Load all plugins that can be loaded, and describe the fault of each of the others.

    For diagnosis only: a run must not continue without one of its plugins, so ``load_plugins``
    raises instead.
    """
    registrations, faults = load_registrations(files)
    return Plugins(registrations), faults
