"""Selectors declare what they use besides kept responses, and that they repeat problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import Arm, Evidence
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.stages.selection.choosing import run_selector
from tests.kit.searched_pool import build_searched_pool, plain_outcome

#: A recovered problem, of which samples 1 and 2 passed and 1 is kept, and a solved one.
SEARCHED = build_searched_pool([plain_outcome("S"), plain_outcome("G")])
SOLVED, RECOVERED = SEARCHED.evidence
FAILED, KEPT, OTHER = (SEARCHED.judged[RECOVERED.problem_id, index][0] for index in range(3))
BORROWED = SOLVED.response


@pytest.mark.parametrize(
    ("change", "responses", "is_refused"),
    [
        ({"response": KEPT}, "kept", False),
        ({"response": OTHER}, "kept", True),
        ({"response": OTHER}, "verified", False),
        ({"response": OTHER, "prompt_ids": (9,)}, "verified", True),
        ({"response": FAILED}, "verified", True),
        ({"response": BORROWED}, "verified", True),
        ({"response": OTHER}, "borrowed", False),
        ({"response": BORROWED}, "borrowed", False),
        ({"response": BORROWED, "prompt_ids": (9,)}, "borrowed", True),
        ({"response": replace(FAILED, problem_id=SOLVED.problem_id)}, "borrowed", True),
    ],
)
def test_using_another_response_must_be_declared(
    change: dict[str, Any], responses: Any, is_refused: bool
) -> None:
    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [replace(RECOVERED, **change)]

    entry = Registration("selector", "mine", "mine.py", select, SelectorTraits(responses=responses))
    if is_refused:
        with pytest.raises(PluginError, match=RECOVERED.problem_id):
            run_selector(select, entry, SEARCHED.pool, 1, Arm("mine", 13))
    else:
        chosen = run_selector(select, entry, SEARCHED.pool, 1, Arm("mine", 13))
        assert chosen == select(None, 1, None)


@pytest.mark.parametrize("repeats", [False, True])
def test_repeats_must_be_declared(repeats: bool) -> None:
    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [RECOVERED] * n

    entry = Registration("selector", "mine", "mine.py", select, SelectorTraits(repeats=repeats))
    if repeats:
        assert len(run_selector(select, entry, SEARCHED.pool, 2, Arm("mine", 13))) == 2
    else:
        with pytest.raises(PluginError, match=RECOVERED.problem_id):
            run_selector(select, entry, SEARCHED.pool, 2, Arm("mine", 13))
