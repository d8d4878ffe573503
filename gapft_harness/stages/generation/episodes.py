"""Episodes: decodes of several attempts, with feedback from the public tests between them.

An episode stops at the first attempt for which the verifier returns no feedback: all public tests
pass. Hidden tests are not run before the episode is over (Section 3.1: the final submission of one
bounded episode; Table "LiveCodeBench Allocation": at most three attempts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, Attempt, Problem, Response
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, Request


def require_feedback(judge: Judge, attempts: int, name: str) -> None:
    """Require that a verifier gives feedback, if episodes have several attempts.

    Args:
        judge: the verifier.
        attempts: maximum number of attempts.
        name: the verifier's name.

    Raises:
        UserError: it gives none.
    """
    if attempts > 1 and not judge.gives_feedback:
        raise UserError(
            f"episodes of {attempts} attempts need a verifier with feedback, but {name!r} has "
            "none; use program_tests, or set episode.attempts: 1"
        )


def build_next_requests(
    judge: Judge,
    problems: Sequence[Problem],
    attempt: int,
    responses: Mapping[tuple[str, int], Response],
    streams: SampleStreams,
    samples_deployment: bool = False,
) -> list[Request]:
    """Build the requests of attempt number ``attempt`` for the episodes that continue.

    Args:
        judge: gives the feedback after an attempt; None if the episode ends.
        problems: the problems.
        attempt: the attempt's number, from 2.
        responses: the latest attempts, by problem and index.
        streams: the samples' random streams.
        samples_deployment: whether deployment decodes are sampled.

    Returns:
        One request for each episode (each has its own conversation), ordered by problem and index.
    """
    by_problem: dict[str, list[Response]] = {}
    for (problem_id, _), response in sorted(responses.items()):
        is_ended = response.finish_reason == CONTEXT_EXCEEDED  # no longer conversation fits either
        if len(response.attempts) == attempt - 2 and not is_ended:
            by_problem.setdefault(problem_id, []).append(response)
    open_episodes = [(p, response) for p in problems for response in by_problem.get(p.id, ())]
    feedback = judge.give_feedback(
        [response.text for _, response in open_episodes], [p.gold for p, _ in open_episodes]
    )
    requests = []
    for (problem, response), feedback_text in zip(open_episodes, feedback, strict=True):
        if feedback_text is not None:
            last_attempt = Attempt(
                response.text,
                response.token_ids,
                response.finish_reason,
                feedback_text,
                response.reasoning,
            )
            index = (response.index,)
            seeds = streams.derive_seeds(problem.id, attempt, index, samples_deployment)
            attempts = (*response.attempts, last_attempt)
            requests.append(
                Request(problem.id, problem.prompt, index, seeds, attempts, problem.turns)
            )
    return requests


def check_conversations(
    requests: Sequence[Request],
    generated: Sequence[Generated],
    prompt_ids: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse a sampler that ignores the conversation before a later attempt.

    Args:
        requests: the requests of a later attempt.
        generated: the sampler's answers.
        prompt_ids: the token ids of each problem's own prompt.

    Raises:
        PluginError: an answer's prompt ids are those of the problem's own prompt.
    """
    for request, answer in zip(requests, generated, strict=True):
        if answer.prompt_ids and tuple(answer.prompt_ids) == prompt_ids[request.problem_id]:
            raise PluginError(
                f"the sampler generated attempt {len(request.attempts) + 1} at problem "
                f"{request.problem_id} on the problem's prompt alone; a sampler for episodes must "
                "use Request.attempts (Request.text is the whole conversation)"
            )
