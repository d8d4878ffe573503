"""Mathematics as chat models write it: accept every format, reject near misses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, Math
from gapft_harness.verification.mathematics.responses import find_written_answer

#: Gold answer -> box contents that are right, box contents that are wrong.
BOXES: dict[str, tuple[list[str], list[str]]] = {
    "42": (
        ["42", "**42**", "*42*", "__42__", "`42`", "42.", "42.0", "+42", "$42$", r"\$42",
         r"\$42.00", "42€", "€42", "£42", r"42\%", "42%", r"42\text{ km}", r"42~\text{km}",
         r"42\,\mathrm{km}",
         r"42\text{ km/h}", r"42\text{ cm}^2", "42 km", "42 apples", "42 dollars", r"\textbf{42}",
         r"\text{42}", r"\mathbf{42}", "x = 42", r"42^\circ", r"**\$42**"],
        ["43", "**43**", "-42", "4.2", "0.42", "4,2", "4 2", "420", "42x", "42ab", r"42\pi", "42i",
         r"42\mathrm{i}", "42k", "42e3", "42, 43", r"42 \text{ or } 43", r"42\text{ or more}",
         r"42\text{ tenths}", "42^2", r"\sqrt{42}", "42/2", "42:5", "42**2", "2*42*", "(42, 1)",
         r"42\text{ thousand}", "42 million", r"42\text{ dozen}", "x<42", r"0.42\%"],
    ),
    "1234": (
        ["1,234", "1234", r"1{,}234", r"1\,234", r"1,\!234", r"1\ 234", "**1,234**", r"\$1,234",
         r"\$1,234.00", r"1,234\text{ km}", r"\text{\$}1,234"],
        ["(1,234)", "(1, 234)", "1, 234", r"\{1,234\}", "[1,234]", "12,34", "1,2345", "1.234",
         "123", "12345", "1,234,000", "1,,234", "-1,234", "234", r"1,234\text{ million}"],
    ),
    "1234.5": (
        [r"\$1,234.50", "1,234.50", r"1\,234.5", "USD 1,234.50", "1,234.50 USD", r"**\$1,234.50**",
         r"1,234.50\,\text{m}", r"\textbf{\$1,234.50}", r"1,234.50\text{ dollars}"],
        [r"\$1,234.05", "1,234", "1,2345", "12,345", r"\$1,243.50"],
    ),
    "(1,234)": (["(1,234)", "(1, 234)"], ["1,234", "1234", "(1,235)", "(234,1)"]),
    "123": (["123", "**123**"], ["1,23", "12,3", "1.23", "12.3", "1230", "132"]),
    "3.14": (["3.14", "3.140", "**3.14**"], ["3.1", "3.141", "3.15", r"\pi", "314", "3,14,1"]),
    "3.1": (["3.1", "3.10"], ["3.14", "3", "31"]),
    "-5": (["-5", "−5", "**-5**", r"-\$5", r"\$-5"], ["5", "**5**", "+5", r"\$5"]),
    "2xy": (["2xy", "2yx"], ["2", "2x", "2ab"]),
    "2m": (["2m"], ["2", "2n"]),
    "x+1": (["x+1", "**x+1**", "1+x"], ["x+2", "1", "x"]),
    r"\text{Friday}": (["Friday", r"\text{Friday}", "**Friday**"], ["Monday", r"\text{Fri}"]),
    # a percent sign: the gold answer decides
    "50": ([r"50\%", "50%", "50 percent", r"50\text{ percent}"], ["0.5", r"0.5\%"]),
    "50%": (["50", r"50\%", "0.5"], [r"0.5\%", r"5\%", "500", r"50\text{ km}"]),
    "0.5": ([r"50\%", "0.5", r"\frac12"], ["50", r"0.5\%", r"5\%"]),
    "1": ([r"100\%", "1"], [r"1\%", "100"]),
    # units: omitted or equal
    "42 km": (["42", "42 km", r"42\text{ kilometers}", "42km"],
              ["42 m", r"42\text{ m}", "42 miles", r"42\text{ km}^2", "43 km", r"\$42", r"42\%"]),
    r"5\text{ cm}^2": ([r"5\text{ square centimeters}", "5 cm^2", "5", r"5\,\mathrm{cm^2}"],
                       [r"5\text{ cm}", r"5\text{ m}^2", r"5\text{ cm}^3"]),
    r"\$42": (["42", r"\$42", "42 dollars", "USD 42"], ["€42", r"42\text{ cents}", "£42"]),
    "60 mph": (["60", r"60\text{ miles per hour}"], [r"60\text{ km/h}", "60 km/h"]),
    "5 pounds": (["5", "5 lb", r"5\text{ lbs}", "5 pounds"], ["6 pounds"]),
    "7000000": ([r"7\text{ million}", r"\$7 \text{ million}", "7,000,000"], ["7", "7 billion"]),
    # ratios and pairs
    "3:1": (["3:1", "3 : 1"], ["3", "3:2", "1:3"]),
    "1:2": (["1:2", r"\frac12"], ["2", "1", "2:1"]),
    "3, 5": (["3, 5", "5, 3"], ["35", "3.5", "3"]),
}  # fmt: skip

#: Gold answer -> right and wrong responses without a box.
RESPONSES: dict[str, tuple[list[str], list[str]]] = {
    "42": (
        ["42", "**42**", "__42__", "*42*", "***42***", "`42`", "<b>42</b>", "42.", "**42.**",
         "**42**.", "Answer: **42**.", "**Answer:** 42", "**Answer: 42**", "The answer is **42**.",
         "**Final Answer**\n\n42", "### Answer: 42", "- 42", "* 42", "> 42", "#### 42",
         "So he has **42 apples** left.", "It costs $42.", "**$42**.", "42 €", "~~41~~ 42",
         "The answer is 42%.", "He earns $3 + $39 = $42.", "40 + 2 = 42", "Answer: 40 + 2 = 42",
         "A costs $10 ($5 each), so $42 is spent.", "Answer: x = 42", r"\(42\)", "$x = 42$"],
        ["**43**", "2*42*3", "42 or 43", "(42, 43)", "[42, 43]", "42:30", "42x", "$42x$", "42e3",
         "42 million", "$42 thousand", "4.2", "42.5", "42,000", "~~42~~ 43", "**4**2.1"],
    ),
    "15": (["He pays $10 for A and $5 for B. The total is $15.", "**Total: $15.00**"], ["$10"]),
    "1234": (["1,234", "**$1,234**", "The total is 1,234."], ["1,2345", "(1,234)", "1.234.000"]),
    "-5": (["-5", "**−5**", "− 5", "-$5", "The answer is -5."], ["5", "**5**"]),
    "5": (["**5**"], ["− 5", "(3, 5)", "The point is (3, 5).", "3/5", "x^5"]),
    "(3,5)": (["(3, 5)", "**(3, 5)**", "The point is (3, 5).", "(3,5)"], ["5", "(5, 3)", "3.5"]),
    "x^2+1": (["**x^2+1**", "Answer: x^2 + 1.", "`x^2+1`"], ["x^2+2", "1"]),
    r"\frac12": (["**1/2**", "Answer: 1/2.", "50%", r"**\frac{1}{2}**"], ["0.5%", "50", "1"]),
    "50": (["50%", "**50 percent**."], ["0.5"]),
    "42 km": (["42 km", "42"], ["42 m", "42 miles"]),
    "3:1": (["3:1", "The ratio is 3 : 1."], ["3", "3:2"]),
}  # fmt: skip


@pytest.fixture(scope="module", params=[BoxedMath, Math])
def verifier(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(timeout_s=20, workers=1) as instance:
        yield instance


def find_misjudged(
    verifier: Any, table: dict[str, tuple[list[str], list[str]]], form: str
) -> list[str]:
    """List the rows whose verdict differs from the table."""
    rows = [
        (gold, form.format(text), passes)
        for gold, (right, wrong) in table.items()
        for texts, passes in ((right, True), (wrong, False))
        for text in texts
    ]
    verdicts = verifier.verify([text for _, text, _ in rows], [gold for gold, _, _ in rows])
    return [
        f"{gold}: {text}: {verdict.status}"
        for (gold, text, passes), verdict in zip(rows, verdicts, strict=True)
        if verdict.passed != passes
    ]


def test_judges_boxed_answers_in_any_format(verifier: Any) -> None:
    assert find_misjudged(verifier, BOXES, r"So it is $\boxed{{{}}}$.") == []


def test_judges_unboxed_answers_in_any_format() -> None:
    with Math(timeout_s=20, workers=1) as verifier:
        assert find_misjudged(verifier, RESPONSES, "{}") == []


pieces = st.sampled_from(
    ["$1 ", "$", "**", "_", "x", " ", "\n", "\\(", "\\)", "\\[", "7", "1,2345", "(1, 2)",
     "Answer: ", "\ue000", "~~a~~", "or ", "is "]
)  # fmt: skip


@given(st.lists(pieces, max_size=14).map("".join))
def test_any_text_is_read(text: str) -> None:
    answer = find_written_answer(text)
    assert answer is None or answer.strip()


@given(
    st.integers(0, 10**9), st.sampled_from(["{}", "**{}**", "{}.", "Answer: {}", "It is {} km."])
)
def test_number_is_taken_with_all_that_follows(number: int, form: str) -> None:
    with_tail = [f"{number} squared", f"{number} or more", f"{number}^2", f"{number} below zero",
                 f"at least {number}", f"{number} or {number + 1}", f"{number}x"]  # fmt: skip
    with Math(workers=1) as verifier:
        right = verifier.answer(form.format(number))
        assert right is not None
        for text in with_tail:
            assert verifier.answer(form.format(text)) not in (None, right, str(number))
