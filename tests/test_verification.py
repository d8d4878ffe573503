"""verify_unique: each distinct pair once, in any order; a verifier's faults are named."""

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


class Recording:
    """Passes what equals its gold, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def verify(self, responses, golds):
        self.asked += zip(responses, golds, strict=True)
        return [
            Verdict("pass" if text == gold else "fail", text)
            for text, gold in zip(responses, golds, strict=True)
        ]


class Raising(Recording):
    def verify(self, responses, golds):
        verdicts = super().verify(responses, golds)
        if "bad" in responses:
            raise RuntimeError("bad\nresponse")
        return verdicts


class Returning:
    def __init__(self, verdicts):
        self.verdicts = verdicts

    def verify(self, responses, golds):
        return self.verdicts


@given(pairs, st.randoms(use_true_random=False))
def test_verdicts_do_not_depend_on_order_and_each_pair_is_asked_once(items, random):
    verifier = Recording()
    verdicts = verify_unique(verifier, [t for t, _ in items], [g for _, g in items])
    shuffled = list(range(len(items)))
    random.shuffle(shuffled)
    again = verify_unique(
        Recording(), [items[i][0] for i in shuffled], [items[i][1] for i in shuffled]
    )
    assert again == [verdicts[i] for i in shuffled]
    assert verdicts == [Verdict("pass" if t == g else "fail", t) for t, g in items]
    assert len(verifier.asked) == len({repr(pair) for pair in verifier.asked}) <= len(items)


def test_true_and_1_are_different_golds_and_the_order_of_keys_is_not():
    verifier = Recording()
    golds = [True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len(verify_unique(verifier, ["x"] * 4, golds)) == 4
    assert len(verifier.asked) == 3


def test_a_pair_the_verifier_raises_on_is_an_error_and_the_others_are_judged():
    verdicts = verify_unique(Raising(), ["a", "bad", "b", "bad"], ["a", "x", "x", "x"])
    assert [v.status for v in verdicts] == ["pass", "error", "fail", "error"]
    assert verdicts[1].reason == "the verifier raised RuntimeError: bad response"


def test_a_verifier_that_raises_on_everything_is_broken():
    with pytest.raises(PluginError, match=r"'Raising' .* raised on all 2 pairs: RuntimeError"):
        verify_unique(Raising(), ["bad", "bad"], [1, 2])


def test_a_mistake_of_the_user_goes_through():
    class Mistaken:
        def verify(self, responses, golds):
            raise UserError("no such metric")

    with pytest.raises(UserError, match="no such metric"):
        verify_unique(Mistaken(), ["a"], ["b"])


class Choosy(Recording):
    def check_gold(self, gold):
        if gold == "raise":
            raise RuntimeError("odd\ngold")
        return {"bad": "it is bad; expected good", "none": None}.get(gold, "")


def test_a_refused_gold_is_named_by_its_place():
    with pytest.raises(UserError, match=r"^pool\.jsonl, line 2: it is bad; expected good$"):
        check_golds(Choosy(), [("good", "pool.jsonl, line 1"), ("bad", "pool.jsonl, line 2")])


@pytest.mark.parametrize("gold", [float("nan"), float("inf"), ["a", float("nan")]])
def test_a_gold_that_is_no_number_is_refused(gold):
    """As null is: a cell that is missing in CSV. A document may have such fields."""
    with pytest.raises(UserError, match=r"^line 1: the gold answer holds .*, not a JSON number"):
        check_golds(Recording(), [(gold, "line 1")])
    check_golds(Recording(), [({"answer": "A", "other": gold}, "line 1")])


def test_good_golds_and_verifiers_without_check_gold_pass():
    check_golds(Choosy(), [("good", "line 1")])
    read = []
    check_golds(Recording(), (read.append(g) or (g, "line 1") for g in ["bad", "raise"]))
    assert read == ["bad", "raise"]


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("raise", "line 1: in check_gold, verifier 'Choosy' .* failed: RuntimeError: odd gold"),
        ("none", "verifier 'Choosy' .* returned None from check_gold; expected text"),
    ],
)
def test_a_broken_check_gold_names_the_verifier(gold, expected):
    with pytest.raises(PluginError, match=expected):
        check_golds(Choosy(), [(gold, "line 1")])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_verdicts_names_the_verifier(count):
    with pytest.raises(PluginError, match=f"'Returning' .* returned {count} verdicts for 2 pairs"):
        verify_unique(Returning([Verdict("pass")] * count), ["a", "b"], [1, 2])


@pytest.mark.parametrize("wrong", [None, "pass", [True, False], [Verdict("pass"), None]])
def test_what_is_no_verdict_names_the_verifier(wrong):
    with pytest.raises(PluginError, match=r"'Returning' .* expected a list of"):
        verify_unique(Returning(wrong), ["a", "b"], [1, 2])


def test_as_many_golds_as_responses():
    with pytest.raises(ValueError, match="2 responses, but 1 gold"):
        verify_unique(Recording(), ["a", "b"], ["a"])


def test_without_responses_nothing_is_asked():
    assert judge_once_each(lambda texts, golds: pytest.fail("asked"), [], []) == []


def test_a_gold_that_serves_many_responses_is_spelled_once():
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
