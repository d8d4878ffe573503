r"""Rewrite an answer as plain LaTeX: Unicode characters, Markdown and layout commands are replaced.

The result means the same to a reader: ``½`` becomes ``\frac{1}{2}``, ``\left(`` becomes ``(``.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"

_CHARACTERS = {
    "−": "-",
    "–": "-",
    "—": "-",
    "‐": "-",
    "‑": "-",
    "⁄": "/",
    "∕": "/",
    "÷": r"\div ",
    "×": r"\times ",
    "⋅": r"\cdot ",
    "·": r"\cdot ",
    "∙": r"\cdot ",
    "∗": "*",
    "•": r"\cdot ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "⩽": r"\le ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "≡": r"\equiv ",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∉": r"\notin ",
    "∅": r"\emptyset ",
    "∖": r"\setminus ",
    "⊂": r"\subset ",
    "⊆": r"\subseteq ",
    "→": r"\to ",
    "∠": r"\angle ",
    "△": r"\triangle ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "〈": r"\langle ",
    "〉": r"\rangle ",
    "∣": r"\mid ",
    "…": r"\ldots ",
    "⋯": r"\ldots ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "˚": r"^\circ ",
    "′": "'",
    "’": "'",
    "‘": "'",
    "″": "''",
    "‴": "'''",
    "“": '"',
    "”": '"',
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "√": r"\sqrt ",
    "∛": r"\sqrt[3] ",
    "∜": r"\sqrt[4] ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "∘": r"\circ ",
    **dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003\u2005\u2006\u2007\u2008", r"\,"),
    **dict.fromkeys("\u200b\u2060\ufeff\u2061\u2062\u2063", ""),
    "％": r"\%",
    "＄": r"\$",
    "℃": r"^\circ\text{C}",
    "℉": r"^\circ\text{F}",
}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", "0123456789+-=()", strict=True))
_RUN_RAISED = re.compile(f"[{''.join(_RAISED)}]+")
_RUN_LOWERED = re.compile(f"[{''.join(_LOWERED)}]+")
_REPEATED = re.compile("((?:[0-9]\u0305)+)")

_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]")
_COMMAND_END = r"(?![a-zA-Z])"
_SIZES = (
    r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits"
    r"|mathstrut|strut|centering|small|large|Large|bf|it|rm|sf|nobreak|allowbreak|boldmath)"
    + _COMMAND_END
)
_CIRCLE = r"\\(?:circ|degree)"
#: Pattern -> replacement, in order: what is seen only as layout.
_LAYOUT = [
    (re.compile(r"\\(?:left|right)\s*\."), " "),
    (re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]"), r"\\\\"),
    (re.compile(r"\+/-|(?:\A|(?<=[=(,\s]))\+-"), r"\\pm "),
    (re.compile(r"(?<=[)\]])\s*U\s*(?=[(\[])"), r"\\cup "),
    (re.compile(r"(?<![.\\])[.,;]\s*\Z"), ""),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r"(?<=[a-zA-Z])\s*!=|\s!="), r"\\ne "),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^\s*(?:\{\s*)?\\(?:text|mathrm)\{\s*(?:st|nd|rd|th)\s*\}(?:\s*\})?"), ""),
    (re.compile(r"\^\s*\{\s*(?:st|nd|rd|th)\s*\}"), ""),
    (re.compile(r"(?<!\\)\$(?!\s*[-+]?[\d.])"), " "),
    (re.compile(rf"\\[hv]?phantom\s*(?:{_GROUP}|\\?[^\\{{}}])"), " "),
    (re.compile(rf"\\(?:hspace|vspace|label|tag|hskip)\*?\s*{_GROUP}"), " "),
    (re.compile(rf"\\(?:textcolor|colorbox)\s*{_GROUP}"), " "),
    (re.compile(rf"\\color\s*{_GROUP}"), " "),
    (re.compile(_SIZES), " "),
    (re.compile(rf"\\lbrace{_COMMAND_END}"), r"\\{"),
    (re.compile(rf"\\rbrace{_COMMAND_END}"), r"\\}"),
    (re.compile(rf"\\(?:lparen){_COMMAND_END}"), "("),
    (re.compile(rf"\\(?:rparen){_COMMAND_END}"), ")"),
    (re.compile(rf"\\(?:lbrack){_COMMAND_END}"), "["),
    (re.compile(rf"\\(?:rbrack){_COMMAND_END}"), "]"),
    (re.compile(rf"\\[lr]?vert{_COMMAND_END}"), "|"),
    (re.compile(r"\\(?:begin|end)\s*\{(?:aligned|align\*?|gathered|equation\*?|split)\}"), " "),
    (re.compile(r"\\(?:[dtc]frac)" + _COMMAND_END), r"\\frac"),
    (re.compile(r"\\(?:[dt]binom)" + _COMMAND_END), r"\\binom"),
    (re.compile(rf"\^\s*(?:\{{\s*{_CIRCLE}\s*\}}|{_CIRCLE}{_COMMAND_END})"), r"\\degree "),
    (re.compile(r"\^\s*\{\s*((?:\\prime\s*|'\s*)+)\}"), r"\1"),
    (re.compile(r"\^\s*(?=\\prime)"), ""),
    (re.compile(r"\\prime" + _COMMAND_END), "'"),
]  # fmt: skip
_REVERSED = re.compile(r"\A\s*\]|\[\s*\Z|\[\s*\\cup\s*\]")
_EMPHASIS = re.compile(r"(?P<run>\*{1,3}|_{1,3}|`{1,2})(?=\S)(?P<text>(?:(?!(?P=run)).)+)(?P=run)")
_OPENED_BEFORE = re.compile(r"(?P<text>[^*`]*\S)(?:\*{1,3}|`{1,2})[.,]?")
#: Longer answers are compared as text only.
MAX_LENGTH = 4000


def tidy_answer(latex: str) -> str:
    """Return an answer on one line, without Markdown around it and without a final full stop.

    Args:
        latex: the answer of a model, without its box.
    """
    text = _strip_stops(" ".join(latex.split()))
    if len(text) > MAX_LENGTH:
        return text
    for _ in range(3):
        match = _EMPHASIS.fullmatch(text) or _OPENED_BEFORE.fullmatch(text)
        if match is None:
            break
        text = _strip_stops(match["text"].strip())
    return text


def _strip_stops(text: str) -> str:
    """Remove stops and spaces at the end, but not dots that continue a decimal."""
    end = len(text)
    while end and (
        text[end - 1] in ",; " or (text[end - 1] == "." and text[end - 2 : end] != "..")
    ):
        end -= 1
    text = text[:end]
    is_control_space = text.endswith("\\") and not text.endswith("\\\\")
    return text[:-1].rstrip() if is_control_space else text


@lru_cache(maxsize=8192)
def normalize(latex: str) -> str:
    """Return an answer as ASCII LaTeX without layout commands."""
    text = latex
    if not text.isascii():
        text = _translate_unicode(text)
    if text.count("$") - text.count(r"\$") in (2, 4):
        text = re.sub(r"(?<!\\)\$", " ", text)
    text = _DELIMITERS.sub(" ", text)
    for pattern, replacement in _LAYOUT:
        text = pattern.sub(replacement, text)
    return _REVERSED.sub(_turn_bracket, text.strip())


def _turn_bracket(match: re.Match[str]) -> str:
    """Write a bracket that is open outwards, as in ``]0, 1[``, as a round one."""
    return match[0].translate(str.maketrans("][", "()"))


def _translate_unicode(text: str) -> str:
    text = _REPEATED.sub(lambda m: rf"\overline{{{m[1].replace(chr(0x305), '')}}}", text)
    text = _RUN_RAISED.sub(lambda m: f"^{{{''.join(map(_RAISED.__getitem__, m[0]))}}}", text)
    text = _RUN_LOWERED.sub(lambda m: f"_{{{''.join(map(_LOWERED.__getitem__, m[0]))}}}", text)
    return "".join(map(_translate_character, text))


@lru_cache(maxsize=1024)
def _translate_character(character: str) -> str:
    if character.isascii():
        return character
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK ") and name.split()[-2] == "LETTER":
        letter = name.split()[-1].lower().replace("lamda", "lambda")
        return f"\\{letter if ' SMALL ' in name else letter.capitalize()} "
    compatible = unicodedata.normalize("NFKC", character)
    if name.startswith("VULGAR FRACTION"):
        numerator, denominator = compatible.split("⁄")
        return rf"\frac{{{numerator}}}{{{denominator}}}"
    return compatible
