"""Selectors can use all verified responses of a problem, which are read on demand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import GREEDY, Arm, Evidence, Response, Verdict
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.run_directory.evidence import PoolResponses
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import build_response_row, response_schema
from gapft_harness.stages.selection.choosing import group_by_state, run_selector
from tests.pools import build_evidence


def build_response(
    name: str, index: int, tokens: int = 2, context: tuple[int, ...] = ()
) -> Response:
    ids = tuple(range(index + 1, index + 1 + tokens))
    return Response(name, index, f"text {index}", ids, "stop", 0, context_ids=context)


def write_table(path: Path, passed: dict[str, list[bool]], in_group: int, tokens: int = 2) -> None:
    """Write a table of greedy responses and samples, ``in_group`` problems per row group."""
    verdicts = (Verdict("fail"), Verdict("pass"))
    rows = {
        name: [
            build_response_row(build_response(name, i - 1, tokens), verdicts[p])
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


def register_selector(**options: Any) -> Registration:
    return Registration("selector", "mine", "mine.py", lambda: None, SelectorTraits(**options))


OF_A, OF_B = build_response("a", 0), build_response("b", 0)
VERIFIED, BORROWED = {"responses": "verified"}, {"responses": "borrowed"}


@pytest.mark.parametrize(
    ("change", "options", "is_refused"),
    [
        ({}, {}, True),
        ({"prompt_ids": (9,)}, VERIFIED, True),
        ({"response": OF_A}, VERIFIED, True),
        ({"response": OF_B}, VERIFIED, True),
        ({"response": OF_B, "prompt_ids": (9,)}, BORROWED, True),
        ({"response": replace(OF_B, seed=9)}, BORROWED, True),
        ({}, VERIFIED, False),
        ({}, BORROWED, False),
        ({"response": OF_B}, BORROWED, False),
    ],
)
def test_using_another_response_must_be_declared(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], is_refused: bool
) -> None:
    """Samples 1 and 2 of "a" passed and 1 is kept; sample 0 of "b" passed, and greedy is kept."""
    write_table(tmp_path / "r.parquet", {"a": [False, False, True, True], "b": [True, True]}, 1)
    read = PoolResponses(tmp_path / "r.parquet", {"a": (1, 2, 3), "b": (1, 2, 3)}, True)
    kept_responses = {"a": build_response("a", 1), "b": build_response("b", GREEDY)}
    states = {"a": "S", "b": "G"}
    a, b = (
        replace(
            build_evidence(name, states[name]),
            response=kept_responses[name],
            read_verified=read.read_verified,
        )  # type: ignore[arg-type]
        for name in "ab"
    )
    other = replace(a, **{"response": build_response("a", 2), **change})

    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [other]

    def run_selection() -> list[Evidence]:
        return run_selector(
            select, register_selector(**options), group_by_state([a, b]), 1, Arm("mine", 13)
        )

    if is_refused:
        with pytest.raises(PluginError, match="problem a"):
            run_selection()
    else:
        assert run_selection() == [other]
