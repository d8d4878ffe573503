"""Prompts of an online arm, and which groups are flat."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.recipe.sections import Grpo
from gapft_harness.training.groups import is_flat, plan_prompts


def test_flatness_ignores_rounding_of_mean() -> None:
    tenths = [0.1, 0.1, 0.1]
    assert sum(tenths) / 3 != 0.1
    assert is_flat(tenths)
    assert not is_flat([1.0, 1.0, 1.0 - 2**-53])


IDS = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=12, unique=True)


@given(IDS, st.integers(1, 20), st.integers(1, 5), st.randoms())
def test_prompts_repeat_only_after_full_pass(
    ids: list[str], updates: int, prompts: int, shuffler: Any
) -> None:
    settings = Grpo(prompts_per_update=prompts)
    plan = plan_prompts(ids, updates, settings, 13)
    assert len(plan) == updates * prompts
    for start in range(0, len(plan), len(ids)):
        one_pass = plan[start : start + len(ids)]
        assert len(set(one_pass)) == len(one_pass)
    shuffled = list(ids)
    shuffler.shuffle(shuffled)
    assert plan_prompts(shuffled, updates, settings, 13) == plan
