"""Extraction of programs from responses, and golds made of tests."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Program, Test
from gapft_harness.verification.programs import check_calls, last_program, read_suite
from tests.tasks.benchmark_files import build_test, pack_tests

RESPONSES = [
    # response, the last program
    ("```python\nprint(1)\n```", "print(1)\n"),
    ("```Python3\nprint(1)\n```", "print(1)\n"),
    ("```{.python}\nprint(1)\n```", "print(1)\n"),
    ('```python title="a.py"\nprint(1)\n```', "print(1)\n"),
    ("```\nprint(1)\n```", "print(1)\n"),
    ("~~~python\nprint(1)\n~~~", "print(1)\n"),
    ("````python\nprint('''\n```\n''')\n````", "print('''\n```\n''')\n"),
    ("```python\r\nprint(1)\r\n```\r\n", "print(1)\n"),
    ("```python\nprint('\u2028\x0b')\n```", "print('\u2028\x0b')\n"),
    (
        "1. Thus\n\n   ```python\n   if x:\n       y()\n   ```",
        "if x:\n    y()\n",
    ),
    # the last one counts
    ("```python\na\n```\nno:\n```python\nb\n```", "b\n"),
    # sample output after the program is not a program
    ("```python\na\n```\nIt prints\n```\n1\n```", "a\n"),
    ("```\na\n```\n```output\n1\n```", "a\n"),
    # no program
    ("print(1)", None),
    ("`print(1)`", None),
    ("```cpp\nint main() {}\n```", None),
    ("", None),
    # inline backticks open nothing
    ("```python``` is a fence", None),
    # a fence without a label that is never closed does not take a labelled program's place
    ("```python\na\n```\nIt prints\n```\n1", "a\n"),
    ("  ```python\r\n  a\r\n  ```\r\n\r\n  ```\r\n  1\r\n", "a\n"),
    # nor does an unlabelled fence with nothing after it
    ("```\na\n```\nThat is all.\n```\n\n", "a\n"),
    ("```python:main.py\na\n```", "a\n"),
    # never closed: an earlier program does not take its place
    ("```\na\n```\n```\nb", ""),
    ("```python\nprint(1)", ""),
    ("```python\na\n```\n```python\nb", ""),
    ("```python\na\n```\n```text\nb", "a\n"),
    ("```python\n```", ""),
]


@pytest.mark.parametrize(("response", "program"), RESPONSES)
def test_finds_the_last_program(response, program):
    assert last_program(response) == program


lines = st.text(st.characters(exclude_characters="`~\r\n", exclude_categories=["Cs"]))


@given(
    st.lists(lines),
    st.lists(lines),
    st.sampled_from(["", "python", "py"]),
    st.integers(3, 6),
)
def test_fenced_program_is_returned_unchanged(program, before, label, marks):
    fence = "`" * marks
    source = "".join(f"{line}\n" for line in program)
    text = "".join(f"{line}\n" for line in before)
    assert last_program(f"{text}{fence}{label}\n{source}{fence}\nThat is it.") == source


GOLD = {
    "kind": "stdin",
    "function": None,
    "tests": [{"input": "1\n", "output": "2\n"}],
    "public": 1,
    "hidden": pack_tests([build_test("3\n", "6\n")]),
}


def test_orders_public_tests_before_hidden_tests():
    suite = read_suite(GOLD)
    assert suite.tests == (Test("1\n", "2\n"), Test("3\n", "6\n"))
    assert suite.public_tests == suite.tests[:1]
    assert suite.build_program("pass") == Program("pass")
    assert pickle.loads(pickle.dumps(suite)) == suite


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "interactive"}, "'interactive'"),
        ({"function": "f"}, "kind stdin"),
        ({"kind": "function", "function": "a b"}, "'a b'"),
        ({"tests": [{"input": "1", "output": 2}]}, "'tests.0.output'"),
        ({"tests": [{"input": "1", "output": "2", "expected": "2"}]}, "'tests.0.output'"),
        ({"public": 2}, "public from 0 to 1"),
        ({"hidden": pack_tests([build_test("1", "2", "functional")])}, "hidden"),
        ({"hidden": pack_tests([])[:-2]}, "hidden"),
        ({"tests": [], "public": 0, "hidden": None}, "tests"),
        ({"answer": "B"}, "'answer'"),
    ],
)
def test_malformed_gold_is_named(change, named):
    with pytest.raises(UserError, match="the gold of a programming problem") as caught:
        read_suite({**GOLD, **change})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("given_input", "expected"),
    [("one", "1"), ("1", "one"), ("[" * 20_000 + "]" * 20_000, "1"),
     ("1", "[" * 10_001 + "]" * 10_001)],
    ids=["input", "value", "deep input", "deep value"],
)  # fmt: skip
@pytest.mark.parametrize("hidden", [False, True])
def test_call_that_no_program_can_pass_is_named(given_input, expected, hidden):
    good = {"input": "1", "expected": "1"}
    test = {"input": given_input, "expected": expected}
    gold = {"kind": "function", "function": "f", "tests": [good, test]}
    if hidden:
        coded_test = build_test(given_input, expected, "functional")
        gold |= {"tests": [good], "hidden": pack_tests([coded_test])}
    with pytest.raises(UserError, match="test 2 of 2"):
        check_calls(read_suite(gold))
