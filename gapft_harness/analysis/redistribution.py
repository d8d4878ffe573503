"""Answer redistribution: the rates of correction that answer frequencies alone would give.

See Section 5 of the paper and its table "Logic Scope Matrix and Answer-Redistribution Control". The
post-training answers are permuted within strata of source answer and audit group (G, S or U). This
preserves the frequency of each answer in each stratum, and breaks the link to the problems.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State

#: The code of a response without an answer; it is never correct.
NO_ANSWER = -1


def compute_null_rates(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, Fraction]:
    """Compute the expected share of correct answers after permutation, mean over seeds.

    The expectation is exact: each of the m problems of a stratum gets each of its m answers equally
    often, so the expected number of correct answers is the sum over answers a of (number of
    responses a) (number of golds a) / m.

    Args:
        answers: shape (S, P), the code of each seed's answer; ``NO_ANSWER`` if there is none.
        golds: shape (P,), the code of the correct answer.
        source_answers: shape (P,), the code of the source's greedy answer.
        states: shape (P,), ``G``, ``S`` or ``U``.

    Returns:
        The rates in S and U; a state without problems is omitted.

    Raises:
        ValueError: shapes do not match.
    """
    shapes = (source_answers.shape, states.shape, answers.shape[1:])
    if any(shape != golds.shape for shape in shapes) or not len(answers):
        raise ValueError(
            f"shapes do not match: answers {answers.shape}, golds {golds.shape}, source answers "
            f"{source_answers.shape}, states {states.shape}"
        )
    rates: dict[State, Fraction] = {}
    groups: tuple[State, ...] = ("S", "U")
    for group in groups:
        members = states == group
        if not members.any():
            continue
        right = Fraction(0)
        for answer in np.unique(source_answers[members]):
            stratum = members & (source_answers == answer)
            right += _expect_right(answers[:, stratum], golds[stratum])
        rates[group] = right / (int(members.sum()) * len(answers))
    return rates


def _expect_right(answers: NDArray[np.int64], golds: NDArray[np.int64]) -> Fraction:
    """Compute the expected number of correct answers of one stratum, summed over seeds.

    Args:
        answers: shape (S, m).
        golds: shape (m,).
    """
    products = sum(
        int((answers == gold).sum()) * int((golds == gold).sum()) for gold in np.unique(golds)
    )
    return Fraction(products, len(golds))
