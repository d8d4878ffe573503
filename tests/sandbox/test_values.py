"""Printed text and returned values are compared the same everywhere, outside the sandbox."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.sandbox.comparison import (
    compare_outputs,
    compare_values,
    parse_expected_value,
    parse_test_arguments,
)
from gapft_harness.sandbox.values import MAX_DEPTH, are_equal, encode_value, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
JUNK = st.text(alphabet='[]{},:" 1-eatrunls\\\n\r\x0b\xa0\u2028', max_size=12)


# Printed text

EQUAL = [
    ("1\n", "1"),
    ("  1 \r\n2\t\n\n", "1\n2"),
    ("1.0 2", "1 2.00"),
    ("1e3", "1000"),
    ("Infinity", "inf"),
    ("", "\n \n"),
    ("a\n\nb", "a\n \nb"),
    ("0.1", "0.10"),
]
DIFFERENT = [
    *(("1 2", "1  2 3"), ("1\n2", "1"), ("1.0000001", "1"), ("nan", "NaN"), ("sNaN", "sNaN 1")),
    *(("yes", "Yes"), ("a  b", "a b"), ("a\n\n\nb", "a\n\nb"), ("", "0")),
    # equal only with Python's own decimals and white space
    *(("１２", "12"), ("٣", "3"), ("1_000", "1000"), ("1\x1f2", "1 2"), ("1\x852", "1 2")),
    *(("1\u00a02", "1 2"), ("1\x1c", "1"), ("\u2003a", "a"), ("_1", "1")),
]


def test_compares_printed_lines() -> None:
    assert [pair for pair in EQUAL if compare_outputs(pair[0].encode(), pair[1])] == []
    assert [pair for pair in DIFFERENT if not compare_outputs(pair[0].encode(), pair[1])] == []
    # undecodable bytes match nothing
    assert compare_outputs(b"\xff", "\ufffd")
    assert compare_outputs(b"\xff", "\xff")


@given(st.text() | st.sampled_from([printed for printed, _ in DIFFERENT]))
def test_any_text_equals_itself(text: str) -> None:
    encoded = text.replace("\r", "").encode("utf-8", "replace")
    assert compare_outputs(encoded, encoded.decode()) == ""


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 8))
def test_decimal_equals_its_other_spellings(number: Decimal, zeros: int) -> None:
    written = f"{number:f}"
    other = written + ("0" * zeros if "." in written else "." + "0" * (zeros + 1))
    assert compare_outputs(written.encode(), other) == ""
    different = str(number + Decimal("1e-3") * (1 + abs(number)))
    assert compare_outputs(written.encode(), different) != ""


@given(st.integers(4_301, 60_000), st.sampled_from("123456789"))
def test_compares_printed_integers_of_any_length(digits: int, first: str) -> None:
    number = first + "7" * (digits - 1)
    for equal in (f"0{number}", f"+{number}", f"{number}.0", f"{number[:9]}{number[9:]}e0"):
        assert compare_outputs(equal.encode(), number) == ""
    for other in (f"-{number}", number[:-1], f"{number}0", f"{number[:-1]}8", f"{number}.1"):
        assert compare_outputs(other.encode(), number) != ""


# Values


@given(JSON, JSON)
def test_values_keep_their_equality_in_transfer(first: Any, second: Any) -> None:
    first, second = (parse_json(encode_value(value)) for value in (first, second))
    assert compare_values(first, first) == ""
    assert (compare_values(first, second) == "") == are_equal(first, second) == (first == second)


@given(JUNK | st.builds(str.__add__, JSON.map(json.dumps), JUNK))
def test_reads_what_the_standard_parser_reads(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"\S"):
            parse_json(text)
    else:
        assert parse_json(text) == expected


LONG_INTEGERS = st.builds(
    lambda sign, digit, rest: sign + digit + rest,
    st.sampled_from(["", "-"]),
    st.sampled_from("123456789"),
    st.integers(4_300, 9_000).map(lambda size: "7" * size) | st.just("0" * 60_000),
)


@given(LONG_INTEGERS, LONG_INTEGERS, st.sampled_from(["{}", "[1, {}]", '{{"x": [{}]}}']))
def test_long_integers_are_equal_if_their_digits_are(first: str, second: str, form: str) -> None:
    """Independently of Python's limit, which a caller may have changed."""
    texts = [form.format(first), form.format(second)]
    others = [form.format(x) for x in (f'"{first}"', f"{first}.0", first[:-1], "true", "null")]
    limit = sys.get_int_max_str_digits()
    for digits in (limit, 640, 0):
        sys.set_int_max_str_digits(digits)
        try:
            values = [parse_expected_value(text) for text in texts]
            assert are_equal(*values) == (compare_values(*values) == "") == (first == second)
            assert not any(are_equal(values[0], parse_expected_value(text)) for text in others)
        finally:
            sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize(
    "text", ["[1, 2", f"{'7' * 5_000}x", "NaN", "[1, NaN]", '{"a": -Infinity}', "[" * 20_000]
)
def test_test_must_be_json(text: str) -> None:
    """Python reads NaN, but it equals nothing, so no program could pass."""
    with pytest.raises(UserError, match="JSON"):
        parse_expected_value(text)
    with pytest.raises(UserError, match="JSON"):
        parse_test_arguments(f"1\n{text}")
    parse_test_arguments('"NaN"\n[1, "Infinity"]\n' + "7" * 5_000)
    assert parse_expected_value('"NaN"') == "NaN"


def nest(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


def test_functions_take_and_return_integers_of_any_length(sandbox: Sandbox) -> None:
    """Only the program's own conversions have a limit, and it is the same before and after."""
    number, next_number = "7" * 60_000, "7" * 59_999 + "8"
    programs = {
        "def f(x): return x": "accepted",
        "def f(x): return x + 1": "wrong_answer",
        "def f(x): return x + 0.0": "runtime_error",
        "def f(x): return [x]": "wrong_answer",
        "def f(x): return str(x)": "runtime_error",
        "limit = __import__('sys').get_int_max_str_digits\na = limit()\n"
        "def f(x): return x if a == limit() > 0 else 0": "accepted",
    }
    tests = [Test(number, number)]
    items = [(Program(source, "function", "f"), tests) for source in programs]
    items += [(Program("def f(x): return x", "function", "f"), [Test("1", "1"), *tests])]
    nested = Program("def f(x): return [{'x': (x['y'] + 1, 1)}]", "function", "f")
    items += [(nested, [Test(f'{{"y": {number}}}', f'[{{"x": [{next_number}, 1]}}]')])]
    results = sandbox.judge(items)
    assert [r.verdict for r in results] == [*programs.values(), "accepted", "accepted"]
    assert len(results[1].tests[0].output) < 100


def test_deep_values_and_inputs_get_verdicts(sandbox: Sandbox) -> None:
    programs = {
        "def f(x): return x": "accepted",
        "import sys\ndef f(x):\n    sys.setrecursionlimit(99)\n    return x": "accepted",
        "def f(x): return x[0]": "wrong_answer",
        "def f(x): return [x]": "runtime_error",
        "def f(x): raise KeyError": "runtime_error",
        "def f(x):\n for _ in range(20_000): x = [x]\n return x": "runtime_error",
    }
    tests = [Test(nest(MAX_DEPTH), nest(MAX_DEPTH))]
    results = sandbox.judge([(Program(source, "function", "f"), tests) for source in programs])
    verdicts = [result.verdict for result in results]
    assert verdicts == [*programs.values()], results
    for too_deep in (Test(nest(MAX_DEPTH + 1), "1"), Test("1", nest(MAX_DEPTH + 1))):
        with pytest.raises(UserError, match=f"nested more than {MAX_DEPTH} times"):
            sandbox.judge([(Program("def f(x): return x", "function", "f"), [too_deep])])


#: What a function writes as its value itself. Each is judged as an answer, in linear time.
FORGED = [
    *("b'[\"value\", ' + b'[' * 900 + b']' * 900 + b']'", "b'[\"compile_error\", {}]'"),
    *("b'[\"raised\", ' + b'[' * 900 + b']' * 900 + b']'", "b'[\"value\", ' + b'9' * 10000 + b']'"),
    *('b\'["raised", "\\\\ud800", "\\\\ud800"]\'', "b'11\\n' * 300000", "b'[]'", "b''"),
    *("b'\\xff\\x00'", "b'[\"value\"]'", "b'[\"value\", 3]'"),
    "b'[\"value\", ' + b'[' * 5000 + b'0,' * 300_000 + b'0' + b']' * 5001",
]


def build_forgery(report: str) -> Program:
    source = (
        "import os\ndef f(x):\n    os.ftruncate(3, 0)\n    os.lseek(3, 0, 0)\n"
        f"    os.write(3, {report} + b'\\n')\n    os._exit(0)"
    )
    return Program(source, "function", "f")


def test_forged_reports_are_judged_as_answers(sandbox: Sandbox) -> None:
    """A forged value passes only if it equals the expected value."""
    items = [(build_forgery(report), [Test("1", "2")] * 2) for report in FORGED]
    for result in sandbox.judge(items):
        assert result.verdict in ("wrong_answer", "runtime_error"), result
        shown = result.tests[0].reason, result.tests[0].error, result.tests[0].output
        assert json.dumps(shown, ensure_ascii=False).encode()
    (right,) = sandbox.judge([(build_forgery("b'[\"value\", 2]'"), [Test("1", "2")])])
    assert right.verdict == "accepted"


def test_distinguishes_values_that_json_makes_equal(sandbox: Sandbox) -> None:
    values = "{1: 2}", "{'1': 2, 3: 4}", "{1, 2}", "object()", "b'1'", "float('nan')", "'1'"
    tests = [Test("1", '{"1": 2}')], [Test("1", "null")], [Test("1", "1")]
    programs = [Program(f"def f(x): return {value}", "function", "f") for value in values]
    results = sandbox.judge([(program, expected) for program in programs for expected in tests])
    assert {result.verdict for result in results} == {"wrong_answer"}
