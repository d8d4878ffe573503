"""What a sampler is asked and what it answers: prompts, responses with exact token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gapft_harness.core.records import CONTEXT, Adapter, Attempt, Decoding


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """What a sampler needs to know of the recipe.

    Attributes:
        backend: the sampler's name (``hf``, ``recorded``, ...).
        model_args: as lm-eval spells them (``pretrained``, ``dtype``, ``batch_size``, ...).
        chat_template: whether prompts are rendered through the tokenizer's chat template.
        system_instruction: the system turn of that template, if any.
        threads: CPU threads for one process.
        start_tokens: how many start tokens every prompt has; None: what lm-eval makes of it. Only
            a sampler that declares ``start_tokens=True`` is given a number.
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

    Where the prompt does not fit the model's context beside ``max_gen_toks`` new tokens, the text
    and ids are empty and ``finish_reason`` is ``records.CONTEXT``; see ``beyond_context``.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    tokens_from: str = "generator"


@dataclass(frozen=True, slots=True)
class Generated:
    """All responses to one prompt, in the order of the indices asked for."""

    prompt_ids: tuple[int, ...]
    generations: tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the decode indices wanted for it (``(GREEDY,)`` or sample numbers).

    Attributes:
        problem_id: the problem.
        prompt: what the task renders, before any chat template.
        indices: the decode indices wanted.
        attempts: in an episode, what has gone before: after the prompt, each attempt is the
            model's turn and its feedback the user's. A sampler must take them in; one that has no
            chat template generates on ``text``.
    """

    problem_id: str
    prompt: str
    indices: tuple[int, ...]
    attempts: tuple[Attempt, ...] = ()

    @property
    def text(self) -> str:
        """The whole conversation as plain text, for models without a chat template."""
        return self.prompt + "".join(f"{a.text}\n\n{a.feedback}\n\n" for a in self.attempts)


def beyond_context(request: Request) -> Generated:
    """What a sampler answers to a prompt that does not fit: no ids, and empty responses."""
    return Generated((), tuple(Generation("", (), CONTEXT) for _ in request.indices))


class Sampler(Protocol):
    """Generates responses with one model and at most one adapter.

    A prompt that does not fit the model's context is no error: ``beyond_context`` answers it.

    A sampler may have an attribute ``seeds_each_sample = True``: it derives every sample's seed
    from ``generate``'s seed, the problem's id and the sample's index alone. All calls of a search
    then get the same seed, and chunks, shards and rounds change no sample.
    """

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, seed: int
    ) -> list[Generated]:
        """Answers every request, in order. The same arguments give the same answers."""
        ...

    def describe(self) -> dict[str, Any]:
        """Model identity and versions, for the manifest. JSON values only."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


SamplerFactory = Callable[[SamplerSettings, Adapter | None], Sampler]


class RegisterSampler(Protocol):
    """Registers a sampler under the name a recipe's ``model.backend`` uses.

    ``own_process=True``: an engine, of which ``close`` may leave something behind (memory of a GPU,
    threads). The processes that it ran in end with the stage. ``generates=False``: it replays what
    is recorded, and has no other responses to give. ``operational``: the model arguments that only
    say how the model is asked, or how much memory it may take: they may change between two commands
    on a run, and from one shard to another (``recipe/recipe.py`` says what may not).
    ``check(settings)`` raises ``UserError`` for arguments that cannot be right, or a model that is
    not there; ``gapft run --dry-run`` asks it. It loads and generates nothing.
    ``start_tokens=True``: its prompts begin with ``settings.start_tokens`` start tokens, and
    ``describe`` says their ids as ``start_ids``.
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
    ) -> None: ...
