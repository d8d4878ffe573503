"""Episodes: decodes of several attempts, with feedback from the public tests between them.

An episode stops at the first attempt for which the verifier returns no feedback: all public tests
pass. Hidden tests are not run before the episode is over (Section 3.1: the final submission of one
bounded episode; Table "LiveCodeBench Allocation": at most three attempts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from reprlib import repr as short

from gapft_harness.core.errors import FAULTS, GapftError, PluginError, UserError
from gapft_harness.core.records import CONTEXT, Attempt, Gold, Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.core.text import whole_text
from gapft_harness.hooks.protocols import Generated, Request, Verifier
from gapft_harness.hooks.registered import owner_of
from gapft_harness.stages.generation.parts import Responses
from gapft_harness.verification.judging import once_each

Feedback = Callable[[Sequence[str], Sequence[Gold]], list[str | None]]


@dataclass(frozen=True, slots=True)
class Episodes:
    """The settings of a decode.

    Attributes:
        attempts: maximum number of attempts; 1 for a single response.
        feedback: returns the feedback after an attempt, None if the episode ends.
    """

    attempts: int
    feedback: Feedback


def episodes_of(verifier: Verifier, attempts: int, name: str) -> Episodes:
    """Build episodes with a verifier's feedback; equal attempts at a problem are judged once.

    Raises:
        UserError: several attempts are requested, but the verifier gives no feedback.
    """
    give = getattr(verifier, "feedback", None)
    owner = owner_of("verifier", verifier)
    if attempts > 1 and give is None:
        raise UserError(
            f"episodes of {attempts} attempts need a verifier with feedback, but {name!r} has "
            "none; use program_tests, or set episode.attempts: 1"
        )

    def ask(texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        assert give is not None
        try:
            told = list(give(list(texts), list(golds)))
        except GapftError:
            raise
        except FAULTS as error:
            raise PluginError(f"in feedback, {owner.raised(error)}") from error
        wrong = [text for text in told if not (text is None or (isinstance(text, str) and text))]
        if wrong or len(told) != len(texts):
            raise owner.broke(
                f"must return a text or None for each of {len(texts)} responses in feedback; found "
                f"{len(told)}: {short(wrong or told)}",
                give,
            )
        return [None if text is None else whole_text(text) for text in told]

    return Episodes(attempts, lambda texts, golds: once_each(ask, texts, golds))


def alive(
    episodes: Episodes,
    problems: Sequence[Problem],
    indices: Sequence[int],
    attempt: int,
    responses: Responses,
    streams: SampleStreams,
) -> list[Request]:
    """Build the requests of attempt number ``attempt`` for the episodes that continue.

    Args:
        episodes: the settings of episodes.
        problems: the problems.
        indices: the decodes.
        attempt: the attempt's number, from 2.
        responses: the responses of all earlier attempts.
        streams: the samples' random streams.

    Returns:
        One request for each episode (each has its own conversation), ordered by problem and index.
    """
    asked, texts, golds = [], [], []
    for problem, entry in zip(problems, responses.read([p.id for p in problems]), strict=True):
        for response in entry.responses:
            ended = response.finish_reason == CONTEXT  # a longer conversation does not fit either
            if response.index in indices and len(response.attempts) == attempt - 2 and not ended:
                asked.append((problem, response))
                texts.append(response.text)
                golds.append(problem.gold)
    requests = []
    for (problem, response), told in zip(asked, episodes.feedback(texts, golds), strict=True):
        if told is not None:
            last = Attempt(response.text, response.token_ids, response.finish_reason, told)
            index = (response.index,)
            seeds = streams.seeds_of(problem.id, attempt, index)
            so_far = (*response.attempts, last)
            requests.append(
                Request(problem.id, problem.prompt, index, seeds, so_far, problem.turns)
            )
    return requests


def check_conversations(
    requests: Sequence[Request], generated: Sequence[Generated], responses: Responses
) -> None:
    """Refuse a sampler that ignores the conversation before a later attempt.

    Raises:
        PluginError: an answer's prompt ids are those of the problem's own prompt.
    """
    entries = responses.read([request.problem_id for request in requests])
    for request, answer, entry in zip(requests, generated, entries, strict=True):
        if answer.prompt_ids and answer.prompt_ids == entry.prompt_ids:
            raise PluginError(
                f"the sampler generated attempt {len(request.attempts) + 1} at problem "
                f"{request.problem_id} on the problem's prompt alone; a sampler for episodes must "
                "use Request.attempts (Request.text is the whole conversation)"
            )
