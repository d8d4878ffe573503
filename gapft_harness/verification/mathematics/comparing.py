"""Compare answers in worker processes (see ``pool.py``): sympy may hang or use much memory."""

from __future__ import annotations

from gapft_harness.verification.mathematics.equality import check_answer, find_gold_fault

__all__ = ["compare_answers", "find_gold_fault", "prepare_math"]


def prepare_math() -> None:
    """Build sympy's caches before the time limit of the first pair starts."""
    for answer in ("x+0.5", r"\sin^2 x", r"\sqrt{2}"):
        check_answer(r"\frac{1}{2}+x", answer)


def compare_answers(pair: list[str]) -> bool:
    """Return whether ``[gold, answer]``, both LaTeX without a box, are equal in value."""
    gold, answer = pair
    return check_answer(gold, answer)
