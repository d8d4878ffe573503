r"""Eight families of short problems, and a coin: questions, worked responses, answers.

A response shows its intermediate values, each followed by a semicolon, and ends with the answer in
a box. There is one way to write it, so a passing response that differs from the worked one has a
wrong or missing step: it was lucky. The verifier reads the box alone.

Where a family has few answers, a random problem has each with equal probability. The pool and the
audit do not leave this to chance: they are balanced (``splits.distinct``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final

MODULUS: Final = 5
DEEPEST: Final = 4
_LETTERS: Final = "wxyz"
_CLOSING: Final = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Problem:
    """A question with its worked response.

    Attributes:
        family: its family's name.
        length: what makes it longer or shorter: digits, terms, steps; see ``FAMILIES``.
        body: the question without the family's name and the sign at its end.
        steps: the intermediate values of the worked response.
        answer: the final answer.
    """

    family: str
    length: int
    body: str
    steps: tuple[str, ...]
    answer: str

    @property
    def question(self) -> str:
        """The prompt, e.g. ``add 47+85=``."""
        return f"{self.family} {self.body}="

    @property
    def worked(self) -> str:
        r"""The one correct response, e.g. ``12;13;\boxed{132}``."""
        return "".join(f"{step};" for step in self.steps) + rf"\boxed{{{self.answer}}}"

    @property
    def digest(self) -> str:
        """SHA-256 of the question in hex; it says which part of the problem space this is in."""
        return hashlib.sha256(self.question.encode()).hexdigest()

    @property
    def cell(self) -> str:
        """Family and length, e.g. ``add-2``: what pre-training exposes more or less of."""
        return f"{self.family}-{self.length}"


@dataclass(frozen=True)
class Family:
    """How problems of one kind are made.

    Attributes:
        name: the question's first word.
        lengths: the lengths that the study uses.
        answers: all of them where a guess can be right; none: too many to guess.
        make: a random problem's body, steps and answer, of a length.
    """

    name: str
    lengths: tuple[int, ...]
    answers: tuple[str, ...]
    make: Callable[[Random, int], tuple[str, tuple[str, ...], str]]

    def problem(self, rng: Random, length: int) -> Problem:
        """A random problem of a length."""
        return Problem(self.name, length, *self.make(rng, length))


def _digits(rng: Random, length: int) -> list[int]:
    """Random digits; the first is not 0."""
    return [rng.randrange(1, 10), *(rng.randrange(10) for _ in range(length - 1))]


def _text(values: Iterable[int]) -> str:
    return "".join(map(str, values))


def _add(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """Two numbers of so many digits; the steps are the columns' sums with their carries."""
    a, b = _digits(rng, length), _digits(rng, length)
    steps, carry = [], 0
    for x, y in zip(reversed(a), reversed(b), strict=True):
        steps.append(str(x + y + carry))
        carry = (x + y + carry) // 10
    return f"{_text(a)}+{_text(b)}", tuple(steps), str(int(_text(a)) + int(_text(b)))


def _mod(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """So many digits joined by + and *, left to right, modulo 5; the steps are the values."""
    wanted = rng.randrange(MODULUS)
    while True:
        terms = [rng.randrange(10) for _ in range(length)]
        signs = [rng.choice("+*") for _ in range(length - 1)]
        value, values = terms[0] % MODULUS, []
        for sign, term in zip(signs, terms[1:], strict=True):
            value = (value + term if sign == "+" else value * term) % MODULUS
            values.append(str(value))
        if value == wanted:
            links = (f"{sign}{term}" for sign, term in zip(signs, terms[1:], strict=True))
            return f"{terms[0]}{''.join(links)}", tuple(values), str(value)


def _sort(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """So many digits in order; the steps are the two halves in order."""
    digits = [rng.randrange(10) for _ in range(length)]
    half = length // 2
    steps = _text(sorted(digits[:half])), _text(sorted(digits[half:]))
    return _text(digits), steps, _text(sorted(digits))


def _depth(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """The greatest depth, 1 to 4, of pairs of brackets of two kinds; the step is every depth."""
    wanted = rng.randrange(1, DEEPEST + 1)
    while True:
        text, opened, depth, depths = "", list[str](), 0, []
        for left in range(2 * length, 0, -1):
            opens = depth == 0 or (depth < min(wanted, left) and rng.random() < 0.5)
            depth += 1 if opens else -1
            opened += [rng.choice("([")] if opens else []
            text += opened[-1] if opens else _CLOSING[opened.pop()]
            depths.append(depth)
        if max(depths) == wanted:
            return text, (_text(depths),), str(wanted)


def _base(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """A number of so many digits in base 3 to 9, in decimal; the steps are Horner's values."""
    base = rng.randrange(3, 10)
    digits = [rng.randrange(1, base), *(rng.randrange(base) for _ in range(length - 1))]
    value, values = digits[0], []
    for digit in digits[1:]:
        value = value * base + digit
        values.append(str(value))
    return f"{_text(digits)}:{base}", tuple(values[:-1]), values[-1]


def _rewrite(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """So many rewritings of six letters: the first goes to the end as the next of w, x, y, z."""
    text = "".join(rng.choice(_LETTERS) for _ in range(6))
    body, found = f"{length}{text}", []
    for _ in range(length):
        text = text[1:] + _LETTERS[(_LETTERS.index(text[0]) + 1) % len(_LETTERS)]
        found.append(text)
    return body, tuple(found[:-1]), found[-1]


_OPERATIONS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "r": lambda text: text[::-1],
        "t": lambda text: text[1:] + text[0],
        "i": lambda text: "".join(str((int(c) + 1) % 10) for c in text),
        "c": lambda text: "".join(str(9 - int(c)) for c in text),
    }
)


def _both(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """Two of four operations on so many digits, one after the other; the step is between them."""
    names = [rng.choice("rtic") for _ in range(2)]
    digits = _text(rng.randrange(10) for _ in range(length))
    between = _OPERATIONS[names[0]](digits)
    return f"{''.join(names)}{digits}", (between,), _OPERATIONS[names[1]](between)


def _parity(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """The parity of the ones among so many bits; the step is the parity after every bit."""
    bits = [rng.randrange(2) for _ in range(length)]
    parities = [sum(bits[: i + 1]) % 2 for i in range(length)]
    return _text(bits), (_text(parities),), str(parities[-1])


def _coin(rng: Random, length: int) -> tuple[str, tuple[str, ...], str]:
    """Six digits and an answer, 0 or 1, that has nothing to do with them."""
    return _text(rng.randrange(10) for _ in range(length)), (), str(rng.randrange(2))


FAMILIES: Final = (
    Family("add", (2, 3, 4, 5), (), _add),
    Family("base", (3, 4, 5, 6), (), _base),
    Family("both", (4, 5, 6, 7), (), _both),
    Family("rewrite", (1, 2, 3, 4), (), _rewrite),
    Family("sort", (4, 5, 6, 7), (), _sort),
    Family("mod", (3, 4, 5, 6), ("0", "1", "2", "3", "4"), _mod),
    Family("depth", (8, 9, 10, 11), ("1", "2", "3", "4"), _depth),
    Family("parity", (12, 14, 16, 18), ("0", "1"), _parity),
)
#: For the null of pure luck; not among the families of the study.
COIN: Final = Family("coin", (6,), ("0", "1"), _coin)

BY_NAME: Final = MappingProxyType({family.name: family for family in (*FAMILIES, COIN)})
CELLS: Final = tuple((family, length) for family in FAMILIES for length in family.lengths)
