"""Decide whether two answers are equal in value; nothing is rounded.

Numbers are compared exactly. Expressions are equal if they are equal wherever both are defined, for
real variables: values at 60 digits can only refute that, a symbolic proof must confirm it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from sympy import I, Rational, pi

from gapft_harness.verification.mathematics.reader import (
    drop_repeated,
    find_domain,
    read_answer,
    solve_relation,
    strip_frame,
    write_words,
)
from gapft_harness.verification.mathematics.tokens import Context, join_tokens, tokenize
from gapft_harness.verification.mathematics.values import (
    Clock,
    Collection,
    Date,
    Domain,
    Malformed,
    Named,
    Ratio,
    Relation,
    Scalar,
    SetExpression,
    Tuple,
    Unreadable,
    Value,
    Words,
    convert_units,
    is_unit,
    make_unit,
    split_units,
)

_DIGITS = 60
_PRECISION = 180  # bits that a value must have to refute
_POINTS = [
    [Rational(7, 5), Rational(11, 7), Rational(23, 9), Rational(5, 8), Rational(13, 11)],
    [Rational(3, 10), Rational(9, 4), Rational(6, 7), Rational(17, 5), Rational(2, 13)],
    [Rational(-8, 5), Rational(13, 6), Rational(-7, 3), Rational(3, 11), Rational(-19, 7)],
    [Rational(-5, 7), Rational(-12, 5), Rational(14, 9), Rational(-9, 8), Rational(11, 3)],
    [Rational(4), Rational(7), Rational(3), Rational(5), Rational(2)],
    [Rational(9), Rational(2), Rational(6), Rational(4), Rational(8)],
]

_OPTION = re.compile(r"\(?([A-Z])(?:\)|[.:])?")
_LABEL = re.compile(r"(?:\(([A-Z])\)|([A-Z])[).:])(?=.)")


def check_answer(gold: str, answer: str) -> bool:
    """Compare an answer with a gold answer, both LaTeX without a box.

    Raises:
        Malformed: the gold answer is no answer.
    """
    context = find_context(gold)
    gold_tokens = strip_frame(tokenize(gold))
    try:
        tokens = strip_frame(tokenize(answer, context))
    except Unreadable:
        return False
    if not tokens or (tokens[0].text == r"\approx" and r"\approx" not in gold):
        return False
    gold_text, text = join_tokens(gold_tokens), join_tokens(tokens)
    if gold_text == text:
        return True
    if (option := _OPTION.fullmatch(gold_text)) or (option := _LABEL.match(gold_text)):
        letter = option[1] or option[2]
        label = _OPTION.fullmatch(text) or _LABEL.match(text)
        if label and (len(gold_text) < 4 or _OPTION.fullmatch(text)):
            is_alone = not re.match(r"\W*(?:or|and|,)|.*\([A-Z]\)", text[label.end() :])
            return letter in label.groups() and is_alone
    try:
        expected = read_answer(gold)
    except Malformed:
        raise
    except Unreadable:
        return False
    if isinstance(expected, Words) and write_words(tokens) == expected.text:
        return True
    try:
        return are_equal(expected, read_answer(answer, context))
    except (Unreadable, RecursionError):
        return False


def find_context(gold: str) -> Context:
    """Return what a gold answer tells about the letters of an answer."""
    try:
        value = read_answer(gold)
        letters = {token.text for token in tokenize(gold) if token.kind == "letter"}
    except Unreadable:
        return Context()
    units = {symbol.name[1:-1] for symbol in _find_symbols(value) if is_unit(symbol)}
    return Context(frozenset(units), frozenset(letters), "e" in letters)


def _find_symbols(value: Value) -> set[Any]:
    if isinstance(value, Scalar):
        return set(value.value.free_symbols)
    if isinstance(value, Tuple | Collection | SetExpression):
        return set().union(*map(_find_symbols, value.items))
    return _find_symbols(value.value) if isinstance(value, Named) else set()


def find_gold_fault(gold: str) -> str:
    """Describe why a gold answer cannot be read; return "" for one that can."""
    try:
        read_answer(gold)
    except Malformed as error:
        return str(error)
    except Unreadable:
        return ""  # it is compared as text
    return ""


# Values of all kinds


def are_equal(gold: Value, answer: Value) -> bool:
    """Compare two values.

    Raises:
        Unreadable: an operation that the comparison needs is not defined.
    """
    if isinstance(gold, Named | Domain) or isinstance(answer, Named | Domain):
        gold, answer = solve_relation(gold), solve_relation(answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _are_equal_named(gold, answer)
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        half = gold.is_certain and answer.is_certain
        return (gold.minutes - answer.minutes) % (1440 if half else 720) == 0
    gold, answer = (v.ratio if isinstance(v, Clock) and v.ratio else v for v in (gold, answer))
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return _are_equal_ratios(gold, answer)
    if isinstance(gold, Domain) or isinstance(answer, Domain):
        domains = find_domain(gold), find_domain(answer)
        return None not in domains and _are_equal_domains(*domains)
    gold, answer = (_spread_column(v) for v in (gold, answer))
    for kind, compare in _COMPARISONS:
        if isinstance(gold, kind) and isinstance(answer, kind):
            return compare(gold, answer)
    return False


def _spread_column(value: Value) -> Value:
    """Return a column vector as the tuple of its components."""
    if isinstance(value, Scalar) and isinstance(value.value, sympy.MatrixBase):
        if value.value.cols == 1 and value.value.rows > 1:
            return Tuple(tuple(map(Scalar, value.value)))
    return value


def _are_equal_named(gold: Value, answer: Value) -> bool:
    if isinstance(gold, Collection) or isinstance(answer, Collection):
        gold, answer = spread_names(gold), spread_names(answer)
        if isinstance(gold, Collection) and isinstance(answer, Collection):
            return _are_equal_collections(gold, answer)
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.name == answer.name:
            return are_equal(gold.value, answer.value)
        if gold.difference is None or answer.difference is None:
            return not (gold.name and answer.name) and are_equal(gold.value, answer.value)
        return _are_proportional(gold.difference, answer.difference, any_sign=True)
    named, other = (gold, answer) if isinstance(gold, Named) else (answer, gold)
    assert isinstance(named, Named)
    if isinstance(other, Relation):
        return (
            named.difference is not None
            and other.operator == "="
            and _are_proportional(named.difference, other.difference, any_sign=True)
        )
    if isinstance(named.value, Domain) and find_domain(other) is None:
        return False
    return are_equal(*((named.value, other) if named is gold else (other, named.value)))


def spread_names(value: Value) -> Value:
    """Return ``(x, y) = (1, 2)`` as ``x = 1, y = 2``."""
    if not isinstance(value, Named) or not isinstance(value.value, Tuple):
        return value
    names = value.name.strip("()").split(",")
    if not value.name.startswith("(") or len(names) != len(value.value.items):
        return value
    return Collection(tuple(map(Named, names, value.value.items)), "list")


def _are_equal_ratios(gold: Value, answer: Value) -> bool:
    """Compare ratios, or a ratio of two numbers with a fraction."""
    terms = []
    for value in (gold, answer):
        if isinstance(value, Ratio):
            terms.append(value.terms)
        elif isinstance(value, Scalar) and value.is_fraction:
            terms.append((value.value, sympy.Integer(1)))
        else:
            return False
    first, second = terms
    if len(first) != len(second) or first[-1] == 0 or second[-1] == 0:
        return False
    return all(
        are_equal_expressions(a * second[-1], b * first[-1])
        for a, b in zip(first, second, strict=True)
    )


def _are_equal_domains(first: Any, second: Any) -> bool:
    if first == second:
        return True
    difference = sympy.SymmetricDifference(first, second)
    return difference is sympy.S.EmptySet


def _are_equal_tuples(gold: Tuple, answer: Tuple) -> bool:
    same_brackets = (gold.opening, gold.closing) == (answer.opening, answer.closing)
    if len(gold.items) != len(answer.items) or not (same_brackets or len(gold.items) > 2):
        return False
    return all(map(are_equal, gold.items, answer.items))


def _are_equal_collections(gold: Collection, answer: Collection) -> bool:
    """Compare sets, in which a repeated value counts once, or lists, in which it counts."""
    is_set = "set" in (gold.kind, answer.kind)
    remaining = drop_repeated(answer.items) if answer.kind == "set" else list(answer.items)
    expected = drop_repeated(gold.items) if gold.kind == "set" else list(gold.items)
    if is_set and "list" in (gold.kind, answer.kind) and len(gold.items + answer.items) < 2:
        return False
    if len(expected) != len(remaining):
        return False
    for item in expected:
        match = next((n for n, other in enumerate(remaining) if are_equal(item, other)), None)
        if match is None:
            return False
        remaining.pop(match)
    return True


def _are_equal_set_expressions(gold: SetExpression, answer: SetExpression) -> bool:
    if gold.operation != answer.operation:
        return False
    orders = (
        [answer.items] if gold.operation == "complement" else itertools.permutations(answer.items)
    )
    return any(all(map(are_equal, gold.items, items)) for items in orders)


def _are_equal_relations(gold: Relation, answer: Relation) -> bool:
    any_sign = gold.operator in ("=", "!=")
    return gold.operator == answer.operator and _are_proportional(
        gold.difference, answer.difference, any_sign=any_sign
    )


def _are_proportional(first: Any, second: Any, *, any_sign: bool) -> bool:
    """Check whether one expression is a constant times the other (a positive one, if signs count)."""
    if first == 0 or second == 0:
        return bool(first == second)
    quotient = sympy.cancel(sympy.together(first / second))
    if not quotient.is_number:
        quotient = sympy.simplify(quotient)
    return bool(quotient.is_number and (any_sign or quotient.is_positive) and quotient != 0)


def _are_equal_scalars(gold: Scalar, answer: Scalar) -> bool:
    """Compare expressions and their units; a unit may be missing on one side."""
    if len({gold.base or 10, answer.base or 10} - {10}) > 1:
        return False
    if isinstance(gold.value, sympy.MatrixBase) or isinstance(answer.value, sympy.MatrixBase):
        return _are_equal_matrices(gold.value, answer.value)
    has_units = [any(map(is_unit, value.free_symbols)) for value in (gold.value, answer.value)]
    if not any(has_units):
        return are_equal_expressions(gold.value, answer.value)
    if all(has_units):
        return _are_equal_quantities(gold.value, answer.value)
    number, quantity = (answer.value, gold.value) if has_units[0] else (gold.value, answer.value)
    coefficient, unit = split_units(quantity)
    if unit == make_unit("%"):
        return _is_percentage(number, coefficient, has_gold_sign=has_units[0])
    if unit in (make_unit("deg"), make_unit("rad")) and are_equal_expressions(
        number, coefficient * (pi / 180 if unit == make_unit("deg") else 1)
    ):
        return True
    return are_equal_expressions(number, coefficient)


def _is_percentage(number: Any, coefficient: Any, *, has_gold_sign: bool) -> bool:
    """Compare a number with a percentage; its sign may be missing, but not below 1."""
    if are_equal_expressions(number, coefficient / 100):
        return True
    if not (coefficient.is_Rational and abs(coefficient) > 1):
        return False
    return bool(has_gold_sign or coefficient.is_Integer) and are_equal_expressions(number, coefficient)


def _are_equal_quantities(gold: Any, answer: Any) -> bool:
    values = [convert_units(v) for v in (_choose_units(gold, answer), _choose_units(answer, gold))]
    coefficients, units = zip(*map(split_units, values), strict=True)
    return bool(units[0] == units[1]) and are_equal_expressions(*coefficients)


def _choose_units(value: Any, other: Any) -> Any:
    """Read primes as minutes and seconds of arc, and pounds as money, where the other side has it."""
    symbols = convert_units(other).free_symbols
    if make_unit("deg") in symbols:
        return value.subs(
            {make_unit("′"): make_unit("arcmin"), make_unit("″"): make_unit("arcsec")}
        )
    return value.subs(make_unit("lb"), make_unit("£")) if make_unit("£") in symbols else value


def _are_equal_matrices(gold: Any, answer: Any) -> bool:
    if not (isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase)):
        return False
    return gold.shape == answer.shape and all(map(are_equal_expressions, gold, answer))


_COMPARISONS: list[tuple[type, Callable[[Any, Any], bool]]] = [
    (Scalar, _are_equal_scalars),
    (Tuple, _are_equal_tuples),
    (Collection, _are_equal_collections),
    (SetExpression, _are_equal_set_expressions),
    (Relation, _are_equal_relations),
    (Words, lambda gold, answer: gold == answer),
    (Date, lambda gold, answer: gold == answer),
]


# Expressions


def are_equal_expressions(first: Any, second: Any) -> bool:
    """Compare two expressions without units, exactly."""
    if first == second:
        return True
    if first.is_Rational and second.is_Rational:
        return False
    if not (first.is_finite is not False and second.is_finite is not False):
        return False
    difference = first - second
    if not difference.free_symbols:
        return not _refutes(first, second) and _is_zero_number(difference)
    first, second = _replace_functions(first, second)
    variables = sorted(first.free_symbols | second.free_symbols, key=str)
    compared, has_negative = 0, False
    for point in _POINTS:
        values = dict(zip(variables, itertools.cycle(point)))
        outcome = _compare_at(first, second, values)
        if outcome is False:
            return False
        if outcome:
            compared += 1
            has_negative = has_negative or any(value < 0 for value in values.values())
    if not compared:
        return False
    difference = first - second
    if _is_zero_expression(difference):
        return True
    if has_negative:
        return False
    positive = {v: sympy.Symbol(v.name, positive=True) for v in variables}
    return _is_zero_expression(difference.xreplace(positive).doit())


def _refutes(first: Any, second: Any) -> bool:
    """Check whether 60 digits show that two numbers differ."""
    difference = (first - second).evalf(_DIGITS, maxn=1000)
    return _is_certain(difference) and difference != 0


def _is_certain(value: Any) -> bool:
    """Check that a computed number has its digits: an exact zero never has."""
    parts = value.as_real_imag()
    known = [part._prec > _PRECISION for part in parts if part.is_Float]
    return bool(value.is_number and value.is_finite) and any(known)


def _compare_at(first: Any, second: Any, values: dict[Any, Any]) -> bool | None:
    """Compare values at a point; None where one of them is not a real number or not certain.

    Complex values are compared too, if the expressions contain the imaginary unit.
    """
    try:
        a, b = (
            e.subs(values) if e.is_polynomial() else e.evalf(_DIGITS, subs=values)
            for e in (first, second)
        )
        if a.is_Rational and b.is_Rational:
            return bool(a == b)
        a, b = a.evalf(_DIGITS), b.evalf(_DIGITS)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
        return None
    if not (first.has(I) or second.has(I)) and not (a.is_real and b.is_real):
        return None
    size = max(abs(a), abs(b))
    return bool(abs(a - b) <= size * Rational(1, 10**40)) or bool(size < Rational(1, 10**60))


def _replace_functions(first: Any, second: Any) -> tuple[Any, Any]:
    """Replace applications of unknown functions, such as f(x), by variables."""
    applied = first.atoms(sympy.core.function.AppliedUndef) | second.atoms(
        sympy.core.function.AppliedUndef
    )
    names = {call: sympy.Symbol(f"<{call}>", real=True) for call in applied}
    return first.xreplace(names), second.xreplace(names)


def _is_zero_number(value: Any) -> bool:
    """Prove that a number is zero."""
    steps: list[Callable[[Any], Any]] = [
        sympy.expand,
        lambda v: sympy.expand_complex(sympy.expand(v)),
        sympy.radsimp,
        lambda v: sympy.sqrtdenest(sympy.expand(v)),
        lambda v: sympy.expand_log(v, force=True),
        sympy.simplify,
    ]
    return _becomes_zero(value, steps) or _is_zero_algebraic(value)


def _is_zero_algebraic(value: Any) -> bool:
    if not value.is_algebraic:
        return False
    variable = sympy.Symbol("x")
    return bool(sympy.minimal_polynomial(value, variable) == variable)


def _is_zero_expression(value: Any) -> bool:
    """Prove that an expression is zero for all values of its variables."""
    steps: list[Callable[[Any], Any]] = [
        sympy.expand,
        lambda v: sympy.cancel(sympy.together(v)),
        lambda v: sympy.expand(sympy.expand_trig(v)),
        lambda v: sympy.expand(sympy.powsimp(sympy.expand_power_exp(v))),
        sympy.trigsimp,
        lambda v: sympy.expand(sympy.expand_log(v)),
        lambda v: sympy.gammasimp(sympy.combsimp(sympy.expand_func(v))),
        sympy.simplify,
        lambda v: sympy.simplify(v.rewrite(sympy.exp)),
        lambda v: sympy.simplify(sympy.expand(v.rewrite(sympy.cos))),
    ]
    return _becomes_zero(value, steps)


def _becomes_zero(value: Any, steps: Sequence[Callable[[Any], Any]]) -> bool:
    for step in steps:
        try:
            if step(value) == 0:
                return True
        except MemoryError:
            raise
        except Exception:
            continue  # sympy has no rule for this expression; the next step may have
    return False
