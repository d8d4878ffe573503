"""Matched strata: a match is found exactly where there is one, and differs by one at most."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.strata import largest_difference, matched_counts
from gapft_harness.core.errors import PoolTooSmallError
from gapft_harness.core.streams import Stream

STREAM = Stream(13, "test")
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4))


def listed(counts):
    return [label for label, count in counts.items() for _ in range(count)]


@given(COUNTS, COUNTS)
@settings(max_examples=200, deadline=None)
def test_a_match_is_found_exactly_where_there_is_one(wanted, available):
    labels = sorted({*wanted, *available})
    size = sum(wanted.values())
    ranges = [
        [c for c in range(available.get(x, 0) + 1) if abs(c - wanted.get(x, 0)) <= 1]
        for x in labels
    ]
    possible = any(sum(counts) == size for counts in product(*ranges))
    if not possible:
        with pytest.raises(PoolTooSmallError):
            matched_counts(wanted, available, STREAM)
        return
    found = matched_counts(wanted, available, STREAM)
    assert sum(found.values()) == size
    assert all(0 < count <= available[label] for label, count in found.items())
    assert largest_difference(listed(wanted), listed(found)) <= 1
    if all(available.get(label, 0) >= count for label, count in wanted.items()):
        assert found == {label: count for label, count in wanted.items() if count}


def test_which_strata_give_one_more_is_drawn_and_the_order_of_keys_says_nothing():
    wanted = {("algebra", 1): 3, **{("geometry", level): 2 for level in range(1, 6)}}
    available = {("algebra", 1): 2, **{("geometry", level): 9 for level in range(1, 6)}}
    found = matched_counts(wanted, available, STREAM)
    turned = dict(reversed(available.items()))
    assert matched_counts(dict(reversed(wanted.items())), turned, STREAM) == found
    others = {
        tuple(sorted(matched_counts(wanted, available, Stream(seed, "test")).items()))
        for seed in range(30)
    }
    assert len(others) == 5


def test_what_cannot_be_matched_is_named():
    with pytest.raises(PoolTooSmallError, match=r"\(algebra: 1 of 3\)"):
        matched_counts({"algebra": 3, "geometry": 1}, {"algebra": 1, "geometry": 9}, STREAM)
    with pytest.raises(PoolTooSmallError, match="only 0 others have one to spare: 1 too few"):
        matched_counts({"algebra": 3}, {"algebra": 2}, STREAM)
    with pytest.raises(ValueError, match="fewer problems than 0"):
        matched_counts({"algebra": -1}, {}, STREAM)


def test_the_largest_difference_counts_strata_of_one_set_alone():
    assert largest_difference("aab", "abbbc") == 2
    assert largest_difference("", "") == 0
    assert largest_difference("abc", "cab") == 0
