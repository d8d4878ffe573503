"""Decide whether two expressions are equal, exactly.

They are equal if they are equal wherever both are defined, for real variables: values at 60 digits
can only refute that, a symbolic proof must confirm it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import mul
from typing import Any

import sympy
from sympy import I, Rational
from sympy.core.function import AppliedUndef

_DIGITS = 60
#: Binary digits that a computed number must have to refute an equality.
_PRECISION = 180
#: Sizes of the variables at which expressions are compared, with all combinations of signs.
_SIZES = [
    [Rational(7, 5), Rational(11, 7), Rational(23, 9), Rational(5, 8), Rational(13, 11)],
    [Rational(3, 10), Rational(1, 4), Rational(2, 7), Rational(1, 5), Rational(2, 13)],
    [Rational(4), Rational(7), Rational(3), Rational(5), Rational(2)],
]
#: With more variables only two combinations of signs are tried.
_MAX_SIGNS = 4


def are_equal_expressions(first: Any, second: Any) -> bool:
    """Compare two expressions without units."""
    if first == second:
        return True
    if first.is_Rational and second.is_Rational:
        return False
    if first.is_finite is False or second.is_finite is False:
        return False
    difference = first - second
    if not difference.free_symbols:
        return not _refutes(difference) and _becomes_zero(difference, _STEPS_FOR_NUMBERS)
    return _are_equal_functions(*_replace_functions(first, second))


def _are_equal_functions(first: Any, second: Any) -> bool:
    """Compare expressions at points of each region of signs, then prove that they are equal."""
    variables = sorted(first.free_symbols | second.free_symbols, key=str)
    count = len(variables)
    signs = [*itertools.product((1, -1), repeat=count)]
    regions = []
    for region in signs if count <= _MAX_SIGNS else (signs[0], signs[-1]):
        outcomes = [
            _compare_at(first, second, dict(zip(variables, map(mul, region, sizes), strict=False)))
            for sizes in (itertools.cycle(row) for row in _SIZES)
        ]
        if False in outcomes:
            return False
        if True in outcomes:
            regions.append(region)
    if not regions:
        return False
    if _becomes_zero(first - second, _STEPS_FOR_VARIABLES):
        return True
    if count > _MAX_SIGNS:
        return False
    positive = [sympy.Symbol(variable.name, positive=True) for variable in variables]
    for region in regions:
        values = dict(zip(variables, map(mul, region, positive), strict=True))
        difference = (first.subs(values) - second.subs(values)).doit()
        if not _becomes_zero(difference, _STEPS_FOR_VARIABLES):
            return False
    return True


def are_proportional(first: Any, second: Any, *, any_sign: bool) -> bool:
    """Check whether one expression is a constant times the other; a positive one if signs count."""
    if first == 0 or second == 0:
        return bool(first == second)
    quotient = sympy.cancel(sympy.together(first / second))
    if not quotient.is_number:
        quotient = sympy.simplify(quotient)
    return bool(quotient.is_number and (any_sign or quotient.is_positive) and quotient != 0)


def _refutes(difference: Any) -> bool:
    """Check whether 60 digits show that a number is not zero."""
    value = difference.evalf(_DIGITS, maxn=1000)
    # A number that is exactly zero never has its digits.
    parts = [part for part in value.as_real_imag() if part.is_Float]
    is_certain = value.is_number and value.is_finite
    return bool(is_certain and any(part._prec > _PRECISION for part in parts))


def _compare_at(first: Any, second: Any, values: dict[Any, Any]) -> bool | None:
    """Compare values at a point; None where they are not both real, or not both known.

    Complex values are compared too, if the expressions contain the imaginary unit.
    """
    if not (first.has(I) or second.has(I) or all(_is_real(e, values) for e in (first, second))):
        return None
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
    return bool(abs(a - b) <= size * Rational(1, 10**40) or size < Rational(1, 10**60))


def _is_real(expression: Any, values: dict[Any, Any]) -> bool:
    """Check that no root or logarithm in an expression has a negative argument at a point."""
    parts = [p.base for p in expression.atoms(sympy.Pow) if p.exp.is_integer is not True]
    parts += [logarithm.args[0] for logarithm in expression.atoms(sympy.log)]
    numbers = [part.evalf(15, subs=values) for part in parts if part.free_symbols]
    return all(number.is_real and not number.is_negative for number in numbers)


def _replace_functions(first: Any, second: Any) -> tuple[Any, Any]:
    """Replace applications of unknown functions, such as f(x), by variables."""
    calls = first.atoms(AppliedUndef) | second.atoms(AppliedUndef)
    names = {call: sympy.Symbol(f"<{call}>", real=True) for call in calls}
    return first.xreplace(names), second.xreplace(names)


_Step = Callable[[Any], Any]
_STEPS_FOR_NUMBERS: list[_Step] = [
    sympy.expand,
    lambda v: sympy.expand_complex(sympy.expand(v)),
    sympy.radsimp,
    lambda v: sympy.sqrtdenest(sympy.expand(v)),
    lambda v: sympy.expand_log(v, force=True),
    sympy.simplify,
    lambda v: sympy.minimal_polynomial(v, sympy.Symbol("t")) - sympy.Symbol("t"),
]
_STEPS_FOR_VARIABLES: list[_Step] = [
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


def _becomes_zero(value: Any, steps: Sequence[_Step]) -> bool:
    for step in steps:
        try:
            if step(value) == 0:
                return True
        except MemoryError:
            raise
        except Exception:
            continue  # sympy has no rule for this expression; the next step may have
    return False
