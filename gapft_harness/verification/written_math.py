r"""Clean answers and complete responses of a chat model, so that math-verify finds the answer.

Mathematics is between dollar signs, ``\( \)`` or ``\[ \]``; the rest of a response is words, in
which Markdown and amounts of money are not mathematics.
"""

from __future__ import annotations

import re

from gapft_harness.verification.quantities import (
    FACTORS,
    GAP,
    MAX_LENGTH,
    MINUS_SIGNS,
    NUMBER,
    TEXT,
    find_unit,
    read_quantity,
    to_singular,
)

_EMPHASIS = re.compile(r"(?P<run>\*{1,3}|_{1,3}|`{1,2})(?=\S)(?P<text>(?:(?!(?P=run)).)+)(?P=run)")
_STOPS = ".,; "


def tidy_answer(latex: str) -> str:
    """Return an answer on one line, without Markdown around it and without a final full stop.

    Args:
        latex: the answer of a model, without its box.
    """
    text = " ".join(latex.split()).rstrip(_STOPS)
    for _ in range(3):
        match = _EMPHASIS.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None:
            break
        text = match["text"].strip().rstrip(_STOPS)
    return text


_TOKEN = re.compile(r"\$\$|(?<!\\)\$|\\[()\[\]]|\n")
_CLOSING = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_ONE_LINE = ("$", "\\)")
_OPENED = re.compile(r"\$\$|\\[(\[]")
_LATEX_WORDS = re.compile(rf"{TEXT}\{{[^{{}}]*\}}|\\[a-zA-Z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_MONEY = re.compile(r"\s?-?[\d.]")
#: Placeholder for a piece of mathematics while the words around it are cleaned.
_MATH = "\ue000"

_STRUCK = re.compile(r"~~[^~\n]{1,200}~~|</?(?:b|i|u|em|strong|code|mark|br|p)\s*/?>|`+")
_SPACED_MINUS = re.compile(r"−\s*(?=[\d.])")
_RUN = re.compile(r"\*+|_+")
_GROUPED = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)+")
_WELL_FORMED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+,\d{1,2}|0,\d+|\d+\.\d+")
_NUMBERS = r"[-+]?\d+(?:\.\d+)?"
_TUPLE = re.compile(rf"(?<![\w)\]$])[(\[]\s*{_NUMBERS}(?:\s*,\s*{_NUMBERS})+\s*[)\]]")
_LABEL = re.compile(
    r"\W*(?:(?:so|thus|the|my|final|correct) )*answer(?: is|:| =)?:?\s*", re.IGNORECASE
)
_BARE = re.compile(r"[0-9A-Za-z .,+\-*/^()\[\]{}\\|<>=!]+")
_SPACED_RATIO = re.compile(r"(?<=\d) : (?=\d)")
_MARGIN = re.compile(r"\s*(?:(?:[-*+•>]|#+)\s+)*")
_FUNCTION = re.compile(r"\^\(|\*\*")


def clean_response(text: str) -> str:
    r"""Remove Markdown and currencies from a response, so that math-verify finds its answer.

    A pair or list of numbers, and an expression alone on the last line or after "Answer:", are put
    between dollar signs, so that math-verify reads them completely.
    """
    text = _STRUCK.sub("", text.replace(_MATH, " "))
    pieces = _split_mathematics(_SPACED_MINUS.sub("-", text).translate(MINUS_SIGNS))
    words = "".join(_MATH if is_math else piece for is_math, piece in pieces)
    words = "\n".join(map(_strip_emphasis, words.split("\n")))
    words = _SPACED_RATIO.sub(":", _GROUPED.sub(_hide_malformed, words))
    words = _TUPLE.sub(lambda match: f"${match[0]}$", words)
    lines = words.rstrip().split("\n")
    ends = len(lines) if _OPENED.search(words) is None else 0  # 0: the last line is mathematics
    lines = [_mark_expression(line, last=n == ends) for n, line in enumerate(lines, 1)]
    mathematics = iter([piece for is_math, piece in pieces if is_math])
    first, *rest = "\n".join(lines).split(_MATH)
    return first + "".join(next(mathematics) + part for part in rest)


def _split_mathematics(text: str) -> list[tuple[bool, str]]:
    """Split a text into (is mathematics, text); dollar signs of amounts of money are removed."""
    tokens = [*_TOKEN.finditer(text)]
    closing = _find_closing_tokens(tokens)
    pieces: list[tuple[bool, str]] = []
    position, number = 0, 0
    while number < len(tokens):
        token, end = tokens[number], closing[number]
        number += 1
        if end is not None:
            inside = text[token.end() : tokens[end].start()]
            after = tokens[end].end()
            if token[0] != "$" or _is_mathematics(inside, text[after : after + 1]):
                pieces.append((False, text[position : token.start()]))
                pieces.append((True, text[token.start() : after]))
                position, number = after, end + 1
                continue
        if token[0] == "$" and _MONEY.match(text, token.end()):
            pieces.append((False, text[position : token.start()]))
            position = token.end()
    return [*pieces, (False, text[position:])]


def _find_closing_tokens(tokens: list[re.Match[str]]) -> list[int | None]:
    """Return for each opening token the number of the token that closes it, if there is one."""
    closing: list[int | None] = [None] * len(tokens)
    following: dict[str, int] = {}
    for number in range(len(tokens) - 1, -1, -1):
        word = tokens[number][0]
        if word == "\n":
            for kind in _ONE_LINE:
                following.pop(kind, None)
            continue
        if word in _CLOSING:
            closing[number] = following.get(_CLOSING[word])
        following[word] = number
    return closing


def _is_mathematics(inside: str, behind: str) -> bool:
    """Check whether the text between two dollar signs is mathematics, not words between amounts."""
    if not inside.strip() or inside[0].isspace() != inside[-1].isspace() or behind.isdigit():
        return False
    if not re.search(r"\s", inside.strip()):
        return True
    return _WORD.search(_LATEX_WORDS.sub("", inside)) is None


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


def _hide_malformed(match: re.Match[str]) -> str:
    """Mark digits with commas that are not a number, such as ``1,2345``, so they are not parsed."""
    return match[0] if _WELL_FORMED.fullmatch(match[0]) else f"#{match[0]}"


def _measure_margin(line: str) -> int:
    """Return the length of the list, heading or quotation mark at the start of a line."""
    match = _MARGIN.match(line)
    return match.end() if match else 0


def _mark_expression(line: str, *, last: bool) -> str:
    """Put an expression between dollar signs if it is the complete answer of its line."""
    label = _LABEL.match(line)
    if label is None and not last:
        return line
    start = label.end() if label else _measure_margin(line)
    expression = line[start:].strip().rstrip(_STOPS)
    left, equals, _ = expression.partition("=")
    if not _BARE.fullmatch(expression) or (equals and not re.search("[A-Za-z]", left)):
        return line
    if _WORD.search(_LATEX_WORDS.sub("", expression)) or _FUNCTION.search(expression):
        return line
    if not _is_balanced(expression):
        return line
    if read_quantity(expression) or not (label or re.search(r"\d|\\", expression)):
        return line
    return f"{line[:start]}${expression}$"


def _is_balanced(expression: str) -> bool:
    """Check that brackets are balanced; an interval may mix round and square brackets."""
    count = expression.count
    return count("(") + count("[") == count(")") + count("]") and count("{") == count("}")


_DIGITS = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)")
_IN_TEXT = re.compile(rf"(?<![\d.])-?(?:{NUMBER})(?![\d])")
_BEHIND = re.compile(
    rf"{GAP}(?:\$|\\\))?{GAP}(?:{TEXT}\{{\s*)?"
    r"(?P<unit>\\?%|[A-Za-z]+(?:(?:/| per )[A-Za-z]+)?(?:\^\{?[23]\}?|[²³])?)"
)
#: Words of a sentence that are also units.
_SENTENCE = ("in", "second", "a")
_ATTACHED = re.compile(r":\d+(?:\.\d+)?|[A-Za-z]\w*")


def complete_number(text: str, number: str) -> str:
    """Add the currency, unit or attached text in the response to a number that was found there.

    Args:
        text: the cleaned response, from ``clean_response``.
        number: the answer found in it; if it is not a number, it is only tidied.
    """
    if not _DIGITS.fullmatch(number):
        return tidy_answer(number)
    places = [
        match
        for match in _IN_TEXT.finditer(text)
        if float(match[0].replace(match["sep"] or "\0", "")) == float(number)
    ]
    if not places:
        return number
    start, end = places[-1].span()
    if (prefix := text[start - 1 : start]) and prefix in "€£¥₹¢":
        return f"{prefix}{number}"
    attached = _ATTACHED.match(text, end)
    if attached and not find_unit(attached[0].rstrip("23")):
        return f"{number}{attached[0]}"
    behind = _BEHIND.match(text, end)
    unit = behind["unit"] if behind else ""
    if unit in ("%", "\\%"):
        return rf"{number}\%"
    if to_singular(unit) in FACTORS or (find_unit(unit) and unit not in _SENTENCE):
        return rf"{number}\text{{ {unit}}}"
    return number
