"""Answers that verifiers read from responses, recorded beside the verdicts."""

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
def test_response_passes_iff_answer_equals_gold(text: str, rule: str, has_options: bool) -> None:
    """The gold holds the options, as in the bundled tasks, or is a bare letter."""
    verifier = OptionLetter(rule=rule)
    bare = [*LETTERS] if rule != "permissive" else []
    golds: list[Any] = [{"answer": a, "options": OPTIONS} for a in LETTERS] if has_options else bare
    answers = {verifier.answer(text, gold=gold) for gold in golds}
    assert len(answers) <= 1  # the answer does not depend on which option is right
    for gold, verdict in zip(golds, verifier.verify([text] * len(golds), golds), strict=True):
        letter = gold["answer"] if has_options else gold
        assert verdict.passed == (answers == {letter})
        if not has_options:
            assert verifier.answer(text) == verifier.answer(text, gold=gold)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so \\boxed{1}; then \\boxed{ \\frac{1}{2}. }", "\\frac{1}{2}"),
        ("so \\boxed{1} or \\boxed{ \\frac{1}{2}. }", "1 \\text{ or } \\frac{1}{2}"),
        ("\\boxed 5$", "5"),
        ("\\boxed{}", None),
        ("\\boxed{1} and \\boxed{2", None),
        ("5", None),
    ],
)
def test_boxed_math_answer_is_last_box(response: str, answer: str | None) -> None:
    with load_verifier("boxed_math") as verifier:  # type: ignore[attr-defined]
        assert verifier.answer(response) == answer


@given(
    st.text(alphabet="\\boxed{} 12\n", max_size=30) | st.integers(0, 99).map("\\boxed{{{}}}".format)
)
def test_boxed_math_passes_own_answer_as_gold(text: str) -> None:
    verifier = load_verifier("boxed_math")
    answer = verifier.answer(text)  # type: ignore[attr-defined]
    if answer is not None:
        assert verifier.verify([text], [answer]) == [Verdict("pass")]


@pytest.mark.parametrize("name", ["program_tests", "task_metric"])
def test_other_verifiers_have_no_answer(name: str) -> None:
    from gapft_harness.hooks.manager import load_plugins

    verifier = load_plugins().get("verifier", name).value
    assert not hasattr(verifier, "answer")


class LastWordVerifier:
    """Answer with the last word and record each text."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verify(self, responses: Any, golds: Any) -> list[Verdict]:
        return [Verdict("pass") for _ in responses]

    def answer(self, text: str) -> str | None:
        self.asked.append(text)
        return text.split()[-1] if text.split() else None


def build_response(text: str, finish: str = "stop") -> Response:
    return Response("p", 0, text, (), finish, 0)


def test_reads_each_text_once_and_skips_ungenerated() -> None:
    verifier = LastWordVerifier()
    responses = [
        build_response("it is B"),
        build_response("so B"),
        build_response("it is B"),
        build_response("", CONTEXT_EXCEEDED),
    ]
    golds = ["B", "C", "C", "C"]
    assert answer_responses(find_answer_reader(verifier), responses, golds) == ["B", "B", "B", None]
    assert sorted(verifier.asked) == ["it is B", "so B"]


def test_verifier_without_answer_method() -> None:
    class Silent:
        answer = "B"  # an attribute, not a method: the plugin uses the name for something else

        def verify(self, responses: Any, golds: Any) -> list[Verdict]:
            return []

    assert find_answer_reader(Silent()) is None
    assert answer_responses(None, [build_response("B")], ["B"]) == [None]


def test_replaces_lone_surrogate_in_answer() -> None:
    assert answer_responses(
        find_answer_reader(LastWordVerifier()), [build_response("x \ud83d")], [None]
    ) == ["\ufffd"]


@pytest.mark.parametrize("wrong", [3, ["B"], b"B"])
def test_rejects_non_text_answer(wrong: Any) -> None:
    class Wrong(LastWordVerifier):
        def answer(self, text: str) -> str | None:
            result: str = wrong
            return result

    with pytest.raises(PluginError, match=r"verifier '.*Wrong'.* from answer; expected text"):
        answer_responses(find_answer_reader(Wrong()), [build_response("B")], ["B"])


def test_reports_verifier_that_raises() -> None:
    class Raising(LastWordVerifier):
        def answer(self, text: str) -> str | None:
            raise ValueError("no idea")

    with pytest.raises(PluginError, match=r"verifier '.*Raising'.* failed: ValueError: no idea"):
        answer_responses(find_answer_reader(Raising()), [build_response("B")], ["B"])


class OnePassVerifier(LastWordVerifier):
    """Judge and answer in one pass; calls of ``answer`` are recorded separately."""

    result: Any = None

    def verify_with_answers(self, responses: Any, golds: Any) -> Any:
        if self.result is not None:
            return self.result
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
def test_one_pass_equals_verify_and_answer(
    responses: list[str], rule: str, right: str, has_options: bool
) -> None:
    """Invalid golds are included."""
    verifier = OptionLetter(rule=rule)
    gold: Any = {"answer": right, "options": OPTIONS} if has_options else right
    golds = [gold] * len(responses)
    both = verifier.verify_with_answers(responses, golds)
    assert [verdict for verdict, _ in both] == verifier.verify(responses, golds)
    assert [answer for _, answer in both] == [verifier.answer(t, gold=gold) for t in responses]


def test_one_read_gives_verdict_and_answer() -> None:
    """A recorded verdict is kept, and only its response is read by ``answer``."""
    verifier = OnePassVerifier()
    responses = [
        build_response("it is B"),
        build_response("so C"),
        build_response("", CONTEXT_EXCEEDED),
        build_response("so C"),
    ]
    timeout = Verdict("timeout", "slow")
    recorded = [timeout, None, None, None]
    pairs = judge_and_answer(verifier, find_answer_reader(verifier), responses, ["B"] * 4, recorded)
    assert [answer for _, answer in pairs] == ["B", "C", None, "C"]
    statuses = [verdict.status for verdict, _ in pairs]
    assert statuses == ["timeout", "fail", "fail", "fail"]
    assert verifier.asked == ["it is B"]


def test_judging_and_lm_eval_read_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapft_harness.lm_eval_bridge.judge import CachingJudge
    from gapft_harness.plugins.verifiers import option_letter

    read: list[str] = []

    def counted(text: str, *args: Any) -> Any:
        read.append(text)
        return find_first_statement(text, *args)

    monkeypatch.setattr(option_letter, "find_first_statement", counted)
    verifier = OptionLetter(rule="first_explicit")
    judge_and_answer(verifier, find_answer_reader(verifier), [build_response("I say B.")], ["B"])
    assert read == ["I say B."]
    judge = CachingJudge(verifier)
    judge.judge_new([("I say C.", "B")])
    assert (judge.verdicts(["I say C."], "B"), judge.read_answers(["I say C."], "B")) == (
        [Verdict("fail", "said C")], ["C"])  # fmt: skip
    assert read == ["I say B.", "I say C."]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "3 from verify_with_answers; .* pairs"),
        ([Verdict("pass")], "from verify_with_answers; .* pairs"),
        ([(Verdict("pass"), 3)], "3 from verify_with_answers; .*text"),
        ([("pass", None)], "gapft_harness.api.Verdict"),
        ([], "0 verdicts for 1 pairs"),
    ],
)
def test_rejects_malformed_verdict_answer_pairs(wrong: Any, message: str) -> None:
    verifier = OnePassVerifier()
    verifier.result = wrong
    with pytest.raises(PluginError, match=rf"verifier '.*OnePassVerifier'.*{message}"):
        judge_unique(verifier, ["B"], ["B"])


def test_verify_with_answers_requires_answer() -> None:
    class Half:
        def verify(self, responses: Any, golds: Any) -> list[Verdict]:
            return [Verdict("pass") for _ in responses]

        def verify_with_answers(self, responses: Any, golds: Any) -> Any:
            return [(Verdict("pass"), "B") for _ in responses]

    with pytest.raises(PluginError, match="has no method answer"):
        judge_unique(Half(), ["B"], ["B"])
