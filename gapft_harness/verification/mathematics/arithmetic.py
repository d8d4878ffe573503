"""Arithmetic on expressions and matrices that refuses what is too large to compute."""

from __future__ import annotations

from typing import Any

import sympy
from sympy import Rational

from gapft_harness.verification.mathematics.values import Malformed, Unreadable

#: Numbers with more binary digits are not computed.
MAX_BITS = 400_000
_MAX_ROOT_BITS = 1_000
_MAX_FACTORIAL = 20_000
_MAX_EXPONENT = 1_000_000
_MAX_DEGREE = 10_000
_MAX_ROWS = 10


def is_expression(value: Any) -> bool:
    """Check whether a value is an expression, not a matrix, a tuple or a set."""
    return isinstance(value, sympy.Expr) and not isinstance(value, sympy.MatrixBase)


def is_matrix(value: Any) -> bool:
    """Check whether a value is a matrix."""
    return isinstance(value, sympy.MatrixBase)


def _require_arithmetic(*values: Any) -> None:
    if not all(is_expression(value) or is_matrix(value) for value in values):
        raise Unreadable("arithmetic with values that are not expressions")


def _refuse_infinity(*values: Any) -> None:
    if any(value.is_infinite for value in values if is_expression(value)):
        raise Unreadable("arithmetic with infinity")


def add(left: Any, right: Any) -> Any:
    """Add two expressions, or two matrices of the same shape."""
    _require_arithmetic(left, right)
    _refuse_infinity(left, right)
    try:
        return left + right
    except (TypeError, sympy.ShapeError) as error:
        raise Unreadable("a sum of different shapes") from error


def multiply(left: Any, right: Any) -> Any:
    """Multiply two expressions or matrices; infinity has a sign, but no other factor."""
    _require_arithmetic(left, right)
    if left not in (1, -1) and not str(left).lstrip("-").startswith("±"):
        _refuse_infinity(left, right)
    try:
        product = left * right
    except (TypeError, sympy.ShapeError) as error:
        raise Unreadable("a product of different shapes") from error
    if isinstance(product, Rational) and _count_bits(product) > MAX_BITS:
        raise Unreadable("a number is too large")
    return product


def divide(left: Any, right: Any) -> Any:
    """Divide, not by zero."""
    _require_arithmetic(left, right)
    if is_matrix(right):
        raise Unreadable("a division by a matrix")
    if right == 0:
        raise Malformed("a division by zero")
    _refuse_infinity(left, right)
    return left / right


def raise_to(base: Any, exponent: Any) -> Any:
    """Return a power; one that is too large is refused before it is computed."""
    _require_arithmetic(base)
    if not is_expression(exponent):
        raise Unreadable("an exponent that is not an expression")
    _refuse_infinity(base, exponent)
    if is_matrix(base):
        is_small = exponent.is_Integer and abs(exponent) <= 100 and base.rows <= _MAX_ROWS
        if base.rows != base.cols or not is_small or (exponent < 0 and base.det() == 0):
            raise Unreadable("a power of a matrix that is not computed")
        return base**exponent
    if base == 0 and exponent.is_number and not exponent.is_positive:
        raise Malformed("a power of zero that is not defined")
    if exponent.is_number and exponent.is_extended_real and exponent.is_finite:
        size = abs(exponent)
        if size > (_MAX_EXPONENT if base.is_number else _MAX_DEGREE):
            raise Unreadable("a power is too large")
        if base.is_Rational:
            bits = _count_bits(base)
            is_root = not exponent.is_Integer
            if bits > 2 and (bits * float(size) > MAX_BITS or (is_root and bits > _MAX_ROOT_BITS)):
                raise Unreadable("a power is too large")
    return base**exponent


def _count_bits(number: Rational) -> int:
    return int(number.p).bit_length() + int(number.q).bit_length()


def find_root(radicand: Any, degree: Any) -> Any:
    """Return a root; an odd one of a negative number is negative."""
    if not is_expression(radicand) or not (degree.is_Integer and 2 <= degree <= 100):
        raise Unreadable("a root that is not computed")
    if radicand.is_number and radicand.is_negative and degree % 2:
        return -raise_to(-radicand, 1 / degree)
    return raise_to(radicand, 1 / degree)


def find_factorial(value: Any, *, is_double: bool) -> Any:
    """Return n! or n!!."""
    is_small = is_expression(value) and value.is_Integer and 0 <= value <= _MAX_FACTORIAL
    if not is_expression(value) or (value.is_number and not is_small):
        raise Unreadable("a factorial that is not computed")
    return sympy.factorial2(value) if is_double else sympy.factorial(value)


def choose(n: Any, k: Any) -> Any:
    """Return a binomial coefficient."""
    _require_arithmetic(n, k)
    is_small = n.is_Integer and k.is_Integer and abs(n) <= _MAX_FACTORIAL
    if n.is_number and not is_small:
        raise Unreadable("a binomial coefficient that is not computed")
    return sympy.binomial(n, k)


def find_determinant(matrix: Any) -> Any:
    """Return the determinant of a small square matrix."""
    if matrix.rows != matrix.cols or matrix.rows > _MAX_ROWS:
        raise Unreadable("a determinant that is not computed")
    return matrix.det()
