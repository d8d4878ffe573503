r"""Find the answer of a response: in its last boxes, or in its words.

Mathematics is between dollar signs, ``\( \)`` or ``\[ \]``; the rest of a response is words, in
which Markdown and amounts of money are not mathematics.
"""

from __future__ import annotations

import re

from gapft_harness.verification.boxes import find_boxes
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.vocabulary import MULTIPLIERS, OPERATIONS, REFUSED

#: Between boxes that belong together: "or", "and" or a comma, and the name of the next value.
_JOINED = re.compile(
    r"[\s$.)\\]*(?:\\text\s*\{)?\s*"
    r"(?P<joiner>(?:,\s*)?\b(?:or|and)\b|[,;&]|\\(?:lor|land|vee|wedge)\b)"
    r"\s*\}?[\s$(]*(?:[A-Za-z](?:_\w)?(?:\([a-z]\))?\s*=[\s$]*)?"
)
_MAX_BOXES, _MAX_GAP = 20, 80
_SIGN = re.compile(r"(?P<sign>[-−±]|\\pm)(?P<space>\s*)\Z")
#: After these a sign cannot stand between two operands.
_NO_OPERAND = re.compile(
    r"(?:[=$({\[<>≤≥≈,;]|\\\\|\\(?:approx|equiv|sim|cong|to|in|leq?|geq?|lt|gt|neq?|quad|qquad"
    r"|implies|iff|therefore|[Ll]ongrightarrow|[Rr]ightarrow))\s*\Z"
)
#: The end of a word, a sentence or a line; a list's dash is followed by a space.
_WORDS_BEFORE = re.compile(r"(?:\A|\n|(?<![\\A-Za-z])[A-Za-z]{2,}|[.:!?])[ \t*_]*\Z")


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
    answer, start = _read_box(text, start, content)
    for before in reversed(boxes[-_MAX_BOXES:-1]):
        is_near = start - before[1] < _MAX_GAP
        joined = _JOINED.fullmatch(text, before[1], start) if is_near else None
        part, part_start = _read_box(text, before[0], before[2])
        if joined is None or not part or not answer:
            break
        word = joined["joiner"].strip(", ")
        answer = rf"{part} \text{{ {word} }} {answer}" if word.isalpha() else f"{part}, {answer}"
        start = part_start
    return answer


def _read_box(text: str, start: int, content: str) -> tuple[str, int]:
    """Return the answer in a box with the sign before it, and where they start."""
    answer = tidy_answer(content)
    sign = _SIGN.search(text, max(0, start - 20), start)
    if not answer or sign is None:
        return answer, start
    before = text[max(0, sign.start() - 40) : sign.start()]
    is_attached = not sign["space"] and _WORDS_BEFORE.search(before)
    if not is_attached and not _NO_OPERAND.search(before):
        return answer, start  # a difference, or the dash of a list
    symbol = "-" if sign["sign"] in "-−" else r"\pm "
    return f"{symbol}({answer})", sign.start()


#: Struck out, marks of a calculator (``<<2*6=12>>``), and layout.
_STRUCK = re.compile(
    r"~~[^~\n]{1,200}~~|<<[^<>\n]{1,200}>>|</?(?:b|i|u|em|strong|code|mark|br|p)\s*/?>|`+"
)
_SPACED_MINUS = re.compile(r"−\s*(?=[\d.])")
#: ``3 x 4`` with spaces is a product; ``3x`` has a variable.
_SPACED_TIMES = re.compile(r"(?<=\d)\s+[xX]\s+(?=[\d$])")
#: Words in quotes; a mark behind a digit is one of inches.
_QUOTED = re.compile(r"""(?<![\w'])["“]([^"“”\n]{1,80})["”](?!\w)""")
#: A tilde before a number; in mathematics it is a space.
_ABOUT = re.compile(r"~(?=[\s$]*[.\d\ue000])")
_DELIMITER = re.compile(r"\$\$|(?<!\\)\$|\\[()\[\]]|\n")
_CLOSING = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_ENGLISH = re.compile(r"(?<![\\a-zA-Z{])[A-Za-z]{3,}")
_RUN = re.compile(r"\*+|_+")
_LABEL = re.compile(
    r"\b(?:answer|final (?:result|solution))\b(?:\s*(?:is|equals|=|:))+\s*", re.IGNORECASE
)
_CORRECTION = re.compile(
    r"\W*(?:actually|wait|no|hmm|sorry|correction|hold on)\b"
    r"|.*\b(?:that|this)(?:'s| is| was) (?:wrong|incorrect|not right|a mistake)\b",
    re.IGNORECASE,
)
_MARGIN = re.compile(r"\s*(?:(?:[-*+•>]|\d+\.)\s+|#+\s*)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])|(?<=[.!?])\s*\Z")
#: What follows says why, or what the answer is not.
_ASIDE = re.compile(
    r",?\s+(?:because|since|instead of|rather than|as (?!well)|which)\b.*"
    r"|,\s+not\s+(?=[-$\d\ue000]).*",
    re.DOTALL,
)
_DENIED = re.compile(
    r"\b(?:not|cannot|never|wrong|incorrect|impossible|no way)\b|n't\b", re.IGNORECASE
)
#: Commands of operations and relations, which may be outside dollar signs.
_COMMANDS = (
    r"\\(?:leq?|leqslant|geq?|geqslant|lt|gt|neq?|approx|simeq|sim|cong|equiv|in|notin|cdot|times"
    r"|div|pm|mp)(?![a-zA-Z])"
)
_OPERATOR = re.compile(rf"(?:[-+*/=:·×÷<>≤≥≠≈≡~!^()\[\]|]|{_COMMANDS})+")
#: The end of a word that is joined to the next one, such as ``x\le``.
_JOINED_END = re.compile(rf"(?:[=<>≤≥≠≈≡]|{_COMMANDS})\Z")
_NUMBERS = re.compile(r"[-+$\d.,\ue000\ue001]+")
#: Words that belong to the number behind them.
_BEFORE = frozenset(["or", "and", "to", "plus", "minus", "times", "over"])
#: Words that join two numbers: "1 in 12".
_BETWEEN = frozenset(["in", "of", "by"])
#: Words that end what is said about the number before them.
_BEHIND_WORDS = (
    "is are was were be been so because since which that who when where while if then but as "
    "for each every now today there this these those it he she they we you i has have had will "
    "would can could remain remains"
)
_BEHIND = frozenset(_BEHIND_WORDS.split())
#: The same, where something else follows: not inches, a bound ("at most") or a base.
_BEHIND_IF_FOLLOWED = frozenset(["in", "at", "on", "from", "with"])
#: Words that qualify a number before a comma: "12, approximately".
_DOUBTS = frozenset(["approximately", "approx", "roughly", "maybe", "perhaps", "probably"])
_BOUNDS = frozenset(["most", "least", "base"])
_VERBS_WORDS = "is are was were be equals gives get gets have has had costs so"
_VERBS = frozenset(_VERBS_WORDS.split())
_CHANGING = (
    REFUSED | MULTIPLIERS.keys() | {word for phrase in OPERATIONS for word in phrase.split()}
)
#: A piece of mathematics while the words around it are read.
_PIECE = re.compile("\ue000(\\d+)\ue001")
_HAS_NUMBER = re.compile("[0-9\ue000]")


def find_written_answer(text: str) -> str | None:
    """Return the answer in a response without a box; a guess at what its writer means.

    It is what follows the last "answer is", or else the last number or piece of mathematics with
    all that belongs to it: operators and brackets around it, words before it that change it, and
    the words behind it up to the end of its clause.

    Args:
        text: a response.
    """
    cleaned = _SPACED_MINUS.sub("-", _STRUCK.sub("", text.replace("\ue000", " ")))
    cleaned = _QUOTED.sub(r"\1", _SPACED_TIMES.sub(" × ", cleaned))
    cleaned = cleaned.replace("as well as", "and").replace("left over", "left").replace("’", "'")
    cleaned, pieces = _hide_mathematics(cleaned)
    cleaned = _ABOUT.sub("≈", cleaned)
    lines = [_strip_emphasis(" ".join(line.split())) for line in cleaned.split("\n")]
    answer = _find_labelled(lines)
    if answer is None:
        answer = _find_last(lines)
    answer = _PIECE.sub(lambda match: f" {pieces[int(match[1])]} ", answer)
    return tidy_answer(answer) or None


def _hide_mathematics(text: str) -> tuple[str, list[str]]:
    """Replace pieces of mathematics by placeholders; dollar signs of amounts of money stay."""
    tokens = [*_DELIMITER.finditer(text)]
    closings = _find_closings(tokens)
    parts: list[str] = []
    pieces: list[str] = []
    position = number = 0
    while number < len(tokens):
        token = tokens[number]
        end = closings[number]
        number += 1
        if end is None:
            continue
        inside = text[token.end() : tokens[end].start()]
        after = tokens[end].end()
        if token[0] == "$" and not _is_inline(inside, text[after : after + 1]):
            continue
        parts.append(text[position : token.start()])
        parts.append(f"\ue000{len(pieces)}\ue001")
        pieces.append(" ".join(inside.split()))
        position = after
        number = end + 1
    return "".join([*parts, text[position:]]), pieces


def _find_closings(tokens: list[re.Match[str]]) -> list[int | None]:
    """Return for each opening delimiter the number of the one that closes it."""
    closings: list[int | None] = [None] * len(tokens)
    following: dict[str, int] = {}
    for number in range(len(tokens) - 1, -1, -1):
        word = tokens[number][0]
        if word == "\n":
            following.pop("$", None)
            continue
        if word in _CLOSING:
            closings[number] = following.get(_CLOSING[word])
        following[word] = number
    return closings


def _is_inline(inside: str, behind: str) -> bool:
    """Check whether the text between two dollar signs is mathematics, not words between amounts."""
    is_tight = bool(inside.strip()) and inside == inside.strip()
    return is_tight and not behind.isdigit() and not _ENGLISH.search(inside)


def _find_labelled(lines: list[str]) -> str | None:
    """Return what follows the last "answer is" or "Answer:", or what corrects it later."""
    for number in range(len(lines) - 1, -1, -1):
        matches = [*_LABEL.finditer(lines[number])]
        if not matches:
            continue
        rest = lines[number][matches[-1].end() :]
        later = lines[number + 1 :]
        if not rest.strip():
            return next((line.strip() for line in later if line.strip()), None)
        first, *others = _SENTENCE_END.split(rest)
        corrections = [n for n, text in enumerate(others) if _CORRECTION.match(text)]
        if corrections:
            return _find_last([" ".join(others[corrections[0] :]), *later])
        return _ASIDE.sub("", first) or None
    return None


def _find_last(lines: list[str]) -> str:
    """Return the last number or piece of mathematics with all that belongs to it."""
    for line in reversed(lines):
        margin = _MARGIN.match(line)
        for sentence in reversed(_SENTENCE_END.split(line[margin.end() if margin else 0 :])):
            clause = _ASIDE.sub("", sentence)
            if _HAS_NUMBER.search(clause):
                return "" if _DENIED.search(clause) else _take_phrase(clause.split())
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return text if re.search(r"[\\^=]", text) else ""


def _take_phrase(words: list[str]) -> str:
    """Return the last number among words, with the words around it that belong to it."""
    last = max(n for n, word in enumerate(words) if _HAS_NUMBER.search(word))
    start = last
    while start and _belongs_before(words, start):
        start -= 1
    clause = start
    while clause and words[clause - 1].lower() not in _VERBS and words[clause - 1][-1] not in ",;:":
        clause -= 1
    changing = [n for n in range(clause, start) if words[n].lower().rstrip(".") in _CHANGING]
    start = changing[0] if changing else start
    end = last
    while end + 1 < len(words) and words[end][-1] not in ".,;:!?":
        if _ends_value(words[end + 1 : end + 3]) or end - last > 5:
            break
        end += 1
    if words[end][-1] == "," and " ".join(words[end + 1 :]).lower().rstrip(".") in _DOUBTS:
        end += 1
    while start < last and words[start].lower() in ("or", "and", "to"):
        start += 1
    behind = [rf"\text{{{word}}}" if word.isalpha() else word for word in words[last + 1 : end + 1]]
    return " ".join(words[start : last + 1] + behind)


def _ends_value(following: list[str]) -> bool:
    """Check whether the next words say something about a value, instead of naming its unit."""
    word, *others = (word.lower().rstrip(".,;:!?") for word in following)
    is_preposition = word in _BEHIND_IF_FOLLOWED and bool(others) and others[0] not in _BOUNDS
    return word in _BEHIND or is_preposition


def _belongs_before(words: list[str], start: int) -> bool:
    """Check whether the word before a position is a part of the value that begins there."""
    word = words[start - 1]
    following = words[start]
    has_number = bool(_HAS_NUMBER.search(word))
    behind_comma = word.endswith(",")
    if word.endswith((".", ";", ":")) and not _OPERATOR.fullmatch(word):
        return False
    if behind_comma and word[:1] not in "([{" and following[-1:] not in ")]}":
        is_assignment = len(following) == 1 and words[start + 1 : start + 2] == ["="]
        is_list = _NUMBERS.fullmatch(following) and _NUMBERS.fullmatch(word)
        return has_number and bool(is_list or is_assignment)
    is_variable = len(word) == 1 and word.isalpha() and word not in "aI"
    return (
        has_number
        or bool(_OPERATOR.fullmatch(word))
        or bool(_JOINED_END.search(word) and "\\\\" not in word)
        or word.lower() in _BEFORE
        or (word.lower() in _BETWEEN and start > 1 and bool(_NUMBERS.fullmatch(words[start - 2])))
        or (is_variable and bool(_OPERATOR.match(following)))
    )


def _strip_emphasis(line: str) -> str:
    """Remove pairs of asterisks or underscores around words, but not those in ``2*3``, ``x_1``."""
    open_runs: dict[str, re.Match[str]] = {}
    removed: list[re.Match[str]] = []
    for run in _RUN.finditer(line):
        start, end = run.span()
        previous = line[max(0, start - 1) : start]
        following = line[end : end + 1]
        if previous.strip() and not following.isalnum() and run[0] in open_runs:
            removed += [open_runs.pop(run[0]), run]
        elif following.strip() and not previous.isalnum():
            open_runs[run[0]] = run
    parts = []
    position = 0
    for run in sorted(removed, key=lambda run_match: run_match.start()):
        parts.append(line[position : run.start()])
        position = run.end()
    return "".join([*parts, line[position:]])
