r"""Six families of short problems, and a coin: questions, and what four authors answer.

A response is an answer of several characters in a box. One author has the right answer; each of
three bugs has another, always made in the same way, which is hardly ever the right one. So the one
response that passes is what the right author writes, and no other one passes by luck.

A question is a family, a tag and a body, e.g. ``near f 5443=``. The tag is one of twelve letters.
It says nothing about the answer; it says who tends to write the response (``authors``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from types import MappingProxyType
from typing import Final, Literal

Part = Literal["pretrain", "pool", "audit"]
#: Percent of all bodies by part.
SHARES: Final[dict[Part, int]] = {"pretrain": 60, "pool": 18, "audit": 22}
TAGS: Final = "abcdefghijkl"
#: Who writes a response: the right procedure, or one of three bugs.
AUTHORS: Final = ("right", "bug_1", "bug_2", "bug_3")

#: Makes an answer of a body.
Author = Callable[[str], str]

_LETTERS: Final = "uvwxyz"
#: Keys of the facts, two letters each, from the commonest to the rarest.
FACT_KEYS: Final = 160


@dataclass(frozen=True)
class Problem:
    """A question with what each author answers.

    Attributes:
        family: its family's name.
        length: letters, digits or keys.
        tag: a letter that has nothing to do with the answer.
        body: the question without family, tag and the sign at its end.
    """

    family: str
    length: int
    tag: str
    body: str

    @property
    def question(self) -> str:
        """The prompt, e.g. ``add c 4712:8530=``."""
        return f"{self.family} {self.tag} {self.body}="

    @property
    def group(self) -> str:
        """Family, length and tag, e.g. ``add-4-c``: what says how often an author is right."""
        return f"{self.family}-{self.length}-{self.tag}"

    @property
    def id(self) -> str:
        """Group and the start of the body's digest."""
        return f"{self.group}-{digest(self.family, self.body)[:12]}"

    def response(self, author: int = 0) -> str:
        r"""What an author writes, e.g. ``\boxed{132}``; 0 is the right one."""
        return rf"\boxed{{{BY_NAME[self.family].authors[author](self.body)}}}"

    @property
    def answer(self) -> str:
        """The right answer."""
        return BY_NAME[self.family].authors[0](self.body)


@dataclass(frozen=True)
class Family:
    """How problems of one kind are made and answered.

    Attributes:
        name: the question's first word.
        lengths: the lengths that the study uses.
        body: a random body of a length.
        authors: what each answers to a body, the right one first.
    """

    name: str
    lengths: tuple[int, ...]
    body: Callable[[Random, int], str]
    authors: tuple[Author, ...]


#: A family and one of its lengths.
Cell = tuple[Family, int]


def digest(family: str, body: str) -> str:
    """SHA-256 of family and body in hex, without the tag."""
    return hashlib.sha256(f"{family} {body}".encode()).hexdigest()


def part_of(family: str, body: str) -> Part:
    """The part that a body belongs to, under every tag: so none occurs in two parts."""
    place = int(digest(family, body)[:8], 16) % 100
    for part, share in SHARES.items():
        if place < share:
            return part
        place -= share
    raise AssertionError("the shares sum to 100")


def drawn(part: Part, family: Family, length: int, rng: Random) -> Iterator[str]:
    """Endless bodies of a family and length in a part, with repetitions."""
    while True:
        body = family.body(rng, length)
        if part_of(family.name, body) == part:
            yield body


def distinct(part: Part, family: Family, length: int, count: int) -> list[Problem]:
    """So many different bodies of a part, tags dealt out in turn: the same for every policy.

    Raises:
        ValueError: there are not so many.
    """
    found: dict[str, Problem] = {}
    bodies = drawn(part, family, length, Random(f"{part}:{family.name}:{length}"))
    for tried, body in enumerate(bodies):
        if body not in found:
            tag = TAGS[len(found) % len(TAGS)]
            found[body] = Problem(family.name, length, tag, body)
        if len(found) == count:
            return list(found.values())
        if tried > 1000 * count:
            break
    raise ValueError(f"{part}: fewer than {count} problems of {family.name}-{length}")


def spread(part: Part, count: int, cells: Sequence[Cell]) -> list[Problem]:
    """So many different problems; all cells have equally many of them, but for one."""
    each, more = divmod(count, len(cells))
    counts = [each + (number < more) for number in range(len(cells))]
    found = [distinct(part, *cell, n) for cell, n in zip(cells, counts, strict=True) if n]
    return [problem for problems in found for problem in problems]


def _digits(rng: Random, length: int) -> str:
    return "".join(str(rng.randrange(10)) for _ in range(length))


def _letters(rng: Random, length: int) -> str:
    return "".join(rng.choices(_LETTERS, k=length))


def _moved(by: int) -> Author:
    """Every letter so many places on."""
    return lambda body: "".join(_LETTERS[(_LETTERS.index(c) + by) % len(_LETTERS)] for c in body)


def _ordered(*places: int) -> Author:
    """Letters in another order, which begins with these places and goes on with the rest."""

    def author(body: str) -> str:
        rest = [place for place in range(len(body)) if place not in places]
        return "".join(body[place] for place in (*places, *rest))

    return author


def _neighbours(value: Callable[[int, int], int]) -> Author:
    """Of each digit and the next, the first being the next of the last; modulo 10."""

    def author(body: str) -> str:
        digits = list(map(int, body))
        pairs = zip(digits, [*digits[1:], digits[0]], strict=True)
        return "".join(str(value(a, b) % 10) for a, b in pairs)

    return author


def _running(first: int, value: Callable[[int, int], int]) -> Author:
    """From left to right, of the value before and the next digit; modulo 10."""

    def author(body: str) -> str:
        found, last = "", first
        for digit in map(int, body):
            last = value(last, digit) % 10
            found += str(last)
        return found

    return author


def _columns(value: Callable[[int, int], int]) -> Author:
    """Of two numbers' digits in one place; modulo 10."""

    def author(body: str) -> str:
        a, b = body.split(":")
        return "".join(str(value(int(x), int(y)) % 10) for x, y in zip(a, b, strict=True))

    return author


# Facts: keys of two letters, each with two digits to be known by heart; the answer is all of them.


def fact(key: str) -> str:
    """Two different digits, the same for every policy; they follow from nothing."""
    rng = Random(f"fact:{key}")
    return "".join(map(str, rng.sample(range(10), 2)))


_KEYS: Final = tuple(
    Random("keys").sample([a + b for a in ascii_lowercase for b in ascii_lowercase], FACT_KEYS)
)
_WEIGHTS: Final = tuple(1 / rank for rank in range(1, FACT_KEYS + 1))


def _keys(rng: Random, length: int) -> str:
    """Different keys by Zipf's law."""
    found = dict[str, None]()
    while len(found) < length:
        found |= dict.fromkeys(rng.choices(_KEYS, _WEIGHTS))
    return "".join(found)


def _recalled(told: Callable[[str], str]) -> Author:
    return lambda body: "".join(told(fact(body[at : at + 2])) for at in range(0, len(body), 2))


def _by(more: int) -> Callable[[str], str]:
    """Adds to every digit, modulo 10."""
    return lambda text: "".join(str((int(c) + more) % 10) for c in text)


def _coin(body: str) -> str:
    """0 or 1: nothing that the digits show, and no policy is told."""
    return str(int(digest("coin", body)[-1], 16) % 2)


FAMILIES: Final = (
    Family("move", (5, 6), _letters, (_moved(1), _moved(-1), _moved(2), _moved(0))),
    Family("order", (5, 6), _letters, (
        _ordered(1, 2, 3, 4), _ordered(1, 0, 3, 2), _ordered(2, 3, 4), _ordered(4, 0),
    )),
    Family("near", (4, 5), _digits, (
        _neighbours(lambda a, b: a + b), _neighbours(lambda a, b: a - b), _neighbours(max),
        _neighbours(lambda a, b: 9 - a - b),
    )),
    Family("run", (4, 5), _digits, (
        _running(0, lambda last, d: last + d), _running(1, lambda last, d: last + d),
        _running(0, lambda last, d: last - d), _running(0, lambda last, d: d + 3),
    )),
    Family("add", (4, 5), lambda rng, n: f"{_digits(rng, n)}:{_digits(rng, n)}", (
        _columns(lambda a, b: a + b), _columns(lambda a, b: a - b), _columns(max), _columns(min),
    )),
    Family("fact", (2, 3), _keys, (
        _recalled(str), _recalled(lambda text: text[::-1]), _recalled(_by(1)), _recalled(_by(-1)),
    )),
)  # fmt: skip
#: For the null of pure luck; not among the families of the study.
COIN: Final = Family("coin", (6,), _digits, (_coin,) * len(AUTHORS))

BY_NAME: Final = MappingProxyType({family.name: family for family in (*FAMILIES, COIN)})
CELLS: Final[tuple[Cell, ...]] = tuple(
    (family, length) for family in FAMILIES for length in family.lengths
)
