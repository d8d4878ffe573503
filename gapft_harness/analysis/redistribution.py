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
        alone: of them, those that are the only one of their stratum, or whose stratum gives one
            answer alone under every seed: no permutation changes what they are given.
        observed: the mean over seeds of the share that is right: κ_S or κ_U.
        null: its expectation under redistribution, exact.
        p_value: one-sided, see ``redistribute``.
    """

    items: int
    alone: int
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
    items = golds.shape
    shapes = (source_answers.shape, states.shape, item_ids.shape, answers.shape[1:])
    if any(shape != items for shape in shapes) or not len(answers):
        raise ValueError(
            f"answers of shape {answers.shape} do not fit golds of {items}, source answers of "
            f"{source_answers.shape}, {states.shape} states and {item_ids.shape} ids"
        )
    if len(np.unique(item_ids)) != len(item_ids):
        raise ValueError("item ids must be distinct")
    if permutations < 1:
        raise ValueError(f"expected at least one permutation, found {permutations}")
    order = np.argsort(item_ids)
    found: dict[State, Redistributed] = {}
    groups: tuple[State, ...] = ("S", "U")
    for group in groups:
        members = order[states[order] == group]
        if len(members):
            strata = [*_strata(answers[:, members], golds[members], source_answers[members])]
            generator = stream.child(group).generator()
            found[group] = _redistributed(strata, permutations, generator)
    return found


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
    items = sum(len(of.golds) for of in strata)
    decisions = items * len(strata[0].answers)
    return Redistributed(
        items=items,
        alone=items - sum(len(of.golds) for of in moving),
        observed=Fraction(right, decisions),
        null=sum((of.expected for of in strata), Fraction(0)) / decisions,
        p_value=Fraction(1 + int((drawn >= right).sum()), 1 + permutations),
    )
