"""Extraction of programs from responses, and golds made of tests."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Program, Test
from gapft_harness.verification.programs import last_program, read_suite
from tests.tasks.benchmark_files import build_test, pack_tests

RESPONSES = [
    # response, the last program
    ("```python\nprint(1)\n```", "print(1)\n"),
    ("So:\n\n```py\nprint(1)\n```\nIt prints 1.", "print(1)\n"),
    ("```Python3\nprint(1)\n```", "print(1)\n"),
    ("``` python \nprint(1)\n```  ", "print(1)\n"),
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
    ("```python\na\n```\nIt prints\n```text\n1\n```", "a\n"),
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
    ("```py\na\n```\nThat is all.\n```", "a\n"),
    ("~~~python3\na\n~~~\nIt prints\n~~~\n1", "a\n"),
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


@given(st.text(st.sampled_from("`~ \npython")))
def test_answer_is_part_of_the_text(text):
    program = last_program(text)
    assert program is None or program.replace(" ", "").rstrip("\n") in text.replace(" ", "")


marks = st.text(st.sampled_from("`~ x\t"), max_size=12)


@given(marks)
def test_recognizes_markdown_fences(line):
    """Compare the fence pattern with a character-by-character reading of its definition."""
    bare = line.lstrip(" \t")
    run = len(bare) - len(bare.lstrip(bare[:1])) if bare else 0
    opens = bare[:1] in ("`", "~") and run >= 3 and "`" not in bare[run:]
    program = last_program(f"{line}\nprint(1)")
    label = bare[run:].strip().strip("{}.").split()[:1]
    assert (program == "") == (
        opens and not label
    )  # a fence that is never closed: an empty program


#: Lines that are slow for a backtracking pattern, by their length.
HOSTILE = {
    "tildes": "~" * 400_000 + "`",
    "backticks": "`" * 400_000 + "x`",
    "indented": (" " * 400_000) + "x",
    "fences": "~~~\n" * 100_000,
    "labels": "```" + "x" * 400_000 + "`",
    "boxes": "\\boxed" * 60_000,
    "open": "\\boxed{" * 60_000,
    "spaces": "\\boxed" + " " * 400_000,
    "lettered": "A" + " " * 400_000 + "x",
    "blank": " " * 400_000 + "x",
    "intervals": "[" * 400_000,
    "quotes": "'\"" * 200_000 + "1.",
    "digits": "\\boxed{" + "1" * 400_000 + "}",
}
READ_ALL = """
import resource, sys
from gapft_harness.verification.boxes import last_box
from gapft_harness.verification.mathematics.responses import find_written_answer
from gapft_harness.plugins.verifiers.boxed_math import compare_directly
from gapft_harness.plugins.verifiers.option_letter import OptionLetter
from gapft_harness.verification.feedback import strip_foreign_frames
from gapft_harness.verification.programs import last_program
from gapft_harness.verification.reasons import classify_reason
from gapft_harness.core.records import Verdict
from gapft_harness.report.rendering.markdown import escape_markdown, fence_text
from gapft_harness.report.rendering.page import _join_intervals
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
text = sys.stdin.read()
last_program(text), compare_directly("7", last_box(text) or "")
gold = {"answer": "A", "options": ["x", "y" * 1000]}
for rule in ("whole_response", "first_explicit", "permissive"):
    OptionLetter(rule).verify([text], [gold])
classify_reason(Verdict("fail", text)), escape_markdown(text), fence_text(text)
_join_intervals(text)
find_written_answer(text), strip_foreign_frames(text)
print("read")
"""


def test_reading_takes_linear_time():
    """Reading a response 25 times as long would take an hour in quadratic time.

    The limit is in CPU seconds, a hundred times what is needed.
    """
    for name, text in HOSTILE.items():
        done = subprocess.run(
            [sys.executable, "-c", READ_ALL],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (name, done.stdout) == (name, "read\n"), done.stderr[-500:]


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


def test_accepts_gold_with_public_tests_only():
    tests = [{"input": "1", "output": "2"}, {"input": "3", "output": "6"}]
    gold = {"kind": "function", "function": "double", "tests": tests, "public": 1}
    suite = read_suite(gold)
    assert suite.public_tests == (Test("1", "2"),)
    assert len(suite.tests) == 2
    assert suite.build_program("x") == Program("x", "function", "double")
    del gold["public"]
    assert read_suite(gold).public == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "interactive"}, "kind is 'interactive', expected stdin or function"),
        ({"function": "f"}, "function is 'f' with kind stdin"),
        ({"kind": "function"}, "function is None with kind function"),
        ({"kind": "function", "function": "a b"}, "function is 'a b' with kind function"),
        ({"function": 3}, "function is 3 with kind stdin"),
        ({"tests": "1"}, "tests is str, expected a list"),
        ({"tests": [{"input": "1"}]}, "test 1 is {'input': '1'}; expected an object"),
        ({"tests": [{"input": "1", "output": 2}]}, "expected an object with the texts"),
        ({"public": 2}, "public is 2, expected 0 to 1"),
        ({"public": True}, "public is True, expected 0 to 1"),
        ({"hidden": 3}, "hidden is int, expected text or null"),
        (
            {"hidden": pack_tests([build_test("1", "2", "functional")])},
            "hidden contains functional tests",
        ),
        ({"hidden": pack_tests([])[:-2]}, "hidden: the tests cannot be read"),
        ({"tests": [], "public": 0, "hidden": None}, "there are no tests"),
        ({"tests": [], "public": 0, "hidden": pack_tests([])}, "there are no tests"),
        ({"answer": "B"}, "unknown field 'answer'"),
    ],
)
def test_malformed_gold_is_named(change, expected):
    with pytest.raises(UserError, match="the gold of a programming problem") as caught:
        read_suite({**GOLD, **change})
    assert expected in str(caught.value)


def test_rejects_non_object_golds_and_too_many_tests():
    with pytest.raises(UserError, match="is str, expected an object with kind and tests"):
        read_suite("B")
    with pytest.raises(UserError, match="more than 20 bytes"):
        read_suite(GOLD, max_decoded_bytes=20)
    assert pickle.loads(pickle.dumps(read_suite(GOLD))) == read_suite(GOLD)
