r"""Read numbers with a currency, thousands separators, a unit or Markdown around them.

math-verify compares mathematics; it ignores or misreads the text around a number in a chat model's
answer. So this text is parsed first: ``**$1,234.50**``, ``\boxed{42~\text{km}}``, ``50%``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

#: Minus signs outside ASCII.
MINUS_SIGNS = str.maketrans({"−": "-", "﹣": "-", "－": "-"})

#: Thousands separators between groups of three digits.
_SEPARATOR = r"(?P<sep>,|\{,\}|,\\!|\\[,;: ]|~|[\u00a0\u2009\u202f])"
NUMBER = rf"\d{{1,3}}{_SEPARATOR}\d{{3}}(?:(?P=sep)\d{{3}})*(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
GAP = r"(?:\s|\\[ ,;:!]|~)*+"
_CURRENCY = (
    r"(?:\\?\$|US\$|[€£¥₹¢]|\\(?:pounds|euro)(?![a-zA-Z])|(?:USD|EUR|GBP|JPY|INR)(?![a-zA-Z]))"
)
TEXT = r"\\(?:text|mathrm|textrm|textbf|mathbf|mbox|rm)"
_WORDS = r"[A-Za-z][A-Za-z .'/-]*"
_POWER = r"(?:\^\s*(?:\{\s*-?\d\s*\}|\d)|[²³])?"
_QUANTITY = re.compile(
    rf"(?P<sign>[-+]?){GAP}(?P<before>{_CURRENCY}|\\text\{{{_CURRENCY}\}})?{GAP}"
    rf"(?P<second>[-+]?)(?P<number>{NUMBER})"
    rf"(?:{GAP}(?P<after>\\?%|{_CURRENCY}"
    rf"|(?:{TEXT}\{{\s*(?:\\?%|{_CURRENCY}|{_WORDS}){_POWER}\s*\}}{_POWER}[\s/]*)+"
    rf"|(?P<bare>{_WORDS}){_POWER}))?"
)
_WRAPPED = re.compile(
    r"\\(?:textbf|mathbf|boldsymbol|bm|textit|emph|underline|text)\{((?:[^{}]|\{[^{}]*\})*)\}"
)

#: Longer texts are neither a number with a unit nor an emphasized answer.
MAX_LENGTH = 200
#: Words after a number that change its value or make it a part of an expression.
_CHANGING_WORDS = (
    "or and not no more less fewer greater than least most over under above below if plus minus "
    "divided squared cubed factorial choose mod base root tenth hundredth thousandth half third "
    "quarter fifth to through point remainder sin cos tan log exp pi i e x y z"
)
_NOT_UNITS = frozenset(_CHANGING_WORDS.split())
FACTORS = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "million": 10**6,
    "crore": 10**7, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
#: Spelling -> unit of the units that are compared; other units are dropped.
_UNITS = {
    spelling: spellings[0]
    for line in (
        "% percent pct percentage", "mm millimeter millimetre", "cm centimeter centimetre",
        "m meter metre", "km kilometer kilometre", "inch in inches", "foot ft feet", "yard yd",
        "mile mi", "mg milligram", "g gram", "kg kilogram", "lb lbs", "oz ounce", "ml milliliter",
        "l liter litre", "second s sec", "minute min", "hour h hr hrs", "day", "week", "month",
        "year yr yrs", "dollar $ usd us$", "cent ¢", "euro € eur", "gbp £", "yen ¥ jpy",
        "rupee ₹ inr rs", "km/hour kmh kph", "mile/hour mph", "degree deg °", "radian rad",
    )
    for spellings in [line.split()]
    for spelling in spellings
}  # fmt: skip
_PERCENT = "%"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit.

    Attributes:
        number: plain digits with a sign and a decimal point, such as ``-1234.50``.
        unit: the standard spelling of a known unit, such as ``km/hour``; else its words; "" if
            there is none.
        factor: the factor of a word such as ``million``.
        droppable: whether the number means the same without the unit; false for a single letter,
            which may be a variable, and for words such as "or more".
    """

    number: str
    unit: str = ""
    factor: int = 1
    droppable: bool = True

    @property
    def latex(self) -> str:
        """The number as LaTeX, without its unit."""
        return self.number if self.factor == 1 else rf"{self.number} \cdot {self.factor}"


def read_quantity(latex: str) -> Quantity | None:
    r"""Read an answer that is a single number; return None for any other answer.

    >>> read_quantity(r"\$1,234.50")
    Quantity(number='1234.50', unit='dollar', factor=1, droppable=True)
    >>> read_quantity(r"42~\text{km}").unit
    'km'
    >>> read_quantity("(1,234)")
    """
    text = latex.translate(MINUS_SIGNS).strip()
    if len(text) > MAX_LENGTH:
        return None
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or (match["sign"] and match["second"]):
        return None
    digits = match["number"].replace(match["sep"] or "\0", "")
    sign = "-" if "-" in (match["sign"], match["second"]) else ""
    currency, after = _strip_latex(match["before"] or ""), _strip_latex(match["after"] or "")
    words, factor = after.split(), 1
    while words and (word_factor := FACTORS.get(to_singular(words[0]))):
        factor *= word_factor
        del words[0]
    if words[:1] == ["per"] and currency:
        currency, words = "", [currency, *words]
    unit = find_unit(currency) or find_unit(" ".join(words)) or currency or " ".join(words)
    droppable = not (match["bare"] and len(after) == 1)
    if not find_unit(unit):
        is_separated = match.start("after") > match.end("number")
        if match["bare"] and factor == 1 and (len(after) < 3 or not is_separated):
            return None  # a product of variables, such as 2xy
        droppable = _NOT_UNITS.isdisjoint(map(to_singular, words))
    return Quantity(f"{sign}{digits}", unit, factor, droppable)


def _strip_latex(written: str) -> str:
    r"""Return a unit without LaTeX: ``\text{cm}^2`` becomes ``cm^2``."""
    text = written.replace("\\pounds", "£").replace("²", "^2").replace("³", "^3")
    text = re.sub(rf"{TEXT}\{{|[{{}}\\~]", " ", text)
    return re.sub(r"\s*([/^])\s*", r"\1", " ".join(text.split()))


@lru_cache(maxsize=1024)
def find_unit(words: str) -> str:
    """Return the standard spelling of a known unit, or ""."""
    lowered = words.lower() if len(words) > 1 else words
    if (unit := _UNITS.get(lowered) or _UNITS.get(to_singular(lowered))) is not None:
        return unit
    for word, power in (("square ", "2"), ("sq ", "2"), ("cubic ", "3"), ("cu ", "3")):
        if lowered.startswith(word) and (base := find_unit(lowered.removeprefix(word))):
            return f"{base}^{power}"
    base, caret, power = lowered.partition("^")
    if caret:
        return f"{known}^{power}" if (known := find_unit(base)) else ""
    numerator, slash, denominator = lowered.replace(" per ", "/").partition("/")
    if slash and (first := find_unit(numerator)) and (second := find_unit(denominator)):
        return _UNITS.get(f"{first}/{second}", f"{first}/{second}")
    return ""


def to_singular(word: str) -> str:
    """Return a word in lower case, without a full stop or an s at its end."""
    lowered = word.lower().rstrip(".")
    return lowered[:-1] if len(lowered) > 3 and lowered.endswith("s") else lowered


_PRODUCT = re.compile(r"([-+]?\d+(?:\.\d+)?)([a-z]{1,3})")
_RATIO = re.compile(r"\d\s*:\s*\d")
_FRACTION = re.compile(r"/|\\[dtc]?frac")


def make_comparable(gold: str, answer: str) -> tuple[str, str] | None:
    r"""Return gold answer and answer in a form that math-verify can compare; None if they differ.

    They differ if both have known units that are different, if one has a percent sign and the other
    a different unit, if only one has words that change the number ("or more"), or if one is a ratio
    and the other is neither a ratio nor a fraction. If only the answer has a percent sign, the sign
    is a unit if the gold answer is above 1 (``50%`` for 50); otherwise it divides by a hundred
    (``50%`` for 0.5). The answer may omit a percent sign of the gold answer.
    """
    ratios = [text for text in (gold, answer) if _RATIO.search(text)]
    if len(ratios) == 1 and not _FRACTION.search(gold + answer):
        return None
    gold_quantity, answer_quantity = read_quantity(gold), read_quantity(answer)
    if gold_quantity is None or answer_quantity is None or _match_product(gold):
        return _spell_alone(gold_quantity, gold), _spell_alone(answer_quantity, answer)
    units = {gold_quantity.unit, answer_quantity.unit}
    droppable = gold_quantity.droppable and answer_quantity.droppable
    if (
        len(units) > 1
        and not droppable
        and not (find_unit(gold_quantity.unit) or find_unit(answer_quantity.unit))
    ):
        return None
    if len(units) > 1 and "" not in units and (_PERCENT in units or all(map(find_unit, units))):
        return None
    if not droppable:
        return gold, answer
    if gold_quantity.unit == _PERCENT != answer_quantity.unit:
        return rf"{gold_quantity.latex}\%", answer_quantity.latex
    if (
        answer_quantity.unit == _PERCENT != gold_quantity.unit
        and abs(float(gold_quantity.number)) <= 1
    ):
        return gold_quantity.latex, rf"\frac{{{answer_quantity.latex}}}{{100}}"
    return gold_quantity.latex, answer_quantity.latex


def _spell_alone(quantity: Quantity | None, text: str) -> str:
    """Return an answer in the form for comparison with an expression that is not a number."""
    if product := _match_product(text):
        return r" \cdot ".join([product[1], *product[2]])  # math-verify would drop some letters
    if quantity is None or not quantity.droppable or quantity.unit == _PERCENT:
        return text
    return quantity.latex


def _match_product(text: str) -> re.Match[str] | None:
    """Match a number followed by variables, such as ``2ab`` or ``2m``, but not ``2km``."""
    match = _PRODUCT.fullmatch(text)
    return None if match and len(match[2]) > 1 and find_unit(match[2]) else match
