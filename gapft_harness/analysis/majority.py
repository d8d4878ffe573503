"""Majority voting among all samples of a problem: maj@K.

The samples with an answer vote for it, and the most frequent answer is the result; samples without
an answer do not vote. Answers that are equally frequent share the vote, as if one was drawn.
Without any vote the result is wrong.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.redistribution import NO_ANSWER


def compute_majority(
    answers: NDArray[np.integer], passed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Compute each problem's expected accuracy of a majority vote.

    A verifier may pass only some responses with the same answer (a time-out, for example). Then a
    response with the elected answer is drawn at random.

    Args:
        answers: shape (P, K), codes of the answers, distinct within a problem; ``NO_ANSWER`` for a
            response without an answer.
        passed: shape (P, K), whether each response passed.

    Returns:
        Shape (P,), fractions in [0, 1].
    """
    accuracies = []
    for codes, outcomes in zip(answers.tolist(), passed.tolist(), strict=True):
        votes = Counter(code for code in codes if code != NO_ANSWER)
        right = Counter(code for code, outcome in zip(codes, outcomes, strict=True) if outcome)
        most = max(votes.values(), default=0)
        shares = sorted(right[code] / most for code, count in votes.items() if count == most)
        accuracies.append(sum(shares) / len(shares) if shares else 0.0)
    return np.array(accuracies, dtype=np.float64)
