r"""Find the option that free text states first (``first_explicit``).

Every standalone letter is read with the words before and after it. It is a statement if words
announce it ("the answer is", "I choose", ``\boxed{``), call it right or conclude with it, or if it
opens the response, a line or a sentence as a label. An option's text with its letter, "None of the
above (D)", is read as the letter. It is not a statement if it is ruled out ("A is wrong"), asked
("is it B?"), supposed ("if C"), or only mentioned. Labels in a row ("A) ... B) ...") list the
options and state none. The first statement counts, unless the writer takes it back ("A - no, B",
"wait, ...").
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from gapft_harness.plugins.verifiers import statement_words as words
from gapft_harness.plugins.verifiers.option_texts import (
    ShortenedText,
    find_end,
    normalize,
    shorten_texts,
)
from gapft_harness.plugins.verifiers.plain_text import remove_markup

_JOINED = re.compile(
    r"(?:\s?(?:,?\s?\band\b\s(?:option |choice )?\(?[A-Z]\)?+(?!\s(?:(?:is|was|does|would|could)"
    r"(?:n't)?|has|seems|can(?:not|'t)?|fails|goes|contradicts)\b)"
    r"|(?:,?\s?\bor\b\s|\s?[/&+]\s?)(?:option |choice )?\(?[A-Z]\)?"
    r"|,\s?(?:option |choice )?\(?[A-Z]\)?(?=\s?(?:,|/|&|\band\b|\bor\b|[.;!\n]|\Z)))"
    r"(?![\w'+#]))+"
)
_ENDS = re.compile(r"(?:\srather than (?:option )?\(?[A-Z]\)?)?\s*(?:\Z|[.!;,](?!\w)|\n)")
_ALONE = re.compile(r"[.)]?\s*(?:\Z|\n)")
# After a letter that opens a line or is announced: punctuation, a dash, the end, or a reason.
_LABELLED = re.compile(
    r"\s*\Z|[.):,;!](?!\w)|\s*\n|\s[-–—]+\s"
    r"|\s(?:because|since|as|which|due to|given|based on|for|but|though|although)\b"
)
_NOUN = re.compile(rf"(?:\b(?:the )?{words.LABEL}\s?:?\s?)\Z", re.IGNORECASE)
_STARTS = re.compile(
    r"(?:\A|(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bSt)(?<!\bProf)\.|[:;!?\n]"
    r"|(?:\A|\n) ?[-*•–])\s*\Z"
)
_SENTENCE = re.compile(r"[.!?\n]")
_HEADING = re.compile(r"[^\n]*:\n|\n\W*why\b[^.!?\n]{0,60}\?\n", re.IGNORECASE)
# Numbers of characters read before a letter, directly before it, and after it.
_HEAD, _NEAR, _TAIL = 200, 70, 100
# Text after a lower-case letter that is not a word: "a man" is an article, "(b)" a label.
_NO_WORD = re.compile(r"\Z|[^ ]|\s[-–—]|\s(?:is|because|since|as|which)\b")

_Level = Literal["stated", "label", "listed", "called", "named"]


@dataclass(frozen=True, slots=True)
class Statement:
    """The option that a response states.

    Attributes:
        letters: the option, several options stated together, or ``""``.
        reason: if there is no option, a description of what the response has instead.
    """

    letters: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Mention:
    """A letter, or several joined letters, that may be a statement.

    Attributes:
        level: ``stated``; ``label`` at the start of a sentence, a statement unless it is part of a
            row; ``listed``, only part of a row; ``called`` true or ``named``, a statement if there
            is no other.
        is_alone: nothing else is on its line.
        has_alternatives: several letters of which one is right: a later statement of one counts.
        is_sign: "A:" at the very start, which may mean "Answer:"; the next statement counts.
    """

    letters: str
    start: int
    end: int
    level: _Level
    is_alone: bool = False
    has_alternatives: bool = False
    is_sign: bool = False


def find_first_statement(response: str, last: str, texts: Sequence[str] = ()) -> Statement:
    """Find the option that a response states first, after its own corrections.

    Args:
        response: a response, read in time linear in its length.
        last: the last letter to look for; the first is ``A``.
        texts: the options' texts, if known.
    """
    options = [normalize(text) for text in texts]
    shortened = shorten_texts(remove_markup(response), options)
    plain_text = shortened.plain_text
    mentions = list(_iterate_mentions(shortened, last, options))
    rows = _find_rows(plain_text.text, [m for m in mentions if m.level in ("label", "listed")])
    stated = [
        m for m in mentions if m.level == "stated" or (m.level == "label" and m.start not in rows)
    ]
    if len(stated) > 1 and stated[0].is_sign:
        stated = stated[1:]
    called = [m for m in mentions if m.level == "called"]
    is_called_first = len({m.letters for m in called}) == 1 and all(
        m.level == "label" and m.start > called[0].start for m in stated
    )
    if stated and not is_called_first:
        return _find_current_statement(plain_text.text, stated)
    for level in ("called", "named"):
        letters = {mention.letters for mention in mentions if mention.level == level}
        if len(letters) == 1:
            return Statement(letters.pop())
    if rows or any(mention.level in ("called", "named") for mention in mentions):
        mentioned = sorted({letter for m in mentions for letter in m.letters})
        return Statement("", f"spoke of {' and '.join(mentioned)}, stated none")
    return Statement("", "no option stated")


def _find_current_statement(text: str, stated: Sequence[_Mention]) -> Statement:
    """Return the first statement, or the last of those that replace one another."""
    current = stated[0]
    reconsidered = [match.start() for match in words.RECONSIDERED.finditer(text)]
    for later in stated[1:]:
        marker = bisect_left(reconsidered, current.end)
        if (
            _is_chosen(later, current)
            or (marker < len(reconsidered) and reconsidered[marker] < later.start)
            or words.WITHDRAWN.match(text, current.end)
            or words.REWORDED.search(
                text, _find_sentence_start(text, later.start, current.end), later.start
            )
        ):
            current = later
    if words.WITHDRAWN.match(text, current.end):
        return Statement("", f"took back {' and '.join(current.letters)}")
    return Statement(current.letters)


def _is_chosen(later: _Mention, current: _Mention) -> bool:
    """Return whether one letter is chosen after several candidates, or after a label of others."""
    is_label_of_others = current.level == "label" and later.letters not in current.letters
    is_open = current.has_alternatives or (is_label_of_others and len(current.letters) > 1)
    return is_open and len(later.letters) == 1


def _find_sentence_start(text: str, position: int, lower_bound: int) -> int:
    """Find where the sentence that contains a position begins, but not before ``lower_bound``."""
    lower_bound = max(lower_bound, position - _HEAD)
    ends = [match.end() for match in _SENTENCE.finditer(text, lower_bound, position)]
    return ends[-1] if ends else lower_bound


def _find_rows(text: str, labels: Sequence[_Mention]) -> set[int]:
    """Find the positions of labels that list the options in order, such as ``A) ... B) ...``."""
    pairs = [*pairwise(labels)]
    matches = [_HEADING.search(text, a.end + 1, b.start) for a, b in pairs]
    headings = ["" if match is None else match[0].strip() for match in matches]
    if len(pairs) > 1 and len({*headings}) == 1:  # one below each option, such as "Analysis:"
        headings = [""] * len(pairs)
    return {
        position
        for (a, b), heading in zip(pairs, headings, strict=True)
        if a.letters < b.letters and a.is_alone == b.is_alone and not heading
        for position in (a.start, b.start)
    }


def _iterate_mentions(
    shortened: ShortenedText, last: str, options: Sequence[str]
) -> Iterator[_Mention]:
    """Yield possible statements, in order."""
    upper = f"A-{last}"
    both = f"A-{last}a-{last.lower()}"
    candidate = re.compile(
        rf"(?<![\w'+#\\/.&-])[{both}](?![\w'+#*]|[./-]\w)(?!\s?\+\+)|\b[{upper}](?=/[{upper}]\b)"
    )
    plain_text = shortened.plain_text
    text = plain_text.text
    position = 0
    while match := candidate.search(text, position):
        start, after = match.span()
        open_position = start
        while open_position > 0 and start - open_position < 6 and text[open_position - 1] in "( ":
            open_position -= 1
        enclosed = "(" in text[open_position:start] and text[after : after + 1] == ")"
        after += enclosed
        letters = match[0].upper()
        alternatives = False
        if match[0].isupper() and (joined := _JOINED.match(text, after)):
            letters = "".join(sorted({letters, *re.findall(r"\b[A-Z]\b", joined[0])}))
            is_joined_by_or = bool(re.search(r"\bor\b|/", joined[0]))
            head = text[max(0, open_position - _NEAR) : open_position]
            alternatives = is_joined_by_or or bool(words.CANDIDATES.search(head))
            after = joined.end()
        position = max(match.end(), after)
        number = ord(text[start].upper()) - ord("A")
        option = options[number] if number < len(options) else ""
        text_end = find_end(text, after, option) if option else None
        # Marks may be inside or outside a bracket, and may include a full stop.
        emphasised = any(
            plain_text.is_emphasised(a, b)
            for a in {open_position, start}
            for b in (start + 1, after, after + 1)
        )
        level, alone = _classify_mention(
            *(
                text[max(0, open_position - _HEAD) : open_position],
                text[start],
                text[after : after + _TAIL],
            ),
            begins=open_position <= _HEAD,
            enclosed=enclosed,
            joined=len(letters) > 1,
            emphasised=emphasised,
            text_follows=text_end is not None,
        )
        if text_end is not None:
            position = text_end  # letters within an option's text state nothing
        if start in shortened.letters and level != "stated" and not (level == "label" and alone):
            continue
        if level is not None:
            sign = text.startswith("A:") and start == 0
            yield _Mention(letters, start, after, level, alone, alternatives, sign)


@lru_cache(maxsize=4096)
def _classify_mention(
    head: str, letter: str, tail: str, **flags: bool
) -> tuple[_Level | None, bool]:
    """Classify a letter, and tell whether it is alone on its line; cached for equal contexts.

    A very long text that repeats itself has few different contexts.
    """
    context = _Context(head, letter, tail, **flags)
    return context.classify(), context.is_alone


class _Context:
    """A letter with the words before and after it."""

    def __init__(
        self,
        head: str,
        letter: str,
        tail: str,
        *,
        begins: bool,
        enclosed: bool,
        joined: bool,
        emphasised: bool,
        text_follows: bool,
    ) -> None:
        self._head = head
        self._near = head[-_NEAR:]
        self._tail = tail
        self._letter = letter
        self._enclosed = enclosed
        self._labelled = joined or enclosed or bool(_LABELLED.match(tail))
        self._emphasised = emphasised
        self._text_follows = text_follows
        noun = _NOUN.search(head, max(0, len(head) - 20))
        self._before_noun = head[: noun.start()] if noun else head
        self._noun = noun is not None
        self._opens = begins and not self._before_noun.strip()
        self.is_alone = bool(
            _ALONE.match(tail) and (self._opens or self._before_noun.rstrip(" ").endswith("\n"))
        )

    def classify(self) -> _Level | None:
        """Classify the letter; None if it is not a statement."""
        head = self._head
        near = self._near
        tail = self._tail
        if self._letter.islower() and not (self._noun or self._enclosed or _NO_WORD.match(tail)):
            return None
        if words.RULED_OUT_BEFORE.search(near) or words.THING_BEFORE.search(near):
            return None
        if words.RULED_OUT_AFTER.match(tail) and not self._text_follows:
            return None
        if words.ONLY_BEFORE.search(near) and words.FOLLOWS.match(tail):
            return "named"
        called_right = words.CALLED_RIGHT.match(tail)
        if self._letter in "AaIi" and not (self._labelled or called_right):
            if self._opens and self._text_follows:
                return "label"
            return "named" if self._emphasised else self._classify_subject()
        if called_right:
            level: _Level = "called" if called_right["quality"] else "stated"
            return level if self._is_asserted(head) else None
        ends = bool(_ENDS.match(tail))
        if not self._is_lower or self._labelled or self._noun:
            announced = words.ANNOUNCED.search(head)
            if announced:
                if not self._is_asserted(head[: announced.start()], announced[0]):
                    return None
                is_list = self._before_noun.endswith("\n") and " is" not in announced[0]
                begins_line = head.endswith("\n") or is_list
                return "label" if begins_line and self._labelled else "stated"
            concluded = words.CONCLUDED.search(near) if ends or self._labelled else None
            if concluded:
                return "stated" if self._is_asserted(head, concluded[0]) else None
        if _STARTS.search(f"{'' if len(head) < _HEAD else 'x'}{self._before_noun}"[-9:]):
            return self._classify_start()
        if not self._enclosed and tail[:2] == ") ":
            return "listed"  # as in "A) one B) two"
        if self._noun and words.SO.search(self._before_noun) and words.ANSWERS.match(tail):
            return "named"
        return "named" if self._emphasised and not self._is_lower else None

    @property
    def _is_lower(self) -> bool:
        return self._letter.islower()

    def _classify_start(self) -> _Level | None:
        """Classify a letter that begins a sentence or line, with or without "Option" before it."""
        tail = self._tail
        is_dismissed = words.DISMISSED.match(tail) and (self._noun or not self._opens)
        if (words.DISCUSSED.match(tail) or is_dismissed) and not self._text_follows:
            return "listed"
        if self._is_lower and not (self._enclosed or tail[:1] in ".)" or self._noun):
            return None
        if self._labelled or (self._opens and self._text_follows):
            return "label"
        if self._emphasised:
            return "named"
        return self._classify_subject()

    def _classify_subject(self) -> _Level | None:
        """Classify a letter without a label that is the subject of an answer: "B weakens it"."""
        if (self._opens or self._noun) and words.ANSWERS.match(self._tail):
            return "named"
        return "listed" if self._noun else None

    def _is_asserted(self, preceding: str, announcement: str = "") -> bool:
        """Return whether the writer asserts it: no denial, question, condition or other speaker."""
        clause = words.CLAUSE_END.split(preceding)[-1]
        sentence = _SENTENCE.split(preceding)[-1]
        if announcement and words.OTHER_ANSWER.search(
            words.CLAUSE_END.split(self._head.rstrip(" \n:,("))[-1]
        ):
            return False
        if words.UNSAID.search(clause) and not words.SURE.search(clause):
            return False
        if words.AT_FIRST.search(preceding) or words.DOUBTED.search(preceding):
            return False
        if words.DENIED_VERB.search(self._near) or words.UNSETTLED.search(announcement):
            return False
        is_conditional = words.CONDITIONAL.search(sentence) or words.IF_FOLLOWS.match(self._tail)
        return not (is_conditional and words.ONLY_THEN.search(announcement))
