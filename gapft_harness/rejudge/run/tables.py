"""A run's tables of responses, written elsewhere with the verdicts of another rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import CONTEXT, Gold
from gapft_harness.hooks.manager import Registered
from gapft_harness.recipe.sections import Search
from gapft_harness.rejudge.flips import Flip, Flips, shown
from gapft_harness.rejudge.judge import AT_ONCE, Judge, ahead
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import (
    ProblemState,
    read_judged,
    read_problems,
    sealed_status,
    write_states,
)
from gapft_harness.stages.search.states import Window, state_row
from gapft_harness.verification.judging import BEYOND_CONTEXT, VerdictAndAnswer
from gapft_harness.verification.reasons import Reasons

if TYPE_CHECKING:
    import pyarrow as pa

#: The columns that are read; what else a table has is copied as it is.
_READ = ["problem_id", "index", "text", "finish_reason", "status", "answer"]


@dataclass(slots=True)
class Tally:
    """One table's verdicts under both rules.

    Attributes:
        was_right: how many the run's rule passed.
        right_now: how many are right that were wrong.
        wrong_now: how many are wrong that were right.
    """

    responses: int = 0
    was_right: int = 0
    right_now: int = 0
    wrong_now: int = 0

    @property
    def is_right(self) -> int:
        """How many the new rule passes."""
        return self.was_right + self.right_now - self.wrong_now

    def counts(self) -> dict[str, int]:
        """All of it by name, in the order of every table."""
        names = ("responses", "was_right", "is_right", "right_now", "wrong_now")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Judges tables again and writes them."""

    judge: Judge
    flips: Flips
    reasons: Reasons

    def table(self, name: str, source: Path, problems: Path, path: Path) -> Tally:
        """Writes one table with new verdicts, answers and reasons; all else is as it was."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tally = Tally()
        with pq.ParquetFile(source) as file:
            schema = file.schema_arrow.remove_metadata()
            golds = _Golds(problems)
            read = (pa.Table.from_batches([of]) for of in file.iter_batches(batch_size=AT_ONCE))
            judged = (_judge(table, golds, self.judge) for table in read)
            batches = ahead(judged) if self.judge.by_processes else judged
            write_batches(
                path, schema, (self._taken_in(name, source, tally, *of) for of in batches)
            )
        return tally

    def _taken_in(
        self,
        name: str,
        source: Path,
        tally: Tally,
        table: pa.Table,
        rows: Mapping[str, list[Any]],
        found: list[tuple[VerdictAndAnswer, Gold]],
    ) -> pa.Table:
        for status in set(rows["status"]):
            sealed_status(status, source)
        told: set[tuple[str, str, bool]] = set()
        for i, ((verdict, answer), gold) in enumerate(found):
            was = rows["status"][i] == "pass"
            self.reasons.see(verdict)
            tally.was_right += was
            if was == verdict.passed:
                continue
            if verdict.passed:
                tally.right_now += 1
            else:
                tally.wrong_now += 1
            same = rows["problem_id"][i], rows["text"][i], verdict.passed
            self.flips.add(
                Flip(
                    *(name, rows["problem_id"][i], rows["index"][i], verdict.passed),
                    *(rows["answer"][i], answer),
                    *(verdict.reason, shown(gold), rows["text"][i]),
                ),
                repeated=same in told,
            )
            told.add(same)
        import pyarrow as pa

        tally.responses += len(found)
        new = {
            "status": [verdict.status for (verdict, _), _ in found],
            "reason": [verdict.reason for (verdict, _), _ in found],
            "answer": [answer for (_, answer), _ in found],
        }
        for column, values in new.items():
            place = table.schema.get_field_index(column)
            of = table.schema.field(place)
            table = table.set_column(place, of, pa.array(values, of.type))
        return table


class _Golds:
    """The gold answers of a table's rows, which are ordered by problem as the problems are."""

    def __init__(self, path: Path) -> None:
        self._path, self._rest = path, read_problems(path)
        self._at: tuple[str, Gold] | None = None

    def of(self, problem_id: str) -> Gold:
        """One problem's, at or after that of the last call."""
        while self._at is None or self._at[0] != problem_id:
            problem, _ = next(self._rest, (None, ()))
            if problem is None:
                raise GapftError(f"{self._path}: lacks problem {problem_id} at its place")
            self._at = problem.id, problem.gold
        return self._at[1]


def _judge(
    table: pa.Table, golds: _Golds, judge: Judge
) -> tuple[pa.Table, dict[str, list[Any]], list[tuple[VerdictAndAnswer, Gold]]]:
    rows = table.select(_READ).to_pydict()
    wanted = [golds.of(problem_id) for problem_id in rows["problem_id"]]
    written = [i for i, finish in enumerate(rows["finish_reason"]) if finish != CONTEXT]
    judged = judge.judge([rows["text"][i] for i in written], [wanted[i] for i in written])
    found: list[VerdictAndAnswer] = [(BEYOND_CONTEXT, None)] * len(wanted)
    for i, one in zip(written, judged, strict=True):
        found[i] = one
    return table, rows, list(zip(found, wanted, strict=True))


def require_golds(judge: Judge, problems: Path) -> None:
    """Holds a split's gold answers to what the new rule takes.

    Raises:
        UserError: it does not take one; the message names the problem.
    """
    golds = ((of.gold, f"{problems}, problem {of.id}") for of, _ in read_problems(problems))
    judge.check(
        golds,
        f"(verifier {judge.rule}); name a verifier that takes the gold answers which the run's own "
        "takes",
    )


def rewrite_states(
    responses: Path,
    path: Path,
    search: Search,
    rule: Registered,
    window: Window | None = None,
) -> tuple[list[ProblemState], int]:
    """Writes the states that new verdicts give, by the samples of the window alone if there is one.

    Returns:
        The states, and how many problems are in U although search stopped before its K samples:
        at a success that is none any more. Further samples might have recovered them.
    """
    found, stopped = [], 0
    for problem_id, judged in read_judged(responses):
        drawn = len(judged) - 1
        state = state_row(problem_id, judged, drawn, False, rule, window)
        stopped += state.state == "U" and drawn < search.k
        found.append(state)
    write_states(path, found, dict)
    return found, stopped
