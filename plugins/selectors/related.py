"""Related selections under the matched budget, and the random twin of any selection (Appendix B).

The paper's Table "Comparison with Closely Related Methods" shows how they differ from GapFT: they
use a problem's difficulty or the variety of its responses, not its state. The letters in
``states``: G solved, S recovered; U has nothing to train on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl
from gapft_harness.plugins.selectors.replacing_replay import check_whole


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
    check_whole("paths", paths, 1, "distinct_paths")
    candidates = of_states(pool, states, "distinct_paths")
    found: list[Evidence] = []
    for problem in pool.draw(candidates, len(candidates), rng):
        if len(found) >= n:
            break
        found += [*_different(problem, rng)][:paths]
    return pool.draw(found, n, rng) if len(found) < n else found[:n]


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
    candidates = of_states(pool, states, "difficulty_weighted")
    drawn = {e.samples for e in (*candidates, *pool.missed)}
    if len(drawn) > 1 or drawn & {None, 0}:
        raise UserError(
            "selector 'difficulty_weighted': needs the same number of samples of every problem, "
            "but the search drew different numbers; search with stop: never"
        )
    failing = [e for e in candidates if _fail_rate(e)]
    return _weighted(pool, failing, n, rng)


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
    candidates = of_states(pool, states, "random_twin")
    if responses not in ("kept", "verified"):
        raise UserError(
            f"selector 'random_twin': responses is {responses!r}, expected 'kept' or 'verified'"
        )
    if responses == "verified":
        candidates = [one for e in candidates for one in _different(e, rng)]
    ordered = sorted(candidates, key=lambda e: rng.key(_name(e)))
    if repeats and ordered:
        again = rng.child("with replacement")
        return [ordered[again.key(str(slot)) % len(ordered)] for slot in range(n)]
    return ordered[:n] if n <= len(ordered) else pool.draw(ordered, n, rng)


def of_states(pool: Pool, states: str, who: str) -> list[Evidence]:
    """Return the problems of some states that have a verified response.

    Raises:
        UserError: ``states`` has unknown letters; the message names ``selector``.
    """
    known = {"G": pool.solved, "S": pool.recovered}
    if not isinstance(states, str) or not states or set(states) - set(known):
        raise UserError(f"selector {who!r}: states is {states!r}, expected 'G', 'S' or 'GS'")
    return [e for state in sorted(set(states)) for e in known[state]]


def _different(problem: Evidence, rng: Stream) -> Iterator[Evidence]:
    """Yield a problem with each of its verified responses that differ in text, in random order."""
    seen: set[str] = set()
    among = rng.child("responses")  # choice among equal texts is independent of their order
    each = sorted(problem.each_verified(), key=lambda e: among.key(_name(e)))
    for one in each:
        assert one.response is not None
        text = " ".join(one.response.text.split())
        if text not in seen:
            seen.add(text)
            yield one


def _name(evidence: Evidence) -> str:
    assert evidence.response is not None
    return f"{evidence.problem_id}/{evidence.response.index}"


def _fail_rate(evidence: Evidence) -> float:
    assert evidence.samples
    return 1 - evidence.passing_samples / evidence.samples


def _weighted(pool: Pool, candidates: Sequence[Evidence], n: int, rng: Stream) -> list[Evidence]:
    """Draw without replacement by exponential races: the smallest Exp(1) / weight comes first."""

    def arrival(evidence: Evidence) -> float:
        uniform = (rng.key(evidence.problem_id) + 1) / (2**64 + 1)
        return -math.log(uniform) / _fail_rate(evidence)

    if n > len(candidates):
        return pool.draw(candidates, n, rng)  # raises, with the number that is missing
    return sorted(candidates, key=arrival)[:n]


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Register the three selectors."""
    register("distinct_paths", distinct_paths, repeats=True, responses="verified")
    register("difficulty_weighted", difficulty_weighted)
    register("random_twin", random_twin, repeats=True, responses="verified")
