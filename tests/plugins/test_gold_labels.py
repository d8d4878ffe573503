"""The check that a gold-label selection differs from GapFT in its problems alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.core.records import Evidence, Example, Pool
from gapft_harness.experiments.controls.gold import find_differences
from gapft_harness.stages.selection.choosing import build_example, group_by_state
from tests.kit.searched_pool import choose
from tests.pools import build_evidence
from tests.training.examples import settings


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


def build_pool(recovered: str, missed: str, solved: int = 2) -> Pool:
    failures = [build_failure(i, "S", letter) for i, letter in enumerate(recovered)]
    failures += [build_failure(i, "U", letter) for i, letter in enumerate(missed)]
    return group_by_state([*failures, *(build_evidence(f"G{i}", "G") for i in range(solved))])


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
        [build_example(e) for e in choose(pool, name, 3)] for name in ("gapft", "gold_labels")
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
        [build_example(e) for e in choose(pool, name, 1)] for name in ("gapft", "gold_labels")
    )
    golds = {e.problem_id: e.gold for e in (*pool.recovered, *pool.missed)}
    short = settings(max_length=6, too_long="truncate")
    assert gold[0].state == "U"
    assert "differ in supervised_tokens: 3 and 1" in list(
        find_differences(gapft, gold, golds, short)
    )
