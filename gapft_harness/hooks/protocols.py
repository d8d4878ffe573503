"""What plugins implement and receive: the contracts behind the hooks, as typing protocols.

Trackers' are in ``tracking.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import (
    CONTEXT,
    Adapter,
    Arm,
    Attempt,
    Decoding,
    Evidence,
    Example,
    Gold,
    Pool,
    Problem,
    Response,
    State,
    Turn,
    Verdict,
)
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.tracking import Tracking

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work. Made with ``Job.of``, so that types see the function's arguments.

    Attributes:
        label: what people see.
        function: ``module:name``, by which a worker's process finds it.
        arguments: what it is called with, JSON values.
        own_process: no process that did this job is there any more when ``Executor.run`` returns.
    """

    label: str
    function: str
    arguments: Mapping[str, Any]
    own_process: bool = False

    @classmethod
    def of(
        cls,
        label: str,
        function: Callable[P, dict[str, Any]],
        /,
        *positional: P.args,
        **arguments: P.kwargs,
    ) -> Job:
        """A call of a function that stands at the top of a module, its arguments by name.

        The function may be a ``partial`` with some of them. The worker adds ``progress`` (a
        ``ReportProgress``). A module given by ``--plugin`` is found where ``plugin_files`` is among
        the arguments.

        Raises:
            PluginError: another process cannot find the function by its name.
            TypeError: an argument is given without its name.
        """
        if positional:
            raise TypeError(f"job {label!r}: expected all arguments by name, found {positional}")
        called: Any = function
        given: Mapping[str, Any] = arguments
        if isinstance(function, partial):
            called, given = function.func, {**function.keywords, **arguments}
        module, name = called.__module__, called.__qualname__
        if module == "__main__" or not name.isidentifier():
            raise PluginError(
                f"job {label!r}: no other process finds the function {module}.{name}; expected one "
                "at the top of a module that can be imported"
            )
        return cls(label, f"{module}:{name}", given)


class Progress(Protocol):
    """Called by an executor with what its jobs report; see ``ReportProgress``."""

    def __call__(
        self, label: str, done: int, total: int, /, tokens: int = 0, note: str = ""
    ) -> None: ...


class ReportProgress(Protocol):
    """Called by a job with how much is done, and of how much (0: nobody knows yet).

    ``tokens`` are those generated so far; a ``note`` is a sentence that people should see now.
    """

    def __call__(self, done: int, total: int, /, tokens: int = 0, note: str = "") -> None: ...


def report_nothing(done: int, total: int, tokens: int = 0, note: str = "") -> None:
    """Report no progress: the default of jobs, for direct calls.

    Args:
        done: ignored, as all that follow.
        total: see ``ReportProgress``.
        tokens: see ``ReportProgress``.
        note: see ``ReportProgress``.
    """


class Executor(Protocol):
    """Runs jobs, each in a process of its own kind, and returns their results in order."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Runs all jobs. The first failure stops the rest and is raised."""
        ...

    def close(self) -> None:
        """Stops the workers."""
        ...


# Samplers


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """What a sampler needs to know of the recipe.

    Attributes:
        backend: the sampler's name (``hf``, ``recorded``, ...).
        model_args: as lm-eval spells them (``pretrained``, ``dtype``, ``batch_size``, ...).
        chat_template: whether prompts are rendered through the tokenizer's chat template.
        system_instruction: the system turn of that template, if any.
        threads: CPU threads for one process.
        processes: processes that share this machine's memory.
        start_tokens: how many start tokens every prompt has; None: what lm-eval makes of it. Only
            a sampler that declares ``start_tokens=True`` is given a number.
    """

    backend: str
    model_args: Mapping[str, Any]
    chat_template: bool = False
    system_instruction: str | None = None
    threads: int = 1
    processes: int = 1
    start_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A sampler's answer to one request: one response's text and exact token ids.

    Where the prompt does not fit the model's context beside ``max_gen_toks`` new tokens, the text
    and ids are empty and ``finish_reason`` is ``CONTEXT``; see ``beyond_context``.

    Attributes:
        text: the response, without its stop string.
        token_ids: the ids that make up ``text``, without an end token; empty without a tokenizer.
        finish_reason: one of ``FINISH_REASONS``.
        tokens_from: ``generator`` (exact ids), ``retokenized`` or ``none``.
        stop_string: where ``finish_reason`` is ``stop_string``, that string; else empty.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    tokens_from: str = "generator"
    stop_string: str = ""


@dataclass(frozen=True, slots=True)
class Generated:
    """All responses to one prompt.

    Attributes:
        prompt_ids: the token ids of the prompt as the model saw it; empty without a tokenizer.
        generations: the responses, in the order of ``Request.indices``.
    """

    prompt_ids: tuple[int, ...]
    generations: tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the decode indices wanted for it: ``GREEDY``, sample numbers, or both.

    Attributes:
        problem_id: the problem.
        prompt: what the task renders, before any chat template.
        indices: the decode indices wanted.
        seeds: for each index the seed of its random stream, below 2^63; 0 for ``GREEDY``. What a
            sample is may depend on its seed and the prompt, and on nothing else in the call.
        attempts: in an episode, what has gone before: after the prompt, each attempt is the
            model's turn and its feedback the user's. A sampler must take them in; one that has no
            chat template generates on ``text``.
        turns: the chat that a chat template renders (``Problem.turns``). Where the last turn is
            the assistant's, the response continues it. Empty: the prompt is the user's only turn.
    """

    problem_id: str
    prompt: str
    indices: tuple[int, ...]
    seeds: tuple[int, ...]
    attempts: tuple[Attempt, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def text(self) -> str:
        """The whole conversation as plain text, for models without a chat template."""
        return self.prompt + "".join(f"{a.text}\n\n{a.feedback}\n\n" for a in self.attempts)


def beyond_context(request: Request) -> Generated:
    """Return the answer to a prompt that does not fit: no ids, and empty responses.

    Args:
        request: the prompt and the responses wanted for it.
    """
    return Generated((), tuple(Generation("", (), CONTEXT) for _ in request.indices))


class ReportGeneration(Protocol):
    """Called while a sampler generates, as often as there is progress.

    With the responses of this call that are finished, the tokens generated for it so far (0 where
    the sampler does not know), and perhaps a note that people should see now.
    """

    def __call__(self, finished: int, tokens: int, /, note: str = "") -> None: ...


class Sampler(Protocol):
    """Generates responses with one model and at most one adapter.

    A prompt that does not fit the model's context is no error: ``beyond_context`` answers it.
    """

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answers every request, in order. The same requests give the same answers.

        Args:
            requests: each sample is to be drawn from a random stream of its own, which its seed
                names (``Request.seeds``).
            decoding: ``decoding.of(index)`` is that of one response: ``GREEDY`` is decoded
                greedily among samples too.
            report: may be called at any time.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Model identity and versions, for the manifest. JSON values only."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


SamplerFactory = Callable[[SamplerSettings, Adapter | None], Sampler]


#: From settings and problems to the tokens of each problem's prompt, as the model would see it.
#: None: there is no tokenizer to ask.
PromptLengths = Callable[[SamplerSettings, Sequence[Problem]], Sequence[int] | None]


class RegisterSampler(Protocol):
    """Registers a sampler under the name a recipe's ``model.backend`` uses.

    ``own_process=True``: an engine, of which ``close`` may leave something behind (memory of a GPU,
    threads). The processes that it ran in end with the stage. ``generates=False``: it replays what
    is recorded, and has no other responses to give. ``operational``: the model arguments that only
    say how the model is asked, or how much memory it may take: they may change between two commands
    on a run (``recipe/recipe.py`` says what may not).
    ``check(settings)`` raises ``UserError`` for arguments that cannot be right, or a model that is
    not there; ``gapft run --dry-run`` asks it. It loads and generates nothing.
    ``start_tokens=True``: its prompts begin with ``settings.start_tokens`` start tokens, and
    ``describe`` says their ids as ``start_ids``. ``prompt_lengths(settings, problems)`` counts the
    tokens of each problem's prompt without loading weights; it is asked before a search.
    ``chat_template(settings)`` tells whether prompts are rendered through a chat template where
    the recipe does not say: ``api.has_chat_template`` for a sampler that renders with the
    tokenizer that ``model_args`` names. Without it the default is false. It loads no weights.
    """

    def __call__(
        self,
        name: str,
        factory: SamplerFactory,
        *,
        own_process: bool = False,
        generates: bool = True,
        operational: Sequence[str] = (),
        check: Callable[[SamplerSettings], object] | None = None,
        start_tokens: bool = False,
        prompt_lengths: PromptLengths | None = None,
        chat_template: Callable[[SamplerSettings], bool] | None = None,
    ) -> None: ...


# Verifiers

#: From a verifier's parameters to another verifier's name and parameters; None: there is none.
OtherRule = Callable[[Mapping[str, Any]], tuple[str, Mapping[str, Any]] | None]


class Verifier(Protocol):
    """Judges responses. Must not raise for any text; must not depend on the order of pairs.

    Responses come without their reasoning blocks (``core/thoughts.py``), to every method, unless
    the verifier is registered with ``sees_thoughts=True``.

    A verifier may have seven more methods:

    * ``check_gold(gold) -> str``: empty, or what is wrong with a gold answer. It is asked before
      anything is generated.
    * ``feedback(responses, golds) -> list[str | None]``: for tasks of episodes. None ends an
      episode (all public tests pass); a text is what the model sees before its next attempt. It
      must rest on what a user of the model may see, never on a hidden test.
    * ``answer(text) -> str | None``: what a response gives as its answer (an option's letter, the
      last box), sealed beside its verdict; None where it gives none. It must not depend on what
      is right. Where reading takes what the problem shows, such as its options' texts, it may
      have a second argument ``gold``.
    * ``has_answer(text, gold) -> bool``: whether a response gives any answer, right or wrong, for a
      verifier without ``answer``. Cheap: nothing is run. A search whose first responses give none
      says so at once.
    * ``verify_with_answers(responses, golds) -> list[tuple[Verdict, str | None]]``: what
      ``verify`` and ``answer`` give, for a verifier that would otherwise read each text twice.
    * ``opening(text, gold) -> str | None``: beside ``answer``, what a response opens with as its
      answer, where its form is none that counts; None if it opens with none.
    * ``describe() -> dict``: JSON values for the manifest, such as a sandbox's tier.
    """

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judges ``responses[i]`` against ``golds[i]``; as many verdicts as responses."""
        ...


class RegisterVerifier(Protocol):
    """Registers a verifier under a name.

    ``rejudge=False``: judging again is costly or may come out otherwise (programs that are run, a
    model that is asked), so ``gapft verify`` takes its verdicts as they are.
    ``own_workers=True``: it judges many pairs at once in worker processes of its own. Any other one
    is made in several processes where many responses are judged again.
    ``sees_thoughts=True``: it gets whole responses, with what stands in ``<think>`` and its kin, as
    a check of a response's format needs them.
    ``permissive``: a function from its parameters to ``(name, parameters)`` of a verifier that
    reads the same golds and also takes answers in other forms, or to None; ``strict`` likewise to
    one that takes fewer forms. A report says where the two disagree.
    """

    def __call__(
        self,
        name: str,
        factory: Callable[..., Verifier],
        *,
        rejudge: bool = True,
        own_workers: bool = False,
        sees_thoughts: bool = False,
        permissive: OtherRule | None = None,
        strict: OtherRule | None = None,
    ) -> None: ...


# Selectors and response rules

#: From a selector's parameters and K to the selector and parameters that choose the same examples
#: in the same order under every seed; None: none is known.
SameChoice = Callable[[Mapping[str, Any], int], tuple[str, Mapping[str, Any]] | None]


Selector = Callable[[Pool, int, Stream], Sequence[Evidence]]
ResponseRule = Callable[[Sequence[Response]], Response]


class RegisterSelector(Protocol):
    """Registers a selector; beyond the pool, n and the stream it takes a condition's parameters.

    ``budget="matched"``: must return exactly n examples. ``"own"``: n is the number of verified
    problems and any non-empty number is accepted, reported as a reference with another budget.
    ``repeats=True``: may return one problem more than once. ``responses="kept"``: returns problems
    with the response that is kept for each; ``"verified"``: may return a problem with any of its
    verified responses (``Evidence.each_verified``); ``"borrowed"``: may besides give a problem,
    missed ones too, a verified response of another, which is sealed as the example's ``origin``;
    ``"foreign"``: returns examples of ``Pool.foreign``, the training set that the same seed has in
    another run, whose folder and condition its parameters ``run`` and ``condition`` name.
    ``check_gold(gold)`` says what is wrong with a gold answer of the pool, or ``""``; it is asked
    before anything is generated. ``same_as(params, k)`` names another selector, with parameters,
    that chooses the same examples; a dry run counts adapters by it. ``files`` names the parameters
    that are paths: a recipe may give them relative to the folder of the command.
    """

    def __call__(
        self,
        name: str,
        select: Callable[..., Sequence[Evidence]],
        *,
        budget: Literal["matched", "own"] = "matched",
        repeats: bool = False,
        responses: Literal["kept", "verified", "borrowed", "foreign"] = "kept",
        check_gold: Callable[[Gold], str] | None = None,
        same_as: SameChoice | None = None,
        files: tuple[str, ...] = (),
    ) -> None: ...


class RegisterResponseRule(Protocol):
    """Registers a response rule under a name.

    ``stops_early=True``: its choice rests on the samples up to the first passing one alone, so
    that search may stop there (``search.stop: first_pass``).
    """

    def __call__(self, name: str, rule: ResponseRule, *, stops_early: bool = False) -> None: ...


# Trainers


@dataclass(frozen=True, slots=True)
class TaskVerifier:
    """Who judges a task's responses: the verifier that the task's YAML names.

    Attributes:
        name: its registered name.
        params: the task's parameters.
        load: makes it, with the task's parameters but for those that are given.
        permissive: the one that it declares as more permissive; None: it declares none.
        files: the plugin files that are loaded, for a process of its own that judges.
    """

    name: str
    params: Mapping[str, Any]
    load: Callable[..., Verifier]
    permissive: TaskVerifier | None = None
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SearchedPool:
    """What the pool was searched with, for trainers that generate and judge by themselves.

    Attributes:
        problems: all problems of the pool with their golds, ordered by id. An arm's own are those
            that its examples name.
        prompt_ids: by problem id, the prompt as the model saw it; empty where the sampler has no
            tokenizer.
        decoding: how the K samples were drawn.
        verifier: who judged them.
        states: by problem id, the source's state.
    """

    problems: Sequence[Problem]
    prompt_ids: Mapping[str, tuple[int, ...]]
    decoding: Decoding
    verifier: TaskVerifier
    states: Mapping[str, State] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One arm to train.

    Attributes:
        arm: condition and seed.
        examples: the whole training set in the selection's order, replay at its end.
        settings: the recipe's ``training`` section, resolved (``recipe.Training`` as a dict).
        model_args: the recipe's model arguments; ``pretrained`` names the base.
        output: the folder to write; it does not exist yet.
        base_sha256: the hash of the weights that were searched (``weights.weights_hash``);
            None where the sampler did not say.
        threads: CPU threads.
        checkpoint_steps: optimizer steps between two states that are kept, so that a killed
            training goes on from there; None: it starts again.
        fsdp: whether the processes of a training share the base's weights out among them.
        progress: call with (steps done, steps in all).
        tracking: the recipe's trackers; open them before the first step, in the first process.
        searched: for trainers that are registered with ``needs_problems=True``; else None.
        chat_template: whether prompts were rendered through the tokenizer's chat template; a
            response then ends with the token that the template ends an assistant's turn with.
        stored: the adapter's name in the store; belongs into ``training.json`` and the facts.
    """

    arm: Arm
    examples: Sequence[Example]
    settings: Mapping[str, Any]
    model_args: Mapping[str, Any]
    output: Path
    base_sha256: str | None = None
    threads: int = 1
    checkpoint_steps: int | None = None
    fsdp: bool = False
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)
    tracking: Tracking = field(default_factory=Tracking)
    searched: SearchedPool | None = None
    chat_template: bool = False
    stored: str = ""


Trainer = Callable[[TrainingJob], dict[str, Any]]


class RegisterTrainer(Protocol):
    """Registers a trainer. It returns facts for the manifest (JSON values only).

    A trainer may have one more method, ``together(jobs) -> Iterator[dict]``: it trains several
    arms of one run one after another, on a base that it loads once, and yields each one's facts.

    ``as_documented=True``: it trains exactly as docs/training.md says, and keeps a log of every
    step, so ``gapft verify`` holds its optimizer, its log and its adapter's configuration to that.
    Of another trainer it holds what the trainer says against the selection and the recipe.

    ``needs_problems=True``: it generates and judges responses while it trains, so its jobs hold
    what the pool was searched with (``TrainingJob.searched``).

    ``needs``: what it imports, as pip names it (``trl>=1.16``); a run is refused before the search
    where it is not installed.
    """

    def __call__(
        self,
        name: str,
        train: Trainer,
        *,
        as_documented: bool = False,
        needs_problems: bool = False,
        needs: Sequence[str] = (),
    ) -> None: ...


# Executors and their jobs


class RegisterExecutor(Protocol):
    """Registers an executor; ``factory(settings, plugins)`` gets the recipe's section.

    ``by_workers=True``: as many jobs run at once as ``executor.workers`` says, so arms are trained
    in as many groups, each on a base that is loaded once. Otherwise every arm is a job of its own.
    """

    def __call__(
        self,
        name: str,
        factory: Callable[[Mapping[str, Any], Sequence[str]], Executor],
        *,
        by_workers: bool = False,
    ) -> None: ...


# Report sections


class RegisterReportSection(Protocol):
    """Registers a section: a function from results.json's content to Markdown."""

    def __call__(self, name: str, render: Callable[[Mapping[str, Any]], str]) -> None: ...


class RegisterExperiment(Protocol):
    """Registers an experiment: ``factory()`` gives an ``api.Experiment`` of the same name."""

    def __call__(self, name: str, factory: Callable[[], Any]) -> None: ...


# Log readers


class RegisterLogReader(Protocol):
    """Registers a reader of logged responses: ``rows(log)`` yields an ``api.LogRow`` a document.

    ``recognises(path)`` says whether a file or folder is one that it reads. A plugin's is asked
    before those that ship. ``task(path)`` gives the task's name, where the file tells it.
    """

    def __call__(
        self,
        name: str,
        rows: Callable[[Any], Iterable[Any]],
        *,
        recognises: Callable[[Path], bool] | None = None,
        task: Callable[[Path], str] | None = None,
    ) -> None: ...
