"""Coverage against repetition: two allocations of one budget (code, Equation 10 of the paper).

Both conditions of a seed draw the same recovered failures and split them into a half A that both
train on and a half B. ``diffuse`` sees A and B once each; ``concentrated`` sees A twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl
from gapft_harness.plugins.selectors.exchange import count_supervised_tokens


def draw_halves(pool: Pool, n: int, seed: int) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    """Draw ``n`` recovered failures and split them into halves of nearly equal tokens.

    Neighbours in the order of response tokens form pairs, and each pair gives one member to each
    half. The pair with the largest gap comes first; every other pair gives its longer member to the
    half with fewer tokens so far, and a random bit decides ties.

    The halves then differ by at most the largest gap within a pair. Proof: the first pair leaves
    its own gap d ≤ g, the largest. If the difference is D ≤ g and the next pair has the gap d ≤ g,
    the new difference is |D - d|, which lies in [0, max(D, d)]. The bound does not need the order
    of decisions, but with it small gaps compensate for large ones.

    Args:
        pool: the pool; only its recovered failures are used, in any order.
        n: problems in both halves together, even.
        seed: the arm's seed; both conditions of a seed get the same halves.

    Returns:
        A, which both conditions train on, and B, which ``diffuse`` alone does; ordered by id.

    Raises:
        UserError: ``n`` is odd.
        PoolTooSmallError: fewer than ``n`` problems are recovered.
    """
    if n % 2:
        raise UserError(
            f"budget n = {n} is odd, but the conditions diffuse and concentrated split their "
            f"problems into two halves; set budget.n to an even number, such as {max(2, n - 1)}"
        )
    rng = Stream(seed, "select/allocation")
    drawn = pool.draw(pool.recovered, n, rng)
    ordered = sorted(drawn, key=count_supervised_tokens)  # ties keep their random order
    pairs = sorted(zip(ordered[::2], ordered[1::2], strict=True), key=_compute_gap, reverse=True)
    coin = rng.child("coin")
    shared, new, behind = [], [], 0  # by how many tokens A is behind B
    for shorter, longer in pairs:
        gap = _compute_gap((shorter, longer))
        heads = coin.key(shorter.problem_id) % 2 == 0
        to_shared = heads if behind == 0 else behind > 0
        shared.append(longer if to_shared else shorter)
        new.append(shorter if to_shared else longer)
        behind += -gap if to_shared else gap
    return _sort_by_id(shared), _sort_by_id(new)


def diffuse(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select for coverage: halves A and B of n recovered failures, once each."""
    shared, new = draw_halves(pool, n, rng.seed)
    return shared + new


def concentrated(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select for repetition: half A of ``diffuse``, each problem twice."""
    shared, _ = draw_halves(pool, n, rng.seed)
    return shared * 2


def _compute_gap(pair: tuple[Evidence, Evidence]) -> int:
    return count_supervised_tokens(pair[1]) - count_supervised_tokens(pair[0])


def _sort_by_id(half: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(sorted(half, key=lambda evidence: evidence.problem_id))


@hookimpl
def register_selectors(register: Register) -> None:
    """Register both selectors."""
    register("diffuse", diffuse)
    register("concentrated", concentrated, repeats=True)
