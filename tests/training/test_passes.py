"""Division of a step into forward passes: complete, disjoint and within limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.recipe.sections import Training
from gapft_harness.training.passes import Member, cut_step
from gapft_harness.training.plan import TrainingSequence

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=24)


def build_sequences(lengths: list[int]) -> list[TrainingSequence]:
    return [TrainingSequence(f"p{i}", (1,), (5,) * n, False, False) for i, n in enumerate(lengths)]


def count_tokens(part: list[Member]) -> int:
    return sum(member.sequence.tokens for member in part)


@given(LENGTHS, st.integers(1, 5), st.booleans())
def test_each_member_is_in_one_pass(
    lengths: list[int], micro_batch: int, padding_free: bool
) -> None:
    settings = Training(
        micro_batch=micro_batch, padding_free=padding_free, max_length=100, max_tokens=100
    )
    members = build_sequences(lengths)
    weights = [float(i) for i in range(len(members))]
    parts = cut_step(members, weights, settings)
    weighted_slots = sorted((m.sequence.slot, m.weight) for part in parts for m in part)
    assert weighted_slots == sorted((s.slot, w) for s, w in zip(members, weights, strict=True))
    for part in parts:
        assert part, "no empty pass"
        assert count_tokens(part) <= 100 if padding_free else len(part) <= micro_batch
        assert [m.sequence.tokens for m in part] == sorted(m.sequence.tokens for m in part)
