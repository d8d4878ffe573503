"""Selectors get a problem's verified responses, and declare what they use besides kept ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import Arm, Evidence, Response, Verdict
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.run_directory.evidence import PoolResponses
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import build_response_row, response_schema
from gapft_harness.stages.selection.choosing import run_selector
from tests.kit.searched_pool import build_searched_pool, plain_outcome
from tests.pools import build_evidence

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


def build_response(name: str, index: int) -> Response:
    return Response(name, index, f"text {index}", (index + 1, index + 2), "stop", 0)


def write_table(path: Path, passed: dict[str, list[bool]], in_group: int) -> None:
    """Write a table of greedy responses and samples, ``in_group`` problems per row group."""
    verdicts = (Verdict("fail"), Verdict("pass"))
    rows = {
        name: [
            build_response_row(build_response(name, i - 1), verdicts[p])
            for i, p in enumerate(outcomes)
        ]
        for name, outcomes in sorted(passed.items())
    }
    names = list(rows)
    groups = [names[at : at + in_group] for at in range(0, len(names), in_group)]
    write_batches(
        path, response_schema(), [[r for name in group for r in rows[name]] for group in groups]
    )


@given(
    st.dictionaries(
        st.text("ab~é", min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=1, max_size=4),
        max_size=12,
    ),
    st.integers(1, 5),
    st.data(),
)
def test_passing_responses_are_read_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    passed: dict[str, list[bool]],
    in_group: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("table") / "responses.parquet"
    write_table(path, passed, in_group)
    prompts = {name: (7, number) for number, name in enumerate(passed)}
    read = PoolResponses(path, prompts, conversation=True)
    for name in data.draw(st.permutations([*passed])):
        state = "G" if passed[name][0] else "S"
        problem = replace(build_evidence(name, state), read_verified=read.read_verified)
        right = [build_response(name, i - 1) for i, p in enumerate(passed[name]) if p]
        assert list(problem.verified) == right
        assert [e.prompt_ids for e in problem.each_verified()] == [prompts[name]] * len(right)
        assert {e.problem_id for e in problem.each_verified()} <= {name}
