"""Every table returns the records that were written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import (
    GREEDY,
    STATUSES,
    Attempt,
    Response,
    Verdict,
)
from gapft_harness.run_directory.parquet import Values, write_batches
from gapft_harness.run_directory.tables import (
    JudgedResponse,
    build_response_row,
    read_judged,
    response_schema,
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


def build_rows(responses: list[JudgedResponse]) -> list[Values]:
    return [
        build_response_row(response.response, response.verdict, response.answer)
        for response in responses
    ]


@given(st.lists(judged, max_size=6))
def test_responses_survive_a_round_trip(
    tmp_path_factory: Any, responses: list[JudgedResponse]
) -> None:
    path = tmp_path_factory.mktemp("table") / "responses.parquet"
    responses = sorted(responses, key=lambda response: response.response.problem_id)
    write_batches(path, response_schema(), [build_rows(responses)])
    read_responses = [response for _, of_problem in read_judged(path) for response in of_problem]
    assert read_responses == responses
