"""Which problems a policy is pre-trained on, tuned on, searched on and audited on.

The problem space is divided by a hash of the question, so a question of the pool or the audit
never occurs in pre-training, whatever the seed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final, Literal

from controlled_study.families import CELLS, COIN, FAMILIES, Family, Problem

Part = Literal["pretrain", "tuning", "pool", "audit"]
#: ``mixed``: every cell has an exposure of its own. ``mastery``: half of the families have all of
#: it, and the others none.
Kind = Literal["mixed", "mastery"]

#: Percent of the problem space by part.
SHARES: Final[dict[Part, int]] = {"pretrain": 65, "tuning": 8, "pool": 12, "audit": 15}
#: Most exposure of a cell over the least.
SPREAD: Final = 300.0
#: The coin's share of the examples of a mixed policy.
COIN_SHARE: Final = 0.02

Cell = tuple[Family, int]


def part_of(problem: Problem) -> Part:
    """The part of the problem space that a question belongs to."""
    place = int(problem.digest[:8], 16) % 100
    for part, share in SHARES.items():
        if place < share:
            return part
        place -= share
    raise AssertionError("the shares sum to 100")


def exposures(kind: Kind, seed: int) -> dict[Cell, float]:
    """The share of the pre-training examples of every cell that gets any; they sum to 1.

    Of a mixed policy they are drawn log-uniformly, cell by cell; of a policy of mastery a random
    half of the families share them evenly.
    """
    rng = Random(f"exposure:{kind}:{seed}")
    if kind == "mastery":
        known = rng.sample([family.name for family in FAMILIES], len(FAMILIES) // 2)
        weights = {cell: float(cell[0].name in known) for cell in CELLS}
        coin = 0.0
    else:
        weights = {cell: math.exp(rng.uniform(0, math.log(SPREAD))) for cell in CELLS}
        coin = COIN_SHARE
    total = sum(weights.values())
    shares = {cell: (1 - coin) * weight / total for cell, weight in weights.items() if weight}
    return shares | ({(COIN, COIN.lengths[0]): coin} if coin else {})


def drawn(part: Part, cell: Cell, rng: Random) -> Iterator[Problem]:
    """Endless problems of a cell in a part, with repetitions."""
    family, length = cell
    while True:
        problem = family.problem(rng, length)
        if part_of(problem) == part:
            yield problem


def distinct(part: Part, cell: Cell, count: int) -> list[Problem]:
    """So many different problems of a cell in a part: the same for every policy.

    Where answers are few, each occurs equally often but for one; so it does over the lengths of a
    family, if all have the same count.
    """
    family, length = cell
    room = _balanced(family, family.lengths.index(length), count)
    found: dict[str, Problem] = {}
    for tried, problem in enumerate(drawn(part, cell, Random(f"{part}:{family.name}:{length}"))):
        wanted = room[problem.answer] > 0 or not family.answers
        if wanted and problem.question not in found:
            found[problem.question] = problem
            room[problem.answer] -= 1
        if len(found) == count:
            return list(found.values())
        if tried > 1000 * count:
            break
    raise ValueError(f"{part}: fewer than {count} problems of {family.name}-{length}")


def _balanced(family: Family, place: int, count: int) -> Counter[str]:
    """How often each of few answers occurs; the next length goes on where this one stops."""
    places = range(place * count, (place + 1) * count) if family.answers else ()
    return Counter(family.answers[number % len(family.answers)] for number in places)


def spread(part: Part, count: int) -> list[Problem]:
    """``count`` different problems, as many of every cell as of any other but for one."""
    each, more = divmod(count, len(CELLS))
    counts = [each + (number < more) for number in range(len(CELLS))]
    found = [distinct(part, cell, n) for cell, n in zip(CELLS, counts, strict=True) if n]
    return [problem for problems in found for problem in problems]
