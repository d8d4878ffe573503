"""Verdicts on mathematical answers: pairs of each kind, and laws for generated answers.

A law is here if no finite number of pairs has all its cases.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from gapft_harness.verification.mathematics.comparing import check_answer
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.responses import (
    find_boxed_answer,
    find_written_answer,
)

PAIRS = [
    json.loads(line)
    for line in Path(__file__).with_name("math_pairs.jsonl").read_text("utf-8").splitlines()
]


def is_accepted(gold: str, answer: str) -> bool:
    """Judge an answer without its box."""
    return check_answer(tidy_answer(gold), tidy_answer(answer))


def read_answer(row: dict[str, str]) -> str:
    """Return the answer of a row, which is a response, boxes, or the answer itself."""
    if row["kind"] == "responses":
        return find_written_answer(row["answer"]) or ""
    if "\\fbox" in row["answer"] or "\\boxed" in row["answer"]:
        return find_boxed_answer(row["answer"]) or ""
    return row["answer"]


def test_pairs_get_their_verdicts() -> None:
    """The pairs were judged by hand and by exact arithmetic; ``reason`` says how."""
    wrong = [row for row in PAIRS if is_accepted(row["gold"], read_answer(row)) != row["expected"]]
    assert wrong == []


# Laws. A generated number or expression comes with its LaTeX.

integers = st.integers(-(10**6), 10**6)
positive = st.integers(1, 10**6)
fractions = st.builds(Fraction, integers, st.integers(1, 999))
digits = st.integers(1, 12)


def write_fraction(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def write_decimal(units: int, places: int) -> str:
    text = f"{abs(units):0{places + 1}d}"
    return ("-" if units < 0 else "") + f"{text[:-places]}.{text[-places:]}"


surds = st.builds(
    lambda a, b, c: f"{a}+{b}\\sqrt{{{c}}}", integers, positive, st.sampled_from([2, 3, 5, 7])
)
letters = st.sampled_from("abcdhkmnpqrstuvwxyz")
polynomials = st.builds(
    lambda x, a, b, c: f"{a}{x}^2+{b}{x}+{c}", letters, positive, positive, positive
)
constants = st.one_of(integers.map(str), fractions.map(write_fraction), surds)
expressions = st.one_of(constants, polynomials)


#: What makes an expression a different one: sums, and products unless it is 0.
CHANGES = [
    *("{0}+10^{{-7}}", "-0.0000001+{0}", r"{0}+\frac{{1}}{{10000000}}", r"1.0000001\cdot({0})"),
    *(r"2\cdot({0})", r"\frac{{1}}{{2}}\cdot({0})", r"\pi\cdot({0})", r"-1\cdot({0})"),
    *("{0}{1}", "{0}{1}^2", r"{0}\,{1}^3", "({0}){1}"),
]


@given(expressions, st.sampled_from(CHANGES), letters)
def test_changed_expression_has_a_different_value(text: str, change: str, letter: str) -> None:
    assume("+" in change or not is_accepted(text, "0"))
    changed = change.format(text, letter)
    assert not is_accepted(text, changed)
    assert not is_accepted(changed, text)


@given(expressions)
def test_layout_keeps_the_value(text: str) -> None:
    for other in (
        text.replace(r"\frac", r"\dfrac"),
        text.replace("+", " + "),
        rf"\left({text}\right)",
        rf"\displaystyle {text}",
        rf"\bigl({text}\bigr)",
        rf"\textcolor{{red}}{{{text}}}",
        rf"{text}\,",
        f"**{text}**",
        text.replace("-", "−"),
        rf"\phantom{{7}}{text}",
    ):
        assert is_accepted(text, other)


@given(letters, integers, integers, integers)
def test_expanded_product_keeps_the_value(x: str, a: int, b: int, c: int) -> None:
    product = f"({x}+{a})({b}{x}+{c})"
    expanded = f"({b}){x}^2+({c}+{a}\\cdot({b})){x}+{a}\\cdot({c})"
    assert is_accepted(product, expanded)
    assert not is_accepted(product, f"{expanded}+1")


@given(st.lists(fractions, min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_order_counts_in_tuples_alone(values: list[Fraction], random: object) -> None:
    texts = [write_fraction(value) for value in values]
    turned = texts[1:] + texts[:1]
    forms = {"set": r"\{{{}\}}", "list": "{}", "tuple": "({})"}
    for kind, form in forms.items():
        expected = form.format(", ".join(texts))
        assert is_accepted(expected, form.format(", ".join(turned))) == (kind != "tuple")
        assert not is_accepted(expected, form.format(", ".join(texts[:-1])))
    once, twice = ", ".join(texts), ", ".join([*texts, texts[0]])
    assert not is_accepted(once, twice)
    assert is_accepted(rf"\{{{once}\}}", rf"\{{{twice}\}}")


@given(expressions, expressions)
def test_verdict_is_symmetric(first: str, second: str) -> None:
    assert is_accepted(first, second) == is_accepted(second, first)
    assert is_accepted(first, first)


@given(integers, digits, integers, digits)
def test_decimals_are_rationals(a: int, places: int, b: int, other: int) -> None:
    first, second = write_decimal(a, places), write_decimal(b, other)
    values = Fraction(a, 10**places), Fraction(b, 10**other)
    assert is_accepted(first, write_fraction(values[0]))
    assert is_accepted(first, second) == (values[0] == values[1])


@given(fractions, st.integers(3, 30))
def test_rounded_decimal_is_wrong(value: Fraction, places: int) -> None:
    rounded = round(value, places)
    decimal = write_decimal(rounded.numerator * 10**places // rounded.denominator, places)
    assert is_accepted(write_fraction(value), decimal) == (rounded == value)


digit_texts = st.text("0123456789", max_size=6)


@given(st.integers(0, 99), digit_texts, digit_texts.filter(bool))
def test_repeating_decimal_is_a_fraction(whole: int, fixed: str, period: str) -> None:
    denominator = 10 ** len(fixed) * (10 ** len(period) - 1)
    value = Fraction(int(f"{whole}{fixed}{period}") - int(f"{whole}{fixed}"), denominator)
    gold = write_fraction(value)
    assert is_accepted(gold, rf"{whole}.{fixed}\overline{{{period}}}")
    assert is_accepted(gold, f"{whole}.{fixed}({period})")
    assert is_accepted(gold, f"{whole}.{fixed}{period * 20}") == (int(period) == 0)


@given(fractions, st.integers(-40, 40), st.integers(-40, 40))
def test_tiny_and_huge_numbers_are_exact(value: Fraction, power: int, other: int) -> None:
    assume(value)
    gold = rf"{write_fraction(value)}\times 10^{{{power}}}"
    assert is_accepted(gold, rf"{write_fraction(value)}\cdot 10^{{{other}}}") == (power == other)
    assert not is_accepted(gold, "0")


@given(integers, integers, st.sampled_from(["<", r"\le"]), st.sampled_from(["<", r"\le"]))
def test_inequalities_are_intervals(low: int, high: int, left: str, right: str) -> None:
    assume(low < high)
    gold = f"{low}{left} x{right} {high}"
    opening, closing = "[" if left != "<" else "(", "]" if right != "<" else ")"
    assert is_accepted(gold, f"{opening}{low},{high}{closing}")
    assert not is_accepted(gold, f"{'(' if opening == '[' else '['}{low},{high}{closing}")
    assert not is_accepted(gold, f"{opening}{low},{high + 1}{closing}")
