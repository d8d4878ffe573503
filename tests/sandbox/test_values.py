"""JSON at any depth is parsed, encoded and compared the same everywhere."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Program, Test
from gapft_harness.sandbox.comparison import (
    check_arguments,
    compare_values,
    parse_expected_value,
)
from gapft_harness.sandbox.inside.messages import (
    AnsweredCall,
    Ending,
    Usage,
    pack_ending,
    unpack_ending,
)
from gapft_harness.sandbox.values import (
    _parse_iteratively,
    are_equal,
    encode_value,
    parse_deep_json,
)
from gapft_harness.verification.programs import check_call

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
JUNK = st.text(alphabet='[]{},:" 1-eatrunls\\\n\r\x0b\xa0\u2028', max_size=12)


SECONDS = st.floats(min_value=0, allow_nan=False)
SIZE = st.integers(0, 2**63)
ENDINGS = st.builds(
    Ending,
    st.integers(-64, 255),
    st.builds(Usage, SECONDS, SECONDS, st.sampled_from(["", "cpu", "wall"])),
    st.lists(st.builds(AnsweredCall, SECONDS, SECONDS, SIZE, SIZE, SIZE), max_size=20),
    st.booleans(),
    SECONDS,
    st.text(),
)


@given(ENDINGS)
def test_job_outcome_survives_transfer(ending):
    assert unpack_ending(pack_ending(ending)) == ending


def nest(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


@given(JSON, st.sampled_from([None, 1]))
def test_parsers_agree_on_valid_json(value, indent):
    text = json.dumps(value, indent=indent)
    assert _parse_iteratively(text) == value == parse_deep_json(text)


@given(JUNK | st.builds(str.__add__, JSON.map(json.dumps), JUNK))
def test_parsers_agree_on_invalid_json(text):
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"\S"):
            _parse_iteratively(text)
    else:
        assert _parse_iteratively(text) == expected


@given(JSON, JSON)
def test_values_keep_their_equality_in_transfer(first, second):
    assert parse_deep_json(encode_value(first)) == first
    assert are_equal(first, second) == (first == second)


LONG_INTEGERS = st.builds(
    lambda sign, digit, rest: sign + digit + rest,
    st.sampled_from(["", "-"]),
    st.sampled_from("123456789"),
    st.integers(4_300, 9_000).map(lambda size: "7" * size) | st.just("0" * 60_000),
)


@given(LONG_INTEGERS, LONG_INTEGERS, st.sampled_from(["{}", "[1, {}]", '{{"x": [{}]}}']))
def test_long_integers_are_equal_if_their_digits_are(first, second, form):
    """Independently of Python's limit, which a caller may have changed."""
    texts = [form.format(first), form.format(second)]
    others = [form.format(x) for x in (f'"{first}"', f"{first}.0", first[:-1], "true", "null")]
    limit = sys.get_int_max_str_digits()
    for digits in (limit, 640, 0):
        sys.set_int_max_str_digits(digits)
        try:
            values = [parse_expected_value(text) for text in texts]
            assert are_equal(values[0], _parse_iteratively(texts[0]))
            assert are_equal(*values) == (compare_values(*values) == "") == (first == second)
            assert not any(are_equal(values[0], parse_expected_value(text)) for text in others)
        finally:
            sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize("isolate", ["test", "program"])
def test_functions_take_and_return_integers_of_any_length(sandbox, isolate):
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
    tests = [Test("1", "1"), Test(number, number), Test(f"{number}", number)]
    items = [(Program(source, "function", "f"), tests[1:]) for source in programs]
    items += [(Program("def f(x): return x", "function", "f"), tests)]
    nested = Program("def f(x): return [{'x': (x['y'] + 1, 1)}]", "function", "f")
    items += [(nested, [Test(f'{{"y": {number}}}', f'[{{"x": [{next_number}, 1]}}]')])]
    results = sandbox.judge(items, isolate=isolate)
    expected = [*programs.values(), "accepted", "accepted"]
    assert [result.verdict for result in results] == expected
    assert results[1].tests[0].output == "(a value too deep or too long to show)"


def test_long_integers_are_valid_arguments_and_values():
    number = "7" * 5_000
    check_arguments(f'{number}\n[-{number}, "NaN"]')
    check_call(Test(f"[{number}]", f'{{"x": -{number}, "y": "Infinity"}}'), "test 1")
    with pytest.raises(UserError, match="lone surrogate"):
        check_call(Test(number, f'[{number}, "\\ud800"]'), "test 1")
    with pytest.raises(UserError, match="must be JSON"):
        parse_expected_value(f"{number}x")


@pytest.mark.parametrize("depth", [500, 3_000, 9_999])
def test_deep_values_and_inputs_get_verdicts(sandbox, depth):
    programs = {
        "def f(x): return x": "accepted",
        "import sys\ndef f(x):\n    sys.setrecursionlimit(99)\n    return x": "accepted",
        "def f(x): return [x]": "wrong_answer",
        "def f(x): return x if x == 0 else x[0]": "wrong_answer",
        "def f(x): raise KeyError": "runtime_error",
    }
    tests = [Test("0", "0"), Test(nest(depth), nest(depth))]
    items = [(Program(source, "function", "f"), tests[1:]) for source in programs]
    items += [(Program(source, "function", "f"), tests) for source in list(programs)[:1]]
    results = sandbox.judge(items)
    assert [result.verdict for result in results] == [*programs.values(), "accepted"], results


def test_limits_value_depth(sandbox):
    with pytest.raises(UserError, match="must be JSON"):
        parse_expected_value(nest(20_000))
    with pytest.raises(UserError, match="nested more than 10000 times"):
        check_arguments(nest(20_000))
    check_arguments(nest(3_000))
    with pytest.raises(UserError, match="must be one JSON value"):
        check_arguments(nest(3_000, "x"))
    grow = "def f(x):\n    v = 1\n    for _ in range(x): v = [v]\n    return v"
    (result,) = sandbox.judge([(Program(grow, "function", "f"), [Test("20000", "1")])])
    assert result.verdict == "runtime_error"


def test_rejects_hostile_values_quickly(sandbox):
    """A long, deep value is read only as far as the standard parser reads."""
    forge = """
import os
def f(x):
    os.write(3, b'["value", ' + b'[' * 5000 + b'0,' * 300_000 + b'0' + b']' * 5001 + b'\\n')
    os._exit(0)
"""
    try:
        json.loads("[" * 5001 + "]" * 5001)
        expected = "wrong_answer"
    except RecursionError:
        expected = "runtime_error"
    (result,) = sandbox.judge([(Program(forge, "function", "f"), [Test("1", "1")])])
    assert result.verdict == expected
