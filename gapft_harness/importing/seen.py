"""Which responses of which problems files hold: each once, and as many of each problem."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Problem
from gapft_harness.importing.rows import ImportedResponse


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
