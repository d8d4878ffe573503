"""Every sealed table gives back the records that were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import (
    GREEDY,
    STATUSES,
    Attempt,
    Budget,
    Example,
    Problem,
    Response,
    Verdict,
)
from gapft_harness.run_directory.parquet import Values, read_facts, write_batches
from gapft_harness.run_directory.tables import (
    JudgedResponse,
    ProblemState,
    build_response_row,
    read_examples,
    read_judged,
    read_problems,
    read_states,
    response_schema,
    write_examples,
    write_problems,
    write_states,
)

words = st.text(max_size=5)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
attempts = st.builds(Attempt, words, ids, st.sampled_from(["stop", "length"]), words)
judged = st.builds(
    JudgedResponse,
    st.builds(
        Response,
        problem_id=words,
        index=st.integers(GREEDY, 9),
        text=words,
        token_ids=ids,
        finish_reason=words,
        seed=st.integers(0, 2**31),
        tokens_from=words,
        attempts=st.lists(attempts, max_size=2).map(tuple),
        context_ids=ids,
    ),
    st.builds(Verdict, st.sampled_from(STATUSES), words),
    st.none() | words,
)


def rows(found: list[JudgedResponse]) -> list[Values]:
    return [build_response_row(each.response, each.verdict, each.answer) for each in found]


@given(st.lists(judged, max_size=6))
def test_responses_come_back_as_they_were(
    tmp_path_factory: Any, found: list[JudgedResponse]
) -> None:
    path = tmp_path_factory.mktemp("table") / "responses.parquet"
    found = sorted(found, key=lambda each: each.response.problem_id)
    write_batches(path, response_schema(), [rows(found)], lambda: {"verdicts": len(found)})
    read = [each for _, of_problem in read_judged(path) for each in of_problem]
    assert read == found
    assert read_facts(path) == {"verdicts": len(found)}


def test_batches_become_row_groups_and_only_one_is_asked_for_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "responses.parquet"
    asked: list[int] = []

    def batches() -> Any:
        for number in range(3):
            asked.append(number)
            yield rows(
                [JudgedResponse(Response(f"p{number}", 0, "", (), "stop", 0), Verdict("pass"))]
            )

    write_batches(path, response_schema(), batches(), lambda: {"batches": [*asked]})
    assert pq.ParquetFile(path).num_row_groups == 3
    assert read_facts(path) == {"batches": [0, 1, 2]}


def test_problems_come_back_ordered_by_id(tmp_path: Path) -> None:
    path = tmp_path / "problems.parquet"
    found = [Problem(name, f"prompt {name}", {"answer": name}, {"n": 1}) for name in "cab"]
    write_problems(path, found, lambda names: ((ord(name),) for name in names))
    expected = sorted(found, key=lambda problem: problem.id)
    assert list(read_problems(path)) == [(problem, (ord(problem.id),)) for problem in expected]


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "states.parquet"
    found = [
        ProblemState("a", "G", 8, 3, 0, GREEDY),
        ProblemState("b", "S", 8, 1, 7, 7),
        ProblemState("c", "U", 8, 0, None, None),
    ]
    write_states(path, iter(found), lambda: {"states": {"G": 1}})
    assert list(read_states(path)) == found
    assert read_facts(path) == {"states": {"G": 1}}


def test_a_selection_comes_back_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "selection.parquet"
    found = [
        Example("b", "S", (1, 2), (3,), 4, 4),
        Example("a", "G", (1,), (2, 3), GREEDY, None, ended=False),
    ]
    write_examples(path, found, Budget(2, 1, 2, 6, 3, 1))
    assert read_examples(path) == found
    assert read_facts(path)["n"] == 2
    assert pq.read_schema(path).names == [
        "problem_id", "state", "response_index", "first_success", "prompt_ids", "response_ids",
        "ended", "origin",
    ]  # fmt: skip
