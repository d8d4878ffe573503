"""The older controls with a shared core: keep every solved problem, replace repeated evidence.

Appendix A, "Logic run families", and "Evidence Replacement Controls": of |E_G| + |E_S,K| slots, the
core fills |E_G| in every condition, one with each solved problem. The other slots repeat solved
problems (K = 0), or hold failures instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl
from gapft_harness.core.golds import gold_fault
from gapft_harness.plugins.selectors.gold_labels import gold_labels
from gapft_harness.plugins.selectors.search_depth import check_depth, select_recovered_within


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
    core = _build_core(pool, n)
    slots = pool.draw(pool.recovered, n - len(core), Stream(rng.seed, "select/gapft"))
    recovered_ids = {e.problem_id for e in select_recovered_within(slots, k)}
    if len(recovered_ids) == len(slots):
        return [*core, *slots]
    repeated = match_repeats(pool, slots, rng.seed)
    return [
        *core,
        *(e if e.problem_id in recovered_ids else r for e, r in zip(slots, repeated, strict=True)),
    ]


def core_gold(pool: Pool, n: int, rng: Stream, answer_only: bool = True) -> Sequence[Evidence]:
    """Select every solved problem (G), and the choice of ``gold_labels`` for other slots (S, U).

    Args:
        n: slots, including the core.

    Raises:
        UserError: the core leaves no slot, or see ``gold_labels``.
        PoolTooSmallError: fewer recovered failures than slots outside the core.
    """
    core = _build_core(pool, n)
    stream = Stream(rng.seed, "select/gold_labels")
    return [*core, *gold_labels(pool, n - len(core), stream, answer_only)]


def match_repeats(pool: Pool, slots: Sequence[Evidence], seed: int) -> list[Evidence]:
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
    unused: list[tuple[int, int]] = []
    chosen: list[Evidence] = []
    balance = 0
    for failure in slots:
        unused = unused or sorted(
            (_count_processed_tokens(e), place) for place, e in enumerate(order)
        )
        balance += _count_processed_tokens(failure)
        position = bisect_left(unused, (balance, 0))
        neighbours = range(max(0, position - 1), min(len(unused), position + 1))
        nearest = min(neighbours, key=lambda i: abs(unused[i][0] - balance))
        tokens, place = unused.pop(nearest)
        balance -= tokens
        chosen.append(order[place])
    return chosen


def _build_core(pool: Pool, n: int) -> list[Evidence]:
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


def _count_processed_tokens(evidence: Evidence) -> int:
    """Count processed tokens under the default settings, with an end token if it ended."""
    return evidence.tokens + evidence.ended


@hookimpl
def register_selectors(register: Register) -> None:
    """Register both selectors."""
    register("core_depth", core_depth, repeats=True)
    register("core_gold", core_gold, responses="borrowed", check_gold=gold_fault)
