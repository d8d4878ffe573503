"""The problems of a split, found by what a file says of them: never by a row's number."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Problem
from gapft_harness.importing.rows import Choice, Row


class Problems:
    """The problems of a split by id, prompt and document."""

    def __init__(self, problems: Sequence[Problem], split: str, choice: Choice) -> None:
        self._problems, self._split, self._choice = problems, split, choice
        self._found: dict[str, dict[str | bytes, list[Problem]]] = {}

    def find(self, row: Row) -> Problem | None:
        """The problem that a row answers; None if there is none.

        Raises:
            UserError: there are several, or the documents lack the field to join by.
        """
        by, key = row.key
        if by not in self._found:
            self._found[by] = self._by(by)
        found = self._found[by].get(key, [])
        if len(found) > 1:
            raise UserError(
                f"{row.place}: {len(found)} problems of the {self._split} have this {by} "
                f"({found[0].id}, {found[1].id}); name the problem by its id, in plain JSON lines"
            )
        return found[0] if found else None

    def unknown(self, row: Row) -> UserError:
        """What is said of a row whose problem the split has not."""
        by, key = row.key
        hint = ""
        if by == "id":
            hint = f" ({did_you_mean(str(key), [p.id for p in self._problems[:5]])}, ...)"
        elif by == "doc" and not self._choice.on:
            hint = "; if a field differs, join by those that do not: --on FIELD"
        return UserError(
            f"{row.place}: answers no problem of the task's {self._split} by its {by}{hint}. Is it "
            "another split (--split), or was the task limited? --ignore-unknown leaves such "
            "responses out"
        )

    def _by(self, by: str) -> dict[str | bytes, list[Problem]]:
        found: dict[str | bytes, list[Problem]] = {}
        for problem in self._problems:
            found.setdefault(self._key(by, problem), []).append(problem)
        return found

    def _key(self, by: str, problem: Problem) -> str | bytes:
        if by == "doc":
            where = f"--on ROW_FIELD=TASK_FIELD: problem {problem.id} of the task"
            return self._choice.document_key(problem.document, where)
        return problem.id if by == "id" else problem.prompt
