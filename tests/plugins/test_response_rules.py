"""The paper's response rules against their definitions (Section 3.3)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Response
from gapft_harness.plugins.response_rules.paper_rules import first, shortest


def build_response(index: int, tokens: int, text: str = "t") -> Response:
    return Response("p", index, text, tuple(range(tokens)), "stop", 0)


#: Passing samples of one problem: distinct sample numbers in any order, lengths that often tie.
PASSING = st.lists(
    st.builds(build_response, st.integers(0, 15), st.integers(1, 5)),
    min_size=1,
    max_size=10,
    unique_by=lambda r: r.index,
)


@given(PASSING, st.data())
def test_rules_choose_by_tokens_and_sample_number(
    passing: list[Response], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(passing))
    assert first(shuffled) == min(passing, key=lambda r: r.index)
    assert shortest(shuffled) == min(passing, key=lambda r: (len(r.token_ids), r.index))


def test_shortest_requires_token_ids() -> None:
    blind = dataclasses.replace(build_response(1, 0), tokens_from="none")
    with pytest.raises(UserError, match=r"evidence\.keep"):
        shortest([build_response(0, 3), blind])
    assert first([build_response(2, 0), blind]) == blind
