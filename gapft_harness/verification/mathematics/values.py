"""What an answer can be: a number or expression with units, words, a tuple, a set, a relation, …"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sympy import Expr, Mul, Rational, Symbol, factor_terms
from sympy import Set as RealSet

from gapft_harness.verification.mathematics.vocabulary import UNITS


class Unreadable(Exception):
    """A text has no value that is understood here; only an equal text equals it."""


class Malformed(Unreadable):
    """A text is not an answer at all: braces do not match, a digit is outside its base, …"""


@dataclass(frozen=True)
class Scalar:
    """A number, an expression or a matrix.

    Attributes:
        value: units and counted things in it are symbols such as ``[cm]``.
        is_fraction: whether it was written as a fraction, so that a ratio may equal it.
        base: the base that it was written with; None if there was none.
        words: its text, for a comparison with words.
    """

    value: Any
    is_fraction: bool = False
    base: int | None = None
    words: str = field(default="", compare=False)


@dataclass(frozen=True)
class Words:
    """Words, and letters or numbers between them, in lower case (single letters keep theirs)."""

    text: str


@dataclass(frozen=True)
class Tuple:
    """Ordered values in brackets: a point, a vector or an interval."""

    items: tuple[Value, ...]
    opening: str = "("
    closing: str = ")"


@dataclass(frozen=True)
class Collection:
    """A set, or a list without brackets, in which repeated values count.

    Attributes:
        joiner: "or", "and" or a comma between the values of a list.
    """

    items: tuple[Value, ...]
    kind: Literal["set", "list"]
    joiner: str = ","


@dataclass(frozen=True)
class Domain:
    """A set of numbers that is not a list of elements: an interval, a union, ℝ."""

    elements: RealSet


@dataclass(frozen=True)
class SetExpression:
    """An operation on sets that are only named, such as A ∪ B."""

    operation: str
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Named:
    """A value with its name: ``x = 2``, ``x ∈ (0, 1)``.

    Attributes:
        difference: left side minus right side, if both are expressions.
    """

    name: str
    value: Value
    difference: Any = None


@dataclass(frozen=True)
class Relation:
    """``difference`` = 0, ≠ 0, > 0 or ≥ 0."""

    operator: Literal["=", "!=", ">", ">="]
    difference: Any


@dataclass(frozen=True)
class Ratio:
    """Numbers between colons, such as 3:4:5."""

    terms: tuple[Any, ...]


@dataclass(frozen=True)
class Clock:
    """A time of day.

    Attributes:
        seconds: since midnight; without a half of the day, as written.
        has_half: whether a.m. or p.m. is stated.
        ratio: the ratio that it may be too, such as 5:12; None if it is no ratio.
    """

    seconds: int
    has_half: bool
    ratio: Ratio | None = None


@dataclass(frozen=True)
class Date:
    """A day of a month, in a year or in any."""

    month: int
    day: int
    year: int | None = None


Value = (
    Scalar | Words | Tuple | Collection | Domain | SetExpression | Named | Relation | Ratio | Clock
    | Date
)  # fmt: skip

#: How the symbol of a word begins that says more than what is counted.
QUALIFIER = "[="
_BASE: dict[str, Any] = {}


def make_symbol(name: str) -> Symbol:
    """Return a real variable."""
    return Symbol(name, real=True)


def make_unit(name: str) -> Symbol:
    """Return the symbol of a unit or a counted thing."""
    return Symbol(f"[{name}]", positive=True)


def is_unit(symbol: Any) -> bool:
    """Check whether a symbol is a unit or a counted thing."""
    return bool(symbol.is_Symbol) and symbol.name.startswith("[")


def has_units(value: Any) -> bool:
    """Check whether an expression contains units or counted things."""
    return any(map(is_unit, value.free_symbols))


def may_be_missing(units: Any) -> bool:
    """Check that a product of units has only known units and plural nouns, no qualifying word."""
    return not any(symbol.name.startswith(QUALIFIER) for symbol in units.free_symbols)


def split_units(value: Expr) -> tuple[Any, Any]:
    """Split an expression into a coefficient and a product of units; no unit is left in neither.

    Raises:
        Unreadable: the units are not a factor, as in ``x + 3 cm``.
    """
    units = [symbol for symbol in value.free_symbols if is_unit(symbol)]
    if not units:
        return value, Rational(1)
    coefficient, monomial = factor_terms(value).as_independent(*units, as_Add=False)
    if not all(is_unit(base) for base in monomial.as_powers_dict()):
        raise Unreadable("a sum of different units")
    return coefficient, monomial


def convert_units(value: Expr) -> Expr:
    """Replace units by the base units that they consist of."""
    units = {
        symbol: _find_base(symbol.name[1:-1]) for symbol in value.free_symbols if is_unit(symbol)
    }
    return value.xreplace(units) if units else value


def _find_base(name: str) -> Any:
    if name not in UNITS:
        return make_unit(name)
    if name not in _BASE:
        from sympy import pi

        factor, parts, _ = UNITS[name]
        numerator, _, denominator = factor.partition("/")
        number = Rational(numerator) / (pi if denominator == "pi" else Rational(denominator or 1))
        _BASE[name] = number * _read_parts(parts) if parts or name == "%" else make_unit(name)
    return _BASE[name]


def _read_parts(parts: str) -> Any:
    """Return the base units of a text such as ``kg*m/s^2``."""
    numerator, _, denominator = parts.partition("/")
    product = Mul(*map(_read_power, numerator.split("*")))
    return product / Mul(*map(_read_power, denominator.split("*")))


def _read_power(text: str) -> Any:
    base, _, power = text.partition("^")
    return _find_base(base) ** int(power or 1) if base not in ("", "1") else Rational(1)
