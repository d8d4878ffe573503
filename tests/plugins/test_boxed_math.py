"""boxed_math and math: find the answer of a response, and compare it in workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, Math, compare_directly
from gapft_harness.verification.boxes import last_box
from gapft_harness.verification.mathematics.comparing import compare_answers
from gapft_harness.verification.mathematics.responses import (
    find_boxed_answer,
    find_written_answer,
)

#: Answers as chat models write them, right and nearly right, in a box or in words.
WRITTEN = [
    json.loads(line)
    for line in Path(__file__).with_name("written_math.jsonl").read_text("utf-8").splitlines()
]
#: Equal for all numbers that are tried, and too large for a proof.
LONG = r"(x+y+z+w)^{200}", r"((x+y)^2+2(x+y)(z+w)+(z+w)^2)^{100}"


@pytest.fixture(scope="module", params=[BoxedMath, Math])
def verifier(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(timeout_s=20, workers=1) as instance:
        yield instance


def test_judges_answers_in_any_format(verifier: Any) -> None:
    """Accept every format, reject near misses; only ``math`` reads an answer without a box."""
    rows = [row for row in WRITTEN if row["form"] == "boxed" or type(verifier) is Math]
    texts = [
        rf"So it is $\boxed{{{row['text']}}}$." if row["form"] == "boxed" else row["text"]
        for row in rows
    ]
    verdicts = verifier.verify(texts, [row["gold"] for row in rows])
    assert [
        row for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.passed != row["passes"]
    ] == []  # fmt: skip


def test_reason_shows_the_beginning_of_a_long_answer(verifier: Any) -> None:
    (verdict,) = verifier.verify([rf"\boxed{{{'9' * 61}}}"], ["1"])
    assert verdict.reason == f"said {'9' * 60}…"


@pytest.mark.parametrize(
    ("text", "box", "answer"),
    [
        (r"\boxed{1} and then \boxed{2}", "2", "2"),
        (r"\fbox{7}", "7", "7"),
        (r"\boxed {7}", "7", "7"),
        (r"\boxed 5$.", "5", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", r"\{1, 2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right.", r"\left\{1\right"),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}", r"x = \boxed{5}"),
        (r"\boxed{so $x = \boxed{5}$}", "5", "5"),
        (r"\boxed{}", "", ""),
        (r"\boxed{1} but \boxed{2", "", ""),
        (r"\boxedfigure{5}", None, None),
        ("5", None, None),
        (r"\boxed{1} or \boxed{\frac{1}{2}}", r"\frac{1}{2}", r"1 \text{ or } \frac{1}{2}"),
        (r"\boxed{3}/\boxed{4}", "4", "4"),
        (r"\boxed{3} \cup \boxed{4}", "4", "4"),
    ],
)
def test_finds_last_box(text: str, box: str | None, answer: str | None) -> None:
    assert last_box(text) == box
    assert find_boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "gold", "wrong"),
    [
        (r"The answer is -\boxed{5}.", "-5", "5"),
        (r"**Answer:** -\boxed{5}", "-5", "5"),
        (r"\[ -\boxed{5} \]", "-5", "5"),
        (r"$x \approx - \boxed{5}$", "-5", "5"),
        (r"$x = \pm\boxed{3}$", r"\pm 3", "3"),
        (r"$x=-\boxed{2}$ or $x=\boxed{3}$", "-2, 3", "2, 3"),
        (r"$x=\boxed{2}$ or $x=-\boxed{3}$", "2, -3", "-3"),
        ("So:\n- \\boxed{5}", "5", "-5"),
        (r"- \boxed{5}", "5", "-5"),
        (r"$x - \boxed{5}$ and $\pi -\boxed{5}$", "5", "-5"),
    ],
)
def test_sign_before_box_counts(verifier: Any, text: str, gold: str, wrong: str) -> None:
    """A sign counts unless it is a difference or the dash of a list."""
    verdicts = verifier.verify([text, text], [gold, wrong])
    assert [verdict.status for verdict in verdicts] == ["pass", "fail"]


@given(
    st.integers(0, 10**9), st.sampled_from(["{}", "**{}**", "{}.", "Answer: {}", "It is {} km."])
)
def test_number_is_taken_with_all_that_follows(number: int, form: str) -> None:
    with_tail = [f"{number} squared", f"{number} or more", f"{number}^2", f"{number} below zero",
                 f"at least {number}", f"{number} or {number + 1}", f"{number}x"]  # fmt: skip
    right = find_written_answer(form.format(number))
    assert right is not None
    for text in with_tail:
        assert find_written_answer(form.format(text)) not in (None, right, str(number))


@pytest.mark.parametrize(
    ("gold", "status"),
    [("5", "pass"), (5, "pass"), (5.0, "pass"), ("\\frac{10}{2}", "pass"), (0.5, "fail"),
     ("None", "fail"), ("", "error"), (" .", "error"), (None, "error"), (True, "error"),
     (["5"], "error"), ({}, "error")],
)  # fmt: skip
def test_gold_must_be_a_number_or_text(verifier: Any, gold: Any, status: str) -> None:
    (verdict,) = verifier.verify([r"\boxed{5}"], [gold])
    assert verdict.status == status
    assert verifier.check_gold(gold) == (verdict.reason if status == "error" else "")


TOWERS = [
    r"9^{9^{9^9}}", r"e^{e^{e^{e^9}}}", "100000!", "((((9!)!)!)!)!", r"10^{10^{10}}", "1e999999",
    r"\binom{1000000}{500000}", rf"\sqrt{{{'9' * 3000}}}", "x" + "!" * 90, "(" * 3000 + "1",
    "1+" * 1900 + "1", r"\pm" * 30 + "1", rf"{'|' * 500}x{'|' * 500}",
]  # fmt: skip


def test_towers_are_refused_by_size() -> None:
    pairs = [(rf"\boxed{{{tower}}}", gold) for tower in TOWERS for gold in ("2", "x+1", r"\{1,2\}")]
    with BoxedMath(timeout_s=20, workers=1) as verifier:
        verdicts = verifier.verify([text for text, _ in pairs], [gold for _, gold in pairs])
    assert {verdict.status for verdict in verdicts} == {"fail"}


def test_comparison_that_takes_too_long_is_timeout() -> None:
    golds = ["2", LONG[0], r"\frac{1}{3}", "2"]
    boxes = [r"\sqrt{4}", LONG[1], r"\frac{2}{6}", "3"]
    with BoxedMath(timeout_s=2, workers=1) as verifier:
        verdicts = verifier.verify([f"\\boxed{{{box}}}" for box in boxes], golds)
    assert [verdict.status for verdict in verdicts] == ["pass", "timeout", "pass", "fail"]


integers = st.integers() | st.integers(-3, 3) | st.integers(min_value=10**20)
spellings = st.tuples(integers, st.sampled_from(["", "0", "00"])).map(
    lambda pair: ("-" if pair[0] < 0 else "") + pair[1] + str(abs(pair[0]))
)


@given(spellings, spellings | st.just("-0"))
@settings(max_examples=60)
def test_integer_shortcut_agrees_with_comparison(gold: str, answer: str) -> None:
    for expected in (gold, answer):
        verdict = compare_directly(expected, answer)
        assert verdict is not None
        assert compare_answers([expected, answer]) == verdict.passed
    digits = "1" * 5000  # more than Python converts
    for other, is_equal in ((digits, True), (f"0{digits}", True), (f"1{digits}", False)):
        verdict = compare_directly(digits, other)
        assert verdict is not None
        assert verdict.passed == is_equal
