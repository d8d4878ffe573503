"""Each distinct pair of response and gold is judged once; a verifier's faults name the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, Response, Verdict
from gapft_harness.hooks.judge import Judge

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
pairs = st.lists(st.tuples(st.text(max_size=2), json_values | st.sampled_from(["a", "b"])))


class Recording:
    """Pass responses that equal their gold, answer with the last word, and record all calls.

    Raise on the response "bad".

    Args:
        reading: the answer that it returns instead of the last word.
    """

    def __init__(self, reading: Any = None) -> None:
        self.judged: list[tuple[str, Any]] = []
        self.read: list[str] = []
        self.reading = reading

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> Any:
        self.judged += zip(responses, golds, strict=True)
        if "bad" in responses:
            raise RuntimeError("bad\nresponse")
        if "mistake" in responses:
            raise UserError("no such metric")
        return [
            Verdict("pass" if text == gold else "fail", text)
            for text, gold in zip(responses, golds, strict=True)
        ]

    def answer(self, text: str) -> Any:
        self.read.append(text)
        if text == "bad":
            raise ValueError("no idea")
        last = text.split()[-1] if text.split() else None
        return last if self.reading is None else self.reading

    def check_gold(self, gold: Any) -> Any:
        return "it is bad; expected good" if gold == "refused" else ""


def build_response(text: str, finish: str = "stop") -> Response:
    return Response("p", 0, text, (), finish, 0)


@given(pairs, st.randoms(use_true_random=False))
def test_judges_each_pair_once_in_any_order(items: list[tuple[str, Any]], random: Any) -> None:
    verifier = Recording()
    verdicts = Judge(verifier).verify([t for t, _ in items], [g for _, g in items])
    order = [*range(len(items))]
    random.shuffle(order)
    again = Judge(Recording()).verify([items[i][0] for i in order], [items[i][1] for i in order])
    assert again == [verdicts[i] for i in order]
    assert verdicts == [Verdict("pass" if t == g else "fail", t) for t, g in items]
    assert len(verifier.judged) == len({repr(pair) for pair in verifier.judged}) <= len(items)


def test_distinguishes_true_from_1_but_not_key_order() -> None:
    verifier = Recording()
    golds = [True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len(Judge(verifier).verify(["x"] * 4, golds)) == 4
    assert len(verifier.judged) == 3


def test_serializes_shared_gold_once() -> None:
    """The gold of a programming problem may have hundreds of megabytes of tests."""

    class Large:
        count = 0

        def __repr__(self) -> str:
            Large.count += 1
            return "large"

    gold = {"tests": Large()}
    Judge(Recording()).verify(["a", "b"], [gold] * 2)
    assert Large.count == 1


def test_exception_is_one_pairs_error() -> None:
    verdicts = Judge(Recording()).verify(["a", "bad", "b", "bad"], ["a", "x", "x", "x"])
    assert [v.status for v in verdicts] == ["pass", "error", "fail", "error"]
    assert "RuntimeError" in verdicts[1].reason
    assert "\n" not in verdicts[1].reason


@pytest.mark.parametrize("gold", [float("nan"), float("inf"), ["a", float("nan")]])
def test_rejects_non_finite_golds(gold: Any) -> None:
    """Like null, it is a missing CSV cell; a document may have such fields."""
    with pytest.raises(UserError, match=r"^line 1: "):
        Judge(Recording()).check_golds([(gold, "line 1")])
    Judge(Recording()).check_golds([({"answer": "A", "other": gold}, "line 1")])


def test_reads_each_text_once_and_skips_ungenerated() -> None:
    verifier = Recording()
    texts = ["it is B", "so B", "it is B", "x \ud83d"]
    responses = [*map(build_response, texts), build_response("", CONTEXT_EXCEEDED)]
    judged = Judge(verifier).judge_responses(responses, [*"BCCCC"])
    assert [answer for _, answer in judged] == ["B", "B", "B", "\ufffd", None]
    assert len(verifier.read) == 3


def test_recorded_verdict_is_kept() -> None:
    """Its response is not judged again, but its answer is read."""
    verifier = Recording()
    texts = ["it is B", "C", "", "C"]
    responses = [build_response(text, "stop" if text else CONTEXT_EXCEEDED) for text in texts]
    timeout = Verdict("timeout", "slow")
    results = Judge(verifier).judge_responses(responses, [*"BCCC"], [timeout, None, None, None])
    assert [answer for _, answer in results] == ["B", "C", None, "C"]
    assert [verdict.status for verdict, _ in results] == ["timeout", "pass", "fail", "pass"]
    assert [text for text, _ in verifier.judged] == ["C"]
    assert verifier.read == ["it is B", "C"]
