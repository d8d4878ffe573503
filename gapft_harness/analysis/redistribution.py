"""Answer redistribution: is the correction tied to problems, or would answer frequencies do?

Section 5 of the paper and its table "Logic Scope Matrix and Answer-Redistribution Control". The
post-training answers are permuted within strata of source answer and audit group (G, S or U). That
keeps how often each answer is given in each stratum, and breaks which problem it is given to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream

#: The code of a response that gives no answer; it is never right.
NO_ANSWER = -1

#: Permuted answers held in memory at once.
_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class Redistributed:
    """The share of right answers in one audit group, as observed and under redistribution.

    Attributes:
        items: problems of the group.
        fixed: of them, those that are the only one of their stratum, or whose stratum gives one
            answer alone under every seed: no permutation changes what they are given.
        observed: the mean over seeds of the share that is right: κ_S or κ_U.
        null: its expectation under redistribution, exact.
        p_value: one-sided, see ``redistribute``.
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
        """Right answers as observed, over all seeds."""
        return int((self.answers == self.golds).sum())

    @property
    def fixed(self) -> bool:
        """Whether every permutation gives each problem what it has."""
        return bool((self.answers == self.answers[:, :1]).all())

    @property
    def expected(self) -> Fraction:
        """Right answers to be expected: each problem gets each answer of its stratum as often."""
        size = len(self.golds)
        golds, wanted = np.unique(self.golds, return_counts=True)
        places = np.searchsorted(golds, self.answers).clip(max=len(golds) - 1)
        given = np.bincount(places[golds[places] == self.answers], minlength=len(golds))
        return Fraction(int((given * wanted).sum()), size)

    def drawn(self, permutations: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Shape (B,): right answers under each permutation, the same one for all seeds."""
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
    """Permutes post-training answers within strata of (source answer, audit group).

    A permutation moves problems, and so is the same for all seeds: what several seeds answer to one
    problem is no independent evidence. The null rate needs no draws: under redistribution, each of
    the m problems of a stratum gets each of its m answers equally often, so the expected number
    of right ones is, summed over answers a, (times a is given) (times a is right) / m.

    The p value is (1 + permutations with at least as many right answers) / (1 + permutations); the
    paper prints none.

    Args:
        answers: shape (S, P), what each seed's model answers, as codes; ``NO_ANSWER`` where it
            gives none.
        golds: shape (P,), the code of the right answer.
        source_answers: shape (P,), what the source's greedy decode answers.
        states: shape (P,), ``G``, ``S`` or ``U``.
        item_ids: shape (P,), distinct; problems are sorted by them, so their order says nothing.
        permutations: B.
        stream: the randomness.

    Returns:
        S and U, without those that have no problem.

    Raises:
        ValueError: shapes that do not fit, repeated ids, or no permutation.
    """
    if permutations < 1:
        raise ValueError(f"expected at least one permutation, found {permutations}")
    if item_ids.shape != golds.shape or len(np.unique(item_ids)) != len(item_ids):
        raise ValueError("expected one distinct id an item")
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
    """The ``null`` of ``redistribute`` alone, which takes no permutations; arguments as there."""
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
            f"answers of shape {answers.shape} do not fit golds of {golds.shape}, source answers "
            f"of {source_answers.shape} and {states.shape} states"
        )


def _by_group(
    answers: NDArray[np.int64],
    golds: NDArray[np.int64],
    source_answers: NDArray[np.int64],
    states: NDArray[np.str_],
) -> dict[State, list[_Stratum]]:
    """The strata of S and of U, where they have problems."""
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
