"""Related selections under the matched budget, and the random twin of any selection.

The paper has no such experiment; its Table 9 only describes the methods. They use a problem's
difficulty or the variety of its responses, not its state. The letters in ``states``: G solved, S
recovered; U has nothing to train on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl
from gapft_harness.plugins.selectors.search_depth import check_integer


def distinct_paths(
    pool: Pool, n: int, rng: Stream, paths: int = 4, states: str = "GS"
) -> Sequence[Evidence]:
    """Select several different verified responses per problem (after RFT, Yuan et al.).

    Problems come in the order of a draw. Each fills up to ``paths`` slots with its own verified
    responses, which differ in more than white space and are drawn at random, until all n slots are
    full.

    Args:
        paths: maximum number of responses per problem.

    Raises:
        UserError: ``paths`` is not a positive integer, or ``states`` has unknown letters.
        PoolTooSmallError: all problems together have fewer than n.
    """
    check_integer("paths", paths, 1, "distinct_paths")
    candidates = select_states(pool, states, "distinct_paths")
    examples: list[Evidence] = []
    for problem in pool.draw(candidates, len(candidates), rng):
        if len(examples) >= n:
            break
        examples += [*_iterate_distinct_responses(problem, rng)][:paths]
    return pool.draw(examples, n, rng) if len(examples) < n else examples[:n]


def difficulty_weighted(pool: Pool, n: int, rng: Stream, states: str = "GS") -> Sequence[Evidence]:
    """Select problems in proportion to their fail rate under search.

    This is not a reproduction of DART-Math, which also favours difficult problems, but with more
    responses of each: here every problem has one response, and the choice of problems varies.

    Problems are drawn without replacement, with a probability proportional to the share of their
    samples that failed; a problem whose samples all pass is never drawn.

    Raises:
        UserError: ``states`` has unknown letters, or the search stopped early, so that fail rates
            would be based on few samples, or none for solved problems.
        PoolTooSmallError: fewer than n problems have a sample that fails.
    """
    candidates = select_states(pool, states, "difficulty_weighted")
    sample_counts = {e.samples for e in (*candidates, *pool.missed)}
    if len(sample_counts) > 1 or sample_counts & {None, 0}:
        raise UserError(
            "selector 'difficulty_weighted': needs the same number of samples of every problem, "
            "but the search drew different numbers; search with stop: never"
        )
    failing = [e for e in candidates if _compute_fail_rate(e)]
    return _draw_weighted(pool, failing, n, rng)


def random_twin(
    pool: Pool,
    n: int,
    rng: Stream,
    states: str = "GS",
    responses: str = "kept",
    repeats: bool = False,
) -> Sequence[Evidence]:
    """Select as many examples at random from the same pool, as the baseline of any selection.

    Args:
        states: states of the candidates, as in the compared selection.
        responses: ``kept``, or ``verified`` if the compared selection uses any verified response:
            then every different response of a problem is a separate candidate.
        repeats: whether every slot is drawn from all candidates, so that examples may repeat.

    Raises:
        UserError: ``states`` has unknown letters, or ``responses`` has another value.
        PoolTooSmallError: fewer candidates than n, or none.
    """
    candidates = select_states(pool, states, "random_twin")
    if responses not in ("kept", "verified"):
        raise UserError(
            f"selector 'random_twin': responses is {responses!r}, expected 'kept' or 'verified'"
        )
    if responses == "verified":
        candidates = [
            variant for e in candidates for variant in _iterate_distinct_responses(e, rng)
        ]
    ordered = sorted(candidates, key=lambda e: rng.key(_build_key(e)))
    if repeats and ordered:
        slot_stream = rng.child("with replacement")
        return [ordered[slot_stream.key(str(slot)) % len(ordered)] for slot in range(n)]
    return ordered[:n] if n <= len(ordered) else pool.draw(ordered, n, rng)


def select_states(pool: Pool, states: str, selector: str) -> list[Evidence]:
    """Return the problems of some states that have a verified response.

    Raises:
        UserError: ``states`` has unknown letters; the message names ``selector``.
    """
    problems_by_state = {"G": pool.solved, "S": pool.recovered}
    if not isinstance(states, str) or not states or set(states) - set(problems_by_state):
        raise UserError(f"selector {selector!r}: states is {states!r}, expected 'G', 'S' or 'GS'")
    return [e for state in sorted(set(states)) for e in problems_by_state[state]]


def _iterate_distinct_responses(problem: Evidence, rng: Stream) -> Iterator[Evidence]:
    """Yield a problem with each of its verified responses that differ in text, in random order."""
    seen: set[str] = set()
    response_stream = rng.child(
        "responses"
    )  # choice among equal texts is independent of their order
    variants = sorted(problem.each_verified(), key=lambda e: response_stream.key(_build_key(e)))
    for variant in variants:
        assert variant.response is not None
        text = " ".join(variant.response.text.split())
        if text not in seen:
            seen.add(text)
            yield variant


def _build_key(evidence: Evidence) -> str:
    assert evidence.response is not None
    return f"{evidence.problem_id}/{evidence.response.index}"


def _compute_fail_rate(evidence: Evidence) -> float:
    assert evidence.samples
    return 1 - evidence.passing_samples / evidence.samples


def _draw_weighted(
    pool: Pool, candidates: Sequence[Evidence], n: int, rng: Stream
) -> list[Evidence]:
    """Draw without replacement by exponential races: the smallest Exp(1) / weight comes first."""

    def draw_arrival(evidence: Evidence) -> float:
        uniform = (rng.key(evidence.problem_id) + 1) / (2**64 + 1)
        return -math.log(uniform) / _compute_fail_rate(evidence)

    if n > len(candidates):
        return pool.draw(candidates, n, rng)  # raises, with the number that is missing
    return sorted(candidates, key=draw_arrival)[:n]


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Register the three selectors."""
    register("distinct_paths", distinct_paths, repeats=True, responses="verified")
    register("difficulty_weighted", difficulty_weighted)
    register("random_twin", random_twin, repeats=True, responses="verified")
