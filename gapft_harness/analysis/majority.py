"""Majority voting among k of n samples per problem: maj@k.

The samples with an answer vote for it, and the most frequent answer is the result; samples without
an answer do not vote. Between answers that are equally frequent the vote is drawn at random, so
each has the same share. Without any vote the result is wrong.

The estimate is the exact expectation over all C(n, k) choices of k of the n drawn samples, as for
Pass@k. With n_b samples for answer b, the choices in which t answers are the most frequent ones,
with j votes each, are counted by products of polynomials: the coefficient of x^i in the factor of
an answer is C(n_b, i), the number of ways to choose i of its votes.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.redistribution import NO_ANSWER

#: Maximum samples of a problem: numbers of choices are floats, which C(n, k) exceeds beyond 1,029.
MAX_SAMPLES = 1_000

#: For each answer: its votes, and how many of them passed.
_Ballot = tuple[tuple[int, int], ...]


def majority_at_k(answers: NDArray[np.integer], passed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Compute each problem's expected accuracy of a majority vote, for every k from 1 to n.

    A verifier may pass only some responses with the same answer (a time-out, for example). Then a
    response with the elected answer is drawn at random.

    Args:
        answers: shape (P, n), codes of the answers, distinct within a problem; ``NO_ANSWER`` for a
            response without an answer.
        passed: shape (P, n), whether each response passed.

    Returns:
        Shape (P, n), fractions in [0, 1]; column k - 1 is maj@k.

    Raises:
        ValueError: the shapes differ, or n is outside 1..``MAX_SAMPLES``.
    """
    if answers.shape != passed.shape or answers.ndim != 2:
        raise ValueError(
            f"expected answers and verdicts of the same shape (problems, samples), found "
            f"{answers.shape} and {passed.shape}"
        )
    samples = answers.shape[1]
    if not 1 <= samples <= MAX_SAMPLES:
        raise ValueError(f"expected 1 to {MAX_SAMPLES} samples, found {samples}")
    rows, results = [], dict[_Ballot, NDArray[np.float64]]()
    for codes, outcomes in zip(answers.tolist(), passed.tolist(), strict=True):
        votes = Counter(code for code in codes if code != NO_ANSWER)
        right = Counter(code for code, outcome in zip(codes, outcomes, strict=True) if outcome)
        ballot = tuple(sorted((count, right[code]) for code, count in votes.items()))
        if ballot not in results:  # many problems have the same numbers of votes
            results[ballot] = _compute_accuracy(ballot, samples)
        rows.append(results[ballot])
    return np.array(rows, dtype=np.float64).reshape(answers.shape)


def _compute_accuracy(ballot: _Ballot, samples: int) -> NDArray[np.float64]:
    """Compute maj@k of one problem, for k from 1 to n.

    Args:
        ballot: votes and passed votes of each answer.
        samples: n.
    """
    right_choices = np.zeros(samples + 1)
    if any(right for _, right in ballot):
        for most in range(1, max(count for count, _ in ballot) + 1):
            leaders = tuple(answer for answer in ballot if answer[0] >= most)
            # all other votes, and samples without an answer, may be chosen freely
            free = samples - sum(count for count, _ in leaders)
            right_choices += np.convolve(
                _count_elections(leaders, most), _count_choices(free, free)
            )
    accuracy: NDArray[np.float64] = right_choices[1:] / _count_choices(samples, samples)[1:]
    return accuracy


def _count_elections(leaders: _Ballot, most: int) -> NDArray[np.float64]:
    """Count the choices whose elected answer is right, if the elected answer has ``most`` votes.

    Args:
        leaders: the answers with at least ``most`` votes.
        most: the largest number of chosen votes of an answer.

    Returns:
        Shape (V + 1,), V the votes for these answers, by the number of chosen ones; an answer that
        passed in a part of its responses, or that shares the first place, counts by that part.
    """
    votes = sum(count for count, _ in leaders)
    # by the number of answers in the first place, and of chosen votes: the number of choices, and
    # the sum over these choices of the passed shares of the answers in the first place
    choices, right_shares = np.zeros((2, len(leaders) + 1, votes + 1))
    choices[0, 0] = 1
    for count, right in leaders:
        fewer = _count_choices(count, most - 1)
        leading, leading_shares = choices[:-1, :-most], right_shares[:-1, :-most]
        choices, right_shares = (_multiply(ways, fewer) for ways in (choices, right_shares))
        ways = math.comb(count, most)
        choices[1:, most:] += ways * leading
        right_shares[1:, most:] += ways * (leading_shares + right / count * leading)
    places = np.arange(1, len(leaders) + 1)[:, None]
    elections: NDArray[np.float64] = (right_shares[1:] / places).sum(axis=0)
    return elections


def _multiply(ways: NDArray[np.float64], factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply each row's polynomial by a factor, up to the degree of the row."""
    product = np.zeros_like(ways)
    for degree, coefficient in enumerate(factor):
        product[:, degree:] += coefficient * ways[:, : ways.shape[1] - degree]
    return product


def _count_choices(count: int, largest: int) -> NDArray[np.float64]:
    """Count the choices of 0, 1, ..., ``largest`` of ``count`` votes."""
    return np.array([math.comb(count, chosen) for chosen in range(largest + 1)], dtype=np.float64)
