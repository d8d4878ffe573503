r"""What the study adds to the harness: verifiers of boxes, gold answers, and matched selections.

``gapft run RECIPE --plugin controlled_study/plugin.py`` gives them to a run.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from gapft_harness.api import (
    Evidence,
    Gold,
    Pool,
    RegisterSelector,
    RegisterVerifier,
    Response,
    Stream,
    Verdict,
    hookimpl,
    last_box,
    once_each,
)

#: Most that the logits of two matched problems' probabilities may differ.
CALIPER: Final = 0.2


class Box:
    r"""A response passes if what it says in its last ``\boxed{}`` is the gold answer."""

    def __init__(self, said: Callable[[str], str] = str) -> None:
        """``said``: makes of the box's content what the gold answer is of."""
        self._said = said

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judges each response; each gold is a text."""
        return once_each(
            lambda texts, answers: [
                Verdict("pass")
                if self.answer(text) == answer
                else Verdict("fail", "another answer")
                for text, answer in zip(texts, answers, strict=True)
            ],
            responses,
            golds,
        )

    def check_gold(self, gold: Gold) -> str:
        """What is wrong with a gold answer, or ``""``."""
        return "" if isinstance(gold, str) else f"is {type(gold).__name__}, expected a text"

    def answer(self, text: str) -> str | None:
        """What the last box says."""
        box = last_box(text)
        return None if box is None else self._said(box)


def class_of(text: str) -> str:
    """One of four classes, by the sum of the characters: for the null of permuted answers."""
    return str(sum(map(ord, text)) % 4)


def _worked(evidence: Evidence, rng: Stream) -> Evidence:
    """A problem with its worked response, whatever the source wrote."""
    text, ids = (evidence.document[key] for key in ("solution", "solution_ids"))
    response = Response(evidence.problem_id, 0, str(text), tuple(ids), "stop", rng.seed)
    return replace(evidence, response=response)


def worked_gold(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Gold labels: failures that search missed (U), each with its worked response."""
    return [_worked(missed, rng) for missed in pool.draw(pool.missed, n, rng)]


def uniform_grouped(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Verified problems with GapFT's number of each family, length and tag: a uniform draw else."""
    drawn = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))  # GapFT's own draw
    wanted = Counter(e.document["group"] for e in drawn)
    own, found = rng.child("grouped"), list[Evidence]()
    for group, count in sorted(wanted.items()):
        members = [e for e in pool.verified if e.document["group"] == group]
        found += pool.draw(members, count, own)
    return found


def pairs(
    one: Sequence[Evidence], other: Sequence[Evidence], caliper: float = CALIPER
) -> list[tuple[Evidence, Evidence]]:
    """As many pairs as there can be of one family whose probabilities are within the caliper.

    The probability is the policy's, of the worked response, at temperature 1. Along one axis, to
    pair the least two that fit, and to pass over the lesser of two that do not, gives most pairs.
    """
    families = defaultdict[str, tuple[list[Evidence], list[Evidence]]](lambda: ([], []))
    for side, members in enumerate((one, other)):
        for evidence in sorted(members, key=lambda e: (_logit(e), e.problem_id)):
            families[evidence.document["family"]][side].append(evidence)
    found = []
    for _, (left, right) in sorted(families.items()):
        i = j = 0
        while i < len(left) and j < len(right):
            difference = _logit(left[i]) - _logit(right[j])
            if abs(difference) <= caliper:
                found.append((left[i], right[j]))
            i += difference <= caliper
            j += difference >= -caliper
    return found


def _logit(evidence: Evidence) -> float:
    p = min(max(float(evidence.document["p"]), 1e-300), 1 - 1e-15)
    return math.log(p / (1 - p))


def _matched(pool: Pool, n: int, rng: Stream, other: str, side: int) -> Sequence[Evidence]:
    """Of n pairs of recovered failures and others, one side, with the worked responses."""
    of = pool.solved if other == "G" else pool.missed
    found = {pair[0].problem_id: pair for pair in pairs(pool.recovered, of)}
    # both sides of a seed take the same pairs
    drawn = pool.draw([pair[0] for pair in found.values()], n, Stream(rng.seed, f"pairs/{other}"))
    return [_worked(found[e.problem_id][side], rng) for e in drawn]


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Registers both."""
    register("exact_box", Box)
    register("box_class", partial(Box, class_of))


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers gold, the uniform draw by groups, and both sides of both kinds of pairs."""
    register("worked_gold", worked_gold, gold=True)
    register("uniform_grouped", uniform_grouped)
    for name, other, side in (
        ("S_as_G", "G", 0), ("G_as_S", "G", 1), ("S_as_U", "U", 0), ("U_as_S", "U", 1),
    ):  # fmt: skip
        register(name, partial(_matched, other=other, side=side), gold=True)
