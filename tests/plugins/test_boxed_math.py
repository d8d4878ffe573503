"""boxed_math: compare the last box as mathematics, in workers that can be killed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, compare_directly
from gapft_harness.verification.mathematics.comparing import compare_answers

#: Equal for all numbers that are tried, and too large for a proof.
LONG = r"(x+y+z+w)^{200}", r"((x+y)^2+2(x+y)(z+w)+(z+w)^2)^{100}"


@pytest.fixture(scope="module")
def verifier():
    with BoxedMath(timeout_s=20, workers=1) as instance:
        yield instance


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"\frac{1}{2}", "0.5", "pass"),
        (r"\frac{1}{2}", "1/2", "pass"),
        (r"\frac{\sqrt2}{2}", r"\frac{1}{\sqrt{2}}", "pass"),
        ("x^2-1", "(x-1)(x+1)", "pass"),
        ("x^2-1", "(x-1)(x+2)", "fail"),
        ("10,\\!000", "10000", "pass"),
        ("10000", "10,000", "pass"),
        ("1,2", "2, 1", "pass"),
        ("[0,1)", "[0,1)", "pass"),
        ("[0,1)", "(0,1)", "fail"),
        ("(0,1)", "(1,0)", "fail"),
        ("E", "E'", "fail"),
        ("E'", "E", "fail"),
        ("E'", "E′", "pass"),
        ("E'", r"E^\prime", "pass"),
        ("E'", r"E^{\prime}", "pass"),
        ("E'", "E''", "fail"),
        ("E''", r"E^{\prime\prime}", "pass"),
        ("f(x)", "f'(x)", "fail"),
        ("A'B'", "AB", "fail"),
        ("A'B", "AB'", "fail"),
        (r"\alpha'", r"\alpha", "fail"),
        ("x_1'", "x'_1", "pass"),
        ("x_1'", "x_1", "fail"),
        (r"\vec{v}'", r"\vec{v}", "fail"),
        (r"\text{Tom's}", "Tom's", "pass"),
        ("6", "6'", "pass"),
        ("5/2", r"2\frac{1}{2}", "pass"),
        ("5/2", r"2\frac12", "pass"),
        ("5/2", r"2\dfrac12", "pass"),
        ("5/2", "2 1/2", "pass"),
        ("5/2", r"2\,1/2", "pass"),
        ("1", "2 1/2", "fail"),
        ("3/2", "2 1/2", "fail"),
        (r"-\frac52", r"-2\frac12", "pass"),
        ("-3/2", r"-2\frac12", "fail"),
        ("-5/2", "-2 1/2", "pass"),
        ("10.5", "10 1/2", "pass"),
        (r"\frac{x^2}{2}", r"x^2\frac{1}{2}", "pass"),
        ("1", r"2 \cdot \frac12", "pass"),
        ("1_6", "1_7", "fail"),
        ("1_6", "1_{6}", "pass"),
        ("1_6", "1", "pass"),
        (r"\text{Friday}", "Friday", "pass"),
        (r"\text{Friday}", r"\text{Monday}", "fail"),
        (r"\text{(C)}", "C", "pass"),
        ("5", r"5\text{ cm}", "pass"),
        (r"\$18.90", "18.9", "pass"),
        (r"90^\circ", "90", "pass"),
        ("5", "x=5", "pass"),
        ("5", "5.", "pass"),
        ("5", "the number is 5", "fail"),
        ("\n\\begin{pmatrix} 0 & 3 \\\\ 0 & -1 \\end{pmatrix}\n", "-1", "fail"),
        (
            "\n\\begin{pmatrix} 0 & 3 \\\\ 0 & -1 \\end{pmatrix}\n",
            "\\begin{bmatrix} 0&3\\\\0&-1 \\end{bmatrix}",
            "pass",
        ),
        (7, "7", "pass"),
        (0.5, r"\frac12", "pass"),
    ],
)
def test_answers_are_compared_as_mathematics(verifier, gold, answer, status):
    (verdict,) = verifier.verify([f"Hence \\boxed{{{answer}}}."], [gold])
    assert verdict.status == status
    assert verdict.reason == ("" if status == "pass" else f"said {answer.strip()}")


@pytest.mark.parametrize(
    ("response", "gold", "verdict"),
    [
        ("the answer is 5", "5", Verdict("fail", "no box")),
        (r"\boxed{}", "5", Verdict("fail", "the last box is empty or never closed")),
        (r"\boxed{5} \boxed{5", "5", Verdict("fail", "the last box is empty or never closed")),
        (r"\boxed{5}", "", Verdict("error", "the gold answer is empty")),
        (r"\boxed{5}", " .", Verdict("error", "the gold answer is empty")),
        (r"\boxed{5}", None, Verdict("error", "the gold answer is NoneType, expected a string")),
        (r"\boxed{5}", True, Verdict("error", "the gold answer is bool, expected a string")),
        (r"\boxed{6}", "5", Verdict("fail", "said 6")),
        (rf"\boxed{{{'9' * 70}}}", "5", Verdict("fail", f"said {'9' * 60}…")),
    ],
)
def test_verdicts_without_comparison(verifier, response, gold, verdict):
    assert verifier.verify([response], [gold]) == [verdict]


@pytest.mark.parametrize(
    "gold", ["5", "\\frac12", 7, 0.5, 0, "None", "", " .", None, True, ["5"], {}]
)
def test_check_gold_agrees_with_verify(verifier, gold):
    (verdict,) = verifier.verify(["\\boxed{1}"], [gold])
    assert verifier.check_gold(gold) == (verdict.reason if verdict.status == "error" else "")


TOWERS = [
    r"9^{9^{9^9}}", r"e^{e^{e^{e^9}}}", "100000!", "((((9!)!)!)!)!", r"10^{10^{10}}", "1e999999",
    r"\binom{1000000}{500000}", rf"\sqrt{{{'9' * 3000}}}", "x" + "!" * 90, "(" * 3000 + "1",
    "1+" * 1900 + "1", r"\pm" * 30 + "1", rf"{'|' * 500}x{'|' * 500}",
]  # fmt: skip


@pytest.mark.parametrize("answer", TOWERS, ids=lambda answer: answer[:12])
def test_towers_are_refused_by_size(answer):
    with BoxedMath(timeout_s=5, workers=1) as verifier:
        verdicts = verifier.verify([f"\\boxed{{{answer}}}"] * 3, ["2", "x+1", r"\{1,2\}"])
    assert [v.status for v in verdicts] == ["fail"] * 3


def test_comparison_that_takes_too_long_is_timeout():
    golds = ["2", LONG[0], r"\frac{1}{3}", "2"]
    boxes = [r"\sqrt{4}", LONG[1], r"\frac{2}{6}", "3"]
    with BoxedMath(timeout_s=2, workers=1) as verifier:
        verdicts = verifier.verify([f"\\boxed{{{box}}}" for box in boxes], golds)
    assert [v.status for v in verdicts] == ["pass", "timeout", "pass", "fail"]
    assert verdicts[1].reason == f"no result within 2 s; said {LONG[1]}"


def test_compares_equal_answers_once(verifier, monkeypatch):
    compared = []
    inside = verifier._pool.map
    monkeypatch.setattr(
        verifier._pool, "map", lambda items: compared.extend(items) or inside(items)
    )
    verdicts = verifier.verify([r"so \boxed{0.5}", r"thus \boxed{0.5}", r"\boxed{2}"], ["1/2"] * 3)
    assert [v.status for v in verdicts] == ["pass", "pass", "fail"]
    assert sorted(compared) == [("1/2", "0.5"), ("1/2", "2")]


def test_verdicts_do_not_depend_on_order(verifier):
    responses = [rf"\boxed{{{a}}}" for a in ("0.5", "1/2", "x+1", "1+x", "2", "(1,2)")] + ["none"]
    golds = ["1/2", "x+1", r"\frac12", "x+1", "2", "(1,2)", "1"]
    pairs = [(r, g) for r in responses for g in golds]
    forwards = verifier.verify([r for r, _ in pairs], [g for _, g in pairs])
    pairs.reverse()
    backwards = verifier.verify([r for r, _ in pairs], [g for _, g in pairs])
    assert backwards[::-1] == forwards


integers = st.integers() | st.integers(-3, 3) | st.integers(min_value=10**20)
spellings = st.tuples(integers, st.sampled_from(["", "0", "00"])).map(
    lambda pair: ("-" if pair[0] < 0 else "") + pair[1] + str(abs(pair[0]))
)


@given(spellings, spellings | st.just("-0"))
@settings(max_examples=60, deadline=None)
def test_integer_shortcut_agrees_with_comparison(gold, answer):
    for expected in (gold, answer):
        verdict = compare_directly(expected, answer)
        assert verdict is not None
        assert compare_answers([expected, answer]) == verdict.passed


@pytest.mark.parametrize("answer", ["5.0", "1,000", "5x", "٥", "+5", "--5", "5 5"])
def test_integer_shortcut_skips_other_answers(answer):
    assert compare_directly("5", answer) is None


def test_compares_long_integers():
    assert compare_directly("1" * 5000, "1" * 5000) == Verdict("pass")
    assert compare_directly("1" * 5000, "0" + "1" * 5000) == Verdict("pass")
    assert compare_directly("1" * 5000, "1" * 5001).status == "fail"


@given(st.lists(st.tuples(st.text(), st.text(), st.booleans()), max_size=5))
@settings(max_examples=30, deadline=None)
def test_any_text_gets_verdict(verifier, items):
    responses = [f"\\boxed{{{text}}}" if boxed else text for text, _, boxed in items]
    verdicts = verifier.verify(responses, [gold for _, gold, _ in items])
    assert len(verdicts) == len(items)
    assert all(v.status in ("pass", "fail", "error") for v in verdicts)


@pytest.mark.parametrize(
    "wrong", [{"timeout_s": 0}, {"timeout_s": "5"}, {"workers": -1}, {"memory_bytes": True}]
)
def test_rejects_parameter_out_of_range(wrong):
    with pytest.raises(UserError, match=f"boxed_math: {next(iter(wrong))} must be a positive num"):
        BoxedMath(**wrong)


def test_loads_by_name():
    verifier = load_verifier("boxed_math", timeout_s=2)
    assert verifier.verify([r"\boxed{4}"], ["4"]) == [Verdict("pass")]
    with pytest.raises(UserError, match="cannot take the parameters"):
        load_verifier("boxed_math", time_limit=2)
