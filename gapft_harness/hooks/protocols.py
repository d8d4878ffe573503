"""Protocols and records that plugins implement and receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from annotated_types import Ge, Lt

from gapft_harness.core.records import (
    CONTEXT_EXCEEDED,
    Arm,
    Attempt,
    Decoding,
    Evidence,
    Example,
    Gold,
    Pool,
    Problem,
    State,
    TokensFrom,
    Turn,
    Verdict,
)
from gapft_harness.core.streams import Stream

#: Token ids are stored in 32 bits.
TokenIds = tuple[Annotated[int, Ge(0), Lt(2**31)], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work.

    Attributes:
        label: shown to the user.
        function: ``module:name``, which a worker process imports.
        arguments: its keyword arguments, JSON values.
        own_process: the process that ran this job must have ended when ``Executor.run`` returns.
    """

    label: str
    function: str
    arguments: Mapping[str, Any]
    own_process: bool = False

    @classmethod
    def of(cls, label: str, function: Callable[..., dict[str, Any]], /, **arguments: Any) -> Job:
        """Build the job of calling a function at the top of a module with keyword arguments.

        The worker adds ``progress`` (a ``ReportProgress``). A module loaded with ``--plugin`` is
        found only if ``plugin_files`` is among the arguments.
        """
        called: Any = function
        return cls(label, f"{called.__module__}:{called.__qualname__}", arguments)


class Progress(Protocol):
    """Callback of an executor for the progress of its jobs; see ``ReportProgress``."""

    def __call__(
        self, label: str, done: int, total: int, /, tokens: int = 0, note: str = ""
    ) -> None: ...


class ReportProgress(Protocol):
    """Callback of a job: the work done so far and the total (0: not known yet).

    ``tokens`` counts the tokens generated so far; ``note`` is a message to show the user now.
    """

    def __call__(self, done: int, total: int, /, tokens: int = 0, note: str = "") -> None: ...


def report_nothing(done: int, total: int, tokens: int = 0, note: str = "") -> None:
    """Report no progress: the default of jobs, for direct calls.

    Args:
        done: ignored, like all other arguments.
        total: see ``ReportProgress``.
        tokens: see ``ReportProgress``.
        note: see ``ReportProgress``.
    """


class Executor(Protocol):
    """Runs jobs in processes and returns their results in order."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs. The first failure stops the rest and is raised."""
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """The settings of the recipe that a sampler needs.

    Attributes:
        backend: the sampler's name (``hf``, ``recorded``, ...).
        model_args: under lm-eval's names (``pretrained``, ``dtype``, ``batch_size``, ...).
        chat_template: whether prompts are rendered through the tokenizer's chat template.
        system_instruction: the system turn of that template, if any.
        threads: CPU threads for one process.
        start_tokens: number of start tokens of every prompt; None: as lm-eval adds them. Only a
            sampler that declares ``start_tokens=True`` gets a number.
    """

    backend: str
    model_args: Mapping[str, Any]
    chat_template: bool = False
    system_instruction: str | None = None
    threads: int = 1
    start_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A sampler's answer to one request: one response's text and exact token ids.

    If the prompt and ``max_gen_toks`` new tokens do not fit the model's context, the text and ids
    are empty and ``finish_reason`` is ``CONTEXT_EXCEEDED``; see ``beyond_context``.

    Attributes:
        text: the response, without its stop string.
        token_ids: the ids of ``text``, without an end token; empty without a tokenizer. Those of a
            separate ``reasoning`` come first.
        finish_reason: one of ``FINISH_REASONS``.
        tokens_from: ``generator`` (exact ids), ``retokenized`` or ``none``.
        stop_string: the stop string if ``finish_reason`` is ``stop_string``; else empty.
        reasoning: the reasoning that the model wrote, if it comes apart from ``text``. Verifiers do
            not see it.
        passed: whether the response passed, if it was judged before; it is not judged again. None:
            the task's verifier judges it.
    """

    text: str
    token_ids: TokenIds
    finish_reason: str
    tokens_from: TokensFrom = "generator"
    stop_string: str = ""
    reasoning: str = ""
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """All responses to one prompt.

    Attributes:
        prompt_ids: the token ids of the prompt as the model saw it; empty without a tokenizer.
        generations: the responses, in the order of ``Request.indices``.
    """

    prompt_ids: TokenIds
    generations: tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the decode indices to generate.

    Sample numbers are from 0; ``GREEDY`` (-1) is the deployment decode.

    Attributes:
        problem_id: the problem.
        prompt: the task's rendered prompt, before any chat template.
        indices: the decode indices to generate.
        seeds: the seed of the random stream of each index, below 2^63; 0 for a greedy decode. A
            sample may depend on its seed and the prompt alone, not on other requests in the call.
        attempts: in an episode, the earlier attempts: after the prompt, each attempt is a turn of
            the model and its feedback a turn of the user. A sampler must include them; one without
            a chat template continues ``text``.
        turns: the chat that a chat template renders (``Problem.turns``). If the last turn is the
            assistant's, the response continues it. Empty: the prompt is the only turn, the user's.
    """

    problem_id: str
    prompt: str
    indices: tuple[int, ...]
    seeds: tuple[int, ...]
    attempts: tuple[Attempt, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def text(self) -> str:
        """The complete conversation as plain text, for models without a chat template."""
        return self.prompt + "".join(f"{a.text}\n\n{a.feedback}\n\n" for a in self.attempts)


def beyond_context(request: Request) -> Generated:
    """Return the answer to a prompt that does not fit: no ids, and empty responses.

    Args:
        request: the prompt and the decode indices to answer.
    """
    return Generated((), tuple(Generation("", (), CONTEXT_EXCEEDED) for _ in request.indices))


class ReportGeneration(Protocol):
    """Callback of a sampler, called as often as there is progress.

    It gets the finished responses of this call, the tokens generated for it so far (0 if unknown),
    and optionally a note to show the user now.
    """

    def __call__(self, finished: int, tokens: int, /, note: str = "") -> None: ...


class Sampler(Protocol):
    """Generates responses with one model and at most one adapter.

    A prompt that does not fit the model's context is not an error: answer it with
    ``beyond_context``.
    """

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answer every request, in order. The same requests give the same answers.

        Args:
            requests: draw each sample from its own random stream, identified by its seed
                (``Request.seeds``).
            decoding: ``decoding.for_index(index)`` applies to one response; ``GREEDY`` is decoded
                greedily also among samples, except if ``decoding.samples_deployment``.
            report: may be called at any time.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return the model's identity and versions for ``run.json``. JSON values only."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


class Verifier(Protocol):
    """Judges responses. It must not raise for any text, nor depend on the order of pairs.

    It is called through ``judge.Judge``: each distinct pair of a response and a gold arrives once,
    and responses come without reasoning blocks, unless it is registered with
    ``sees_thoughts=True``.

    Seven more methods are optional:

    * ``check_gold(gold) -> str``: describes the fault of a gold answer, or returns ``""``. Called
      before anything is generated.
    * ``feedback(responses, golds) -> list[str | None]``: for tasks with episodes. None ends an
      episode (all public tests pass); a text is shown to the model before its next attempt. It must
      use only information that a user of the model may see, never a hidden test.
    * ``answer(text) -> str | None``: reads the answer of a response (an option's letter, the last
      box), which is stored beside its verdict; None if it has no answer. It must not depend on the
      correct answer. If it needs content that the problem shows, such as the texts of its options,
      it may have a second argument ``gold``.
    * ``has_answer(text, gold) -> bool``: whether a response has any answer, right or wrong, for a
      verifier without ``answer``. It must be cheap: no program is run. A search whose first
      responses have no answer reports it at once.
    * ``opening(text, gold) -> str | None``: in addition to ``answer``: an answer at the start of a
      response in a form that does not count; None if there is none.
    * ``describe() -> dict``: returns JSON values for ``run.json``, such as a sandbox's tier.
    * ``close()``: stops its worker processes; called when nothing more is judged.
    """

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge ``responses[i]`` against ``golds[i]``; return one verdict per response."""
        ...


#: A selector, with a condition's parameters bound.
Selector = Callable[[Pool, int, Stream], Sequence[Evidence]]


@dataclass(frozen=True, slots=True)
class TaskVerifier:
    """The verifier that a task's YAML names.

    Attributes:
        name: its registered name.
        params: the task's parameters.
        load: creates it with the task's parameters; keyword arguments override them.
        permissive: its declared permissive verifier; None if it declares none.
    """

    name: str
    params: Mapping[str, Any]
    load: Callable[..., Verifier]
    permissive: TaskVerifier | None = None


@dataclass(frozen=True, slots=True)
class SearchedPool:
    """The inputs of the pool's search, for trainers that generate and judge on their own.

    Attributes:
        problems: all problems of the pool with their golds, ordered by id. An arm's examples name
            its problems.
        prompt_ids: token ids of the prompt as the model saw it, by problem id; empty if the sampler
            has no tokenizer.
        decoding: decoding settings of the K samples.
        verifier: the verifier that judged them.
        states: the evidence state under the source model, by problem id.
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
        examples: the complete training set in the selection's order, replay at its end.
        settings: the recipe's ``training`` section, resolved (``recipe.Training`` as a dict).
        model_args: the recipe's model arguments; ``pretrained`` names the base.
        output: the folder to write; it does not exist yet.
        base_sha256: the hash of the searched model's weights (``weights.weights_hash``); None if
            the sampler did not report it.
        threads: CPU threads.
        checkpoint_steps: optimizer steps between two checkpoints, from which an interrupted
            training resumes; None: it starts again.
        progress: call with (steps done, total steps).
        tracker: the name of accelerate's tracker that logs the training; None for none.
        searched: set for trainers registered with ``needs_problems=True``; else None.
        chat_template: whether prompts were rendered through the tokenizer's chat template; a
            response then ends with the template's end-of-turn token.
        run: the run directory; trackers write to its folder ``tracking``.
    """

    arm: Arm
    examples: Sequence[Example]
    settings: Mapping[str, Any]
    model_args: Mapping[str, Any]
    output: Path
    base_sha256: str | None = None
    threads: int = 1
    checkpoint_steps: int | None = None
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)
    tracker: str | None = None
    searched: SearchedPool | None = None
    chat_template: bool = False
    run: Path = Path()
