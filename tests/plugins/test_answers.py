"""What verifiers read as a response's answer: sealed beside its verdict, whatever is right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import CONTEXT_EXCEEDED, Response, Verdict
from gapft_harness.hooks.checked import find_answer_reader
from gapft_harness.plugins.verifiers.option_letter import OptionLetter
from gapft_harness.plugins.verifiers.statements import find_first_statement
from gapft_harness.verification.judging import answer_responses, judge_and_answer, judge_unique
from tests.plugins.test_option_letter import OPTIONS, RULES, TABLE

LETTERS = "ABCD"
pieces = st.sampled_from(
    ["A", "B", "(C)", "D.", "E", "the answer is ", "not ", " or ", "\n", "rain fell", "a cat", ". ",
     "\\boxed{", "}", "A man", "wait, "]
)  # fmt: skip
texts = st.sampled_from([row[0] for row in TABLE]) | st.lists(pieces, max_size=6).map("".join)


@given(texts, st.sampled_from(RULES), st.booleans())
def test_a_response_passes_exactly_where_its_answer_is_the_gold(
    text: str, rule: str, shown: bool
) -> None:
    """With the options in the gold, as the bundled tasks have it, and for a bare letter."""
    verifier = OptionLetter(rule=rule)
    bare = [*LETTERS] if rule != "permissive" else []
    golds: list[Any] = [{"answer": a, "options": OPTIONS} for a in LETTERS] if shown else bare
    answers = {verifier.answer(text, gold=gold) for gold in golds}
    assert len(answers) <= 1  # the answer does not depend on which option is right
    for gold, verdict in zip(golds, verifier.verify([text] * len(golds), golds), strict=True):
        letter = gold["answer"] if shown else gold
        assert verdict.passed == (answers == {letter})
        if not shown:
            assert verifier.answer(text) == verifier.answer(text, gold=gold)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so \\boxed{1} or \\boxed{ \\frac{1}{2}. }", "\\frac{1}{2}"),
        ("\\boxed 5$", "5"),
        ("\\boxed{}", None),
        ("\\boxed{1} and \\boxed{2", None),
        ("5", None),
    ],
)
def test_boxed_math_answers_with_its_last_box(response: str, answer: str | None) -> None:
    with load_verifier("boxed_math") as verifier:  # type: ignore[attr-defined]
        assert verifier.answer(response) == answer


@given(
    st.text(alphabet="\\boxed{} 12\n", max_size=30) | st.integers(0, 99).map("\\boxed{{{}}}".format)
)
def test_boxed_math_passes_a_gold_that_is_the_answer(text: str) -> None:
    verifier = load_verifier("boxed_math")
    answer = verifier.answer(text)  # type: ignore[attr-defined]
    if answer is not None:
        assert verifier.verify([text], [answer]) == [Verdict("pass")]


@pytest.mark.parametrize("name", ["program_tests", "task_metric"])
def test_others_give_none(name: str) -> None:
    from gapft_harness.hooks.manager import load_plugins

    made = load_plugins().get("verifier", name).value
    assert not hasattr(made, "answer")


class Words:
    """Answers with the last word, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verify(self, responses: Any, golds: Any) -> list[Verdict]:
        return [Verdict("pass") for _ in responses]

    def answer(self, text: str) -> str | None:
        self.asked.append(text)
        return text.split()[-1] if text.split() else None


def response(text: str, finish: str = "stop") -> Response:
    return Response("p", 0, text, (), finish, 0)


def test_each_text_is_read_once_and_what_was_not_generated_never() -> None:
    verifier = Words()
    given = [
        response("it is B"),
        response("so B"),
        response("it is B"),
        response("", CONTEXT_EXCEEDED),
    ]
    golds = ["B", "C", "C", "C"]
    assert answer_responses(find_answer_reader(verifier), given, golds) == ["B", "B", "B", None]
    assert sorted(verifier.asked) == ["it is B", "so B"]


def test_a_verifier_without_the_method_gives_no_answers() -> None:
    class Silent:
        answer = "B"  # no method: of a plugin that means something else by it

        def verify(self, responses: Any, golds: Any) -> list[Verdict]:
            return []

    assert find_answer_reader(Silent()) is None
    assert answer_responses(None, [response("B")], ["B"]) == [None]


def test_an_answer_of_half_a_surrogate_pair_is_mended() -> None:
    assert answer_responses(find_answer_reader(Words()), [response("x \ud83d")], [None]) == [
        "\ufffd"
    ]


@pytest.mark.parametrize("wrong", [3, ["B"], b"B"])
def test_an_answer_that_is_no_text_is_named(wrong: Any) -> None:
    class Wrong(Words):
        def answer(self, text: str) -> str | None:
            found: str = wrong
            return found

    with pytest.raises(PluginError, match=r"verifier '.*Wrong'.* from answer; expected text"):
        answer_responses(find_answer_reader(Wrong()), [response("B")], ["B"])


def test_a_verifier_that_raises_is_named() -> None:
    class Raising(Words):
        def answer(self, text: str) -> str | None:
            raise ValueError("no idea")

    with pytest.raises(PluginError, match=r"verifier '.*Raising'.* failed: ValueError: no idea"):
        answer_responses(find_answer_reader(Raising()), [response("B")], ["B"])


class InOnePass(Words):
    """Judges and answers at once; what ``answer`` is asked is counted apart."""

    found: Any = None

    def verify_with_answers(self, responses: Any, golds: Any) -> Any:
        if self.found is not None:
            return self.found
        return [
            (Verdict("pass" if text.endswith(gold) else "fail"), text.split()[-1])
            for text, gold in zip(responses, golds, strict=True)
        ]


@given(
    st.lists(texts, min_size=1, max_size=8),
    st.sampled_from(RULES),
    st.sampled_from([*LETTERS, "E", ""]),
    st.booleans(),
)
def test_one_pass_gives_what_verify_and_answer_give(
    responses: list[str], rule: str, right: str, shown: bool
) -> None:
    """Of golds that are none too."""
    verifier = OptionLetter(rule=rule)
    gold: Any = {"answer": right, "options": OPTIONS} if shown else right
    golds = [gold] * len(responses)
    both = verifier.verify_with_answers(responses, golds)
    assert [verdict for verdict, _ in both] == verifier.verify(responses, golds)
    assert [answer for _, answer in both] == [verifier.answer(t, gold=gold) for t in responses]


def test_a_text_is_read_once_for_verdict_and_answer() -> None:
    """A verdict that stands is kept, and only its response is read apart."""
    verifier = InOnePass()
    given = [
        response("it is B"),
        response("so C"),
        response("", CONTEXT_EXCEEDED),
        response("so C"),
    ]
    stands = Verdict("timeout", "slow")
    known = [stands, None, None, None]
    found = judge_and_answer(verifier, find_answer_reader(verifier), given, ["B"] * 4, known)
    assert [answer for _, answer in found] == ["B", "C", None, "C"]
    statuses = [verdict.status for verdict, _ in found]
    assert statuses == ["timeout", "fail", "fail", "fail"]
    assert verifier.asked == ["it is B"]


def test_sealing_and_lm_eval_read_a_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapft_harness.lm_eval_bridge.judge import CachingJudge
    from gapft_harness.plugins.verifiers import option_letter

    read: list[str] = []

    def counted(text: str, *args: Any) -> Any:
        read.append(text)
        return find_first_statement(text, *args)

    monkeypatch.setattr(option_letter, "find_first_statement", counted)
    verifier = OptionLetter(rule="first_explicit")
    judge_and_answer(verifier, find_answer_reader(verifier), [response("I say B.")], ["B"])
    assert read == ["I say B."]
    judge = CachingJudge(verifier)
    judge.judge_new([("I say C.", "B")])
    assert (judge.verdicts(["I say C."], "B"), judge.read_answers(["I say C."], "B")) == (
        [Verdict("fail", "said C")], ["C"])  # fmt: skip
    assert read == ["I say B.", "I say C."]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "gave 3 in verify_with_answers; expected a list of pairs"),
        ([Verdict("pass")], "in verify_with_answers; expected a list of pairs"),
        ([(Verdict("pass"), 3)], "3 from verify_with_answers; expected text, or None"),
        ([("pass", None)], "expected a list of gapft_harness.api.Verdict"),
        ([], "gave 0 verdicts for 1 pairs"),
    ],
)
def test_what_is_no_verdict_with_an_answer_is_named(wrong: Any, message: str) -> None:
    verifier = InOnePass()
    verifier.found = wrong
    with pytest.raises(PluginError, match=rf"verifier '.*InOnePass'.*{message}"):
        judge_unique(verifier, ["B"], ["B"])


def test_a_verifier_of_both_has_answer_too() -> None:
    class Half:
        def verify(self, responses: Any, golds: Any) -> list[Verdict]:
            return [Verdict("pass") for _ in responses]

        def verify_with_answers(self, responses: Any, golds: Any) -> Any:
            return [(Verdict("pass"), "B") for _ in responses]

    with pytest.raises(PluginError, match="has no method answer"):
        judge_unique(Half(), ["B"], ["B"])
