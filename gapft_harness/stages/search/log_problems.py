"""Find the problems of a split by keys in logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.outcomes.samples import find_field, hash_value
from gapft_harness.stages.search.log_responses import LoggedResponse


class ProblemIndex:
    """An index of a split's problems by id, prompt and document, never by row number."""

    def __init__(
        self, problems: Sequence[Problem], split: str, on: Sequence[Sequence[str]]
    ) -> None:
        """Create an index.

        Args:
            problems: the problems.
            split: the split's name, for messages.
            on: pairs (field of a row's document, field of the task's document) that identify a
                document; empty: all fields of the task's documents.
        """
        self._problems = problems
        self._split = split
        self._on = on
        self._index: dict[str, dict[str | bytes, list[Problem]]] = {}
        # a log's documents also have fields that the task does not keep in its problems
        self._fields = dict.fromkeys(name for problem in problems for name in problem.document)

    def find(self, row: LoggedResponse) -> Problem | None:
        """Find the problem that a row answers; None if the split does not have it.

        Raises:
            UserError: several problems match, or a document does not have the field to join by.
        """
        kind, value = row.key
        if kind not in self._index:
            self._index[kind] = self._build_index(kind)
        key = self._hash_document(value, 0, row.location) if kind == "doc" else value
        matches = self._index[kind].get(key, [])
        if len(matches) > 1:
            raise UserError(
                f"{row.location}: {len(matches)} problems of the {self._split} have this {kind} "
                f"({matches[0].id}, {matches[1].id}); use plain JSON lines with the problem's id"
            )
        return matches[0] if matches else None

    def unknown_problem_error(self, row: LoggedResponse) -> UserError:
        """Build the error for a row whose problem is not in the split."""
        kind, value = row.key
        details = ""
        if kind == "id":
            details = f" {value!r:.80}; the first id of the split is {self._problems[0].id!r}"
        elif kind == "doc" and not self._on:
            details = (
                f" (compared: {', '.join(self._fields)}; search.responses.on compares only some "
                "fields)"
            )
        return UserError(
            f"{row.location}: the task's {self._split} has no problem with this {kind}{details}. "
            "Check the split and the limits of the task, or leave such responses out "
            "(search.responses.ignore_unknown)"
        )

    def _build_index(self, kind: str) -> dict[str | bytes, list[Problem]]:
        index: dict[str | bytes, list[Problem]] = {}
        for problem in self._problems:
            key: str | bytes = problem.id if kind == "id" else problem.prompt
            if kind == "doc":
                # lm_eval's logs write values without a JSON type in the same way
                document = json.loads(json.dumps(dict(problem.document), default=str))
                location = f"search.responses.on: problem {problem.id} of the task"
                key = self._hash_document(document, 1, location)
            index.setdefault(key, []).append(problem)
        return index

    def _hash_document(self, document: dict[str, Any], side: int, location: str) -> bytes:
        """Hash the identifying fields of a document of a row (side 0) or of the task (side 1)."""
        if self._on:
            values = {pair[1]: find_field(document, pair[side], location) for pair in self._on}
        else:
            values = {name: document.get(name) for name in self._fields}
        return hash_value(values)
