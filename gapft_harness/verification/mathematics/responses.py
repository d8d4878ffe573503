r"""Find the answer of a response: in its last boxes, or in its words.

Mathematics is between dollar signs, ``\( \)`` or ``\[ \]``; the rest of a response is words, in
which Markdown and amounts of money are not mathematics.
"""

from __future__ import annotations

import re

from gapft_harness.verification.boxes import find_boxes
from gapft_harness.verification.mathematics.notation import tidy_answer

#: Between boxes that belong together: "or", "and" or a comma, and the name of the next value.
_JOINED = re.compile(
    r"[\s$.)\\]*(?:\\text\s*\{)?\s*(?P<joiner>(?:,\s*)?\b(?:or|and)\b|[,;])\s*\}?[\s$(]*"
    r"(?:[A-Za-z](?:_\w)?(?:\([a-z]\))?\s*=[\s$]*)?"
)


def find_boxed_answer(text: str) -> str | None:
    r"""Return the content of the last box; boxes joined by "or", "and" or a comma are a list.

    Args:
        text: a response.

    Returns:
        LaTeX; empty if the last box is empty or not closed; None if there is no box.
    """
    boxes = find_boxes(text)
    if not boxes:
        return None
    start, _, content = boxes[-1]
    answer = tidy_answer(content)
    for before in reversed(boxes[:-1]):
        joined = _JOINED.fullmatch(text, before[1], start)
        part = tidy_answer(before[2])
        if joined is None or not part or not answer:
            break
        word = joined["joiner"].strip(", ")
        answer = rf"{part} \text{{ {word} }} {answer}" if word.isalpha() else f"{part}, {answer}"
        start = before[0]
    return answer


_STRUCK = re.compile(r"~~[^~\n]{1,200}~~|</?(?:b|i|u|em|strong|code|mark|br|p)\s*/?>|`+")
_SPACED_MINUS = re.compile(r"−\s*(?=[\d.])")
_DISPLAY = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_INLINE = re.compile(r"(?<!\\)\$(?=\S)([^$\n]+?)(?<=\S)\$(?!\d)")
_ENGLISH = re.compile(r"(?<![\\a-zA-Z{])[A-Za-z]{3,}")
_RUN = re.compile(r"\*+|_+")
_LABEL = re.compile(
    r"\b(?:final |correct )?(?:answer|result|solution)\b\W{0,4}(?:is|:|=|equals)?\W{0,3}?(?:\s|:)\s*"
    r"(?=[^\s:])",
    re.IGNORECASE,
)
_MARGIN = re.compile(r"\s*(?:(?:[-*+•>]|#+|\d+\.)\s+)*(?:####\s*)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])|(?<=[.!?])\s*\Z")
_CLAUSE_END = re.compile(r"[.,;:!?]+\Z")
_OPERATOR = re.compile(r"[-+*/=:·×÷<>≤≥^()\[\]|]+")
_BEFORE = frozenset(
    "at least most more less fewer than about approximately around roughly nearly almost between"
    " or and to minus negative plus times from over under up not no".split()
)
_BEHIND = frozenset(
    "is are was were be been so because since which that who when where while if then but as for"
    " each there this these those it he she they we you i has have had will would can could".split()
)
#: Placeholder for a piece of mathematics while words are read.
_MATH = re.compile("\ue000(\\d+)\ue001")


def find_written_answer(text: str) -> str | None:
    """Return the answer in a response without a box; a guess at what its writer means.

    It is what follows the last "answer is", or else the last number or piece of mathematics with
    all that belongs to it: operators and brackets around it, words that qualify it, and the words
    behind it up to the end of its clause.
    """
    pieces: list[str] = []

    def hide(match: re.Match[str]) -> str:
        pieces.append(next(filter(None, match.groups()), ""))
        return f"\ue000{len(pieces) - 1}\ue001"

    def hide_inline(match: re.Match[str]) -> str:
        return match[0] if _ENGLISH.search(match[1]) else hide(match)

    cleaned = _SPACED_MINUS.sub("-", _STRUCK.sub("", text.replace("\ue000", " ")))
    cleaned = _INLINE.sub(hide_inline, _DISPLAY.sub(hide, cleaned))
    lines = [_strip_emphasis(line) for line in cleaned.split("\n")]
    answer = _find_labelled(lines) or _find_last(lines)
    answer = _MATH.sub(lambda m: f" {pieces[int(m[1])]} ", answer)
    return tidy_answer(answer) or None


def _find_labelled(lines: list[str]) -> str:
    """Return what follows the last "answer is" or "Answer:", up to the end of its sentence."""
    for number in range(len(lines) - 1, -1, -1):
        matches = [*_LABEL.finditer(lines[number])]
        if matches:
            rest = lines[number][matches[-1].end() :]
            return _SENTENCE_END.split(rest)[0] if rest.strip() else ""
    return ""


def _find_last(lines: list[str]) -> str:
    """Return the last number or piece of mathematics with all that belongs to it."""
    for line in reversed(lines):
        text = line[_MARGIN.match(line).end() :]  # type: ignore[union-attr]
        for sentence in reversed(_SENTENCE_END.split(text)):
            if re.search("[0-9\ue000]", sentence):
                return _take_phrase(sentence.split())
    last = next((line for line in reversed(lines) if line.strip()), "")
    text = last.strip()
    return text if re.search(r"[\\^=]", text) else ""


def _take_phrase(words: list[str]) -> str:
    """Return the last number among words, with the words around it that belong to it."""
    holds = [bool(re.search("[0-9\ue000]", word)) for word in words]
    last = len(words) - 1 - holds[::-1].index(True)
    start = last
    while start and _belongs_before(words[start - 1], holds[start - 1], words[start]):
        start -= 1
    end = last
    while end + 1 < len(words) and not _CLAUSE_END.search(words[end]):
        following = words[end + 1].lower().rstrip(".,;:!?")
        if following in _BEHIND or end - last > 5:
            break
        end += 1
    behind = [rf"\text{{{word}}}" if word.isalpha() else word for word in words[last + 1 : end + 1]]
    phrase = words[start : last + 1] + behind
    while phrase and phrase[0].lower() in ("or", "and", "to"):
        phrase = phrase[1:]
    return " ".join(phrase)


def _belongs_before(word: str, has_number: bool, following: str) -> bool:
    """Check whether a word before a number is a part of the same value."""
    if word.endswith((".", ";", ":")) and not _OPERATOR.fullmatch(word):
        return False
    if word.endswith(",") and not (has_number and following[-1:] in ")]}" or word[:1] in "([{"):
        return has_number and bool(re.fullmatch(r"[-+$\d.,]+", following.rstrip(".")))
    is_variable = (
        len(word) == 1 and word.isalpha() and word not in "aI" and _OPERATOR.match(following)
    )
    return (
        has_number
        or bool(_OPERATOR.fullmatch(word))
        or word.lower() in _BEFORE
        or bool(is_variable)
    )


def _strip_emphasis(line: str) -> str:
    """Remove pairs of asterisks or underscores around words, but not those in ``2*3``, ``x_1``."""
    open_runs: dict[str, re.Match[str]] = {}
    removed: list[re.Match[str]] = []
    for run in _RUN.finditer(line):
        start, end = run.span()
        previous, following = line[max(0, start - 1) : start], line[end : end + 1]
        if previous.strip() and not following.isalnum() and run[0] in open_runs:
            removed += [open_runs.pop(run[0]), run]
        elif following.strip() and not previous.isalnum():
            open_runs[run[0]] = run
    parts, position = [], 0
    for run in sorted(removed, key=lambda run_match: run_match.start()):
        parts.append(line[position : run.start()])
        position = run.end()
    return "".join([*parts, line[position:]])
