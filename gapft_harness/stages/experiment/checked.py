"""What an experiment gives is checked where it enters; its mistakes are told by its plugin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from reprlib import repr as short
from typing import Any, get_args

from gapft_harness.hooks.checked import plain_facts
from gapft_harness.hooks.protocols import Job
from gapft_harness.hooks.registered import Registered
from gapft_harness.stages.experiment.protocol import Answered, Decodes

#: Methods that give a list, and of what.
_LISTS: Mapping[str, type] = {
    "conditions": str,
    "searched": str,
    "stale": str,
    "reads": str,
    "plan": str,
    "answered": Answered,
}
#: Methods that give a list of pairs: a name, and this.
_PAIRS: Mapping[str, Any] = {"audits": Job}
#: Methods that give one thing.
_ONE: Mapping[str, tuple[type, ...]] = {"decodes": (Decodes,)}


class Checked:
    """An experiment whose every answer is held to the contract."""

    lists, pairs, one = _LISTS, _PAIRS, _ONE

    def __init__(self, made: object, entry: Registered) -> None:
        self._made, self._entry = made, entry

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._made, name)
        if not callable(value) or isinstance(value, type):
            return value
        return partial(self._call, name, value)

    def _call(self, name: str, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with self._entry.blamed():
            found = method(*given, **named)
            if isinstance(found, Iterator):
                found = [*found]
        if fault := self._fault(name, found):
            raise self._entry.broke(f"gave {fault}", method)
        return self._taken(name, found, method)

    def _fault(self, name: str, found: Any) -> str:
        """What is wrong with what a method gave, or ``""``."""
        if name in self.lists:
            return _list_fault(found, self.lists[name])
        if name in self.pairs:
            return _pairs_fault(found, self.pairs[name])
        if name in self.one and not isinstance(found, self.one[name]):
            return f"{short(found)} as {name}, expected {self.one[name][0].__name__}"
        return ""

    def _taken(self, name: str, found: Any, method: Callable[..., Any]) -> Any:
        return self._part(found) if name == "part" and found is not None else found

    def _part(self, found: Any) -> Any:
        from gapft_harness.report.part import Part
        from gapft_harness.report.results import OWN_KEYS

        if not isinstance(found, Part):
            raise self._entry.broke(f"gave {short(found)} as its part, expected a Part", found)
        if found.name != self._entry.name or found.name in OWN_KEYS:
            taken = "which results.json has for another" if found.name in OWN_KEYS else "not so"
            raise self._entry.broke(
                f"names its part {found.name!r}, {taken}; expected {self._entry.name!r}", found
            )
        return CheckedPart(found, self._entry)


class CheckedPart(Checked):
    """Its part of the report, held to the contract in the same way."""

    def __init__(self, made: object, entry: Registered) -> None:
        from gapft_harness.report.part import Opening, Summary
        from gapft_harness.report.rendering.blocks import Section

        super().__init__(made, entry)
        nothing = type(None)
        self.lists = {"leads": str, "sections": Section}
        self.pairs = {"figures": Callable, "tables": Iterable}
        self.one = {
            "opening": (Opening, nothing),
            "summary": (Summary, nothing),
            "verdicts": (Mapping,),
        }

    def _taken(self, name: str, found: Any, method: Callable[..., Any]) -> Any:
        if name == "results" and found is not None:
            return plain_facts(self._entry, found, "an entry of results.json", method)
        if name == "sections":
            for fault in filter(None, (_block_fault(b) for s in found for b in s.blocks)):
                raise self._entry.broke(f"gave a section that holds {fault}", method)
        if name == "tables":
            with self._entry.blamed():
                found = [(file, iter([*rows])) for file, rows in found]
        if name == "figures":
            found = [(figure, partial(self._call, "draw", draw)) for figure, draw in found]
        pattern = {"tables": r"[\w-]+\.csv", "figures": r"[\w-]+"}.get(name, "")
        for each in found if pattern else ():
            if not re.fullmatch(pattern, each[0]):
                raise self._entry.broke(
                    f"names one of its {name} {each[0]!r}: no such name", method
                )
        return found


def _list_fault(found: Any, kind: type) -> str:
    if isinstance(found, str) or not isinstance(found, Iterable):
        return f"{short(found)}, expected a list of {kind.__name__}"
    wrong = [each for each in found if not isinstance(each, kind)]
    return f"{short(wrong[0])} in a list, expected {kind.__name__}" if wrong else ""


def _pairs_fault(found: Any, kind: Any) -> str:
    if isinstance(found, str) or not isinstance(found, Iterable):
        return f"{short(found)}, expected pairs of a name and a {kind.__name__}"
    for each in found:
        pair = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)
        if not pair or not isinstance(each[1], kind):
            return f"{short(each)} in a list, expected a name and a {kind.__name__}"
    return ""


def _block_fault(block: Any) -> str:
    """What is wrong with a block, or ``""``: renderers take texts alone."""
    from gapft_harness.report.rendering.blocks import Block, Table

    if not isinstance(block, get_args(Block)):
        return f"{short(block)}; expected a block such as Text or Table"
    if isinstance(block, Table):
        for row in (block.columns, *block.rows):
            if len(row) != len(block.columns):
                return f"a table with a row of {len(row)} cells, expected {len(block.columns)}"
            if wrong := [cell for cell in row if not isinstance(cell, str)]:
                return f"a table with the cell {short(wrong[0])}, expected text"
    return ""
