"""Read the text of an option next to its letter, as in ``None of the above (D)``, as the letter.

The words of the text would otherwise be read as words about the letter: "none", "not" and "if" deny
or suppose it, and any text separates it from an announcement ("The answer is").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gapft_harness.plugins.verifiers.plain_text import PlainText
from gapft_harness.plugins.verifiers.statement_words import LABEL

_LETTERS = re.compile(
    # A letter after a text: in brackets, after a noun such as "option", or at the end of a clause.
    r"[ ,.;:–—-]{0,4}(?:(?:which|this|that) is )?(?:"
    rf"\((?:(?i:{LABEL})[ :]{{1,2}})?\(?(?P<enclosed>[A-Za-z])\)?\)"
    rf"|\b(?i:{LABEL}) \(?(?P<named>[A-Z])\b(?!['+#]|[./-]\w)\)?"
    r"|(?:(?<=[,:–—-] )|(?<= is ))(?P<last>[A-Z])(?=\s*(?:\Z|[.!;\n]))"
    r")"
    # A letter before brackets.
    r"|(?<![\w'+#\\/.&-])(?P<bare>[A-Z])(?= ?\()"
)
_OPENING = re.compile(r" ?\(")
_CLOSING = re.compile(r"[ .,;!]{0,2}\)")
#: A word before a text that may turn it into its opposite: "no rain fell (B)".
_DENIAL = re.compile(r"\bno\s+\Z", re.IGNORECASE)


class _Cut(NamedTuple):
    """A part of a response to replace by a shorter one; ``letter`` if it becomes that letter."""

    start: int
    end: int
    letter: str


@dataclass(frozen=True, slots=True)
class ShortenedText:
    """A response without the texts of options next to their letters.

    Attributes:
        plain_text: the response.
        letters: the positions of letters that followed a text; each is in brackets.
    """

    plain_text: PlainText
    letters: frozenset[int] = frozenset()


def shorten_texts(plain_text: PlainText, options: Sequence[str]) -> ShortenedText:
    """Remove each option's text that its own letter follows, or that follows it in brackets.

    Args:
        plain_text: a response, read in time linear in its length.
        options: the options' texts in order, normalized by ``normalize``.
    """
    text = plain_text.text
    parts = []
    letters = set()
    position = 0
    length = 0
    marks = set(plain_text.marks)
    ends = []
    removed = [0]
    for cut in _iterate_cuts(text, options):
        replacement = f"({cut.letter})" if cut.letter else ""
        parts += [text[position : cut.start], replacement]
        length += cut.start - position + len(replacement)
        if replacement:
            letters.add(length - 2)
        marks -= set(range(cut.start + 1, cut.end))
        ends.append(cut.end)
        removed.append(removed[-1] + cut.end - cut.start - len(replacement))
        position = cut.end
    if not ends:
        return ShortenedText(plain_text)
    moved = frozenset(mark - removed[bisect_right(ends, mark)] for mark in marks)
    return ShortenedText(PlainText("".join([*parts, text[position:]]), moved), frozenset(letters))


def _iterate_cuts(text: str, options: Sequence[str]) -> Iterator[_Cut]:
    """Yield the parts to replace, in order and without overlap."""
    position = lower_bound = 0
    while match := _LETTERS.search(text, position):
        position = match.end()
        letter = match["enclosed"] or match["named"] or match["last"] or match["bare"]
        number = ord(letter.upper()) - ord("A")
        option = options[number] if number < len(options) else ""
        if not option:
            continue
        start = _find_start(text, lower_bound, match.start(), option)
        if start is not None and not match["bare"]:
            if _DENIAL.search(text, max(0, start - 9), start):
                continue
            yield _Cut(start, position, letter)
        elif (opening := _OPENING.match(text, position)) and (
            closing := _find_closing(text, opening.end(), option)
        ):
            yield _Cut(position, closing, "")
            position = closing
        else:
            continue
        lower_bound = position


def normalize(text: str) -> str:
    """Keep only letters and digits, in lower case."""
    return re.sub(r"[\W_]+", "", text.casefold())


def _find_start(text: str, lower_bound: int, end: int, option: str) -> int | None:
    """Find where an option's text begins that ends, on the same line, at a position.

    Args:
        text: any text; at most about twice the option's length is read.
        lower_bound: the first position that it may begin at.
        end: the position after it and perhaps after punctuation.
        option: the option's text, normalized and not empty.
    """
    start = end
    missing = len(option)
    lower_bound = max(lower_bound, end - 2 * len(option) - 9)
    while missing and start > lower_bound:
        start -= 1
        letters = normalize(text[start])
        if not option.endswith(letters, 0, missing):
            return None
        if text[start] == "\n" and missing == len(option):
            return None
        missing -= len(letters)
    return None if missing or text[max(0, start - 1) : start].isalnum() else start


def find_end(text: str, start: int, option: str) -> int | None:
    """Find where an option's text ends that begins at a position, perhaps after punctuation.

    Args:
        text: any text; at most about twice the option's length is read.
        start: the position before it.
        option: the option's text, normalized and not empty.
    """
    end = start
    read = 0
    upper_bound = min(len(text), start + 2 * len(option) + 9)
    while read < len(option) and end < upper_bound:
        letters = normalize(text[end])
        if not option.startswith(letters, read):
            return None
        read += len(letters)
        end += 1
    return end if read == len(option) else None


def _find_closing(text: str, start: int, option: str) -> int | None:
    """Find the end of the brackets around an option's text that begins at a position."""
    end = find_end(text, start, option)
    closing = _CLOSING.match(text, end) if end is not None else None
    return closing.end() if closing else None
