"""What plugins register: components of eight kinds, each with the options of its kind.

The fields of a kind's class of options are its contract: ``register`` accepts these options.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from gapft_harness.core.errors import GapftError, PluginError, did_you_mean
from gapft_harness.core.records import Gold, Problem
from gapft_harness.core.validation import describe_fault
from gapft_harness.hooks.protocols import SamplerSettings

#: From a verifier's parameters to another verifier's name and parameters, or None.
OtherVerdicts = Callable[[Mapping[str, Any]], tuple[str, Mapping[str, Any]] | None]

#: From settings and problems to the number of tokens of each problem's prompt, as the model sees
#: it. None: there is no tokenizer.
PromptLengths = Callable[[SamplerSettings, Sequence[Problem]], Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class Traits:
    """The options of a registration. Kinds without options use this class."""


@dataclass(frozen=True, slots=True)
class VerifierTraits(Traits):
    """Options of a verifier.

    Attributes:
        rejudge: false if judging again is costly or may give a different verdict (programs that are
            run, a model that judges); ``gapft verify`` then does not repeat its verdicts.
        sees_thoughts: it gets complete responses with their reasoning blocks (``<think>`` and
            similar), for example to check a response's format.
        permissive: a function from its parameters to ``(name, parameters)`` of a verifier that
            reads the same golds and accepts answers in more forms, or to None. The report shows
            where the two disagree.
        strict: likewise for a verifier that accepts fewer forms.
    """

    rejudge: bool = True
    sees_thoughts: bool = False
    permissive: OtherVerdicts | None = None
    strict: OtherVerdicts | None = None


@dataclass(frozen=True, slots=True)
class SelectorTraits(Traits):
    """Options of a selector, a function of the pool, n, the stream and the condition's parameters.

    Attributes:
        budget: ``matched``: returns exactly n examples. ``own``: n is the number of verified
            problems, and any positive number of examples is accepted and reported as a reference
            with its own budget.
        repeats: it may return a problem more than once.
        responses: ``kept``: returns problems with their kept responses. ``verified``: may use any
            verified response of a problem (``Evidence.each_verified``). ``unverified``: may use any
            sample of a problem, passed or not (``Evidence.each_sample``). ``borrowed``: may also
            pair a problem, even a missed one, with a verified response to another problem, recorded
            as the example's ``origin``.
        check_gold: describes the fault of a gold answer of the pool, or returns ``""``. Called
            before anything is generated.
    """

    budget: Literal["matched", "own"] = "matched"
    repeats: bool = False
    responses: Literal["kept", "verified", "unverified", "borrowed"] = "kept"
    check_gold: Callable[[Gold], str] | None = None


@dataclass(frozen=True, slots=True)
class SamplerTraits(Traits):
    """Options of a sampler; its name is what a recipe's ``model.backend`` uses.

    Attributes:
        own_process: an engine whose ``close`` may leave GPU memory or threads behind. The processes
            that it ran in end with the stage.
        generates: false if it replays recorded responses and cannot generate others.
        operational: model arguments that only control how the model is called or how much memory it
            may use. They may change between two commands on a run (``recipe/recipe.py`` lists what
            may not).
        check: raises ``UserError`` for invalid arguments or a missing model. Called also by
            ``gapft run --dry-run``; it loads no weights and generates nothing.
        start_tokens: its prompts begin with ``settings.start_tokens`` start tokens, and
            ``describe`` returns their ids as ``start_ids``.
        prompt_lengths: counts the tokens of each problem's prompt, without loading weights; called
            before a search.
        chat_template: returns whether prompts are rendered through a chat template if the recipe
            does not decide it. Default: false. It loads no weights.
    """

    own_process: bool = False
    generates: bool = True
    operational: Sequence[str] = ()
    check: Callable[[SamplerSettings], object] | None = None
    start_tokens: bool = False
    prompt_lengths: PromptLengths | None = None
    chat_template: Callable[[SamplerSettings], bool] | None = None


@dataclass(frozen=True, slots=True)
class TrainerTraits(Traits):
    """Options of a trainer, which returns facts for ``run.json`` (JSON values only).

    A trainer may have an attribute ``together(jobs) -> Iterator[dict]``: it trains several arms of
    one run one after another on a base model that it loads once, and yields the facts of each.

    Attributes:
        as_documented: it trains exactly as docs/training.md describes and logs every step, so
            ``gapft verify`` checks its optimizer, its log and its adapter's configuration. For
            another trainer, ``gapft verify`` compares the trainer's facts with the selection and
            the recipe.
        needs_problems: it generates and judges responses during training, so its jobs hold the
            inputs of the pool's search (``TrainingJob.searched``).
        needs: the packages that it imports, as pip names them (``trl>=1.16``). If one is not
            installed, the run is rejected before the search.
    """

    as_documented: bool = False
    needs_problems: bool = False
    needs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExecutorTraits(Traits):
    """Options of an executor; ``factory(settings, files)`` gets the recipe's section.

    Attributes:
        by_workers: ``executor.workers`` jobs run at once, so arms are trained in that many groups,
            each on a base model that is loaded once. Otherwise every arm is a separate job.
    """

    by_workers: bool = False


@dataclass(frozen=True, slots=True)
class LogReaderTraits(Traits):
    """Options of a reader of logged responses.

    Attributes:
        recognises: returns whether it can read a file or folder; readers of plugins are asked
            before the bundled ones.
        task: returns the task's name if the file contains it.
    """

    recognises: Callable[[Path], bool] | None = None
    task: Callable[[Path], str] | None = None


#: The class of each kind's options, in the order of specs.py.
KINDS: Mapping[str, type[Traits]] = {
    "verifier": VerifierTraits,
    "selector": SelectorTraits,
    "response rule": Traits,
    "sampler": SamplerTraits,
    "trainer": TrainerTraits,
    "executor": ExecutorTraits,
    "experiment": Traits,
    "log reader": LogReaderTraits,
}


def find_hook(kind: str) -> str:
    """Return the name of the hook that registers a kind of components."""
    return f"register_{kind.replace(' ', '_')}s"


T = TypeVar("T", bound=Traits)


@dataclass(frozen=True, slots=True)
class Registration:
    """One component that a plugin registered.

    Attributes:
        kind: a key of ``KINDS``.
        name: its name in recipes.
        plugin: the plugin's name.
        value: the registered function or class.
        traits: its options, of the kind's class in ``KINDS``.
        code_hash: the hash of its plugin's code (``loading.hash_code``); empty if it is bundled.
    """

    kind: str
    name: str
    plugin: str
    value: Callable[..., Any]
    traits: Traits = Traits()
    code_hash: str = ""

    @property
    def summary(self) -> str:
        """The first line of the object's docstring, for listings."""
        return (inspect.getdoc(self.value) or "").partition("\n")[0]

    def require_traits(self, traits_class: type[T]) -> T:
        """Return its options, typed as ``traits_class``.

        Raises:
            TypeError: they are of a different class, so it is of a different kind.
        """
        if not isinstance(self.traits, traits_class):
            raise TypeError(f"{self.label} has no {traits_class.__name__}")
        return self.traits

    @property
    def label(self) -> str:
        """Its name in messages: kind, name, plugin and hook."""
        return f"{self.kind} {self.name!r} (plugin {self.plugin}, hook {find_hook(self.kind)})"

    def contract_error(self, fault: str, function: object = None) -> PluginError:
        """Build the error for a result that breaks the contract.

        Args:
            fault: what the plugin did and was expected to do: ``returned 3 examples, expected 4``.
            function: the function that returned the result; default: the registered value.
        """
        function = self.value if function is None else function
        return PluginError(f"{self.label} {fault}{_describe_definition(function)}")

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        returns: Any,
        count: int | None = None,
        place: str = "",
    ) -> Any:
        """Call a function of the component, and check what it returns.

        Args:
            function: the function.
            arguments: its arguments.
            returns: the type of its result, as for ``check_result``.
            count: the number of items that the result must have; None: any number.
            place: as for ``wrap_errors``.

        Raises:
            PluginError: the result is of a different type, or has another number of items.
        """
        with self.wrap_errors(place):
            result = function(*arguments)
        self.check_result(result, returns, function)
        if count is not None and len(result) != count:
            raise self.contract_error(f"returned {len(result)} results; expected {count}", function)
        return result

    def check_result(self, result: Any, expected_type: Any, function: object = None) -> None:
        """Check the type of a result, also of what it contains.

        Args:
            result: what the component returned.
            expected_type: a type that pydantic can check, strictly.
            function: the function that returned it; default: the registered value.

        Raises:
            PluginError: the result is of a different type.
        """
        if fault := find_type_fault(result, expected_type):
            raise self.contract_error(f"returned a wrong result: {fault}", function)

    @contextlib.contextmanager
    def wrap_errors(self, place: str = "") -> Iterator[Registration]:
        """Add a note with the component's name to exceptions that its code raises.

        A ``GapftError`` is raised unchanged.

        Args:
            place: what the component was working on, for the note.

        Raises:
            RuntimeError: the code tried to end the process.
        """
        try:
            yield self
        except GapftError:
            raise
        except SystemExit as error:
            exit_error = RuntimeError(f"the plugin called sys.exit({error.code!r})")
            exit_error.add_note(self._build_note(place))
            raise exit_error from error
        except Exception as error:
            error.add_note(self._build_note(place))
            raise

    def _build_note(self, place: str) -> str:
        work = f" for {place}" if place else ""
        return f"Raised by {self.label}{work}{_describe_definition(self.value)}"


def find_type_fault(value: Any, expected_type: Any) -> str:
    """Describe why a value, or what it contains, is not of a type; return ``""`` if it is.

    Args:
        value: any value.
        expected_type: a type that pydantic can check. The check is strict, also in dataclasses.
    """
    try:
        _build_adapter(expected_type).validate_python((value,))
    except ValidationError as error:
        fault = error.errors()[0]
        return describe_fault(fault, fault["loc"][1:])
    return ""


@cache
def _build_adapter(expected_type: Any) -> TypeAdapter[Any]:
    config = ConfigDict(strict=True, revalidate_instances="always", allow_inf_nan=False)
    return TypeAdapter(tuple[expected_type], config=config)  # pydantic ignores a dataclass's config


def _describe_definition(component: Any) -> str:
    """Describe where a function or class is defined; empty if it is not Python code."""
    component = inspect.unwrap(component)
    if not (inspect.isroutine(component) or inspect.isclass(component)):
        component = type(component)
    try:
        _, line = inspect.getsourcelines(component)
        return f"; it is defined at {inspect.getsourcefile(component)}, line {line}"
    except (OSError, TypeError):
        return ""


def find_setting_fault(
    function: Callable[..., Any], arguments: Mapping[str, Any], positional_count: int = 0
) -> str:
    """Describe why a call ``function(..., **arguments)`` is impossible; ``""`` if it is possible.

    A value must be of the type that its parameter is annotated with.

    Args:
        function: the function to call.
        arguments: the keywords and their values.
        positional_count: the number of arguments that the caller passes by position.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*[None] * positional_count, **arguments)
    except TypeError as error:
        names = [*signature.parameters][positional_count:]
        unknown_name = next((name for name in arguments if name not in names), "")
        return f"{error}; {did_you_mean(unknown_name, names)}"
    return next(_find_value_faults(function, arguments), "")


def _find_value_faults(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    """Describe each argument whose value is not of its parameter's annotated type."""
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except Exception:  # an annotation that only type checkers understand
        return
    for name, value in arguments.items():
        if name not in parameters or parameters[name].annotation is inspect.Parameter.empty:
            continue
        try:
            TypeAdapter(parameters[name].annotation).validate_python(value)
        except (PydanticUserError, NameError):  # not a type of data
            continue
        except ValidationError as error:
            fault = error.errors()[0]
            yield describe_fault(fault, (name, *fault["loc"]))
