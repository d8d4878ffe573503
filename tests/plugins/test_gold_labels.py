"""Gold-label selection: its problems, its targets, and its agreement with GapFT."""

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
from tests.plugins.test_replacing_replay import select_examples
from tests.pools import build_evidence
from tests.training.examples import settings

LETTERS = st.lists(st.sampled_from("ABC"), min_size=1, max_size=20)
SEEDS = st.sampled_from([13, 21, 73])


def build_failure(
    number: int, state: Any, letter: str, text: str = "", gold: Any = None
) -> Evidence:
    """Build a failure whose response states the letter in one of several forms."""
    failure = build_evidence(f"{state}{number:02}", state, 1, number % 8)
    gold = {"answer": letter, "options": [f"option of {number}"]} if gold is None else gold
    if failure.response is None:
        return replace(failure, gold=gold, prompt_ids=(9, number))
    text = text or (letter, f"{letter}.", f"({letter})")[number % 3]
    response = replace(failure.response, text=text, token_ids=tuple(text.encode()))
    return replace(failure, gold=gold, response=response, prompt_ids=(9, number))


def build_pool(recovered: str | list[str], missed: str | list[str], solved: int = 2) -> Pool:
    failures = [build_failure(i, "S", letter) for i, letter in enumerate(recovered)]
    failures += [build_failure(i, "U", letter) for i, letter in enumerate(missed)]
    return group_by_state([*failures, *(build_evidence(f"G{i}", "G") for i in range(solved))])


def gold_letter(failure: Evidence) -> str:
    return str(failure.gold["answer"])


@given(LETTERS, LETTERS, st.integers(0, 2), SEEDS, st.data())
def test_keeps_gapft_targets_on_source_failures(
    recovered: list[str], missed: list[str], replay: int, seed: int, data: st.DataObject
) -> None:
    pool = build_pool(recovered, missed)
    n = data.draw(st.integers(1, len(recovered)))
    gapft, gold = (
        select_examples(pool, name, n, seed, replay) for name in ("gapft", "gold_labels")
    )
    own = gold[:n]
    assert [e.response for e in gold] == [e.response for e in gapft], "slot by slot"
    assert gold[n:] == gapft[n:], "the replay that both share"
    assert Counter(map(gold_letter, own)) == Counter(map(gold_letter, gapft[:n]))
    assert len({e.problem_id for e in own}) == n
    assert {e.state for e in own} <= {"S", "U"}
    failures = {e.problem_id: e for e in (*pool.recovered, *pool.missed)}
    for e in own:
        assert replace(e, response=failures[e.problem_id].response) == failures[e.problem_id]
        assert e.response is not None
        assert gold_letter(failures[e.response.problem_id]) == gold_letter(e)
    examples = [[build_example(e) for e in selection] for selection in (gapft, gold)]
    assert [e.origin for e in examples[1][:n]] == [e.problem_id for e in gapft[:n]]
    training = settings(max_length=64)
    gapft_budget, gold_budget = (budget(es, training) for es in examples)
    assert gapft_budget.supervised_tokens == gold_budget.supervised_tokens
    for field in ("n", "exposures", "steps"):
        assert getattr(gapft_budget, field) == getattr(gold_budget, field)
    golds = {i: e.gold for i, e in failures.items()} | {f"G{i}": "A" for i in range(2)}
    assert list(find_differences(*examples, golds, training)) == []


def test_draws_uniformly_within_each_class() -> None:
    """4 of 12 problems of class A, 1,500 seeds: 500 draws each, within 5 sd of 19."""
    pool = build_pool("AAAAB", "A" * 8 + "BC")
    counts: Counter[str] = Counter()
    for seed in range(1500):
        counts.update(e.problem_id for e in select_examples(pool, "gold_labels", 5, seed))
    class_a = [e.problem_id for e in (*pool.recovered, *pool.missed) if gold_letter(e) == "A"]
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
def test_rejects_targets_that_cannot_be_reassigned(text: str, gold: Any, expected: str) -> None:
    pool = group_by_state([build_failure(0, "S", "A", text, gold), build_failure(1, "U", "A")])
    with pytest.raises(UserError, match=expected):
        select_examples(pool, "gold_labels", 1, 13)


@given(st.lists(st.tuples(st.sampled_from("AB"), st.booleans()), min_size=1, max_size=12), SEEDS)
def test_longer_targets_keep_gapft_example(targets: list[tuple[str, bool]], seed: int) -> None:
    """Other slots are reassigned; both sets keep the same targets, classes and budget."""
    texts = [f"{letter}, for a reason" if more else f"{letter}." for letter, more in targets]
    failures = [
        build_failure(i, "S", letter, text)
        for i, ((letter, _), text) in enumerate(zip(targets, texts, strict=True))
    ]
    pool = group_by_state(
        [*failures, *(build_failure(i, "U", letter) for i, letter in enumerate("AABB"))]
    )
    says_more = {e.problem_id for e, (_, more) in zip(failures, targets, strict=True) if more}
    n = len(failures)
    if len(says_more) == n:
        with pytest.raises(UserError, match="no target of GapFT is the answer alone"):
            select_examples(pool, "gold_labels", n, seed)
        return
    gapft, gold = (select_examples(pool, name, n, seed) for name in ("gapft", "gold_labels"))
    for own, other in zip(gapft, gold, strict=True):
        if own.problem_id in says_more:
            assert other == own
        else:
            assert other.problem_id not in says_more
        assert other.response == own.response
    assert len({e.problem_id for e in gold}) == n
    examples = [[build_example(e) for e in selection] for selection in (gapft, gold)]
    golds = {e.problem_id: e.gold for e in (*pool.recovered, *pool.missed)}
    assert list(find_differences(*examples, golds, settings(max_length=64))) == []


def test_answer_only_false_allows_longer_responses() -> None:
    pool = group_by_state(
        [build_failure(0, "S", "4", "2+2=4; 4", 4), build_failure(1, "U", "4", gold="4")]
    )
    problems = {
        select_examples(pool, "gold_labels", 1, s, answer_only=False)[0].problem_id
        for s in range(9)
    }
    assert problems == {"S00", "U01"}


def change_first(examples: list[Example], **fields: Any) -> list[Example]:
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
def test_find_differences_reports_each_change(fields: dict[str, Any], expected: str) -> None:
    pool = build_pool("AAA", "AAC")
    gapft, gold = (
        [build_example(e) for e in select_examples(pool, name, 3, 13)]
        for name in ("gapft", "gold_labels")
    )
    golds = {e.problem_id: e.gold for e in (*pool.recovered, *pool.missed)}
    assert list(find_differences(gapft, gold, golds, settings())) == []
    differences = list(find_differences(gapft, change_first(gold, **fields), golds, settings()))
    assert any(line.startswith(expected) for line in differences), differences


def test_truncated_target_breaks_match() -> None:
    """A longer prompt leaves fewer tokens for the same target."""
    pool = group_by_state(
        [
            replace(build_failure(0, "S", "A", "A."), prompt_ids=(1,)),
            *(replace(build_failure(i, "U", "A"), prompt_ids=(1,) * 5) for i in range(20)),
        ]
    )
    gapft, gold = (
        [build_example(e) for e in select_examples(pool, name, 1, 13)]
        for name in ("gapft", "gold_labels")
    )
    golds = {e.problem_id: e.gold for e in (*pool.recovered, *pool.missed)}
    short = settings(max_length=6, too_long="truncate")
    assert gold[0].state == "U"
    assert "differ in supervised_tokens: 3 and 1" in list(
        find_differences(gapft, gold, golds, short)
    )
