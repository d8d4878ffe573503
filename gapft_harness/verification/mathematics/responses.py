r"""Find the answer of a response: in its last boxes, or in its words.

Mathematics is between dollar signs, ``\( \)`` or ``\[ \]``; the rest of a response is words, in
which Markdown and amounts of money are not mathematics.
"""

from __future__ import annotations

import re

from gapft_harness.verification.boxes import find_boxes
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.vocabulary import (
    MULTIPLIERS,
    NUMERALS,
    OPERATIONS,
    REFUSED,
    UNITS,
    find_unit,
    is_number_word,
)

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
_ALIGNMENT = re.compile(r"\\(?:begin|end)\{(?:align|gather|eqnarray|equation|split)(?:ed)?\*?\}")
#: Before a line with another side of the same equation.
_NEXT_SIDE = re.compile(r"\\\\(?=\s*&\s*=)")
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
#: GSM8K's mark is a label, but not a numbered heading.
_LABEL = re.compile(
    r"\b(?:answer|final (?:result|solution))\b(?:\s*(?:is|equals|=|:))++\s*"
    r"|####\s+(?=[-$\d\ue000])(?!\d+[.):]\s+[A-Za-z])",
    re.IGNORECASE,
)
#: Shortly before a label: an answer that the writer does not give.
_NOT_GIVEN = re.compile(
    r"(?:\b(?:not|never|many|some|others|if|whether)|n't)(?:\s+[\w']+){0,3}\s*\Z"
    r"|\b(?:wrong|incorrect|first|second|next|initial|previous)\s+(?:\w+\s+)?\Z",
    re.IGNORECASE,
)
#: After "the answer is": a check.
_CHECKED = re.compile(r"(?:correct|right|reasonable|valid|verified|consistent)\b")
_CLAUSE_END = re.compile(r"[,;:.!?]|\b(?:so|but|then|therefore|thus|hence)\b", re.IGNORECASE)
_CORRECTION = re.compile(
    r"\W*(?:(?:actually|wait|hmm|sorry|correction|hold on|oops|on second thoughts?"
    r"|I apologi[sz]e|my mistake)\b|no[,.:!]|no\s[-–—])"
    r"|.*\b(?:that|this)(?:'s| is| was) (?:wrong|incorrect|not right(?! away)|a mistake)\b",
    re.IGNORECASE,
)
#: The same at the beginning of a later line.
_LATER_CORRECTION = re.compile(
    r"\W*(?:actually|correction|oops|on second thoughts?|hmm,? (?:that|no))\b", re.IGNORECASE
)
_MARGIN = re.compile(r"\s*(?:(?:[-*+•>]|\d+\.)\s+|#+\s*)*")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]\)))(?:\s+(?=[A-Z(])|\s*\Z)")
#: What follows says why, or what the answer is not.
_ASIDE = re.compile(
    r"(?:\A|,?\s+)(?:because|since|instead of|rather than|as (?!well|many|much|few)|which)\b.*"
    r"|,\s+not\s+(?=[-$\d\ue000]).*",
    re.DOTALL | re.IGNORECASE,
)
#: An aside that says what follows from the rest.
_RESULT = re.compile(r",\s+which (?:means|gives|implies|leaves|makes|yields|leads|has)\b")
#: Brackets at the end that explain a value.
_EXPLANATION = re.compile(r"(?<=[\w\ue001])\s+\(([^()]*)\)(?=\W*\Z)")
_IS_EXPLAINED = re.compile(r"(?<![A-Za-z])(?!(?:sqrt|sin|cos|tan|log|exp)\b)[A-Za-z]{3}|[=%]")
#: Words in them that qualify the value.
_QUALIFYING_WORDS = "base binary octal hexadecimal rounded estimate estimated bound mod"
_QUALIFYING = frozenset(_QUALIFYING_WORDS.split())
#: After a labelled number: its calculation.
_CALCULATION = re.compile(r":\s(?=.*=).*")
_DENIED = re.compile(
    r"\b(?:not|cannot|never|wrong|incorrect|impossible|no way)\b|n't\b", re.IGNORECASE
)
#: Denials of a whole statement, whatever it says.
_NOT_THOUGHT = re.compile(
    r"(?:not|n't) (?:think|believe|mean|say|claim|sure)\b|\bno way\b"
    r"|(?:not|never|n't)\s(?:[a-z]+\s){0,3}?(?:that|if|whether)\s"
    r"|\b(?:impossible|wrong|false|incorrect) (?:that|to say)\b"
    r"|\bthe (?:wrong|incorrect) \w+(?<!s)\s(?:is|was)\b",
    re.IGNORECASE,
)
#: Commands of operations and relations, which may be outside dollar signs.
_COMMANDS = (
    r"\\(?:leq?|leqslant|geq?|geqslant|lt|gt|neq?|approx|simeq|sim|cong|equiv|in|notin|cdot|times"
    r"|div|pm|mp)(?![a-zA-Z])"
)
_OPERATOR = re.compile(rf"(?:[-+*/=:·×÷<>≤≥≠≈≡~!^()\[\]|]|{_COMMANDS})+")
#: The end of a word that is joined to the next one, such as ``x\le``.
_JOINED_END = re.compile(rf"(?:[=<>≤≥≠≈≡]|{_COMMANDS})\Z")
_NUMBERS = re.compile(r"[-+$\d.,\ue000\ue001(){}]+")
#: Words that belong to the number behind them.
_BEFORE = frozenset(["or", "and", "to", "plus", "minus", "times", "over"])
#: Words with which a sentence behind a label begins.
_SUBJECTS_WORDS = (
    "the she he they it there this that we you so therefore thus hence simply then indeed equal "
    "his her their"
)
_SUBJECTS = frozenset(_SUBJECTS_WORDS.split())
#: Words that join two numbers: "1 in 12".
_BETWEEN = frozenset(["in", "of", "by"])
#: Words that end what is said about the number before them.
_BEHIND_WORDS = (
    "is are was were be been so because since which that who when where while if then but as "
    "for each every now today there this these those it he she they we you i has have had will "
    "would can could remain remains of old together altogether"
)
_BEHIND = frozenset(_BEHIND_WORDS.split())
#: The same, where something else follows: not inches, a bound ("at most") or a base.
_BEHIND_IF_FOLLOWED = frozenset(["in", "at", "on", "from", "with", "to", "a", "an"])
#: Words that qualify a number before a comma: "12, approximately".
_DOUBTS = frozenset(["approximately", "approx", "roughly", "maybe", "perhaps", "probably"])
_BOUNDS = frozenset(["most", "least", "base"])
_PREPOSITIONS = frozenset(["at", "before", "after", "between", "by", "from", "over", "per", "to"])
_VERBS_WORDS = "is are was were be equals gives get gets have has had costs so"
_VERBS = frozenset(_VERBS_WORDS.split())
#: After a denial these begin another statement: "those who did not pass are 12".
_EQUATING = frozenset(["is", "are", "was", "were", "equals"])
_CHANGING = (
    REFUSED | MULTIPLIERS.keys() | {word for phrase in OPERATIONS for word in phrase.split()}
)
_SENTENCE_START = re.compile(r"\s*[A-Z][a-z]")
#: Words behind a value, or in brackets, that say that it is another one, or only for some.
_LIMITING = (_CHANGING | _DOUBTS | _QUALIFYING) - {"every", "each"}
#: A mark at the end of mathematics.
_MARK = re.compile(r"(?<!\\)([.,;:])[\s\\]*\Z")
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
    cleaned = cleaned.replace("<answer>", "\nAnswer: ").replace("</answer>", "\n")
    cleaned = cleaned.replace("as well as", "and").replace("left over", "left").replace("’", "'")
    cleaned, pieces = _hide_mathematics(cleaned)
    cleaned = _ALIGNMENT.sub(" ", _NEXT_SIDE.sub(" ", cleaned))
    pieces = [*map(_join_sides, pieces)]
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
        words, mark = _split_mark(" ".join(inside.split()))
        space = " " if token[0] in ("$$", "\\[") else ""  # of a line of its own
        if space and _SENTENCE_START.match(text, after):
            mark = mark or "."
        parts += [text[position : token.start()], space]
        parts.append(f"\ue000{len(pieces)}\ue001{mark}{space}")  # the mark is the sentence's
        pieces.append(words)
        position = after
        number = end + 1
    return "".join([*parts, text[position:]]), pieces


def _join_sides(mathematics: str) -> str:
    """Return mathematics with each equation on one line, if one is on several."""
    joined = _NEXT_SIDE.sub(" ", mathematics)
    is_changed = joined != mathematics
    return _split_mark(_ALIGNMENT.sub(" ", joined))[0] if is_changed else mathematics


def _split_mark(mathematics: str) -> tuple[str, str]:
    """Split mathematics from a mark at its end that belongs to the sentence around it."""
    mark = _MARK.search(mathematics)
    return (mathematics[: mark.start()], mark[1]) if mark else (mathematics, "")


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
    last = max((number for number, line in enumerate(lines) if line.strip()), default=0)
    for number in range(last, -1, -1):
        is_end = number == last
        matches = [match for match in _LABEL.finditer(lines[number]) if _is_given(match, is_end)]
        if not matches:
            continue
        rest = lines[number][matches[-1].end() :]
        later = lines[number + 1 :]
        if not rest.strip():
            following = [_strip_margin(line) for line in later if line.strip()] or [""]
            rest, later = following[0], following[1:]
        first, *others = _SENTENCE_END.split(rest)
        corrections = [n for n, text in enumerate(others) if _CORRECTION.match(text)]
        correction = " ".join([*others[corrections[0] :], *later]) if corrections else ""
        lines_after = [n for n, line in enumerate(later) if _LATER_CORRECTION.match(line)]
        if lines_after and not corrections:
            correction = " ".join(later[lines_after[0] :])
        if _HAS_NUMBER.search(correction):
            return _find_last([correction])
        if _DENIED.search(correction):
            return ""
        return _shorten_labelled(_ASIDE.sub("", first)) or None
    return None


def _is_given(label: re.Match[str], is_end: bool) -> bool:
    """Check whether a label announces the writer's own answer; GSM8K's mark is at the end."""
    if label[0].startswith("#"):
        return is_end
    if label[0].rstrip().lower().endswith("is") and _CHECKED.match(label.string, label.end()):
        return False
    before = label.string[max(0, label.start() - 200) : label.start()]
    return not _NOT_GIVEN.search(_CLAUSE_END.split(before)[-1])


def _shorten_labelled(answer: str) -> str:
    """Remove the rest of a sentence around a labelled number."""
    words = answer.rstrip(".!").split()
    if words and all(word.isalpha() and len(word) > 1 for word in words):
        return rf"\text{{{' '.join(words)}}}"
    if not words or not _HAS_NUMBER.search(answer):
        return answer
    is_verb = len(words) > 2 and bool(re.fullmatch(r"[a-z]+(?:s|ed)", words[1]))
    is_named = words[0].istitle() and words[0].lower() not in ("all", "any", "no") and is_verb
    if words[0].lower() in _SUBJECTS or is_named:
        return _find_last([answer])  # Answer: She has 12 apples left
    words = _CALCULATION.sub("", _remove_explanation(answer)).split()
    end = next((n for n in range(1, len(words)) if _ends_value(words[n : n + 2])), len(words))
    rest = {word.lower().rstrip(".,;:!?") for word in words[end:]}
    is_kept = any(map(_HAS_NUMBER.search, rest)) or rest & _LIMITING
    return " ".join(words if is_kept or not _NUMBERS.fullmatch(words[0]) else words[:end])


def _remove_explanation(text: str) -> str:
    """Remove brackets behind a value, unless they change it: "12 (approximately)"."""
    match = _EXPLANATION.search(text)
    if match is None or not _IS_EXPLAINED.search(match[1]) or "," in match[1]:
        return text
    words = re.findall(r"[a-z]+", match[1].lower())
    if any(word in _LIMITING or is_number_word(word) for word in words):
        return text
    before = text[: match.start()]
    is_factor = before.split()[-1].startswith("\\")
    return before if _HAS_NUMBER.search(before) and not is_factor else text


def _strip_margin(line: str) -> str:
    """Remove the marks of lists, headings and quotations at the beginning of a line."""
    margin = _MARGIN.match(line)
    return line[margin.end() if margin else 0 :]


def _find_last(lines: list[str]) -> str:
    """Return the last number or piece of mathematics with all that belongs to it."""
    for line in reversed(lines):
        for sentence in reversed(_SENTENCE_END.split(_strip_margin(line))):
            clause = _remove_explanation(_find_main_clause(sentence))
            if _HAS_NUMBER.search(clause):
                return _take_phrase(clause.split())
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return text if re.search(r"[\\^=]", text) else ""


def _find_main_clause(sentence: str) -> str:
    """Remove an aside behind a number, or one before the main clause and its comma."""
    aside = _ASIDE.search(sentence)
    if aside is None or _RESULT.match(sentence, aside.start()):
        return sentence
    before = sentence[: aside.start()]
    if _HAS_NUMBER.search(before):
        return before
    main = sentence[aside.start() + 1 :].partition(", ")[2]
    return main if _HAS_NUMBER.search(main) or aside.start() else sentence


def _take_phrase(words: list[str]) -> str:
    """Return the last number among words, with the words around it that belong to it."""
    last = max(n for n, word in enumerate(words) if _HAS_NUMBER.search(word))
    if _is_denied(words, last):
        return ""
    start = last
    while start and _belongs_before(words, start):
        start -= 1
    clause = start
    while clause and words[clause - 1].lower() not in _VERBS and words[clause - 1][-1] not in ",;:":
        clause -= 1
    changing = [
        n
        for n in range(clause, start)
        if words[n].lower().rstrip(".") in _CHANGING and not _is_preposition(words, n)
    ]
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


def _is_preposition(words: list[str], number: int) -> bool:
    """Check whether a word such as "to" only connects the words around it: "needs to pay 5"."""
    word, following = (text.lower() for text in words[number : number + 2])
    if word == "by":
        return words[number - 1].lower() != "divided"
    return word in _PREPOSITIONS and following not in _BOUNDS and not _HAS_NUMBER.search(following)


def _is_denied(words: list[str], last: int) -> bool:
    """Check whether the words around a number deny it, and not a part of its sentence."""
    before, behind = (" ".join(part) for part in (words[:last], words[last + 1 :]))
    if _DENIED.search(behind) or _NOT_THOUGHT.search(before):
        return True
    denials = [*_DENIED.finditer(before)]
    if not denials:
        return False
    between = before[denials[-1].end() :].split()
    return not _EQUATING & set(between[1:])


def _ends_value(following: list[str]) -> bool:
    """Check whether the next words say something about a value, instead of naming its unit."""
    word, *others = (word.lower().rstrip(".,;:!?") for word in following)
    if word in _BEHIND_IF_FOLLOWED:
        is_word = bool(others) and bool(re.match(r"[a-z][\w']", others[0]))
        return is_word and others[0] not in _BOUNDS
    return word in _BEHIND and following[0].rstrip(".") != "i"


def _belongs_before(words: list[str], start: int) -> bool:
    """Check whether the word before a position is a part of the value that begins there."""
    word = words[start - 1]
    following = words[start].rstrip(".!?")
    earlier = words[start - 2] if start > 1 else ""
    has_number = bool(_HAS_NUMBER.search(word))
    behind_comma = word.endswith(",")
    if word.endswith((".", ";", ":")) and not _OPERATOR.fullmatch(word):
        return False
    if behind_comma and word[:1] in "([{" and following[-1:] in ")]}":
        return True  # (-∞, 3]
    if behind_comma and following[-1:] not in ")]}":
        is_assignment = len(following) == 1 and words[start + 1 : start + 2] == ["="]
        is_list = _NUMBERS.fullmatch(following) and _NUMBERS.fullmatch(word)
        is_third = earlier.endswith(",") and _HAS_NUMBER.search(earlier)  # 1, 2, and 3
        return has_number and bool(
            is_list or (is_third and following in ("and", "or")) or is_assignment
        )
    if word.lower() == "the" and start > 2 and earlier in _BETWEEN:  # 2 of the 12
        return _is_number(words[start - 3])
    is_variable = len(word) == 1 and word.isalpha() and word not in "aI"
    is_dash = word == "-" and earlier.isalpha() and earlier[1:].islower()
    return (
        has_number
        or (bool(_OPERATOR.fullmatch(word)) and not is_dash)
        or bool(_JOINED_END.search(word) and "\\\\" not in word)
        or word.lower() in _BEFORE
        or (word.lower() in _BETWEEN and _is_number(earlier))
        or (word.lower() in NUMERALS and following in ("and", "or", "to", "in", "of"))
        or (_is_number(earlier) and _are_one_quantity(word, words[start + 1 : start + 3]))
        or (is_variable and bool(_OPERATOR.match(following)))
    )


def _are_one_quantity(first: str, following: list[str]) -> bool:
    """Check whether units are of one kind: 2 hours 30 minutes, 2 hours and 30 minutes."""
    units = [find_unit(word.rstrip(".,")) for word in (first, *following)]
    kinds = [_find_kind(unit) for unit in units if unit]
    return bool(units[0]) and len(kinds) > 1 and len({*kinds}) == 1


def _find_kind(unit: str) -> str:
    while (base := UNITS[unit][1] if unit in UNITS else "") and base != unit:
        unit = base
    return unit


def _is_number(word: str) -> bool:
    return bool(_NUMBERS.fullmatch(word)) or word.lower() in NUMERALS


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
