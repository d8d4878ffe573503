"""verify_unique judges each distinct pair once; errors name the verifier's faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import Verdict
from gapft_harness.verification.judging import check_golds, judge_once_each, verify_unique

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
pairs = st.lists(st.tuples(st.text(max_size=2), json_values | st.sampled_from(["a", "b"])))


class RecordingVerifier:
    """Passes responses that equal their gold and records its calls."""

    def __init__(self):
        self.asked = []

    def verify(self, responses, golds):
        self.asked += zip(responses, golds, strict=True)
        return [
            Verdict("pass" if text == gold else "fail", text)
            for text, gold in zip(responses, golds, strict=True)
        ]


class RaisingVerifier(RecordingVerifier):
    def verify(self, responses, golds):
        verdicts = super().verify(responses, golds)
        if "bad" in responses:
            raise RuntimeError("bad\nresponse")
        return verdicts


class ConstantVerifier:
    def __init__(self, verdicts):
        self.verdicts = verdicts

    def verify(self, responses, golds):
        return self.verdicts


@given(pairs, st.randoms(use_true_random=False))
def test_asks_each_pair_once_in_any_order(items, random):
    verifier = RecordingVerifier()
    verdicts = verify_unique(verifier, [t for t, _ in items], [g for _, g in items])
    shuffled = list(range(len(items)))
    random.shuffle(shuffled)
    again = verify_unique(
        RecordingVerifier(), [items[i][0] for i in shuffled], [items[i][1] for i in shuffled]
    )
    assert again == [verdicts[i] for i in shuffled]
    assert verdicts == [Verdict("pass" if t == g else "fail", t) for t, g in items]
    assert len(verifier.asked) == len({repr(pair) for pair in verifier.asked}) <= len(items)


def test_distinguishes_true_from_1_but_not_key_order():
    verifier = RecordingVerifier()
    golds = [True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len(verify_unique(verifier, ["x"] * 4, golds)) == 4
    assert len(verifier.asked) == 3


def test_verifier_exception_is_one_pairs_error():
    verdicts = verify_unique(RaisingVerifier(), ["a", "bad", "b", "bad"], ["a", "x", "x", "x"])
    assert [v.status for v in verdicts] == ["pass", "error", "fail", "error"]
    assert verdicts[1].reason == "the verifier raised RuntimeError: bad response"


def test_verifier_that_always_raises_is_broken():
    with pytest.raises(
        PluginError, match=r"'RaisingVerifier' .* raised on all 2 pairs: RuntimeError"
    ):
        verify_unique(RaisingVerifier(), ["bad", "bad"], [1, 2])


def test_user_errors_propagate():
    class Mistaken:
        def verify(self, responses, golds):
            raise UserError("no such metric")

    with pytest.raises(UserError, match="no such metric"):
        verify_unique(Mistaken(), ["a"], ["b"])


class GoldCheckingVerifier(RecordingVerifier):
    def check_gold(self, gold):
        if gold == "raise":
            raise RuntimeError("odd\ngold")
        return {"bad": "it is bad; expected good", "none": None}.get(gold, "")


def test_refused_gold_is_named_by_position():
    with pytest.raises(UserError, match=r"^pool\.jsonl, line 2: it is bad; expected good$"):
        check_golds(
            GoldCheckingVerifier(), [("good", "pool.jsonl, line 1"), ("bad", "pool.jsonl, line 2")]
        )


@pytest.mark.parametrize("gold", [float("nan"), float("inf"), ["a", float("nan")]])
def test_rejects_non_finite_golds(gold):
    """Like null, it is a missing CSV cell; a document may have such fields."""
    with pytest.raises(UserError, match=r"^line 1: the gold answer holds .*, not a JSON number"):
        check_golds(RecordingVerifier(), [(gold, "line 1")])
    check_golds(RecordingVerifier(), [({"answer": "A", "other": gold}, "line 1")])


def test_accepts_good_golds():
    check_golds(GoldCheckingVerifier(), [("good", "line 1")])
    read = []
    check_golds(RecordingVerifier(), (read.append(g) or (g, "line 1") for g in ["bad", "raise"]))
    assert read == ["bad", "raise"]


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (
            "raise",
            "line 1: in check_gold.*GoldCheckingVerifier.* RuntimeError: odd gold",
        ),
        ("none", "verifier 'GoldCheckingVerifier' .* returned None from check_gold; expected text"),
    ],
)
def test_broken_check_gold_names_the_verifier(gold, expected):
    with pytest.raises(PluginError, match=expected):
        check_golds(GoldCheckingVerifier(), [(gold, "line 1")])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_verdicts_names_the_verifier(count):
    with pytest.raises(
        PluginError, match=f"'ConstantVerifier' .* returned {count} verdicts for 2 pairs"
    ):
        verify_unique(ConstantVerifier([Verdict("pass")] * count), ["a", "b"], [1, 2])


@pytest.mark.parametrize("wrong", [None, "pass", [True, False], [Verdict("pass"), None]])
def test_invalid_verdict_names_the_verifier(wrong):
    with pytest.raises(PluginError, match=r"'ConstantVerifier' .* expected a list of"):
        verify_unique(ConstantVerifier(wrong), ["a", "b"], [1, 2])


def test_requires_one_gold_per_response():
    with pytest.raises(ValueError, match="2 responses, but 1 gold"):
        verify_unique(RecordingVerifier(), ["a", "b"], ["a"])


def test_asks_nothing_without_responses():
    assert judge_once_each(lambda texts, golds: pytest.fail("asked"), [], []) == []


def test_serializes_shared_gold_once():
    class Large:
        spelled = 0

        def __repr__(self):
            Large.spelled += 1
            return "large"

    gold = {"tests": Large()}
    judged = judge_once_each(
        lambda texts, golds: [Verdict("pass")] * len(texts), ["a", "b"], [gold] * 2
    )
    assert [v.status for v in judged] == ["pass", "pass"]
    assert Large.spelled == 1
