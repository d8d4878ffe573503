"""Which words differ between two texts, for marking them side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter

#: Most steps, as ``steps`` counts them, for which words are compared: some seconds at the worst.
MOST_STEPS = 100_000_000

#: Words with the space behind them, lines likewise; the pieces of a text add up to it.
_UNITS = (r"\S+\s*|\s+", r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether the other text lacks it."""

    text: str
    changed: bool


def differences(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Cuts two texts into pieces that both have and pieces that one of them has.

    Compared are words, or lines where words are too many, or else the texts but for their common
    ends. White space makes no difference.

    Returns:
        The pieces of either text; joined, they are the text.
    """
    for unit in _UNITS:
        found = tuple(re.findall(unit, text) for text in (before, after))
        a, b = ([part.strip() for part in parts] for parts in found)
        start, end = _common(a, b), _common(a[::-1], b[::-1])
        end = min(end, len(a) - start, len(b) - start)
        a, b = a[start : len(a) - end], b[start : len(b) - end]
        if steps(a, b) <= MOST_STEPS:
            same = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
            break
    else:
        same = []
    kept: tuple[list[bool], list[bool]] = ([False] * len(a), [False] * len(b))
    for block in same:
        for side, place in zip(kept, (block.a, block.b), strict=True):
            side[place : place + block.size] = [True] * block.size
    ends = [True] * start, [True] * end
    first, second = (
        _pieces(parts, ends[0] + side + ends[1]) for parts, side in zip(found, kept, strict=True)
    )
    return first, second


def steps(a: Sequence[str], b: Sequence[str]) -> int:
    """What comparing two lists of words may take, in pairs of equal words that are looked at.

    For every block that both have, difflib goes through what is left of the first and through its
    pairs; a word of the first costs about as much as four pairs.
    """
    counts = Counter(a)
    pairs = sum(counts[word] for word in b)
    return min(pairs, len(a), len(b)) * (4 * len(a) + pairs)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many words two texts share at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _pieces(parts: Sequence[str], kept: Sequence[bool]) -> list[Piece]:
    """Neighbours of one kind joined; the space at the end of a difference is none of it."""
    found = []
    for same, group in groupby(zip(parts, kept, strict=True), key=itemgetter(1)):
        text = "".join(part for part, _ in group)
        words = text if same else text.rstrip()
        found += [Piece(words, changed=not same), Piece(text[len(words) :], changed=False)]
    return [piece for piece in found if piece.text]
