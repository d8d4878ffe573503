"""The older controls with a shared core: every solved problem stays, repeated evidence is replaced.

Appendix A, "Logic run families", and "Evidence Replacement Controls": of |E_G| + |E_S,K| slots the
core fills |E_G| in every condition, once with each solved problem. The slots beside it repeat
solved problems (K = 0), or hold failures in place of the repeated ones.
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
    """Every solved problem (G); beside them what the first k samples recover (S), else repeats.

    The slots beside the core are GapFT's under the same seed. One whose failure the first k
    samples do not recover repeats a solved problem, the same one for every such k: the nearest
    to its failure in processed tokens, see ``repeats``. So two depths differ in the slots of the
    failures that lie between them, and in no other.

    Args:
        n: slots, those of the core among them: with ``n: verified``, one for each recovered
            failure is beside it.
        k: how many of the K samples search may use.

    Raises:
        UserError: k is no whole number from 0 to the samples that were drawn, or the core leaves
            no slot.
        PoolTooSmallError: fewer recovered failures than slots beside the core, or no solved
            problem that could be repeated.
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
    """Every solved problem (G); beside them what ``gold_labels`` takes of as many slots (S, U).

    Args:
        n: slots, those of the core among them.

    Raises:
        UserError: the core leaves no slot, or see ``gold_labels``.
        PoolTooSmallError: fewer recovered failures than slots beside the core.
    """
    core = _core(pool, n)
    own = Stream(rng.seed, "select/gold_labels")
    return [*core, *gold_labels(pool, n - len(core), own, answer_only)]


def repeats(pool: Pool, slots: Sequence[Evidence], seed: int) -> list[Evidence]:
    """A solved problem for each failure, so that both process as many tokens in all.

    In the order of ``slots`` each failure gets the solved problem that is nearest to it in
    processed tokens (prompt, response, end token), plus what the earlier ones left over. No
    problem comes twice before each has come once. Which of several of one length, the seed draws.

    Args:
        slots: failures, in the order of a draw.

    Returns:
        As many as ``slots``, in their order.

    Raises:
        PoolTooSmallError: nothing is solved.
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
    """Every solved problem once, ordered by id: the same under every seed.

    Raises:
        UserError: they leave no slot.
    """
    if n <= len(pool.solved):
        raise UserError(
            f"the core holds all {len(pool.solved)} solved problems of the pool, and n = {n} "
            "leaves no slot beside them; give the condition n: verified"
        )
    return sorted(pool.solved, key=lambda e: e.problem_id)


def _tokens(evidence: Evidence) -> int:
    """Processed tokens under the default settings: an end token follows what ended by itself."""
    return evidence.tokens + evidence.ended


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers both."""
    register("core_depth", core_depth, repeats=True)
    register("core_gold", core_gold, responses="borrowed", check_gold=gold_fault)
