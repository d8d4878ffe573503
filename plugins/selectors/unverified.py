"""Controls without the verifier: samples drawn without their verdicts, and failed samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapft_harness.api import (
    Evidence,
    Pool,
    PoolTooSmallError,
    Register,
    Stream,
    hookimpl,
)


def unverified(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select problems of any state, each with a sample drawn without its verdict (G, S and U).

    This is self-distillation on the source's own samples; compare arXiv 2604.01193.
    """
    problems = (*pool.solved, *pool.recovered, *pool.missed)
    return _draw_samples(pool.draw(problems, len(problems), rng), n, rng, lambda status: True)


def wrong(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select problems that the source fails (S and U), each with one of its failed samples.

    A sample whose verdict is ``error`` was not judged, so it does not count as failed.
    """
    problems = (*pool.recovered, *pool.missed)
    is_failed = {"fail", "timeout"}.__contains__
    return _draw_samples(pool.draw(problems, len(problems), rng), n, rng, is_failed)


def _draw_samples(
    problems: Sequence[Evidence], n: int, rng: Stream, is_candidate: Callable[[str], bool]
) -> list[Evidence]:
    """Give each of the first n problems one sample, drawn uniformly from its candidates.

    A problem without a candidate is skipped. Empty samples are no candidates: training needs a
    token. A draw of n is a prefix of a draw of n + 1.

    Args:
        problems: the problems, in the order of their draw.
        n: the number of problems to return.
        rng: the arm's stream.
        is_candidate: whether a sample may be drawn, by the status of its verdict.

    Raises:
        PoolTooSmallError: fewer than ``n`` problems have a candidate.
    """
    stream = rng.child("sample")
    drawn = list[Evidence]()
    for problem in problems:
        if len(drawn) == n:
            break
        samples = [
            sample
            for sample, status in problem.each_sample()
            if sample.response and sample.response.token_ids and is_candidate(status)
        ]
        if samples:
            drawn.append(samples[stream.key(problem.problem_id) % len(samples)])
    if len(drawn) < n:
        raise PoolTooSmallError(
            f"cannot draw {n} examples: only {len(drawn)} of {len(problems)} problems have such a "
            "sample"
        )
    return drawn


@hookimpl
def register_selectors(register: Register) -> None:
    """Register both selectors."""
    register("unverified", unverified, responses="unverified")
    register("wrong", wrong, responses="unverified")
