"""Gold-label selection: whose problems, whose targets, and what it has in common with GapFT."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Evidence, Example, Pool
from gapft_harness.experiments.controls.search import find_differences
from gapft_harness.stages.selection.choosing import build_example, group_by_state
from gapft_harness.training.plan import budget
from tests.plugins.test_replacing_replay import chosen
from tests.pools import evidence
from tests.training.examples import settings

LETTERS = st.lists(st.sampled_from("ABC"), min_size=1, max_size=20)
SEEDS = st.sampled_from([13, 21, 73])


def failure(number: int, state: Any, letter: str, text: str = "", gold: Any = None) -> Evidence:
    """Its response says the letter in one of several forms, of different lengths."""
    found = evidence(f"{state}{number:02}", state, 1, number % 8)
    gold = {"answer": letter, "options": [f"option of {number}"]} if gold is None else gold
    if found.response is None:
        return replace(found, gold=gold, prompt_ids=(9, number))
    text = text or (letter, f"{letter}.", f"({letter})")[number % 3]
    response = replace(found.response, text=text, token_ids=tuple(text.encode()))
    return replace(found, gold=gold, response=response, prompt_ids=(9, number))


def pool(recovered: str | list[str], missed: str | list[str], solved: int = 2) -> Pool:
    found = [failure(i, "S", letter) for i, letter in enumerate(recovered)]
    found += [failure(i, "U", letter) for i, letter in enumerate(missed)]
    return group_by_state([*found, *(evidence(f"G{i}", "G") for i in range(solved))])


def letter(of: Evidence) -> str:
    return str(of.gold["answer"])


@given(LETTERS, LETTERS, st.integers(0, 2), SEEDS, st.data())
def test_targets_classes_and_budget_are_gapfts_and_problems_are_source_failures(
    recovered: list[str], missed: list[str], replay: int, seed: int, data: st.DataObject
) -> None:
    of = pool(recovered, missed)
    n = data.draw(st.integers(1, len(recovered)))
    gapft, gold = (chosen(of, name, n, seed, replay) for name in ("gapft", "gold_labels"))
    own = gold[:n]
    assert [e.response for e in gold] == [e.response for e in gapft], "slot by slot"
    assert gold[n:] == gapft[n:], "the replay that both share"
    assert Counter(map(letter, own)) == Counter(map(letter, gapft[:n]))
    assert len({e.problem_id for e in own}) == n
    assert {e.state for e in own} <= {"S", "U"}
    known = {e.problem_id: e for e in (*of.recovered, *of.missed)}
    for e in own:
        assert replace(e, response=known[e.problem_id].response) == known[e.problem_id]
        assert e.response is not None
        assert letter(known[e.response.problem_id]) == letter(e)
    examples = [[build_example(e) for e in one] for one in (gapft, gold)]
    assert [e.origin for e in examples[1][:n]] == [e.problem_id for e in gapft[:n]]
    told = settings(max_length=64)
    one, other = (budget(es, told) for es in examples)
    assert one.supervised_tokens == other.supervised_tokens
    assert (one.n, one.exposures, one.steps) == (other.n, other.exposures, other.steps)
    golds = {i: e.gold for i, e in known.items()} | {f"G{i}": "A" for i in range(2)}
    assert list(find_differences(*examples, golds, told)) == []


def test_every_failure_of_a_class_is_as_likely_and_no_class_lends_to_another() -> None:
    """4 of 12 of class A under 1,500 seeds: 500 of each, within 5 standard deviations of 19."""
    of = pool("AAAAB", "A" * 8 + "BC")
    counts: Counter[str] = Counter()
    for seed in range(1500):
        counts.update(e.problem_id for e in chosen(of, "gold_labels", 5, seed))
    class_a = [e.problem_id for e in (*of.recovered, *of.missed) if letter(e) == "A"]
    assert all(abs(counts[i] - 500) < 5 * 19 for i in class_a), counts
    assert counts["S04"] + counts["U08"] == 1500
    assert "U09" not in counts, "GapFT has no problem of class C"


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("A, since all men are mortal", None, "no target of GapFT is the answer alone"),
        ("B", None, "problem S00 it is 'B'"),
        ("", [1, 2], r"gold answer of problem S00 is \[1, 2\]; expected a text or a number"),
        ("A", {"right": "A"}, "expected a text or a number, or a mapping with one under 'answer'"),
        ("A", "", "the gold answer of problem S00 is ''"),
    ],
)
def test_what_cannot_be_given_to_another_problem_is_refused(
    text: str, gold: Any, expected: str
) -> None:
    of = group_by_state([failure(0, "S", "A", text, gold), failure(1, "U", "A")])
    with pytest.raises(UserError, match=expected):
        chosen(of, "gold_labels", 1, 13)


@given(st.lists(st.tuples(st.sampled_from("AB"), st.booleans()), min_size=1, max_size=12), SEEDS)
def test_a_slot_whose_target_says_more_keeps_gapfts_own_example(
    targets: list[tuple[str, bool]], seed: int
) -> None:
    """The others are exchanged; both sets keep the same targets, classes and budget."""
    texts = [f"{letter}, for a reason" if more else f"{letter}." for letter, more in targets]
    found = [
        failure(i, "S", letter, text)
        for i, ((letter, _), text) in enumerate(zip(targets, texts, strict=True))
    ]
    of = group_by_state([*found, *(failure(i, "U", letter) for i, letter in enumerate("AABB"))])
    says_more = {e.problem_id for e, (_, more) in zip(found, targets, strict=True) if more}
    n = len(found)
    if len(says_more) == n:
        with pytest.raises(UserError, match="no target of GapFT is the answer alone"):
            chosen(of, "gold_labels", n, seed)
        return
    gapft, gold = (chosen(of, name, n, seed) for name in ("gapft", "gold_labels"))
    for own, other in zip(gapft, gold, strict=True):
        if own.problem_id in says_more:
            assert other == own
        else:
            assert other.problem_id not in says_more
        assert other.response == own.response
    assert len({e.problem_id for e in gold}) == n
    examples = [[build_example(e) for e in one] for one in (gapft, gold)]
    golds = {e.problem_id: e.gold for e in (*of.recovered, *of.missed)}
    assert list(find_differences(*examples, golds, settings(max_length=64))) == []


def test_any_verified_response_to_the_same_answer_if_that_is_asked_for() -> None:
    of = group_by_state([failure(0, "S", "4", "2+2=4; 4", 4), failure(1, "U", "4", gold="4")])
    taken = {chosen(of, "gold_labels", 1, s, answer_only=False)[0].problem_id for s in range(9)}
    assert taken == {"S00", "U01"}


def changed(examples: list[Example], **fields: Any) -> list[Example]:
    return [replace(examples[0], **fields), *examples[1:]]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_ids": (65, 66)}, "differ in 1 of 3 target strings"),
        ({"ended": False}, "differ in supervised_tokens: 9 and 8"),
        ({"problem_id": "U02"}, "have 3 and 2 problems of the gold answer A"),
        ({"origin": "U00"}, "have a target that GapFT does not have"),
    ],
)
def test_two_training_sets_that_do_not_agree_are_told_apart(
    fields: dict[str, Any], expected: str
) -> None:
    of = pool("AAA", "AAC")
    gapft, gold = (
        [build_example(e) for e in chosen(of, name, 3, 13)] for name in ("gapft", "gold_labels")
    )
    golds = {e.problem_id: e.gold for e in (*of.recovered, *of.missed)}
    assert list(find_differences(gapft, gold, golds, settings())) == []
    found = list(find_differences(gapft, changed(gold, **fields), golds, settings()))
    assert any(line.startswith(expected) for line in found), found


def test_a_sequence_that_loses_its_end_breaks_the_match() -> None:
    """A longer prompt leaves less room for the same target."""
    of = group_by_state(
        [
            replace(failure(0, "S", "A", "A."), prompt_ids=(1,)),
            *(replace(failure(i, "U", "A"), prompt_ids=(1,) * 5) for i in range(20)),
        ]
    )
    gapft, gold = (
        [build_example(e) for e in chosen(of, name, 1, 13)] for name in ("gapft", "gold_labels")
    )
    golds = {e.problem_id: e.gold for e in (*of.recovered, *of.missed)}
    short = settings(max_length=6, too_long="truncate")
    assert gold[0].state == "U"
    assert "differ in supervised_tokens: 3 and 1" in list(
        find_differences(gapft, gold, golds, short)
    )
