"""Who writes the responses of pre-training: the right procedure, or one of three bugs.

All policies go on from one base, for which all authors wrote equally often. An author's logit in a
policy's own examples is the sum of random effects of family, length, tag, and family and tag
together, drawn anew for each seed. So a policy knows every procedure and is right as often as its
examples were, group by group; what it does in one decode is what most of them did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Final

from controlled_study.problems import AUTHORS, CELLS, COIN, TAGS, Cell, Problem, drawn

#: Mean of the right procedure's logit; a bug's is 0.
RIGHT: Final = 0.65
#: Standard deviations of the effects of family, length, tag, and family and tag.
SPREAD: Final = (0.3, 0.2, 0.6, 1.1)
#: Of each family, its share of the examples but for the coin's: slow ones have more.
FAMILY_SHARES: Final = {
    "move": 0.06, "order": 0.12, "near": 0.22, "run": 0.18, "add": 0.22, "fact": 0.20,
}  # fmt: skip
#: The coin's share of the examples.
COIN_SHARE: Final = 0.02


@cache
def shares(seed: int | None) -> dict[str, tuple[float, ...]]:
    """By group every author's share of its examples; they sum to 1. Of the base they are equal."""
    rng, effects = Random(f"authors:{seed}"), dict[tuple[str, ...], tuple[float, ...]]()

    def effect(deviation: float, *of: str) -> tuple[float, ...]:
        if of not in effects:
            effects[of] = tuple(rng.gauss(0, deviation) for _ in AUTHORS)
        return effects[of]

    found = {}
    for family, length in CELLS:
        for tag in TAGS:
            parts = (family.name,), (family.name, str(length)), (tag,), (family.name, "x", tag)
            logits = (
                [0.0] * len(AUTHORS)
                if seed is None
                else [
                    RIGHT * (author == 0)
                    + sum(effect(sd, *of)[author] for sd, of in zip(SPREAD, parts, strict=True))
                    for author in range(len(AUTHORS))
                ]
            )
            total = sum(map(math.exp, logits))
            group = Problem(family.name, length, tag, "").group
            found[group] = tuple(math.exp(logit) / total for logit in logits)
    return found


def batch_of(
    seed: int | None, number: int, size: int, cells: Sequence[Cell] = CELLS
) -> list[tuple[Problem, str]]:
    """Problems and responses of one step: a function of the seed (or base) and its number alone."""
    rng, by_group = Random(f"pretrain:{seed}:{number}"), shares(seed)
    chances, found = [FAMILY_SHARES[family.name] for family, _ in cells], []
    for _ in range(size):
        is_coin = rng.random() < COIN_SHARE
        family, length = (COIN, COIN.lengths[0]) if is_coin else rng.choices(cells, chances)[0]
        tag = rng.choice(TAGS)
        problem = Problem(family.name, length, tag, next(drawn("pretrain", family, length, rng)))
        if is_coin:
            found.append((problem, rf"\boxed{{{rng.randrange(2)}}}"))
        else:
            weights = by_group[problem.group]
            found.append((problem, problem.response(rng.choices(range(len(AUTHORS)), weights)[0])))
    return found
