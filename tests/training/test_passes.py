"""Cutting a step into forward passes: nothing lost, nothing twice, nothing too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.recipe.sections import Training
from gapft_harness.training.passes import Member, cut_step, cut_step_evenly
from gapft_harness.training.plan import TrainingSequence

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=24)


def fitted(lengths: list[int]) -> list[TrainingSequence]:
    return [TrainingSequence(f"p{i}", (1,), (5,) * n, False, False) for i, n in enumerate(lengths)]


def tokens(part: list[Member]) -> int:
    return sum(member.sequence.tokens for member in part)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_every_member_is_in_one_pass_of_one_share_with_its_weight(
    lengths: list[int], micro_batch: int, shares: int, padding_free: bool
) -> None:
    settings = Training(
        micro_batch=micro_batch, padding_free=padding_free, max_length=100, max_tokens=100
    )
    members = fitted(lengths)
    weights = [float(i) for i in range(len(members))]
    parts = [
        part
        for share in range(shares)
        for part in cut_step(members, weights, settings, share, shares)
    ]
    found = sorted((m.sequence.slot, m.weight) for part in parts for m in part)
    assert found == sorted((s.slot, w) for s, w in zip(members, weights, strict=True))
    for part in parts:
        assert part, "no empty pass"
        assert tokens(part) <= 100 if padding_free else len(part) <= micro_batch
        assert [m.sequence.tokens for m in part] == sorted(m.sequence.tokens for m in part)


@given(LENGTHS, st.randoms())
def test_the_order_of_members_changes_nothing(lengths: list[int], random: object) -> None:
    members = fitted(lengths)
    shuffled = members.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for padding_free in (False, True):
        settings = Training(padding_free=padding_free, max_length=100, max_tokens=100)
        ones = [1.0] * len(members)
        assert cut_step(members, ones, settings) == cut_step(shuffled, ones, settings)


@given(st.lists(st.integers(1, 60), min_size=4, max_size=24), st.integers(2, 4))
def test_shares_differ_by_no_more_than_the_longest_sequence(
    lengths: list[int], shares: int
) -> None:
    settings = Training(padding_free=True)
    members = fitted(lengths)
    loads = [
        sum(map(tokens, cut_step(members, [1.0] * len(members), settings, share, shares)))
        for share in range(shares)
    ]
    assert max(loads) - min(loads) <= max(m.tokens for m in members)


def test_without_padding_a_step_that_fits_is_one_pass() -> None:
    settings = Training(padding_free=True, max_length=100, max_tokens=100)
    (part,) = cut_step(fitted([9] * 10), [1.0] * 10, settings)
    assert tokens(part) == 100
    assert [tokens(p) for p in cut_step(fitted([9] * 11), [1.0] * 11, settings)] == [60, 50]


def test_a_ceiling_below_one_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_tokens is 50.*60"):
        Training(padding_free=True, max_tokens=50, max_length=60)


@given(LENGTHS, st.integers(1, 5), st.integers(2, 4), st.booleans())
def test_cut_alike_adds_passes_that_weigh_nothing(
    lengths: list[int], micro_batch: int, shares: int, padding_free: bool
) -> None:
    settings = Training(
        micro_batch=micro_batch, padding_free=padding_free, max_length=100, max_tokens=100
    )
    members, weights = fitted(lengths), [1.0] * len(lengths)
    counts = set()
    for share in range(shares):
        alike = cut_step_evenly(members, weights, settings, share, shares)
        own = cut_step(members, weights, settings, share, shares)
        assert alike[: len(own)] == own
        assert all(len(part) == 1 and part[0].weight == 0 for part in alike[len(own) :])
        counts.add(len(alike))
    assert len(counts) == 1, "all processes compute together"
    assert min(counts) > 0


def test_where_no_ceiling_is_named_a_cpu_takes_fewer_tokens_a_pass_than_a_gpu() -> None:
    settings, members = Training(padding_free=True), fitted([299] * 16)
    assert [tokens(p) for p in cut_step(members, [1.0] * 16, settings, device="cuda")] == [4800]
    on_cpu = [tokens(p) for p in cut_step(members, [1.0] * 16, settings, device="cpu")]
    assert sum(on_cpu) == 4800
    assert max(on_cpu) <= 1024
    (alone, *others) = sorted(
        map(tokens, cut_step(fitted([1999, 500, 500]), [1.0] * 3, settings, device="cpu")),
        reverse=True,
    )
    assert alone == 2000, "a longer sequence is a pass alone"
    assert sum(others) == 1002
