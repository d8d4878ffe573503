"""Find the words that differ between two texts, to mark them side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter

#: Most steps (``estimate_steps``) for which words are compared: at worst some seconds.
MAX_STEPS = 100_000_000

#: Patterns of words and lines with the white space after them; joined, they give the text.
_UNITS = (r"\S+\s*|\s+", r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether the other text does not contain it."""

    text: str
    changed: bool


def find_differences(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Split two texts into pieces that both contain and pieces that only one of them contains.

    Compares words; if these are too many, lines; else only the common beginning and end. White
    space is ignored.

    Returns:
        The pieces of each text; joined, they give the text.
    """
    for unit in _UNITS:
        part_lists = tuple(re.findall(unit, text) for text in (before, after))
        a, b = ([part.strip() for part in parts] for parts in part_lists)
        start, end = _count_common(a, b), _count_common(a[::-1], b[::-1])
        end = min(end, len(a) - start, len(b) - start)
        a, b = a[start : len(a) - end], b[start : len(b) - end]
        if estimate_steps(a, b) <= MAX_STEPS:
            matching_blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
            break
    else:
        matching_blocks = []
    matches: tuple[list[bool], list[bool]] = ([False] * len(a), [False] * len(b))
    for block in matching_blocks:
        for side, place in zip(matches, (block.a, block.b), strict=True):
            side[place : place + block.size] = [True] * block.size
    ends = [True] * start, [True] * end
    first, second = (
        _join_pieces(parts, ends[0] + side + ends[1])
        for parts, side in zip(part_lists, matches, strict=True)
    )
    return first, second


def estimate_steps(a: Sequence[str], b: Sequence[str]) -> int:
    """Estimate the cost of comparing two lists of words, in pairs of equal words.

    For every common block, difflib iterates over the rest of the first list and over its pairs; a
    word of the first list costs about as much as four pairs.
    """
    counts = Counter(a)
    pairs = sum(counts[word] for word in b)
    return min(pairs, len(a), len(b)) * (4 * len(a) + pairs)


def _count_common(a: Sequence[str], b: Sequence[str]) -> int:
    """Count the words that two texts share at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _join_pieces(parts: Sequence[str], matches: Sequence[bool]) -> list[Piece]:
    """Join adjacent parts of one kind; white space at the end of a difference is not marked."""
    pieces = []
    for same, group in groupby(zip(parts, matches, strict=True), key=itemgetter(1)):
        text = "".join(part for part, _ in group)
        words = text if same else text.rstrip()
        pieces += [Piece(words, changed=not same), Piece(text[len(words) :], changed=False)]
    return [piece for piece in pieces if piece.text]
