"""The comparison rules for answers, outside the sandbox."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox.comparison import (
    check_arguments,
    compare_outputs,
    compare_values,
    parse_expected_value,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1\n", "1"),
        ("  1 \r\n2\t\n\n", "1\n2"),
        ("1.0 2", "1 2.00"),
        ("1e3", "1000"),
        ("Infinity", "inf"),
        ("", "\n \n"),
        ("a\n\nb", "a\n \nb"),
        ("0.1", "0.10"),
    ],
)
def test_accepts_equal_output(printed, expected):
    assert compare_outputs(printed.encode(), expected) == ""


@pytest.mark.parametrize(
    ("printed", "expected", "difference"),
    [
        ("1 2", "1  2 3", "line 1: '1 2', expected '1  2 3'"),
        ("1\n2", "1", "2 lines, expected 1"),
        ("1.0000001", "1", "line 1: '1.0000001', expected '1'"),
        ("nan", "NaN", "line 1: 'nan', expected 'NaN'"),
        ("sNaN", "sNaN 1", "line 1: 'sNaN', expected 'sNaN 1'"),
        ("yes", "Yes", "line 1: 'yes', expected 'Yes'"),
        ("a  b", "a b", "line 1: 'a  b', expected 'a b'"),
        ("a\n\n\nb", "a\n\nb", "4 lines, expected 3"),
        ("", "0", "line 1: '', expected '0'"),
    ],
)
def test_reports_differences(printed, expected, difference):
    assert compare_outputs(printed.encode(), expected) == difference


#: Printed and expected lines that are equal only with Python's decimals and white space.
ONLY_PYTHONS = [
    ("１２", "12"),
    ("٣", "3"),
    ("1_000", "1000"),
    ("1\x1f2", "1 2"),
    ("1\x852", "1 2"),
    ("1\u00a02", "1 2"),
    ("1\x1c", "1"),
    ("\u2003a", "a"),
    ("_1", "1"),
]


@pytest.mark.parametrize(("printed", "expected"), ONLY_PYTHONS)
def test_rejects_decimals_and_space_of_python_alone(printed, expected):
    assert compare_outputs(printed.encode(), expected) != ""
    assert compare_outputs(printed.encode(), printed) == ""


def test_undecodable_bytes_match_nothing():
    assert compare_outputs(b"\xff", "\ufffd") != ""
    assert compare_outputs(b"\xff", "\xff") != ""


@given(st.text())
def test_any_text_equals_itself(text):
    text = text.replace("\r", "")
    encoded = text.encode("utf-8", "replace")
    assert compare_outputs(encoded, encoded.decode()) == ""


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 8))
def test_decimal_equals_its_other_spellings(number, zeros):
    written = f"{number:f}"
    other = written + ("0" * zeros if "." in written else "." + "0" * (zeros + 1))
    assert compare_outputs(written.encode(), other) == ""
    assert (
        compare_outputs(written.encode(), str(number + Decimal("1e-3") * (1 + abs(number)))) != ""
    )


@given(st.integers(4_301, 60_000), st.sampled_from("123456789"))
def test_compares_printed_integers_of_any_length(digits, first):
    number = first + "7" * (digits - 1)
    for equal in (f"0{number}", f"+{number}", f"{number}.0", f"{number[:9]}{number[9:]}e0"):
        assert compare_outputs(equal.encode(), number) == ""
    for other in (f"-{number}", number[:-1], f"{number}0", f"{number[:-1]}8", f"{number}.1"):
        assert compare_outputs(other.encode(), number) != ""


@given(JSON, JSON)
def test_values_follow_pythons_equality(first, second):
    first, second = json.loads(json.dumps(first)), json.loads(json.dumps(second))
    assert compare_values(first, first) == ""
    assert (compare_values(first, second) == "") == (first == second)


def test_compares_deeply_nested_values():
    nested_ints, nested_floats, nested_other = [1], [1.0], [2]
    for _ in range(100_000):
        nested_ints, nested_floats, nested_other = [nested_ints], [nested_floats], [nested_other]
    assert compare_values(nested_ints, nested_floats) == ""
    assert compare_values(nested_ints, nested_other).startswith("a different value")
    for nested in (nested_ints, nested_floats, nested_other):
        while isinstance(nested, list):  # otherwise their deallocation recurses in C
            nested = nested[0]


def test_expected_value_must_be_json():
    with pytest.raises(UserError, match=r"must be JSON; found '\[1, 2'"):
        parse_expected_value("[1, 2")


@pytest.mark.parametrize("text", ["NaN", "1\n[1, NaN]", '{"a": -Infinity}'])
def test_rejects_input_that_is_not_a_number(text: str) -> None:
    with pytest.raises(UserError, match="input must be one JSON value per line"):
        check_arguments(text)
    check_arguments('"NaN"\n[1, "Infinity"]')


@pytest.mark.parametrize("text", ["NaN", "[1, NaN]", '{"a": -Infinity}'])
def test_rejects_nan_as_expected_value(text):
    """Python reads NaN, but it equals nothing, so no program could pass."""
    with pytest.raises(UserError, match=r"must be JSON.*not a JSON number"):
        parse_expected_value(text)
    assert parse_expected_value('"NaN"') == "NaN"
