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
class Redistributed:
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
    def fixed(self) -> bool:
        """Whether no permutation changes the answers."""
        return bool((self.answers == self.answers[:, :1]).all())

    @property
    def expected(self) -> Fraction:
        """The expected number of correct answers: a problem gets each answer equally often."""
        size = len(self.golds)
        golds, wanted = np.unique(self.golds, return_counts=True)
        places = np.searchsorted(golds, self.answers).clip(max=len(golds) - 1)
        given = np.bincount(places[golds[places] == self.answers], minlength=len(golds))
        return Fraction(int((given * wanted).sum()), size)

    def drawn(self, permutations: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Count the correct answers under each permutation, shape (B,); seeds share them."""
        return np.concatenate([*self._chunks(permutations, generator)])

    def _chunks(
        self, permutations: int, generator: np.random.Generator
    ) -> Iterator[NDArray[np.int64]]:
        size = len(self.golds)
        places = np.arange(size, dtype=np.min_scalar_type(size))
        chunk = max(1, _CHUNK_VALUES // size)
        for start in range(0, permutations, chunk):
            shape = min(chunk, permutations - start), size
            order = generator.permuted(np.broadcast_to(places, shape), axis=1)
            right = np.zeros(shape[0], dtype=np.int64)
            for of_seed in self.answers:
                right += np.count_nonzero(of_seed[order] == self.golds, axis=1)
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
) -> dict[State, Redistributed]:
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
    _require_fit(answers, golds, source_answers, states)
    order = np.argsort(item_ids)
    strata = _by_group(answers[:, order], golds[order], source_answers[order], states[order])
    return {
        group: _redistributed(of, permutations, stream.child(group).generator())
        for group, of in strata.items()
    }


def null_rates(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, Fraction]:
    """Compute only the ``null`` of ``redistribute``, which needs no permutations.

    Its docstring describes the arguments.
    """
    _require_fit(answers, golds, source_answers, states)
    strata = _by_group(answers, golds, source_answers, states)
    return {group: _expected(of) / _decisions(of) for group, of in strata.items()}


def _require_fit(
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


def _by_group(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, list[_Stratum]]:
    """Split the problems of S and U into strata; a state without problems is omitted."""
    groups: tuple[State, ...] = ("S", "U")
    return {
        group: [*_strata(answers[:, of], golds[of], source_answers[of])]
        for group in groups
        if (of := states == group).any()
    }


def _items(strata: list[_Stratum]) -> int:
    return sum(len(of.golds) for of in strata)


def _decisions(strata: list[_Stratum]) -> int:
    return _items(strata) * len(strata[0].answers)


def _expected(strata: list[_Stratum]) -> Fraction:
    return sum((of.expected for of in strata), Fraction(0))


def _strata(
    answers: NDArray[np.int64], golds: NDArray[np.int64], source_answers: NDArray[np.int64]
) -> Iterator[_Stratum]:
    for answer in np.unique(source_answers):
        of = source_answers == answer
        yield _Stratum(answers[:, of], golds[of])


def _redistributed(
    strata: list[_Stratum], permutations: int, generator: np.random.Generator
) -> Redistributed:
    right = sum(of.right for of in strata)
    moving = [of for of in strata if not of.fixed]
    drawn = np.full(permutations, sum(of.right for of in strata if of.fixed), dtype=np.int64)
    for of in moving:
        drawn += of.drawn(permutations, generator)
    return Redistributed(
        items=_items(strata),
        fixed=_items(strata) - _items(moving),
        observed=Fraction(right, _decisions(strata)),
        null=_expected(strata) / _decisions(strata),
        p_value=Fraction(1 + int((drawn >= right).sum()), 1 + permutations),
    )
