"""Training examples that use another problem's verified response (the gold-label control)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import Arm, Evidence, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.stages.selection.choosing import build_example, run_selector
from tests.pools import build_evidence, build_pool, group_by_state


def register_selector(select: Any, **options: Any) -> Registration:
    return Registration("selector", "mine", "mine.py", select, SelectorTraits(**options))


def select_evidence(select: Any, source: Pool, n: int, **options: Any) -> list[Evidence]:
    return run_selector(select, register_selector(select, **options), source, n, Arm("mine", 13))


@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 8), st.data())
def test_borrowed_response_keeps_problem_and_prompt(
    solved: int, recovered: int, missed: int, data: st.DataObject
) -> None:
    source = build_pool(solved, recovered, missed)
    everyone = [*source.verified, *source.missed]
    borrowers = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique_by=id))
    lenders = [data.draw(st.sampled_from(source.verified)) for _ in borrowers]

    def lend(p: Pool, n: int, rng: Stream) -> list[Evidence]:
        pairs = zip(borrowers, lenders, strict=True)
        return [replace(borrower, response=lender.response) for borrower, lender in pairs]

    selected = select_evidence(lend, source, len(borrowers), responses="borrowed")
    for example, borrower, lender in zip(
        map(build_example, selected), borrowers, lenders, strict=True
    ):
        assert lender.response is not None
        assert (example.problem_id, example.state) == (borrower.problem_id, borrower.state)
        assert (example.origin, example.response_ids) == (
            lender.problem_id,
            lender.response.token_ids,
        )
        assert example.prompt_ids == borrower.prompt_ids


def borrow_response(e: Evidence, other: Evidence, **more: Any) -> Evidence:
    return replace(e, response=other.response, **more)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            lambda p, n, r: [borrow_response(p.missed[0], p.solved[0], prompt_ids=(7,))],
            "problem U000 changed in more than its response",
        ),
        (
            lambda p, n, r: [replace(p.missed[0], response=Response("x", 0, "", (1,), "stop", 0))],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (
            lambda p, n, r: [
                replace(p.missed[0], response=replace(p.solved[0].response, problem_id="S000"))
            ],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (
            lambda p, n, r: [replace(p.missed[0], response=replace(p.solved[0].response, seed=9))],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (lambda p, n, r: [p.missed[0]], "without a response to train on"),
    ],
)
def test_borrowed_response_must_be_verified_and_unchanged(select: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        select_evidence(select, build_pool(3, 3), 1, responses="borrowed")


def test_borrowed_response_keeps_its_end() -> None:
    source = group_by_state([build_evidence("a", "G"), build_evidence("b", "U")])
    assert source.solved[0].response is not None
    cut = replace(source.solved[0].response, finish_reason="length")
    assert build_example(replace(source.missed[0], response=cut)).ended is False
