r"""Remove markup from a response, so that the statement of an option can be read as plain words.

``__B__``, ``<b>B</b>``, `` `B` ``, ``\textbf{B}`` and ``【B】`` all become ``B``; the positions of
emphasis marks are returned with the text. Struck-out text (``~~B~~``) was taken back by the model
and is removed. Reasoning blocks are removed before a verifier is called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Maps full-width characters, brackets and spaces of other scripts to ASCII.
_ASCII = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {"\u3000": " ", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "。": ".", "、": ",", "·": "."}
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", "")
    | dict.fromkeys("‘’ʼ", "'")
    | {"[": "(", "]": ")", "〔": "(", "〕": ")", "⟨": "(", "⟩": ")"}
    | {"\r": "\n", "\u2028": "\n", "\u2029": "\n"}
)
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~|<(s|del|strike)>[^<>\n]{1,200}</\1>")
_ANSWER_TAG = re.compile(r"<(/?)(?:final[_ -]?)?(?:answer|choice)\b[^<>\n]{0,60}>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_MARK = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|math(?:bf|it|rm|tt|sf)|underline|emph|bm|bf|rm|it|Large|large)"
    r"(?![a-zA-Z])|\\[()\[\],;!{}* ]"
    r"|</?[a-zA-Z][^<>\n]{0,60}>|<\|[\w ]{1,40}\|>"
    r"|(?<!\w)_{1,3}|_{1,3}(?!\w)|`+|\$+|[{}【】「」『』《》〈〉«»]|^#{1,6}(?=\s)|^>(?=\s)"
    r"|✅|✔️?|☑️?|\ufe0f",
    re.MULTILINE,
)
_QUOTE = re.compile(r"[\"“”]|(?<!\w)'|'(?!\w)")
_STARS = re.compile(r"\*{1,3}")
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n[ \n]*")
#: Replaces a mark while white space is normalized; it is removed from responses first.
_MARK_SIGN = "\x00"


@dataclass(frozen=True, slots=True)
class PlainText:
    """A response without markup.

    Attributes:
        text: its words; runs of spaces become one space, and line breaks with adjacent spaces one
            line break.
        marks: positions in ``text`` that an emphasis mark preceded.
    """

    text: str
    marks: frozenset[int]

    def is_emphasised(self, start: int, end: int) -> bool:
        """Return whether marks are directly before and after a part."""
        return start in self.marks and end in self.marks


def remove_markup(response: str) -> PlainText:
    """Remove the markup from a response, in time linear in its length."""
    text = response.replace(_MARK_SIGN, "").translate(_ASCII)
    text = _STRUCK.sub(" ", text)
    text = _ANSWER_TAG.sub(lambda tag: "\n" if tag[1] else "\nanswer: ", text)
    text = _BOX.sub(" \\\\boxed ", text)
    text = _remove_stars(_MARK.sub(_MARK_SIGN, text))
    text = _QUOTE.sub("", text)
    text = _LINES.sub("\n", _SPACES.sub(" ", text)).strip()
    parts = text.split(_MARK_SIGN)
    marks = set()
    position = 0
    for part in parts[:-1]:
        position += len(part)
        marks.add(position)
    return PlainText("".join(parts), frozenset(marks))


def _remove_stars(text: str) -> str:
    """Remove emphasis by asterisks; keep those of ``A* search`` and ``2 * 3``."""
    lines = []
    for line in text.split("\n"):
        parts = []
        position = 0
        is_open = False
        text_start = len(line) - len(line.lstrip())
        for match in _STARS.finditer(line):
            previous = line[match.start() - 1 : match.start()] if match.start() else ""
            following = line[match.end() : match.end() + 1]
            can_open = bool(following.strip()) and not previous.isalnum()
            is_bullet = match.start() == text_start and following == " "
            is_mark = is_open or can_open or is_bullet
            parts += [line[position : match.start()], _MARK_SIGN if is_mark else match[0]]
            position = match.end()
            is_open = is_mark and not is_bullet and not is_open
        lines.append("".join([*parts, line[position:]]))
    return "\n".join(lines)
