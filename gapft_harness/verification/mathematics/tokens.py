r"""Split LaTeX into tokens: numbers, letters, words, commands and signs.

Numbers are read here, with their separators and repeating decimals, and so are number words and
words for operations ("three", "squared").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from gapft_harness.verification.mathematics.arithmetic import MAX_BITS
from gapft_harness.verification.mathematics.notation import MAX_LENGTH, normalize
from gapft_harness.verification.mathematics.values import Malformed, Unreadable
from gapft_harness.verification.mathematics.vocabulary import (
    CURRENCIES,
    FILLERS,
    MONTHS,
    MULTIPLIERS,
    NUMERALS,
    OPERATIONS,
    REFUSED,
    SCALES,
    STANDALONE_MULTIPLIERS,
    find_unit,
    is_number_word,
    to_singular,
)

Kind = Literal["number", "letter", "word", "command", "sign", "group"]


@dataclass(frozen=True, slots=True)
class Token:
    r"""A piece of an answer.

    Attributes:
        kind: ``number``; ``letter``, a variable; ``word``; ``command`` with its backslash;
            ``group``, tokens in brackets; ``sign``, any other character.
        text: as written; of a group, its opening bracket.
        value: the value of a number; of ``\pm`` and ``\mp``, the same for signs that go
            together.
        is_spaced: whether spaces are before it.
        inside: the tokens of a group.
        closing: the closing bracket of a group.
    """

    kind: Kind
    text: str
    value: Fraction = Fraction(0)
    is_spaced: bool = False
    inside: tuple[Token, ...] = ()
    closing: str = ""


@dataclass(frozen=True)
class Context:
    """What the gold answer tells about the letters of an answer.

    Attributes:
        units: units of the gold answer, which an answer may write as bare letters.
        has_euler: whether ``e`` is Euler's number in it, so that ``2e3`` is no power of ten.
    """

    units: frozenset[str] = frozenset()
    has_euler: bool = False


#: Of an answer whose gold answer tells nothing, and of gold answers themselves.
NO_CONTEXT = Context()

_TEXT = re.compile(
    r"\\(text(?:bf|it|rm|sf|tt|normal|sc|up|md)?|mbox|hbox|emph|mathrm|operatorname\*?|mathop|textsuperscript)"
    r"\s*\{"
)
_FONT = re.compile(
    r"\\(?:(?:math(?:bf|it|sf|tt|cal|frak|scr|normal)|boldsymbol|bm|pmb|underline|boxed|fbox"
    r"|ensuremath)(?![a-zA-Z])|(?:mathrm|operatorname)(?=\s*\{\s*[ide]\s*\}))"
)
_SPACING = re.compile(
    r"(?:\s|~|\\[,;:> ]|\\q?quad(?![a-zA-Z])|\\(?:thin|med|thick|en)space(?![a-zA-Z]))+|\\!"
)
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+|.)", re.DOTALL)
_RUN = re.compile(r"[a-zA-Z]+")
_TEXT_WORD = re.compile(r"[^\W\d_]+(?:[.'-][^\W\d_]+)*\.?")
_FUNCTIONS_WORDS = (
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp sqrt pi infty "
    "max min gcd lcm det asin acos atan"
)
_FUNCTIONS = frozenset(_FUNCTIONS_WORDS.split())
_VOWEL = re.compile("[aeiouyAEIOUY]")
#: Words that are read as words wherever they stand, besides units.
_KNOWN = frozenset((*NUMERALS, *MULTIPLIERS, *OPERATIONS, *MONTHS, "or", "and"))

_GAP = r"(?:,|\{,\}|,\s*\\!|\\[,;: ]|\\!|~|')"
_THOUSANDS = re.compile(
    rf"[1-9][0-9]{{0,2}}({_GAP})[0-9]{{3}}(?:\1[0-9]{{3}})*(?:\.[0-9]+)?(?!,?[0-9]|\s*/)"
)
_BRACKETED = re.compile(
    r"[1-9][0-9]{0,2}(\{,\}|,\\!|\\,)[0-9]{3}(?:\1[0-9]{3})*(?:\.[0-9]+)?(?![0-9])"
)
_GERMAN = re.compile(
    r"[1-9][0-9]{0,2}(?:(?:\.[0-9]{3}){2,}(?:\{?,\}?[0-9]+)?|(?:\.[0-9]{3})+\{?,\}?[0-9]+)(?![0-9.,])"
)
_SPACED = re.compile(r"[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?")
_INDIAN = re.compile(r"[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]+)?(?!,?[0-9])")
_DECIMAL_COMMA = re.compile(r"[0-9]+\{,\}[0-9]+")
_PERIOD = re.compile(
    r"([0-9]*)\.([0-9]*)\s*(?:\\(?:overline|bar)\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))|\(([0-9]+)\)"
    r"|\\dot\s*\{?([0-9])\}?(?:([0-9]*)\\dot\s*\{?([0-9])\}?)?)"
)
_DOTS = re.compile(r"([0-9]*)\.([0-9]*?)([0-9]{1,12}?)\3+\s*(?:\\[lc]?dots(?![a-zA-Z])|\.\.\.)")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_EXPONENT = re.compile(r"[eE]([-+]?)([0-9]{1,6})(?![0-9a-zA-Z.])")
#: Opening brackets with those that may close them; an interval may mix round and square ones.
_BRACKETS = {
    "(": (")", "]"),
    "[": ("]", ")"),
    "{": ("}",),
    r"\{": (r"\}",),
    r"\langle": (r"\rangle",),
    r"\lfloor": (r"\rfloor",),
    r"\lceil": (r"\rceil",),
    r"\begin": (r"\end",),
}
_CLOSING = frozenset(closing for closings in _BRACKETS.values() for closing in closings)
_MAX_DEPTH = 60


@lru_cache(maxsize=4096)
def tokenize(latex: str, context: Context = NO_CONTEXT) -> tuple[Token, ...]:
    """Return the tokens of an answer, without groups.

    Raises:
        Malformed: braces do not match.
        Unreadable: the answer is too long, or a number too large.
    """
    if len(latex) > MAX_LENGTH:
        raise Unreadable("the answer is too long")
    tokenizer = _Tokenizer(normalize(latex), context)
    tokenizer.read()
    return tuple(_rewrite_words(tokenizer.tokens))


def join_tokens(tokens: Sequence[Token]) -> str:
    """Return tokens as text: without spaces, but for those between digits or words."""
    parts: list[str] = []
    for token, before in zip(tokens, (None, *tokens), strict=False):
        if before and token.kind == before.kind and token.kind in ("number", "word"):
            parts.append(" ")
        inside = f"{join_tokens(token.inside)}{token.closing}" if token.kind == "group" else ""
        parts.append(token.text + inside)
    return "".join(parts)


def split_tokens(
    tokens: Sequence[Token], is_separator: Callable[[Token], bool]
) -> tuple[list[tuple[Token, ...]], list[str]]:
    """Split tokens at separators; return the parts and the separators."""
    parts: list[list[Token]] = [[]]
    separators: list[str] = []
    for token in tokens:
        if is_separator(token):
            separators.append(token.text)
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts], separators


def nest_tokens(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Return tokens with all that is in brackets as groups.

    Raises:
        Unreadable: brackets do not match, or are nested too deeply.
    """
    open_groups: list[tuple[Token, list[Token]]] = []
    current: list[Token] = []
    signs = 0
    are_linked = any(token.text == r"\mp" for token in tokens)
    for token in tokens:
        if token.text in (r"\pm", r"\mp"):
            signs += not are_linked
            token = replace(token, value=Fraction(signs))
        if token.text in _BRACKETS:
            if len(open_groups) == _MAX_DEPTH:
                raise Unreadable("brackets are nested too deeply")
            open_groups.append((token, current))
            current = []
        elif token.text in _CLOSING:
            if not open_groups or token.text not in _BRACKETS[open_groups[-1][0].text]:
                raise Unreadable("brackets do not match")
            opening, outside = open_groups.pop()
            group = replace(opening, kind="group", inside=tuple(current), closing=token.text)
            current = [*outside, group]
        else:
            current.append(token)
    if open_groups:
        raise Unreadable("a bracket is not closed")
    return tuple(current)


class _Tokenizer:
    def __init__(self, text: str, context: Context) -> None:
        self.text = text
        self.context = context
        self.tokens: list[Token] = []
        self.position = 0
        self.depth = 0
        self.is_spaced = False
        #: For each open brace: whether its text is words.
        self.modes: list[bool] = []

    def read(self) -> None:
        while self.position < len(self.text):
            self._read_next()
        if self.modes:
            raise Malformed("a brace is not closed")

    def _read_next(self) -> None:
        text = self.text
        position = self.position
        if match := _SPACING.match(text, position):
            self.position = match.end()
            self.is_spaced = self.is_spaced or match[0] != "\\!"
        elif match := _FONT.match(text, position):
            self.position = match.end()
        elif match := _TEXT.match(text, position):
            self._open_text(match.end())
        elif text[position] == "{":
            self._take("sign", "{")
            self.modes.append(False)
        elif text[position] == "}":
            if not self.modes:
                raise Malformed("a brace is closed that was not opened")
            if self.modes.pop():
                self._open_text(position + 1, opens=False)
            else:
                self._take("sign", "}")
        elif text[position] == "\\":
            match = _COMMAND.match(text, position)
            if match is None:
                raise Malformed("the answer ends with a backslash")
            self._count_brackets(match[0])
            self._take("command", match[0])
        elif text[position] in "0123456789" or re.match(
            r"\.\s*(?:[0-9]|\\(?:overline|bar|dot)(?![a-z]))", text[position:]
        ):
            self._read_number()
        elif self.modes and self.modes[-1] and (match := _TEXT_WORD.match(text, position)):
            self._read_text_word(match[0])
        elif match := _RUN.match(text, position):
            self._read_letters(match[0])
        else:
            self._count_brackets(text[position])
            self._take("sign", text[position])

    def _open_text(self, end: int, *, opens: bool = True) -> None:
        r"""Enter or leave ``\text{…}``; its braces are no tokens."""
        self.position = end
        if opens:
            self.modes.append(True)
        else:
            self.is_spaced = True

    def _take(self, kind: Kind, text: str) -> None:
        """Add a token that is written as its text."""
        self.position += len(text)
        self._add(kind, text)

    def _add(self, kind: Kind, text: str, value: Fraction = Fraction(0)) -> None:
        self.tokens.append(Token(kind, text, value, self.is_spaced))
        self.is_spaced = False

    def _count_brackets(self, text: str) -> None:
        if text in ("(", "[", r"\{", r"\langle"):
            self.depth += 1
        elif text in (")", "]", r"\}", r"\rangle"):
            self.depth -= 1

    # Numbers

    def _read_number(self) -> None:
        text = self.text
        start = self.position
        match: re.Match[str] | None
        if match := _PERIOD.match(text, start):
            whole, fixed, *parts = match.groups(default="")
            value = _read_repeating(whole, fixed, "".join(parts))
        elif match := _DOTS.match(text, start):
            whole, fixed, period = match.groups()
            value = _read_repeating(whole, fixed, period)
        elif match := self._match_groups(start):
            value = Fraction(re.sub(r"[^0-9.]", "", match[0]))
        elif not self.depth and (match := _GERMAN.match(text, start)):
            value = Fraction(re.sub(r"[^0-9,]", "", match[0]).replace(",", "."))
        elif match := _DECIMAL_COMMA.match(text, start):
            value = Fraction(match[0].replace("{,}", "."))
        else:
            match = _PLAIN.match(text, start)
            if match is None:
                raise Unreadable("a point without digits")
            value = Fraction(match[0])
        end = match.end()
        exponent = _EXPONENT.match(text, end)
        if exponent and not self.context.has_euler and self._is_e_notation(match[0], exponent):
            power = int(exponent[1] + exponent[2])
            if abs(power) * 3.33 > MAX_BITS:
                raise Unreadable("a number is too large")
            value *= Fraction(10) ** power
            end = exponent.end()
        self.position = end
        self._add("number", text[start:end], value)

    def _match_groups(self, start: int) -> re.Match[str] | None:
        """Match a number with separators between groups of digits, not behind an index."""
        last = self.tokens[-1] if self.tokens else None
        if last and last.text in ("_", "^"):
            return None
        if self.depth:  # a comma or a space may be between two values
            return _BRACKETED.match(self.text, start)
        match = _THOUSANDS.match(self.text, start) or _INDIAN.match(self.text, start)
        return match or (_SPACED.fullmatch(self.text, start) if last is None else None)

    def _is_e_notation(self, mantissa: str, exponent: re.Match[str]) -> bool:
        """Tell ``1.6e-19`` and ``2e3`` from ``2e+3``, a sum with Euler's number."""
        return exponent[1] != "+" or "." in mantissa or len(exponent[2]) > 1

    # Letters

    def _read_text_word(self, word: str) -> None:
        r"""Read a word in ``\text``; a single letter directly behind a number is a variable."""
        is_attached = bool(self.tokens) and self.tokens[-1].kind == "number" and not self.is_spaced
        if word in _FUNCTIONS and not find_unit(word):
            self.position += len(word)
            self._add("command", f"\\{word}")
        elif len(word) == 1 and is_attached and not find_unit(word):
            self._take("letter", word)
        else:
            self._take("word", word)

    def _read_letters(self, run: str) -> None:
        unit = find_unit(run) if self.tokens and self.tokens[-1].kind == "number" else ""
        if len(run) > 1 and unit and (self.is_spaced or unit in self.context.units):
            self._take("word", run)
        elif run in _FUNCTIONS or run in ("inf", "infinity"):
            self.position += len(run)
            self._add("command", "\\infty" if run.startswith("inf") else f"\\{run}")
            self.is_spaced = True  # sqrt13 is the root of 13
        elif self._is_word(run):
            match = _TEXT_WORD.match(self.text, self.position)
            self._take("word", match[0] if match and match[0].isascii() else run)
        else:
            for letter in run:
                self._take("letter", letter)

    def _is_word(self, run: str) -> bool:
        r"""Tell words without ``\text`` from products of variables."""
        last = self.tokens[-1] if self.tokens else None
        unit = find_unit(run)
        if unit and unit in self.context.units and last is not None:
            return True
        is_alone = self.is_spaced or last is None or last.kind == "word" or last.text in ",;/"
        if len(run) == 1:
            return False
        if not is_alone:
            return False
        if run.lower() in _KNOWN or (unit and last is not None):
            return True
        if run.isupper() and len(run) == 3:
            return find_unit(run.lower()) in CURRENCIES
        minimum = 2 if last is not None and last.kind == "word" else 4
        return len(run) >= minimum and bool(_VOWEL.search(run)) and run[1:].islower()


def _read_repeating(whole: str, fixed: str, period: str) -> Fraction:
    """Return the value of ``whole.fixed`` followed by ``period`` for ever."""
    start = Fraction(int(whole + fixed or "0"), 10 ** len(fixed))
    return start + Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))


# Words with a value or an operation


def _rewrite_words(tokens: list[Token]) -> list[Token]:
    """Replace number words, multipliers and operations by numbers and signs."""
    words: list[Token] = []
    for token in tokens:
        parts = token.text.split("-") if token.kind == "word" else []
        if len(parts) > 1 and all(is_number_word(part) for part in parts):
            words += [Token("word", part, is_spaced=True) for part in parts]
        else:
            words.append(token)
    result: list[Token] = []
    position = 0
    while position < len(words):
        value, end = _read_numerals(words, position)
        if end > position:
            text = " ".join(part.text.lower() for part in words[position:end])
            result.append(Token("number", text, Fraction(value), is_spaced=True))
            position = end
        elif words[position].kind == "word":
            position += _rewrite_word(words, position, result)
        else:
            result.append(words[position])
            position += 1
    return result


def _read_numerals(tokens: list[Token], position: int) -> tuple[int, int]:
    """Read number words, such as "two hundred five"; return their value and where they end."""
    total = current = 0
    end = position
    last = ""
    while end < len(tokens) and tokens[end].kind == "word":
        word = tokens[end].text.lower()
        follows_tens = last.endswith("ty") and NUMERALS.get(word, 10) < 10
        if word in NUMERALS and (last in ("", *SCALES) or follows_tens):
            current += NUMERALS[word]
        elif word in SCALES and last:
            current *= SCALES[word]
            if word != "hundred":
                total += current
                current = 0
        elif word != "and" or last not in SCALES or not _is_numeral(tokens, end + 1):
            break
        last = word if word != "and" else last
        end += 1
    return total + current, end


def _is_numeral(tokens: list[Token], position: int) -> bool:
    return position < len(tokens) and tokens[position].text.lower() in NUMERALS


def _rewrite_word(tokens: list[Token], position: int, result: list[Token]) -> int:
    """Append what the word at a position means; return how many words it took."""
    token = tokens[position]
    word = to_singular(token.text)
    following = tokens[position + 1].text.lower() if position + 1 < len(tokens) else ""
    last = result[-1] if result else None
    has_number = last is not None and (last.kind == "number" or last.text in ("}", ")"))
    if word in ("a", "an") and to_singular(following) in MULTIPLIERS:
        result.append(Token("number", "1", Fraction(1), is_spaced=True))
        return 1
    if word in MULTIPLIERS and (has_number or word in STANDALONE_MULTIPLIERS):
        if _is_mixed(result, word, has_number=has_number):  # two and a half
            count = result.pop().value if has_number else Fraction(1)
            whole = result[-2]
            value = whole.value + count * Fraction(MULTIPLIERS[word])
            text = f"{whole.text} and {count} {word}"
            result[-2:] = [Token("number", text, value, is_spaced=True)]
            return 1
        if has_number:
            result.append(Token("command", r"\times"))
        result.append(Token("number", word, Fraction(MULTIPLIERS[word]), is_spaced=True))
        return 1
    both = f"{token.text.lower()} {following}"
    if token.text.lower() == "times" and not following:  # 12 times
        result.append(token)
        return 1
    for phrase, length in ((both, 2), (token.text.lower(), 1)):
        if phrase in OPERATIONS:
            operation = _Tokenizer(normalize(OPERATIONS[phrase]), Context())
            operation.read()
            result.extend(operation.tokens)
            return length
    is_operand = last is not None and last.text in (r"\times", "+", "-")
    if is_operand and len(token.text) == 1:
        token = Token("letter", token.text, is_spaced=True)
    result.append(token)
    return 1


def _is_mixed(result: Sequence[Token], fraction: str, *, has_number: bool) -> bool:
    """Check whether a whole number and "and" are before a fraction in words, or its count."""
    before = result[: len(result) - has_number]
    if "/" not in MULTIPLIERS[fraction] or len(before) < 2:
        return False
    whole, joiner = before[-2:]
    is_whole = whole.kind == "number" and whole.value.denominator == 1
    return is_whole and joiner.text.lower() == "and"


def is_filler(word: str) -> bool:
    """Check whether a word does not change what an answer says."""
    return word.lower().rstrip(".") in FILLERS


def is_refused(word: str) -> bool:
    """Check whether a word qualifies or contradicts a number, or joins two answers."""
    return word.lower().rstrip(".") in REFUSED


def find_currency(token: Token) -> str:
    """Return the currency that a token is the sign or the code of, or ""."""
    sign = {r"\$": "$", r"\pounds": "£", r"\euro": "€"}.get(token.text, token.text)
    if sign in CURRENCIES:
        return find_unit(sign)
    unit = find_unit(sign.lower()) if token.kind == "word" and sign.isupper() else ""
    return unit if unit in CURRENCIES else ""
