"""Related selections under the matched budget, and the random twin of any selection (Appendix B).

The paper's Table "Comparison with Closely Related Methods" tells how they differ from GapFT: they
go by a problem's difficulty or by the variety of its responses, not by its state. What a state's
letters mean stands in ``states``: G solved, S recovered; U has nothing to train on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl
from gapft_harness.plugins.selectors.replacing_replay import check_whole


def distinct_paths(
    pool: Pool, n: int, rng: Stream, paths: int = 4, states: str = "GS"
) -> Sequence[Evidence]:
    """Several different verified responses a problem, of fewer problems (after RFT, Yuan et al.).

    Problems come in the order of a draw. Each fills up to ``paths`` slots with verified responses
    that differ in more than white space, drawn from its own, until all n slots are full.

    Args:
        paths: most responses of one problem.

    Raises:
        UserError: no number of paths, or letters that are no states.
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
    """Problems drawn in proportion to their fail rate under search.

    DART-Math also favours difficult problems, but by more responses of each; here every problem has
    one, and what varies is which problems there are. So this is no reproduction of it.

    Drawn without replacement, each next one with a chance proportional to the share of its samples
    that did not pass; a problem whose samples all pass is never drawn.

    Raises:
        UserError: letters that are no states, or a search that stopped early: fail rates would
            rest on few samples, and those of solved problems on none.
        PoolTooSmallError: fewer than n problems have a sample that fails.
    """
    candidates = of_states(pool, states, "difficulty_weighted")
    drawn = {e.samples for e in (*candidates, *pool.missed)}
    if len(drawn) > 1 or drawn & {None, 0}:
        raise UserError(
            "selector 'difficulty_weighted': needs the same number of samples of every problem, "
            "and the search drew more of some than of others; search with stop: never"
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
    """As many examples drawn at random from the same pool: what any selection is held against.

    Args:
        states: of which states problems are taken: those that the other selection takes.
        responses: ``kept``, or ``verified`` if the other selection takes any verified response:
            then every different one of a problem is a candidate by itself.
        repeats: whether every slot is drawn from all candidates, so that one may come again.

    Raises:
        UserError: letters that are no states, or other responses.
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
    """The problems of some states that have a verified response.

    Raises:
        UserError: the letters are no states; ``who`` is the selector that was given them.
    """
    known = {"G": pool.solved, "S": pool.recovered}
    if not isinstance(states, str) or not states or set(states) - set(known):
        raise UserError(f"selector {who!r}: states is {states!r}, expected 'G', 'S' or 'GS'")
    return [e for state in sorted(set(states)) for e in known[state]]


def _different(problem: Evidence, rng: Stream) -> Iterator[Evidence]:
    """A problem once with each of its verified responses of another text, in a drawn order."""
    seen: set[str] = set()
    among = rng.child("responses")  # which of several alike is taken says nothing of its place
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
    """Draws without replacement by exponential races: the least of Exp(1) / weight comes first."""

    def arrival(evidence: Evidence) -> float:
        uniform = (rng.key(evidence.problem_id) + 1) / (2**64 + 1)
        return -math.log(uniform) / _fail_rate(evidence)

    if n > len(candidates):
        return pool.draw(candidates, n, rng)  # which says by how many they are too few
    return sorted(candidates, key=arrival)[:n]


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the three."""
    register("distinct_paths", distinct_paths, repeats=True, responses="verified")
    register("difficulty_weighted", difficulty_weighted)
    register("random_twin", random_twin, repeats=True, responses="verified")
