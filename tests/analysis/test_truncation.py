"""Cut responses: parts of a change against their definition, and their laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.truncation import (
    Decodes,
    EndingChanges,
    compare_endings,
    summarize_endings,
)
from gapft_harness.core.records import FINISH_REASONS

DECODE = st.tuples(st.booleans(), st.sampled_from(FINISH_REASONS), st.integers(0, 30))
PAIRS = st.lists(st.tuples(DECODE, DECODE), max_size=30)


def build_decodes(rows: list[Any]) -> Decodes:
    return Decodes(
        np.array([row[0] for row in rows], dtype=np.bool_),
        np.array([row[1] for row in rows], dtype=np.str_),
        np.array([row[2] for row in rows], dtype=np.int64),
    )


def compare(pairs: list[Any]) -> EndingChanges:
    return compare_endings(*(build_decodes([pair[side] for pair in pairs]) for side in (0, 1)))


@given(PAIRS)
def test_parts_follow_their_definition_and_add_up(pairs: list[Any]) -> None:
    limit = stop_string = total = 0
    for (passed, ending, _), (passed_after, ending_after, _) in pairs:
        change = passed_after - passed
        total += change
        if change:
            cut, whole = (ending, ending_after) if change > 0 else (ending_after, ending)
            limit += change * (cut == "length" and whole in ("stop", "stop_string"))
            stop_string += change * (cut == "stop_string" and whole == "stop")
    changes = compare(pairs)
    assert (changes.limit, changes.stop_string) == (limit, stop_string)
    parts = (changes.limit, changes.stop_string, changes.other)
    assert sum(map(changes.share, parts)) == (Fraction(total, len(pairs)) if pairs else 0)


@given(PAIRS)
def test_reverse_comparison_has_opposite_parts(pairs: list[Any]) -> None:
    changes, reverse = compare(pairs), compare([pair[::-1] for pair in pairs])
    assert (changes.limit, changes.stop_string, changes.other) == (
        -reverse.limit, -reverse.stop_string, -reverse.other,
    )  # fmt: skip


@given(PAIRS, st.data())
def test_counts_do_not_depend_on_order_and_add_over_groups(pairs: list[Any], data: Any) -> None:
    shuffled = data.draw(st.permutations(pairs))
    assert compare(shuffled) == compare(pairs)
    size = data.draw(st.integers(0, len(pairs)))
    assert compare(pairs[:size]) + compare(pairs[size:]) == compare(pairs)
    before = [pair[0] for pair in pairs]
    summaries = [
        summarize_endings(build_decodes(part)) for part in (before[:size], before[size:], before)
    ]
    assert summaries[0] + summaries[1] == summaries[2]


@given(st.lists(DECODE, max_size=30))
def test_summary_matches_definition(rows: list[Any]) -> None:
    summary = summarize_endings(build_decodes(rows))
    complete = [passed for passed, ending, _ in rows if ending == "stop"]
    assert summary.limit == sum(ending == "length" for _, ending, _ in rows)
    assert summary.stop_string == sum(ending == "stop_string" for _, ending, _ in rows)
    assert summary.complete_accuracy == (
        Fraction(sum(complete), len(complete)) if complete else None
    )
    assert summary.mean_tokens == (
        Fraction(sum(row[2] for row in rows), len(rows)) if rows else None
    )


def test_unknown_lengths_stay_unknown() -> None:
    known = build_decodes([(True, "stop", 3)])
    unknown = Decodes(known.passed, known.endings)
    assert (summarize_endings(known) + summarize_endings(unknown)).mean_tokens is None
