"""The records that pass between stages: frozen, typed, and free of I/O.

Symbols follow the paper *Learning from the Gap Between Pass@K and Pass@1*: states G, S, U
(Section 3.2), evidence E_G and E_{S,K} (Equation 6), the budget B = (N, L, J) (Equation 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gapft_harness.core.errors import PoolTooSmallError
from gapft_harness.core.streams import Stream

Status = Literal["pass", "fail", "timeout", "error"]
State = Literal["G", "S", "U"]
TokensFrom = Literal["generator", "retokenized", "none"]

#: What a verdict may be.
STATUSES: tuple[Status, ...] = get_args(Status)

#: Decode index of the greedy (deployment) response; samples are numbered from 0.
GREEDY = -1

#: Samples are generated in blocks of so many numbers (0 to 7, 8 to 15, ...), which share no batch:
#: further samples of a problem then change none of those that are there.
BLOCK = 8

#: The name that stands for the source model in contrasts.
SOURCE = "source"

#: ``finish_reason`` of a response that was not generated: its prompt does not fit the model's
#: context beside the new tokens. Its text is empty, and it counts as not passed.
CONTEXT = "context"

#: ``finish_reason`` of a response that was cut at a stop string of its task.
STOP_STRING = "stop_string"

#: How a response can end: at an end token (or at what a backend does not tell from one), at a stop
#: string, at the length limit, nobody knows how, or not generated.
FINISH_REASONS = ("stop", STOP_STRING, "length", "unknown", CONTEXT)

#: What a verifier compares a response with: any JSON value, a string for most tasks.
Gold = Any

#: One turn of a chat, as chat templates take it: its ``role`` and ``content``.
Turn = Mapping[str, str]


def state_of(greedy_passed: bool, samples_passed: Sequence[bool]) -> State:
    """The state of one problem.

    Args:
        greedy_passed: V(x, d_src(x)).
        samples_passed: V(x, y_1), ..., V(x, y_K).
    """
    if greedy_passed:
        return "G"
    return "S" if any(samples_passed) else "U"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of verifying one response. V = 1 for ``pass`` alone (Section 3.1).

    Attributes:
        status: ``pass``; ``fail``; ``timeout``, no verdict in time; or ``error``, no verdict
            for another reason. The last two count as V = 0 in every rate.
        reason: a sentence on what was found, shown beside failed responses; may be empty.
    """

    status: Status
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether V = 1."""
        return self.status == "pass"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a task's split.

    Attributes:
        id: stable and of the data itself (never a row number); see ``identities.py``.
        prompt: what the task renders, before any chat template.
        gold: what the task's verifier compares with.
        document: the benchmark's own record, for reports and stratified selection.
        turns: with a chat template, the chat that a model is shown in place of ``prompt``: system
            turn, few-shot examples, the problem, and what the answer begins with. Else empty.
    """

    id: str
    prompt: str
    gold: Gold
    document: Mapping[str, Any] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoding:
    """How responses are generated.

    ``temperature``, ``top_p`` and ``top_k`` matter only where ``do_sample`` is true.

    Attributes:
        do_sample: whether tokens are drawn; else the most probable one is taken.
        max_gen_toks: most new tokens of a response.
        until: stop strings, which are removed from the response.
        temperature: divides the logits; above 0.
        top_p: the nucleus's mass, up to 1.
        top_k: only so many most probable tokens are drawn from; 0: all.
    """

    do_sample: bool
    max_gen_toks: int
    until: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def of(self, index: int) -> Decoding:
        """Return the decoding of one response: that of index ``GREEDY`` is always greedy."""
        if self.do_sample and index == GREEDY:
            return Decoding(False, self.max_gen_toks, self.until)
        return self


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of an episode that did not end it, and what the model was told of it.

    Attributes:
        text: what the model wrote.
        token_ids: the generated ids that make up ``text``.
        finish_reason: as of a response.
        feedback: the outcome of the public tests, as the model saw it before its next attempt.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    feedback: str


@dataclass(frozen=True, slots=True)
class Response:
    """One response of a model to one problem: of an episode, its final attempt.

    Attributes:
        problem_id: the problem it answers.
        index: ``GREEDY`` or the sample number (from 0).
        text: what the verifier sees, stop strings removed.
        token_ids: the generated ids that make up ``text``, the end-of-sequence id excluded.
            Empty where the backend has no tokenizer (``tokens_from`` then says so).
        finish_reason: one of ``FINISH_REASONS``.
        seed: the seed of the random stream that it was drawn from; 0 of a greedy response.
        tokens_from: ``generator`` (exact ids), ``retokenized`` or ``none``.
        attempts: the earlier attempts of an episode, in order; empty elsewhere.
        context_ids: the prompt ids it was generated on after earlier attempts; else empty.
    """

    problem_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    tokens_from: str = "generator"
    attempts: tuple[Attempt, ...] = ()
    context_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pool problem with its state and, for G and S, the one verified response kept for it.

    For G its greedy response, for S a sample chosen by the frozen rule, for U none (Equation 6).

    Attributes:
        problem_id: the problem's id in its task.
        state: ``G``, ``S`` or ``U``.
        response: the kept response; None in state U.
        prompt_ids: the token ids of the prompt that the response was generated on.
        passing_samples: how many of the samples drawn passed; of K, c in the Pass@k estimator.
        first_success: number of the first passing sample (from 0), or None.
        document: the benchmark's own record.
        gold: what the task's verifier compares with.
        samples: those drawn: K, or fewer where search stopped early; None where nobody said.
        max_gen_toks: the length limit of the response; None where nobody said.
        read_verified: reads what ``each_verified`` gives; None: the kept response alone is known.
        read_greedy: reads the source's greedy response, passed or not, by problem id; or None.
    """

    problem_id: str
    state: State
    response: Response | None
    prompt_ids: tuple[int, ...]
    passing_samples: int
    first_success: int | None
    document: Mapping[str, Any] = field(default_factory=dict)
    gold: Gold = None
    samples: int | None = None
    max_gen_toks: int | None = None
    read_verified: Callable[[Evidence], tuple[Evidence, ...]] | None = field(
        default=None, compare=False, repr=False
    )
    read_greedy: Callable[[str], Response | None] | None = field(
        default=None, compare=False, repr=False
    )

    def each_verified(self) -> tuple[Evidence, ...]:
        """This problem once with each of its responses that passed, ordered by index.

        The greedy one comes first if it passed. They are read from disk when asked for, not kept.
        """
        if self.read_verified is not None:
            return self.read_verified(self)
        return () if self.response is None else (self,)

    @property
    def verified(self) -> tuple[Response, ...]:
        """Its responses that passed, ordered by index; see ``each_verified``."""
        return tuple(e.response for e in self.each_verified() if e.response is not None)

    @property
    def ended(self) -> bool:
        """Whether the response came to an end by itself, so that an end token belongs behind it.

        Of a response whose generator did not say (``unknown``) that is taken for true only where it
        is shorter than the length limit.
        """
        if self.response is None:
            return False
        if self.response.finish_reason == "unknown":
            limit = self.max_gen_toks
            return limit is not None and len(self.response.token_ids) < limit
        return self.response.finish_reason in ("stop", STOP_STRING)

    @property
    def tokens(self) -> int:
        """Prompt and response tokens together, before any truncation."""
        return len(self.prompt_ids) + (len(self.response.token_ids) if self.response else 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a selector chooses from. Each tuple is ordered by problem id.

    Attributes:
        solved: problems in state G, which the greedy decode solves.
        recovered: problems in state S, which only some sample solves.
        missed: problems in state U, which no decode solves; they have no response.
        foreign: the training set of another run, in its order, for a selector that is registered
            with ``responses="foreign"``: problems of this pool with that run's states and verified
            responses.
    """

    solved: tuple[Evidence, ...]
    recovered: tuple[Evidence, ...]
    missed: tuple[Evidence, ...]
    foreign: tuple[Evidence, ...] = ()

    @property
    def verified(self) -> tuple[Evidence, ...]:
        """E_G and E_{S,K} together, ordered by problem id."""
        return tuple(sorted(self.solved + self.recovered, key=lambda e: e.problem_id))

    @staticmethod
    def draw(candidates: Sequence[Evidence], n: int, rng: Stream) -> list[Evidence]:
        """Draws ``n`` of ``candidates`` uniformly without replacement.

        Each problem's place in the draw depends on (seed, purpose, problem id) alone: a draw of
        n is a prefix of a draw of n + 1, and adding a problem moves no other.

        Raises:
            PoolTooSmallError: if there are fewer than ``n`` candidates.
        """
        if n > len(candidates):
            raise PoolTooSmallError(
                f"asked for {n} examples, but only {len(candidates)} are there: "
                f"{n - len(candidates)} too few"
            )
        return sorted(candidates, key=lambda e: rng.key(e.problem_id))[:n]


@dataclass(frozen=True, slots=True)
class Budget:
    """The training budget B = (N, L, J) of one condition (Equation 7).

    Attributes:
        n: example slots. A selector may fill several with one problem (``concentrated`` does), so
            these are distinct problems only where it fills none twice; reports count both.
        repetitions: R, exposures of each slot.
        exposures: N = R n.
        tokens: L, prompt and response tokens processed over all exposures, after truncation.
        supervised_tokens: the response (and end-of-sequence) tokens among them.
        steps: J, optimizer steps.
    """

    n: int
    repetitions: int
    exposures: int
    tokens: int
    supervised_tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Example:
    """One training example as sealed in a selection: exact ids, nothing to re-render.

    Attributes:
        problem_id: the problem whose prompt it has.
        state: that problem's state under the source, ``G``, ``S`` or ``U``.
        prompt_ids: the token ids of the prompt; they are not supervised.
        response_ids: the token ids of the response, without an end token.
        response_index: ``GREEDY`` or the sample's number, from 0.
        first_success: number of the problem's first passing sample, or None.
        ended: the evidence's: an end-of-sequence token belongs behind the response.
        origin: the problem whose response it is; the example's own but in controls that give a
            problem the verified response of another.
    """

    problem_id: str
    state: State
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_index: int
    first_success: int | None
    ended: bool = True
    origin: str = ""

    def __post_init__(self) -> None:
        """An example that does not say has its own problem's response."""
        object.__setattr__(self, "origin", self.origin or self.problem_id)


@dataclass(frozen=True, slots=True)
class Arm:
    """One trained model of a comparison: a condition and a training seed.

    Attributes:
        condition: the condition's name in the recipe.
        seed: the training seed.
        variant: the name of a further audit that it is looked at on; without ``.`` and ``/``.
    """

    condition: str
    seed: int
    variant: str = ""

    @property
    def name(self) -> str:
        """The stem of its files: ``gapft-seed13``, ``gapft-seed13@other`` (``layout.arm_of``)."""
        return f"{self.condition}-seed{self.seed}{'@' if self.variant else ''}{self.variant}"

    @property
    def original(self) -> Arm:
        """The trained arm itself, on the run's own audit."""
        return replace(self, variant="")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trained adapter to generate with.

    Attributes:
        arm: the condition and the training seed that it was trained for.
        path: its PEFT folder.
    """

    arm: Arm
    path: str

    @property
    def name(self) -> str:
        """Its arm's."""
        return self.arm.name
