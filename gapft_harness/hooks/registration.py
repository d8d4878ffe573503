"""Registrations of plugins, and errors that name the plugin, the hook and its line of code."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, TypeVar

from gapft_harness.core.errors import FAULTS, GapftError, PluginError, describe_error, did_you_mean
from gapft_harness.core.records import Gold
from gapft_harness.hooks.protocols import OtherRule, PromptLengths, SameChoice, SamplerSettings

#: Hook name -> name of the kind in messages, in the order of specs.py.
KINDS = {
    "register_verifiers": "verifier",
    "register_selectors": "selector",
    "register_response_rules": "response rule",
    "register_samplers": "sampler",
    "register_trainers": "trainer",
    "register_executors": "executor",
    "register_report_sections": "report section",
    "register_experiments": "experiment",
    "register_log_readers": "log reader",
}

_BUNDLED = "gapft_harness."


@dataclass(frozen=True, slots=True)
class Traits:
    """The declarations of a registration. Kinds without declarations use this class."""


@dataclass(frozen=True, slots=True)
class VerifierTraits(Traits):
    """Traits of a verifier; see ``RegisterVerifier``."""

    rejudge: bool = True
    own_workers: bool = False
    sees_thoughts: bool = False
    permissive: OtherRule | None = None
    strict: OtherRule | None = None


@dataclass(frozen=True, slots=True)
class SelectorTraits(Traits):
    """Traits of a selector; see ``RegisterSelector``."""

    budget: Literal["matched", "own"] = "matched"
    repeats: bool = False
    responses: Literal["kept", "verified", "unverified", "borrowed"] = "kept"
    check_gold: Callable[[Gold], str] | None = None
    same_as: SameChoice | None = None

    @property
    def has_own_budget(self) -> bool:
        """Whether it is a reference with its own budget, not a matched condition."""
        return self.budget == "own"

    @property
    def can_borrow(self) -> bool:
        """Whether it may pair a problem with a verified response to another problem."""
        return self.responses == "borrowed"

    @property
    def can_use_other_responses(self) -> bool:
        """Whether it may return responses other than the kept ones."""
        return self.responses != "kept"

    @property
    def can_use_samples(self) -> bool:
        """Whether it may return any sample of a problem, passed or not."""
        return self.responses == "unverified"


@dataclass(frozen=True, slots=True)
class SamplerTraits(Traits):
    """Traits of a sampler; see ``RegisterSampler``."""

    own_process: bool = False
    generates: bool = True
    operational: tuple[str, ...] = ()
    check: Callable[[SamplerSettings], object] | None = None
    start_tokens: bool = False
    prompt_lengths: PromptLengths | None = None
    chat_template: Callable[[SamplerSettings], bool] | None = None


@dataclass(frozen=True, slots=True)
class TrainerTraits(Traits):
    """Traits of a trainer; see ``RegisterTrainer``."""

    as_documented: bool = False
    needs_problems: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorTraits(Traits):
    """Traits of an executor; see ``RegisterExecutor``."""

    by_workers: bool = False


@dataclass(frozen=True, slots=True)
class LogReaderTraits(Traits):
    """Traits of a log reader; see ``RegisterLogReader``."""

    recognises: Callable[[Path], bool] | None = None
    task: Callable[[Path], str] | None = None


#: The traits class of each kind. A kind that is missing declares nothing.
TRAIT_CLASSES: Mapping[str, type[Traits]] = {
    "verifier": VerifierTraits,
    "selector": SelectorTraits,
    "sampler": SamplerTraits,
    "trainer": TrainerTraits,
    "executor": ExecutorTraits,
    "log reader": LogReaderTraits,
}

T = TypeVar("T", bound=Traits)


@dataclass(frozen=True, slots=True)
class Registration:
    """One component that a plugin registered.

    Attributes:
        kind: as in ``KINDS``.
        name: its name in recipes.
        plugin: the plugin's name.
        value: the registered function or class.
        traits: its declarations, of the kind's class in ``TRAIT_CLASSES``.
        source_root: the file or folder of the plugin's own code; empty if unknown.
        code_hash: the hash of its plugin's file (``loading.py``); empty if it is bundled.
    """

    kind: str
    name: str
    plugin: str
    value: Callable[..., Any]
    traits: Traits = Traits()
    source_root: str = ""
    code_hash: str = ""

    @property
    def summary(self) -> str:
        """The first line of the object's docstring, for listings."""
        return (inspect.getdoc(self.value) or "").partition("\n")[0]

    def require_traits(self, traits_class: type[T]) -> T:
        """Return its traits, typed as ``traits_class``.

        Raises:
            TypeError: they are of a different class, so it is of a different kind.
        """
        if not isinstance(self.traits, traits_class):
            raise TypeError(f"{self.label} declares no {traits_class.__name__}")
        return self.traits

    @property
    def label(self) -> str:
        """Its name in messages: kind, name, plugin and hook."""
        hook = next(hook for hook, registered_kind in KINDS.items() if registered_kind == self.kind)
        return f"{self.kind} {self.name!r} (plugin {self.plugin}, hook {hook})"

    def call_error(self, error: BaseException) -> PluginError:
        """Build the error for an exception in the plugin's code; it names the line in that code."""
        place = describe_plugin_line(error, self.source_root) or self._describe_definition(
            self.value
        )
        return PluginError(f"{self.label} failed: {describe_error(error)}{place}")

    def contract_error(self, fault: str, function: object = None) -> PluginError:
        """Build the error for a result that breaks the contract.

        Args:
            fault: what the plugin did and was expected to do: ``returned 3 examples, expected 4``.
            function: the function that returned the result; default: the registered value.
        """
        definition = self._describe_definition(self.value if function is None else function)
        return PluginError(f"{self.label} {fault}{definition}")

    @staticmethod
    def _describe_definition(function: object) -> str:
        place = _find_definition(function)
        return f"; it is defined at {place}" if place else ""

    @contextlib.contextmanager
    def wrap_errors(self) -> Iterator[Registration]:
        """Turn exceptions that the plugin's code raises in this context into ``PluginError``.

        A ``GapftError`` is raised unchanged, and so is an exception of a bundled plugin.

        Raises:
            PluginError: the code of a plugin that is not bundled raised an exception.
        """
        try:
            yield self
        except GapftError:
            raise
        except FAULTS as error:
            if self.plugin.startswith(_BUNDLED) and isinstance(error, Exception):
                raise
            raise self.call_error(error) from error


class PluginObject:
    """An object that a plugin made, with the plugin's registration (``owner``) for messages."""

    def __init__(self, wrapped: Any, owner: Registration) -> None:
        self._wrapped = wrapped
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        getattr(self._wrapped, "close", lambda: None)()


def find_owner(kind: str, plugin_object: object) -> Registration:
    """Return an object's registration; build one from its class if it has none."""
    if isinstance(plugin_object, PluginObject):
        return plugin_object.owner
    object_class = type(plugin_object)
    return Registration(kind, object_class.__qualname__, object_class.__module__, object_class)


def find_source_root(plugin: object) -> str:
    """Find the folder (package) or file (single module) of a plugin's own code."""
    module = plugin if isinstance(plugin, ModuleType) else sys.modules.get(type(plugin).__module__)
    if module is None:
        return ""
    package = sys.modules.get((module.__package__ or "").partition(".")[0])
    folders = list(getattr(package, "__path__", ()))
    if folders and not module.__name__.startswith(_BUNDLED):
        return str(folders[0])
    return getattr(module, "__file__", None) or ""


def describe_plugin_line(error: BaseException, source_root: str) -> str:
    """Describe the last traceback line in the plugin's own code, to append to a message."""
    if not source_root:
        return ""
    places = [
        f"; at {frame.f_code.co_filename}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if Path(source_root) in (path := Path(frame.f_code.co_filename), *path.parents)
    ]
    return places[-1] if places else ""


def _find_definition(thing: Any) -> str:
    """Describe where a function or class is defined; empty if it is not Python code."""
    try:
        thing = inspect.unwrap(thing)
        code = getattr(getattr(thing, "__func__", thing), "__code__", None)
        if code is not None:
            return f"{code.co_filename}, line {code.co_firstlineno}"
        object_class = thing if inspect.isclass(thing) else type(thing)
        return (
            f"{inspect.getsourcefile(object_class)}, line {inspect.getsourcelines(object_class)[1]}"
        )
    except (OSError, TypeError, ValueError):
        return ""


#: The name of a ``**`` parameter whose keywords a function ignores: they are not its settings.
_IGNORED_KEYWORDS = "_"


def find_setting_fault(
    function: Callable[..., Any], arguments: Mapping[str, Any], positional_count: int = 0
) -> str:
    """Describe a wrong keyword in a call ``function(**arguments)``; return ``""`` if there is none.

    Args:
        function: the function to call. One with ``**options`` accepts every keyword; ``**_`` does
            not count.
        arguments: the keywords and their values.
        positional_count: the number of arguments that the caller passes by position.
    """
    parameters = list(inspect.signature(function).parameters.values())
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p for p in parameters if p.kind in ordered][:positional_count]
    parameters = [p for p in parameters if p not in positional]
    keyword_parameters = [
        p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    known_names = [p.name for p in keyword_parameters]
    accepts_any = any(p.kind is p.VAR_KEYWORD and p.name != _IGNORED_KEYWORDS for p in parameters)
    for key in arguments:
        if key not in known_names and not accepts_any:
            return f"unknown key {key!r}; {did_you_mean(str(key), known_names)}"
    for parameter in keyword_parameters:
        if parameter.default is parameter.empty and parameter.name not in arguments:
            return f"the key {parameter.name!r} is missing"
    return ""
