"""Find the problems of a split by keys in files, and record which responses were read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Problem
from gapft_harness.importing.rows import ImportedResponse
from gapft_harness.verdicts.sample_logs import digest, value_at


class Problems:
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
        self._problems, self._split, self._on = problems, split, on
        self._found: dict[str, dict[str | bytes, list[Problem]]] = {}
        # a log's documents also have fields that the task does not keep in its problems
        self._fields = dict.fromkeys(name for problem in problems for name in problem.document)

    def find(self, row: ImportedResponse) -> Problem | None:
        """Find the problem that a row answers; None if the split does not have it.

        Raises:
            UserError: several problems match, or a document does not have the field to join by.
        """
        by, value = row.key
        if by not in self._found:
            self._found[by] = self._by(by)
        key = self._content(value, 0, row.place) if by == "doc" else value
        found = self._found[by].get(key, [])
        if len(found) > 1:
            raise UserError(
                f"{row.place}: {len(found)} problems of the {self._split} have this {by} "
                f"({found[0].id}, {found[1].id}); use plain JSON lines with the problem's id"
            )
        return found[0] if found else None

    def unknown(self, row: ImportedResponse) -> UserError:
        """Build the error for a row whose problem is not in the split."""
        by, value = row.key
        told = ""
        if by == "id":
            told = f" {value!r:.80}; the first id of the split is {self._problems[0].id!r}"
        elif by == "doc" and not self._on:
            told = f" (compared: {', '.join(self._fields)}; --on FIELD compares only some fields)"
        return UserError(
            f"{row.place}: the task's {self._split} has no problem with this {by}{told}. Check "
            "--split and the limits of the task, or leave such responses out (--ignore-unknown)"
        )

    def _by(self, by: str) -> dict[str | bytes, list[Problem]]:
        found: dict[str | bytes, list[Problem]] = {}
        for problem in self._problems:
            key: str | bytes = problem.id if by == "id" else problem.prompt
            if by == "doc":
                # lm_eval's logs write values without a JSON type in the same way
                whole = json.loads(json.dumps(dict(problem.document), default=str))
                where = f"--on ROW_FIELD=TASK_FIELD: problem {problem.id} of the task"
                key = self._content(whole, 1, where)
            found.setdefault(key, []).append(problem)
        return found

    def _content(self, document: dict[str, Any], side: int, place: str) -> bytes:
        """Hash the identifying fields of a document of a row (side 0) or of the task (side 1)."""
        if self._on:
            values = {pair[1]: value_at(document, pair[side], place) for pair in self._on}
        else:
            values = {name: document.get(name) for name in self._fields}
        return digest(values)


class Seen:
    """The places of each problem's responses: file and line by index, greedy first."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Start without responses.

        Args:
            paths: the files.
        """
        self._paths = paths
        self._places: dict[str, array[int]] = {}

    def add(self, problem: Problem, index: int, file: int, row: ImportedResponse) -> None:
        """Add one response.

        Raises:
            UserError: the response was already added.
        """
        places = self._places.setdefault(problem.id, array("q", [0]))
        slot = index - GREEDY
        if slot >= len(places):
            places.extend([0] * (slot + 1 - len(places)))
        if places[slot]:
            what = "greedy response" if index == GREEDY else f"sample {index}"
            raise UserError(
                f"{row.place}: found the {what} of problem {problem.id} again, first in "
                f"{self._told(places[slot])}; expected every response once"
            )
        places[slot] = row.line * len(self._paths) + file

    def count(self, problems: Sequence[Problem], before: int, what: str) -> int:
        """Count the samples of each problem after the first ``earlier_samples`` ones.

        Raises:
            UserError: a problem has no samples, a gap in their numbers, or a different count.
        """
        lengths: dict[int, Problem] = {}
        lacking = []
        for problem in problems:
            places = self._places.get(problem.id, array("q"))[1 + before :]
            if not places:
                lacking.append(problem.id)
                continue
            if 0 in places:
                raise UserError(
                    f"{what}: sample {before + places.index(0)} of problem {problem.id} is "
                    f"missing, but sample {before + len(places) - 1} exists "
                    f"({self._told(places[-1])}); expected all numbers from 0"
                )
            lengths.setdefault(len(places), problem)
        if lacking and lengths:
            raise _lacks(what, "no sample", lacking, problems)
        if len(lengths) > 1:
            few, many = min(lengths), max(lengths)
            last = self._places[lengths[few].id][-1]
            raise UserError(
                f"{what}: problem {lengths[few].id} has {few} samples (the last: "
                f"{self._told(last)}), but problem {lengths[many].id} has {many}; expected the "
                "same number for each problem"
            )
        return next(iter(lengths), 0)

    def require_greedy(self, problems: Sequence[Problem], what: str) -> None:
        """Check that every problem has a greedy response.

        Raises:
            UserError: a problem has none.
        """
        lacking = [p.id for p in problems if not self._places.get(p.id, [0])[0]]
        if len(lacking) == len(problems):
            raise UserError(
                f"{what}: found no greedy response. States need them: G is solved by one greedy "
                "decode, S and U are not. Give a file of greedy responses: --greedy FILE"
            )
        if lacking:
            raise _lacks(what, "no greedy response", lacking, problems)

    def _told(self, place: int) -> str:
        line, file = divmod(place, len(self._paths))
        return f"{self._paths[file]}, line {line}"


def _lacks(what: str, none: str, lacking: Sequence[str], problems: Sequence[Problem]) -> UserError:
    return UserError(
        f"{what}: {none} for {len(lacking)} of {len(problems)} problems, first: {lacking[0]}; "
        "expected all problems of the split; use --task for a task with other problems"
    )
