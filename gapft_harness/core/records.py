"""The records that stages exchange: frozen dataclasses without I/O.

Symbols follow the paper *Learning from the Gap Between Pass@K and Pass@1*: states G, S, U
(Section 3.2), evidence E_G and E_{S,K} (Equation 6), the budget B = (N, L, J) (Equation 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gapft_harness.core.errors import PoolTooSmallError
from gapft_harness.core.streams import Stream

Status = Literal["pass", "fail", "timeout", "error"]
State = Literal["G", "S", "U"]
TokensFrom = Literal["generator", "retokenized", "none"]

#: All statuses of a verdict.
STATUSES: tuple[Status, ...] = get_args(Status)

#: Index of the deployment decode, greedy or sampled; samples are numbered from 0.
GREEDY = -1

#: Samples are generated in blocks of this many indices (0 to 7, 8 to 15, ...); two blocks never
#: share a batch. So drawing more samples of a problem does not change the earlier ones.
BLOCK = 8

#: The name that stands for the source model in contrasts.
SOURCE = "source"

#: ``finish_reason`` of a response that was not generated because its prompt and ``max_gen_toks``
#: together exceed the model's context. Its text is empty, and it counts as not passed.
CONTEXT_EXCEEDED = "context"

#: ``finish_reason`` of a response that was cut at a stop string of its task.
STOP_STRING = "stop_string"

#: How a response can end: ``stop``, at an end token (or in a way that the backend reports as one);
#: at a stop string; ``length``, at the length limit; in an unknown way; or not generated at all.
FINISH_REASONS = ("stop", STOP_STRING, "length", "unknown", CONTEXT_EXCEEDED)

#: The reference that a verifier compares a response with: any JSON value, a string for most tasks.
Gold = Any

#: One turn of a chat in the form that chat templates expect: ``role`` and ``content``.
Turn = Mapping[str, str]


def classify_state(deployment_passed: bool, samples_passed: Sequence[bool]) -> State:
    """Classify one problem by its source verdicts (Section 3.2).

    Args:
        deployment_passed: V(x, d_src(x)).
        samples_passed: V(x, y_1), ..., V(x, y_K).

    Returns:
        G if the deployment decode passed, else S if a sample passed, else U.
    """
    if deployment_passed:
        return "G"
    return "S" if any(samples_passed) else "U"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of verifying one response. V = 1 only for ``pass`` (Section 3.1).

    Attributes:
        status: ``pass``, ``fail``, ``timeout`` (no verdict in time) or ``error`` (no verdict for
            any other reason). The last two count as V = 0 in every rate.
        reason: a sentence that explains the verdict, shown with failed responses; may be empty.
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
        id: stable and derived from the data (never a row number); see ``identities.py``.
        prompt: the prompt that the task renders, before any chat template.
        gold: the reference for the task's verifier.
        document: the benchmark's own record, for reports and stratified selection.
        turns: with a chat template, the chat that the model gets instead of ``prompt``: system
            turn, few-shot examples, the problem, and the start of the answer. Else empty.
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
        do_sample: whether tokens are sampled; if false, decoding is greedy.
        max_gen_toks: the maximum number of new tokens of a response.
        until: stop strings; they are removed from the response.
        temperature: the divisor of the logits; above 0.
        top_p: the probability mass of the nucleus, at most 1.
        top_k: the number of most probable tokens to sample from; 0: all.
        samples_deployment: whether the deployment decode is sampled like this too; otherwise it is
            greedy, with the same limits.
    """

    do_sample: bool
    max_gen_toks: int
    until: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    samples_deployment: bool = False

    def for_index(self, index: int) -> Decoding:
        """Return the decoding of the response with this index; see ``samples_deployment``."""
        if self.do_sample and index == GREEDY and not self.samples_deployment:
            return Decoding(False, self.max_gen_toks, self.until)
        return self


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt of an episode, and the feedback that the model got on it.

    Attributes:
        text: the text that the model generated.
        token_ids: the generated ids that make up ``text``.
        finish_reason: one of ``FINISH_REASONS``, see ``Response``.
        feedback: the outcome of the public tests, as worded in the next prompt.
        reasoning: see ``Response``.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    feedback: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """One response of a model to one problem; in an episode, the final attempt.

    Attributes:
        problem_id: the id of the problem.
        index: ``GREEDY``, or the sample number (from 0).
        text: the text that the verifier gets, without stop strings.
        token_ids: the generated ids that make up ``text``, without the end-of-sequence id.
            Empty if the backend has no tokenizer (``tokens_from`` is ``none``). Those of a separate
            ``reasoning`` come first.
        finish_reason: one of ``FINISH_REASONS``.
        seed: the seed of the response's random stream; 0 for a greedy response.
        tokens_from: ``generator`` (exact ids), ``retokenized`` or ``none``.
        attempts: the earlier attempts of an episode, in order; else empty.
        context_ids: the prompt ids of the final attempt, after earlier attempts; else empty.
        reasoning: the reasoning that a server returned apart from ``text``; else empty.
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
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pool problem with its state and, for G and S, one selected verified response (Equation 6).

    The selected response is the deployment decode for G, and a sample, chosen by the frozen rule,
    for S.

    Attributes:
        problem_id: the problem's id in its task.
        state: ``G``, ``S`` or ``U``.
        response: the selected response; None in state U.
        prompt_ids: the token ids of the response's prompt.
        passing_samples: the number of drawn samples that passed; c in the Pass@k estimator.
        first_success: the index of the first passing sample (from 0), or None.
        document: the benchmark's own record.
        gold: the reference for the task's verifier.
        samples: the number of drawn samples, K; None: unknown.
        max_gen_toks: the length limit of the response in tokens; None: unknown.
        read_responses: reads the responses to a problem id from disk, by index, the deployment
            decode first, each with its prompt's token ids and its verdict's status; None: only
            ``response`` is known.
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
    read_responses: Callable[[str], Iterable[tuple[Response, tuple[int, ...], Status]]] | None = (
        field(default=None, compare=False, repr=False)
    )

    def each_response(
        self, is_kept: Callable[[Response, Status], bool] = lambda *_: True
    ) -> tuple[tuple[Evidence, Status], ...]:
        """Return a copy of this evidence for each response, with its verdict's status.

        Ordered by index, the deployment decode first. Every call reads the responses from disk.

        Args:
            is_kept: which responses are returned; default: all.
        """
        rows = () if self.read_responses is None else self.read_responses(self.problem_id)
        return tuple(
            (replace(self, response=response, prompt_ids=prompt_ids), status)
            for response, prompt_ids, status in rows
            if is_kept(response, status)
        )

    def each_sample(self) -> tuple[tuple[Evidence, Status], ...]:
        """Return ``each_response`` without the deployment decode."""
        return self.each_response(lambda response, _: response.index != GREEDY)

    def each_verified(self) -> tuple[Evidence, ...]:
        """Return a copy of this evidence for each response that passed, ordered by index.

        In state G the deployment decode is first. Every call reads the responses from disk.
        """
        if self.read_responses is None:
            return () if self.response is None else (self,)
        is_solved = self.state == "G"
        passed = self.each_response(
            lambda response, status: status == "pass" and (is_solved or response.index != GREEDY)
        )
        return tuple(e for e, _ in passed)

    @property
    def verified(self) -> tuple[Response, ...]:
        """The responses that passed, ordered by index; see ``each_verified``."""
        return tuple(e.response for e in self.each_verified() if e.response is not None)

    @property
    def ended(self) -> bool:
        """Whether the response is complete, so that an end token must follow it.

        A response with ``finish_reason`` ``unknown`` counts as complete only if it is shorter than
        the length limit.
        """
        if self.response is None:
            return False
        if self.response.finish_reason == "unknown":
            limit = self.max_gen_toks
            return limit is not None and len(self.response.token_ids) < limit
        return self.response.finish_reason in ("stop", STOP_STRING)

    @property
    def tokens(self) -> int:
        """The number of prompt and response tokens, before any truncation."""
        return len(self.prompt_ids) + (len(self.response.token_ids) if self.response else 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """The evidence that a selector chooses from; each tuple is ordered by id.

    Attributes:
        solved: problems in state G: the deployment decode passed.
        recovered: problems in state S: not solved, and a sample passed.
        missed: problems in state U: not solved, and no sample passed; they have no response.
    """

    solved: tuple[Evidence, ...]
    recovered: tuple[Evidence, ...]
    missed: tuple[Evidence, ...]

    @property
    def verified(self) -> tuple[Evidence, ...]:
        """E_G and E_{S,K} together, ordered by problem id."""
        return tuple(sorted(self.solved + self.recovered, key=lambda e: e.problem_id))

    @staticmethod
    def draw(candidates: Sequence[Evidence], n: int, rng: Stream) -> list[Evidence]:
        """Draw ``n`` of ``candidates`` uniformly without replacement.

        Each problem's rank in the draw depends only on (seed, purpose, problem id): a draw of n is
        a prefix of a draw of n + 1, and adding a problem does not reorder the others.

        Raises:
            PoolTooSmallError: there are fewer than ``n`` candidates.
        """
        if n > len(candidates):
            raise PoolTooSmallError(
                f"cannot draw {n} examples: the pool has only {len(candidates)} candidates, "
                f"{n - len(candidates)} too few"
            )
        return sorted(candidates, key=lambda e: rng.key(e.problem_id))[:n]


@dataclass(frozen=True, slots=True)
class Budget:
    """The training budget B = (N, L, J) of one condition (Equation 7).

    Attributes:
        n: example slots. A selector may fill several slots with one problem (``concentrated``
            does), so there may be fewer distinct problems; reports count both.
        repetitions: R, exposures of each slot.
        exposures: N = R n.
        tokens: L, the prompt and response tokens of all exposures, after truncation.
        supervised_tokens: the response and end-of-sequence tokens among ``tokens``.
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
    """One training example of a selection, as exact token ids: training renders no text again.

    Attributes:
        problem_id: the id of the problem whose prompt is trained on.
        state: that problem's state under the source, ``G``, ``S`` or ``U``.
        prompt_ids: the token ids of the prompt; they are not supervised.
        response_ids: the token ids of the response, without an end token.
        response_index: ``GREEDY``, or the sample's number, from 0.
        first_success: the index of the problem's first passing sample, or None.
        ended: whether an end-of-sequence token must follow the response; see ``Evidence.ended``.
        origin: the id of the problem that the response answers. It differs from ``problem_id`` only
            in controls that pair a problem with a verified response to a different problem.
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
        """Set an empty ``origin`` to ``problem_id``."""
        object.__setattr__(self, "origin", self.origin or self.problem_id)


@dataclass(frozen=True, slots=True)
class Arm:
    """One trained model of a comparison: a condition and a training seed.

    Attributes:
        condition: the condition's name in the recipe.
        seed: the training seed.
    """

    condition: str
    seed: int

    @property
    def name(self) -> str:
        """The stem of the arm's files, e.g. ``gapft-seed13``; see ``layout.parse_arm``."""
        return f"{self.condition}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trained adapter to generate with.

    Attributes:
        arm: the condition and the training seed of the adapter.
        path: the adapter's PEFT folder.
    """

    arm: Arm
    path: str

    @property
    def name(self) -> str:
        """The name of its arm."""
        return self.arm.name
