"""Decide whether two values are equal: each kind of value has its comparison."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from sympy import S, oo, pi

from gapft_harness.verification.mathematics.arithmetic import is_expression, is_matrix
from gapft_harness.verification.mathematics.proofs import are_equal_expressions, are_proportional
from gapft_harness.verification.mathematics.values import (
    Clock,
    Collection,
    Date,
    Domain,
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
    has_units,
    is_unit,
    make_unit,
    may_be_missing,
    split_units,
)

_HALF_DAY = 12 * 3600


def are_equal(gold: Value, answer: Value) -> bool:
    """Compare two values.

    Raises:
        Unreadable: an operation that the comparison needs is not defined.
    """
    if isinstance(gold, Named | Domain) or isinstance(answer, Named | Domain):
        gold, answer = solve_relation(gold), solve_relation(answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _are_equal_named(gold, answer)
    if isinstance(gold, Clock) or isinstance(answer, Clock):
        return _are_equal_clocks(gold, answer)
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return _are_equal_ratios(gold, answer)
    if isinstance(gold, Domain) or isinstance(answer, Domain):
        domains = find_domain(gold), find_domain(answer)
        return None not in domains and _are_equal_domains(*domains)
    if isinstance(gold, Words) != isinstance(answer, Words):
        texts = [
            v.text if isinstance(v, Words) else getattr(v, "words", "") for v in (gold, answer)
        ]
        return texts[0] == texts[1]
    gold, answer = _spread_column(gold), _spread_column(answer)
    for kind, compare in _COMPARISONS:
        if isinstance(gold, kind) and isinstance(answer, kind):
            return compare(gold, answer)
    return False


def drop_repeated(items: Sequence[Value]) -> list[Value]:
    """Return the items without those that equal an earlier one, units included."""
    kept: list[Value] = []
    for item in items:
        if not any(_has_units(item) == _has_units(o) and are_equal(item, o) for o in kept):
            kept.append(item)
    return kept


def _has_units(value: Value) -> bool:
    return isinstance(value, Scalar) and has_units(value.value)


def _are_equal_clocks(gold: Value, answer: Value) -> bool:
    """Compare times of day; a time in lowest terms without a.m. or p.m. may be a ratio too."""
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        if gold.has_half == answer.has_half:
            same = gold.seconds == answer.seconds
        else:
            stated, other = (gold, answer) if gold.has_half else (answer, gold)
            period = _HALF_DAY if other.seconds < _HALF_DAY + 3600 else 2 * _HALF_DAY
            same = (stated.seconds - other.seconds) % period == 0
        if same or gold.ratio is None or answer.ratio is None:
            return same
    first, second = (v.ratio if isinstance(v, Clock) else v for v in (gold, answer))
    if first is None or second is None:
        return False
    is_reduced = isinstance(first, Ratio) and sympy.igcd(*first.terms) == 1
    return (is_reduced or not isinstance(gold, Clock)) and _are_equal_ratios(first, second)


# Names, relations and sets of numbers


def _are_equal_named(gold: Value, answer: Value) -> bool:
    """Compare values of which one or both have a name; one name may be missing."""
    if isinstance(gold, Collection) or isinstance(answer, Collection):
        gold, answer = _spread_names(gold), _spread_names(answer)
        if isinstance(gold, Collection) and isinstance(answer, Collection):
            return _are_equal_collections(gold, answer)
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.name == answer.name or not (gold.name and answer.name):
            return are_equal(gold.value, answer.value)
        if gold.difference is None or answer.difference is None:
            return False
        functions = {name.partition("(")[0] for name in (gold.name, answer.name)}
        if len(functions) == 1:
            return False  # P(2) and P(3)
        return are_proportional(gold.difference, answer.difference, any_sign=True)
    named, other = (gold, answer) if isinstance(gold, Named) else (answer, gold)
    assert isinstance(named, Named)
    if isinstance(other, Relation):
        return (
            named.difference is not None
            and other.operator == "="
            and are_proportional(named.difference, other.difference, any_sign=True)
        )
    if isinstance(named.value, Domain) and find_domain(other) is None:
        return False
    return are_equal(*((named.value, other) if named is gold else (other, named.value)))


def _spread_names(value: Value) -> Value:
    """Return ``(x, y) = (1, 2)`` as ``x = 1, y = 2``."""
    if not isinstance(value, Named) or not isinstance(value.value, Tuple):
        return value
    names = value.name.strip("()").split(",")
    if not value.name.startswith("(") or len(names) != len(value.value.items):
        return value
    return Collection(tuple(map(Named, names, value.value.items)), "list")


def solve_relation(value: Value) -> Value:
    """Return a relation in one variable as the set of its real solutions; else the value itself."""
    if not isinstance(value, Relation) or len(value.difference.free_symbols) != 1:
        return value
    variable = next(iter(value.difference.free_symbols))
    kinds = {"=": sympy.Eq, "!=": sympy.Ne, ">": sympy.Gt, ">=": sympy.Ge}
    if value.difference.is_polynomial(variable) and sympy.degree(value.difference, variable) > 6:
        return value
    try:
        solutions = sympy.solveset(kinds[value.operator](value.difference, 0), variable, S.Reals)
    except (NotImplementedError, ValueError):
        return value
    if is_unit(variable):
        return value
    if isinstance(solutions, sympy.FiniteSet):
        items = tuple(map(Scalar, solutions))
        return Named(variable.name, items[0] if len(items) == 1 else Collection(items, "list"))
    is_known = isinstance(solutions, sympy.Interval | sympy.Union)
    return Named(variable.name, Domain(solutions)) if is_known else value


def find_domain(value: Value) -> Any:
    """Return a value as a set of real numbers; None if it is not one."""
    if isinstance(value, Domain):
        return value.elements
    items = value.items if isinstance(value, Tuple | Collection) else ()
    numbers = [item.value for item in items if isinstance(item, Scalar)]
    are_real = all(is_expression(n) and n.is_number and n.is_extended_real for n in numbers)
    if len(numbers) < len(items) or not are_real:
        return None
    if isinstance(value, Collection) and value.kind == "set":
        return sympy.FiniteSet(*numbers)
    if isinstance(value, Tuple) and len(numbers) == 2:
        low, high = numbers
        if (low - high).is_negative or high is oo or low is -oo:
            return sympy.Interval(low, high, value.opening == "(", value.closing == ")")
    return None


def _are_equal_domains(first: Any, second: Any) -> bool:
    return first == second or sympy.SymmetricDifference(first, second) is S.EmptySet


def operate_on_sets(operation: str, left: Value, right: Value) -> Value:
    """Return a union, an intersection or a difference; of named sets an expression."""
    domains = find_domain(left), find_domain(right)
    if None not in domains:
        operations = {"union": sympy.Union, "intersection": sympy.Intersection}
        result = operations.get(operation, sympy.Complement)(*domains)
        is_finite = isinstance(result, sympy.FiniteSet) or result is S.EmptySet
        return Collection(tuple(map(Scalar, result)), "set") if is_finite else Domain(result)
    if not (isinstance(left, Collection) and isinstance(right, Collection)):
        is_same = isinstance(left, SetExpression) and left.operation == operation != "complement"
        return SetExpression(operation, (*(left.items if is_same else (left,)), right))  # type: ignore[union-attr]
    if operation == "union":
        return Collection((*left.items, *right.items), "set")
    others = right.items
    is_kept = operation == "intersection"
    kept = [item for item in left.items if any(are_equal(item, o) for o in others) == is_kept]
    return Collection(tuple(kept), "set")


def _are_equal_set_expressions(gold: SetExpression, answer: SetExpression) -> bool:
    if gold.operation != answer.operation or not len(gold.items) == len(answer.items) <= 5:
        return False
    is_ordered = gold.operation == "complement"
    orders = [answer.items] if is_ordered else itertools.permutations(answer.items)
    return any(all(map(are_equal, gold.items, items)) for items in orders)


def _are_equal_relations(gold: Relation, answer: Relation) -> bool:
    any_sign = gold.operator in ("=", "!=")
    return gold.operator == answer.operator and are_proportional(
        gold.difference, answer.difference, any_sign=any_sign
    )


# Values with several parts


def _are_equal_ratios(gold: Value, answer: Value) -> bool:
    """Compare ratios, or a ratio of two numbers with a fraction."""
    terms: list[Sequence[Any]] = []
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
    products = [(a * second[-1], b * first[-1]) for a, b in zip(first, second, strict=True)]
    return all(are_equal_expressions(a, b) for a, b in products)


def _are_equal_tuples(gold: Tuple, answer: Tuple) -> bool:
    """Compare in order; only the brackets of a pair count, which may be an interval."""
    if len(gold.items) != len(answer.items):
        return False
    same_brackets = (gold.opening, gold.closing) == (answer.opening, answer.closing)
    return (same_brackets or len(gold.items) > 2) and all(map(are_equal, gold.items, answer.items))


def _spread_column(value: Value) -> Value:
    """Return a column vector as the tuple of its components."""
    if isinstance(value, Scalar) and is_matrix(value.value) and value.value.cols == 1:
        return Tuple(tuple(map(Scalar, value.value)))
    return value


def _are_equal_collections(gold: Collection, answer: Collection) -> bool:
    """Compare sets, in which a repeated value counts once, or lists, in which it counts."""
    expected, remaining = (
        drop_repeated(v.items) if v.kind == "set" else list(v.items) for v in (gold, answer)
    )
    if len(expected) != len(remaining) or (gold.kind != answer.kind and len(expected) < 2):
        return False
    names = {item.name for v in (gold, answer) for item in v.items if isinstance(item, Named)}
    if len(names) > 1 and not all(isinstance(item, Named) for item in (*expected, *remaining)):
        return False  # values of different variables have no order without their names
    joiners = {gold.joiner, answer.joiner}
    if joiners == {"or", "and"} and not all(map(_may_join_either, expected)):
        return False
    if joiners == {"or", ","} and len(names) > 1:
        return False  # x = 1 or y = 2
    if not expected:
        return True
    equal = [[are_equal(item, other) for other in remaining] for item in expected]
    return -1 not in maximum_bipartite_matching(csr_array(equal, dtype=bool))


def _may_join_either(value: Value) -> bool:
    r"""Check whether "or" and "and" mean the same between such values: not in ``A \land B``."""
    return isinstance(value, Tuple) or (
        isinstance(value, Scalar) and (not value.value.is_Symbol or is_unit(value.value))
    )


# Numbers, expressions and matrices


def _are_equal_scalars(gold: Scalar, answer: Scalar) -> bool:
    """Compare expressions and their units; a unit may be missing on one side."""
    if len({gold.base or 10, answer.base or 10} - {10}) > 1:
        return False
    values = gold.value, answer.value
    if any(map(is_matrix, values)):
        are_matrices = all(map(is_matrix, values)) and values[0].shape == values[1].shape
        return are_matrices and all(map(are_equal_expressions, *values))
    with_units = [has_units(value) for value in values]
    if not any(with_units):
        return are_equal_expressions(*values)
    if all(with_units):
        return _are_equal_quantities(*values)
    number, quantity = values[::-1] if with_units[0] else values
    if quantity.as_powers_dict().get(make_unit("%"), 1) != 1:
        quantity = quantity.subs(make_unit("%"), sympy.Rational(1, 100))
    coefficient, unit = split_units(quantity)
    if not may_be_missing(unit):
        return False
    if unit == make_unit("%"):
        return _is_percentage(number, coefficient, has_gold_sign=with_units[0])
    radians = {make_unit("deg"): coefficient * pi / 180, make_unit("rad"): coefficient}
    return are_equal_expressions(number, coefficient) or (
        unit in radians and are_equal_expressions(number, radians[unit])
    )


def _is_percentage(number: Any, coefficient: Any, *, has_gold_sign: bool) -> bool:
    """Compare a number with a percentage: by value, or by its number above 1 (a missing sign)."""
    if are_equal_expressions(number, coefficient / 100):
        return True
    is_plain = coefficient.is_Integer or (has_gold_sign and coefficient.is_Rational)
    may_omit = is_plain and bool(abs(coefficient) > 1)
    return may_omit and are_equal_expressions(number, coefficient)


def _are_equal_quantities(gold: Any, answer: Any) -> bool:
    values = [convert_units(v) for v in (_choose_units(gold, answer), _choose_units(answer, gold))]
    try:
        (first, unit), (second, other) = map(split_units, values)
    except Unreadable:  # 90° + A/2
        return are_equal_expressions(*(value.subs(make_unit("deg"), 1) for value in values))
    return bool(unit == other) and are_equal_expressions(first, second)


def _choose_units(value: Any, other: Any) -> Any:
    """Read primes as minutes of arc, and pounds as money, where the other side has such units."""
    symbols = convert_units(other).free_symbols
    if make_unit("deg") in symbols:
        arcs = {make_unit("′"): make_unit("arcmin"), make_unit("″"): make_unit("arcsec")}
        return value.subs(arcs)
    return value.subs(make_unit("pound"), make_unit("£")) if make_unit("£") in symbols else value


_COMPARISONS: list[tuple[type, Callable[[Any, Any], bool]]] = [
    (Scalar, _are_equal_scalars),
    (Tuple, _are_equal_tuples),
    (Collection, _are_equal_collections),
    (SetExpression, _are_equal_set_expressions),
    (Relation, _are_equal_relations),
    (Words, lambda gold, answer: gold == answer),
    (Date, lambda gold, answer: gold == answer),
]
