"""The problems of a split, found by what a file says of them: never by a row's number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.importing.rows import ImportedResponse
from gapft_harness.verdicts.sample_logs import digest, value_at


class Problems:
    """The problems of a split by id, prompt and document."""

    def __init__(
        self, problems: Sequence[Problem], split: str, on: Sequence[Sequence[str]]
    ) -> None:
        """Takes them in.

        Args:
            problems: the problems.
            split: its name, for messages.
            on: pairs (field of a row's document, field of the task's) that make two documents the
                same; none: all fields of the task's.
        """
        self._problems, self._split, self._on = problems, split, on
        self._found: dict[str, dict[str | bytes, list[Problem]]] = {}
        # a log's documents have the fields that a task keeps from its problems, too
        self._fields = dict.fromkeys(name for problem in problems for name in problem.document)

    def find(self, row: ImportedResponse) -> Problem | None:
        """The problem that a row answers; None if there is none.

        Raises:
            UserError: there are several, or a document lacks the field to join by.
        """
        by, value = row.key
        if by not in self._found:
            self._found[by] = self._by(by)
        key = self._content(value, 0, row.place) if by == "doc" else value
        found = self._found[by].get(key, [])
        if len(found) > 1:
            raise UserError(
                f"{row.place}: {len(found)} problems of the {self._split} have this {by} "
                f"({found[0].id}, {found[1].id}); name the problem by its id, in plain JSON lines"
            )
        return found[0] if found else None

    def unknown(self, row: ImportedResponse) -> UserError:
        """What is said of a row whose problem the split has not."""
        by, value = row.key
        told = ""
        if by == "id":
            told = f" {value!r:.80}; the first of the task's is {self._problems[0].id!r}"
        elif by == "doc" and not self._on:
            told = f" (compared: {', '.join(self._fields)}; --on FIELD compares some alone)"
        return UserError(
            f"{row.place}: answers no problem of the task's {self._split} by its {by}{told}. Is it "
            "another split (--split), or is the task limited? --ignore-unknown leaves such "
            "responses out"
        )

    def _by(self, by: str) -> dict[str | bytes, list[Problem]]:
        found: dict[str | bytes, list[Problem]] = {}
        for problem in self._problems:
            key: str | bytes = problem.id if by == "id" else problem.prompt
            if by == "doc":
                # as lm_eval's logs spell what JSON has not
                whole = json.loads(json.dumps(dict(problem.document), default=str))
                where = f"--on ROW_FIELD=TASK_FIELD: problem {problem.id} of the task"
                key = self._content(whole, 1, where)
            found.setdefault(key, []).append(problem)
        return found

    def _content(self, document: dict[str, Any], side: int, place: str) -> bytes:
        """What makes documents the same, of a row's (side 0) or the task's (1)."""
        if self._on:
            values = {pair[1]: value_at(document, pair[side], place) for pair in self._on}
        else:
            values = {name: document.get(name) for name in self._fields}
        return digest(values)
