"""The problems of a split, found by what files say of them; and which responses were met."""

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
    """The problems of a split by id, prompt and document: never by a row's number."""

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


class Seen:
    """Where each problem's responses were found: file and line by index, greedy first."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Begins with none of the files' responses."""
        self._paths = paths
        self._places: dict[str, array[int]] = {}

    def add(self, problem: Problem, index: int, file: int, row: ImportedResponse) -> None:
        """Takes in one response.

        Raises:
            UserError: it is there already.
        """
        places = self._places.setdefault(problem.id, array("q", [0]))
        slot = index - GREEDY
        if slot >= len(places):
            places.extend([0] * (slot + 1 - len(places)))
        if places[slot]:
            what = "greedy response" if index == GREEDY else f"sample {index}"
            raise UserError(
                f"{row.place}: the {what} of problem {problem.id} a second time, after "
                f"{self._told(places[slot])}; expected every response once"
            )
        places[slot] = row.line * len(self._paths) + file

    def count(self, problems: Sequence[Problem], before: int, what: str) -> int:
        """How many samples each problem has beyond those before.

        Raises:
            UserError: one has none, lacks one of its numbers, or has another number than others.
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
                    f"{what}: lacks sample {before + places.index(0)} of problem {problem.id}, of "
                    f"which it has sample {before + len(places) - 1} "
                    f"({self._told(places[-1])}); expected all from 0"
                )
            lengths.setdefault(len(places), problem)
        if lacking and lengths:
            raise _lacks(what, "no sample", lacking, problems)
        if len(lengths) > 1:
            few, many = min(lengths), max(lengths)
            last = self._places[lengths[few].id][-1]
            raise UserError(
                f"{what}: {few} samples of problem {lengths[few].id} (the last: "
                f"{self._told(last)}) where problem {lengths[many].id} has {many}; expected as "
                "many of each"
            )
        return next(iter(lengths), 0)

    def require_greedy(self, problems: Sequence[Problem], what: str) -> None:
        """Every problem has its greedy response.

        Raises:
            UserError: one has not.
        """
        lacking = [p.id for p in problems if not self._places.get(p.id, [0])[0]]
        if len(lacking) == len(problems):
            raise UserError(
                f"{what}: no greedy response, and without it no problem has a state: G is what one "
                "greedy decode solves, S and U are what it does not; give a file of greedy "
                "responses: --greedy FILE"
            )
        if lacking:
            raise _lacks(what, "no greedy response", lacking, problems)

    def _told(self, place: int) -> str:
        line, file = divmod(place, len(self._paths))
        return f"{self._paths[file]}, line {line}"


def _lacks(what: str, none: str, lacking: Sequence[str], problems: Sequence[Problem]) -> UserError:
    return UserError(
        f"{what}: {none} of {len(lacking)} of {len(problems)} problems, first: {lacking[0]}; "
        "expected all of the split; a task of other problems is named by --task"
    )
