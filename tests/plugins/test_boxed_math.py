"""boxed_math: compare the last box as mathematics, in workers that can be killed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, compare_directly
from gapft_harness.verification import math
from gapft_harness.verification.math import compare, spell_out

HANGS = r"5^{5^{5^{5}}}"


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
def test_verdicts_without_math_verify(verifier, response, gold, verdict):
    assert verifier.verify([response], [gold]) == [verdict]


@pytest.mark.parametrize(
    "gold", ["5", "\\frac12", 7, 0.5, 0, "None", "", " .", None, True, ["5"], {}]
)
def test_check_gold_agrees_with_verify(verifier, gold):
    (verdict,) = verifier.verify(["\\boxed{1}"], [gold])
    assert verifier.check_gold(gold) == (verdict.reason if verdict.status == "error" else "")


def test_hanging_expression_times_out():
    golds = ["2", "5", r"\frac{1}{3}", "2"]
    boxes = [r"\sqrt{4}", HANGS, r"\frac{2}{6}", "3"]
    with BoxedMath(timeout_s=3, workers=1) as verifier:
        verdicts = verifier.verify([f"\\boxed{{{box}}}" for box in boxes], golds)
    assert [v.status for v in verdicts] == ["pass", "timeout", "pass", "fail"]
    assert verdicts[1].reason == f"no result within 3 s; said {HANGS}"


def test_library_timeout_is_timeout_verdict(monkeypatch):
    from math_verify.errors import TimeoutException

    def late(*_, **__):
        raise TimeoutException("Timeout during comparison")

    monkeypatch.setattr(math, "verify", late)
    assert compare(["1", "2"])["status"] == "timeout"


def test_memory_error_is_raised(monkeypatch):
    def exhaust(*_, **__):
        raise MemoryError

    monkeypatch.setattr(math, "verify", exhaust)
    with pytest.raises(MemoryError):
        compare(["1", "2"])


def test_unparsable_gold_is_error(monkeypatch):
    monkeypatch.setattr(math, "parse", lambda *_, **__: [])
    assert compare(["?", "2"]) == {"status": "error", "reason": "the gold answer cannot be parsed"}


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


@given(st.integers(0, 60), st.integers(0, 11), st.integers(1, 12), st.booleans())
@settings(max_examples=60, deadline=None)
def test_mixed_number_is_sum_of_parts(whole, over, under, negative):
    sign = "-" if negative else ""
    improper = f"{sign}\\frac{{{whole * under + over}}}{{{under}}}"
    proper = over < under
    for mixed in (f"{sign}{whole}\\frac{{{over}}}{{{under}}}", f"{sign}{whole} {over}/{under}"):
        assert (spell_out(mixed) == improper) == proper
        if proper:
            assert compare([improper, mixed])["status"] == "pass"


integers = st.integers() | st.integers(-3, 3) | st.integers(min_value=10**20)
spellings = st.tuples(integers, st.sampled_from(["", "0", "00"])).map(
    lambda pair: ("-" if pair[0] < 0 else "") + pair[1] + str(abs(pair[0]))
)


@given(spellings, spellings | st.just("-0"))
@settings(max_examples=60, deadline=None)
def test_integer_shortcut_agrees_with_math_verify(gold, answer):
    for expected in (gold, answer):
        verdict = compare_directly(expected, answer)
        assert verdict is not None
        assert compare([expected, answer])["status"] == verdict.status


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
