"""Permitted differences of matched budgets; tests/laws has the laws of selectors and runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Arm, Budget
from gapft_harness.recipe.sections import BudgetChoice
from gapft_harness.stages.selection.budgets import (
    require_matched,
    require_similar_tokens,
)

BUDGET = Budget(4, 8, 32, 900, 100, 2)


def test_rejects_unmatched_budgets() -> None:
    a, b = Arm("a", 13), Arm("b", 13)
    require_matched({a: BUDGET, b: replace(BUDGET, tokens=950)})
    for key in ("n", "exposures", "steps"):
        other = replace(BUDGET, **{key: 99})
        with pytest.raises(GapftError, match=f"a-seed13.*b-seed13.*{key}"):
            require_matched({a: BUDGET, b: other})


#: Each limited count of a budget, and its key in the recipe.
LIMITS = {"supervised_tokens": "token_tolerance", "tokens": "position_tolerance"}


@pytest.mark.parametrize("field", [*LIMITS])
@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 300)), min_size=1, max_size=8),
    st.floats(0, 0.99),
)
def test_tokens_may_differ_by_the_tolerance_within_a_seed(
    field: str, token_counts: list[tuple[int, int]], tolerance: float
) -> None:
    key = LIMITS[field]
    choice = BudgetChoice.model_validate({key: tolerance})
    budgets = {
        Arm(f"c{i}", seed): replace(BUDGET, **{field: tokens})
        for i, (seed, tokens) in enumerate(token_counts)
    }
    fine = all(
        abs(x - y) / max(x, y) <= tolerance
        for s, x in token_counts
        for other, y in token_counts
        if s == other
    )
    if fine:
        require_similar_tokens(budgets, choice)
    else:
        with pytest.raises(UserError, match=rf"budget\.{key}"):
            require_similar_tokens(budgets, choice)
    require_similar_tokens(budgets, BudgetChoice())
