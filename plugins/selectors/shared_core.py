"""The older controls with a shared core: keep every solved problem, replace repeated evidence.

Appendix A, "Logic run families", and "Evidence Replacement Controls": of |E_G| + |E_S,K| slots, the
core fills |E_G| in every condition, one with each solved problem. The other slots repeat solved
problems (K = 0), or hold failures instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from gapft_harness.api import (
    Evidence,
    Pool,
    RegisterSelector,
    Stream,
    UserError,
    gold_fault,
    hookimpl,
)
from gapft_harness.plugins.selectors.gold_labels import gold_labels
from gapft_harness.plugins.selectors.replacing_replay import check_depth, recovered_within


def core_depth(pool: Pool, n: int, rng: Stream, k: int) -> Sequence[Evidence]:
    """Select every solved problem (G), and failures that k samples recover (S), else repeats.

    The slots outside the core are GapFT's under the same seed. A slot whose failure the first k
    samples do not recover repeats a solved problem, the same one for every such k: the nearest to
    its failure in processed tokens, see ``match_repeats``. So two depths differ only in the slots
    of failures recovered between them.

    Args:
        n: slots, including the core: with ``n: verified`` there is one other slot per recovered
            failure.
        k: number of the K samples that the search may use.

    Raises:
        UserError: k is not an integer from 0 to the number of drawn samples, or the core leaves no
            slot.
        PoolTooSmallError: fewer recovered failures than slots outside the core, or no solved
            problem to repeat.
    """
    check_depth(pool, k, "core_depth")
    core = _core(pool, n)
    slots = pool.draw(pool.recovered, n - len(core), Stream(rng.seed, "select/gapft"))
    found = {e.problem_id for e in recovered_within(slots, k)}
    if len(found) == len(slots):
        return [*core, *slots]
    repeated = repeats(pool, slots, rng.seed)
    return [
        *core,
        *(e if e.problem_id in found else r for e, r in zip(slots, repeated, strict=True)),
    ]


def core_gold(pool: Pool, n: int, rng: Stream, answer_only: bool = True) -> Sequence[Evidence]:
    """Select every solved problem (G), and the choice of ``gold_labels`` for other slots (S, U).

    Args:
        n: slots, including the core.

    Raises:
        UserError: the core leaves no slot, or see ``gold_labels``.
        PoolTooSmallError: fewer recovered failures than slots outside the core.
    """
    core = _core(pool, n)
    own = Stream(rng.seed, "select/gold_labels")
    return [*core, *gold_labels(pool, n - len(core), own, answer_only)]


def repeats(pool: Pool, slots: Sequence[Evidence], seed: int) -> list[Evidence]:
    """Return one solved problem per failure, with as many processed tokens in total.

    In the order of ``slots``, each failure gets the solved problem nearest to it in processed
    tokens (prompt, response, end token), plus the balance of the earlier ones. No problem repeats
    before each was used once. The seed decides between problems of equal length.

    Args:
        slots: failures, in the order of a draw.

    Returns:
        One problem per slot, in the order of ``slots``.

    Raises:
        PoolTooSmallError: no problem is solved.
    """
    order = pool.draw(pool.solved, max(1, len(pool.solved)), Stream(seed, "select/replay"))
    left: list[tuple[int, int]] = []
    found: list[Evidence] = []
    owed = 0
    for failure in slots:
        left = left or sorted((_tokens(e), place) for place, e in enumerate(order))
        owed += _tokens(failure)
        after = bisect_left(left, (owed, 0))
        beside = range(max(0, after - 1), min(len(left), after + 1))
        near = min(beside, key=lambda i: abs(left[i][0] - owed))
        tokens, place = left.pop(near)
        owed -= tokens
        found.append(order[place])
    return found


def _core(pool: Pool, n: int) -> list[Evidence]:
    """Return every solved problem once, ordered by id: the same under every seed.

    Raises:
        UserError: no slot remains.
    """
    if n <= len(pool.solved):
        raise UserError(
            f"the core holds all {len(pool.solved)} solved problems of the pool, so n = {n} "
            "leaves no other slot; set n: verified in the condition"
        )
    return sorted(pool.solved, key=lambda e: e.problem_id)


def _tokens(evidence: Evidence) -> int:
    """Count processed tokens under the default settings, with an end token if it ended."""
    return evidence.tokens + evidence.ended


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Register both selectors."""
    register("core_depth", core_depth, repeats=True)
    register("core_gold", core_gold, responses="borrowed", check_gold=gold_fault)
