"""Join a split's tables into the evidence that selectors choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gapft_harness.core.records import Evidence, Response, Status
from gapft_harness.run_directory.tables import (
    parse_response,
    read_judged,
    read_problems,
    read_states,
    require_same_problem,
)

if TYPE_CHECKING:
    import pyarrow as pa


#: Row groups of the table that are kept in memory, each of about a thousand problems.
_MAX_GROUPS = 2


class PoolResponses:
    """Reads the responses of problems from a split's table when a selector asks for them.

    See ``Evidence.read_responses``. If problems are requested in the order of the pool, the table
    is read once; otherwise parts of it are read again.

    Args:
        path: the table of the split's responses.
        prompts: the prompt's token ids by problem id.
        conversation: whether an episode's last attempt is paired with the conversation that it
            answered, instead of the problem's prompt.
        k: the number of samples to use, the first ones; None for all.
    """

    def __init__(
        self,
        path: Path,
        prompts: Mapping[str, tuple[int, ...]],
        conversation: bool,
        k: int | None = None,
    ) -> None:
        self._path = path
        self._prompts = prompts
        self._conversation = conversation
        self._k = k
        self._group = lru_cache(maxsize=_MAX_GROUPS)(self._read_group)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only: a selector's worker processes read the table themselves."""
        return PoolResponses, (self._path, self._prompts, self._conversation, self._k)

    def read_responses(self, problem_id: str) -> Iterator[tuple[Response, tuple[int, ...], Status]]:
        """Yield the responses to a problem by index, each with its prompt and its status."""
        import pyarrow.compute as pc

        for number, (first, last) in enumerate(self._group_bounds):
            if first <= problem_id <= last:
                rows = self._group(number)
                for row in rows.filter(pc.equal(rows["problem_id"], problem_id)).to_pylist():
                    response = parse_response(row)
                    yield response, self.find_prompt(response), row["status"]

    def find_prompt(self, response: Response) -> tuple[int, ...]:
        """Return the token ids of the training prompt of a response."""
        context_ids = response.context_ids if self._conversation else ()
        return context_ids or self._prompts[response.problem_id]

    @cached_property
    def _group_bounds(self) -> list[tuple[str, str]]:
        """The first and last problem of each row group; the table is ordered by problem id."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path) as file:
            columns = [
                file.read_row_group(number, columns=["problem_id"])["problem_id"]
                for number in range(file.num_row_groups)
            ]
        return [(c[0].as_py(), c[-1].as_py()) if len(c) else ("", "") for c in columns]

    def _read_group(self, number: int) -> pa.Table:
        """Read a row group without samples after the first K."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path) as file:
            rows = file.read_row_group(number)
        return rows if self._k is None else rows.filter(pc.less(rows["index"], self._k))


def read_evidence(
    problems: Path,
    responses: Path,
    states: Path,
    context: Literal["conversation", "problem"] = "conversation",
    max_gen_toks: int | None = None,
    k: int | None = None,
) -> list[Evidence]:
    """Join a split's problems, responses and states into evidence, ordered by problem id.

    Args:
        problems: the split's table of problems.
        responses: the table of its responses.
        states: the table of its states.
        context: the prompt of an episode's final attempt: the conversation that it answered, or
            the problem's prompt alone.
        max_gen_toks: the length limit of the split's responses, in tokens; see
            ``Evidence.ended``.
        k: the number of samples that define the states, the first ones; None for all.

    Raises:
        GapftError: the tables have different problems.
    """
    evidence = []
    prompts: dict[str, tuple[int, ...]] = {}
    stored = PoolResponses(responses, prompts, context == "conversation", k)
    rows = zip(
        read_problems(problems),
        read_judged(responses),
        read_states(states),
        strict=True,
    )
    for (problem, prompt_ids), (judged_id, judged), state in rows:
        require_same_problem({problems: problem.id, responses: judged_id, states: state.problem_id})
        prompts[problem.id] = prompt_ids
        kept = next((j.response for j in judged if j.response.index == state.kept_index), None)
        evidence.append(
            Evidence(
                problem.id,
                state.state,
                kept,
                stored.find_prompt(kept) if kept else prompt_ids,
                state.passing_samples,
                state.first_success,
                problem.document,
                problem.gold,
                state.samples,
                max_gen_toks,
                stored.read_responses,
            )
        )
    return evidence
