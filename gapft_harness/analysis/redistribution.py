"""Answer redistribution: test whether the corrections exceed what answer frequencies explain.

See Section 5 of the paper and its table "Logic Scope Matrix and Answer-Redistribution Control". The
post-training answers are permuted within strata of source answer and audit group (G, S or U). This
preserves the frequency of each answer in each stratum, and breaks the link to the problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream

#: The code of a response without an answer; it is never correct.
NO_ANSWER = -1

#: Permuted answers in memory at once.
_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class Redistribution:
    """The share of correct answers in one audit group, observed and under redistribution.

    Attributes:
        items: the number of problems in the group.
        fixed: the number of these problems whose answer no permutation changes: all answers of
            their stratum are equal under every seed, or the stratum has one problem.
        observed: the share of correct answers, mean over seeds: κ_S or κ_U.
        null: its exact expectation under redistribution.
        p_value: the one-sided p value, see ``redistribute``.
    """

    items: int
    fixed: int
    observed: Fraction
    null: Fraction
    p_value: Fraction


@dataclass(frozen=True, slots=True)
class _Stratum:
    """One stratum of a group: answers of shape (S, m) and golds of shape (m,)."""

    answers: NDArray[np.int64]
    golds: NDArray[np.int64]

    @property
    def right(self) -> int:
        """The number of correct answers observed, over all seeds."""
        return int((self.answers == self.golds).sum())

    @property
    def is_fixed(self) -> bool:
        """Whether no permutation changes the answers."""
        return bool((self.answers == self.answers[:, :1]).all())

    @property
    def expected(self) -> Fraction:
        """The expected number of correct answers: a problem gets each answer equally often."""
        size = len(self.golds)
        golds, gold_counts = np.unique(self.golds, return_counts=True)
        places = np.searchsorted(golds, self.answers).clip(max=len(golds) - 1)
        answer_counts = np.bincount(places[golds[places] == self.answers], minlength=len(golds))
        return Fraction(int((answer_counts * gold_counts).sum()), size)

    def draw_right(self, permutations: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Count the correct answers under each permutation, shape (B,); seeds share them."""
        return np.concatenate([*self._draw_chunks(permutations, generator)])

    def _draw_chunks(
        self, permutations: int, generator: np.random.Generator
    ) -> Iterator[NDArray[np.int64]]:
        size = len(self.golds)
        places = np.arange(size, dtype=np.min_scalar_type(size))
        chunk = max(1, _CHUNK_VALUES // size)
        for start in range(0, permutations, chunk):
            shape = min(chunk, permutations - start), size
            order = generator.permuted(np.broadcast_to(places, shape), axis=1)
            right = np.zeros(shape[0], dtype=np.int64)
            for seed_answers in self.answers:
                right += np.count_nonzero(seed_answers[order] == self.golds, axis=1)
            yield right


def redistribute(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
    *,
    item_ids: NDArray[np.str_],
    permutations: int,
    stream: Stream,
) -> dict[State, Redistribution]:
    """Permute post-training answers within strata of (source answer, audit group).

    A permutation acts on problems and is the same for all seeds, because the answers of several
    seeds to one problem are not independent. The null rate is exact and needs no draws: under
    redistribution, each of the m problems of a stratum gets each of its m answers equally often, so
    the expected number of correct answers is the sum over answers a of (number of responses a)
    (number of golds a) / m.

    The p value is (1 + permutations with at least as many correct answers) / (1 + permutations);
    the paper prints none.

    Args:
        answers: shape (S, P), the code of each seed's answer; ``NO_ANSWER`` if there is none.
        golds: shape (P,), the code of the correct answer.
        source_answers: shape (P,), the code of the source's greedy answer.
        states: shape (P,), ``G``, ``S`` or ``U``.
        item_ids: shape (P,), distinct; problems are sorted by them, so their order does not matter.
        permutations: B.
        stream: the random stream.

    Returns:
        The results for S and U; a state without problems is omitted.

    Raises:
        ValueError: shapes do not match, ids repeat, or there is no permutation.
    """
    if permutations < 1:
        raise ValueError(f"expected at least one permutation, found {permutations}")
    if item_ids.shape != golds.shape or len(np.unique(item_ids)) != len(item_ids):
        raise ValueError("expected one distinct id per item")
    _check_shapes(answers, golds, source_answers, states)
    order = np.argsort(item_ids)
    strata = _split_by_group(answers[:, order], golds[order], source_answers[order], states[order])
    return {
        group: _redistribute_group(group_strata, permutations, stream.child(group).generator())
        for group, group_strata in strata.items()
    }


def compute_null_rates(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, Fraction]:
    """Compute only the ``null`` of ``redistribute``, which needs no permutations.

    Its docstring describes the arguments.
    """
    _check_shapes(answers, golds, source_answers, states)
    strata = _split_by_group(answers, golds, source_answers, states)
    return {
        group: _sum_expected(group_strata) / _count_decisions(group_strata)
        for group, group_strata in strata.items()
    }


def _check_shapes(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> None:
    shapes = (source_answers.shape, states.shape, answers.shape[1:])
    if any(shape != golds.shape for shape in shapes) or not len(answers):
        raise ValueError(
            f"shapes do not match: answers {answers.shape}, golds {golds.shape}, source answers "
            f"{source_answers.shape}, states {states.shape}"
        )


def _split_by_group(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, list[_Stratum]]:
    """Split the problems of S and U into strata; a state without problems is omitted."""
    groups: tuple[State, ...] = ("S", "U")
    return {
        group: [*_split_strata(answers[:, mask], golds[mask], source_answers[mask])]
        for group in groups
        if (mask := states == group).any()
    }


def _count_items(strata: list[_Stratum]) -> int:
    return sum(len(stratum.golds) for stratum in strata)


def _count_decisions(strata: list[_Stratum]) -> int:
    return _count_items(strata) * len(strata[0].answers)


def _sum_expected(strata: list[_Stratum]) -> Fraction:
    return sum((stratum.expected for stratum in strata), Fraction(0))


def _split_strata(
    answers: NDArray[np.int64], golds: NDArray[np.int64], source_answers: NDArray[np.int64]
) -> Iterator[_Stratum]:
    for answer in np.unique(source_answers):
        mask = source_answers == answer
        yield _Stratum(answers[:, mask], golds[mask])


def _redistribute_group(
    strata: list[_Stratum], permutations: int, generator: np.random.Generator
) -> Redistribution:
    right = sum(stratum.right for stratum in strata)
    moving = [stratum for stratum in strata if not stratum.is_fixed]
    totals = np.full(
        permutations, sum(stratum.right for stratum in strata if stratum.is_fixed), dtype=np.int64
    )
    for stratum in moving:
        totals += stratum.draw_right(permutations, generator)
    return Redistribution(
        items=_count_items(strata),
        fixed=_count_items(strata) - _count_items(moving),
        observed=Fraction(right, _count_decisions(strata)),
        null=_sum_expected(strata) / _count_decisions(strata),
        p_value=Fraction(1 + int((totals >= right).sum()), 1 + permutations),
    )
