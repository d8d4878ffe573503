"""Load the registered experiments and those that a recipe requests.

The return values of an experiment are checked; its faults are reported with its plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, cast, get_args

from gapft_harness.core.errors import UnknownPluginError
from gapft_harness.hooks.checked import plain_facts
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import Registered
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Cost, Experiment
from gapft_harness.stages.experiment.steps import Step, View

if TYPE_CHECKING:
    from gapft_harness.report.part import Part


def every_experiment(plugins: Plugins) -> list[Experiment]:
    """Load all registered experiments, by name.

    Raises:
        PluginError: a plugin registers something else.
    """
    return [_made(entry) for entry in plugins.all() if entry.kind == "experiment"]


def experiments_of(context: Context) -> list[Experiment]:
    """Return the experiments of a run's recipe, by name; loaded once for a context."""
    if "experiments" not in context.made:
        context.made["experiments"] = asked(context.run.recipe, context.plugins)
    found: list[Experiment] = context.made["experiments"]
    return found


def asked(
    recipe: Recipe, plugins: Plugins, options: Mapping[str, str] | None = None
) -> list[Experiment]:
    """Load the experiments that a recipe requests, by name.

    Args:
        recipe: the recipe.
        plugins: the loaded plugins.
        options: dotted key -> the option of the command line that set it, for messages.

    Raises:
        UserError: an experiment is unknown, or has wrong settings.
    """
    for name in recipe.experiments:
        try:
            plugins.get("experiment", name)
        except UnknownPluginError as error:  # keeps its class: the run may know the plugin file
            error.args = (f"{error}; --plugin FILE loads an experiment from a file",)
            raise
    return [
        each for each in every_experiment(plugins) if each.settings(recipe, options) is not None
    ]


def parts(experiments: Iterable[Experiment]) -> list[Part]:
    """List the parts that experiments add to the report."""
    return [part for each in experiments if (part := each.part()) is not None]


def _made(entry: Registered) -> Experiment:
    with entry.blamed():
        made = entry.value()
    if not isinstance(made, Experiment):
        raise entry.broke(f"returned {type(made).__name__}, expected an Experiment")
    if made.name != entry.name:
        raise entry.broke(f"has the name {made.name!r}; expected {entry.name!r}")
    section = made.section
    if section is not None and section.model_config.get("extra") != "forbid":
        raise entry.broke(
            f"has settings ({section.__name__}) that silently ignore unknown keys; derive them "
            "from gapft_harness.api.RecipeSection"
        )
    return cast(Experiment, Checked(made, entry))


class Checked:
    """An experiment or its part whose return values are checked.

    Attributes:
        lists: methods that return a list, with the type of its items.
        pairs: methods that return a list of pairs of a name and an object of this type.
        one: methods that return one object, with its allowed types.
    """

    lists: Mapping[str, type] = dict.fromkeys(("conditions", "faults", "warnings"), str)
    pairs: Mapping[str, Any] = {}
    one: Mapping[str, tuple[type, ...]] = {"cost": (Cost,)}

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
            raise self._entry.broke(f"returned {fault}", method)
        return self._taken(name, found, method)

    def _fault(self, name: str, found: Any) -> str:
        """Describe the fault of a method's return value; empty if it is valid."""
        if name in self.lists or name in self.pairs:
            kind = self.lists.get(name) or self.pairs[name]
            return _list_fault(found, kind, pairs=name in self.pairs)
        if name in self.one and not isinstance(found, self.one[name]):
            return f"{short(found)} as {name}, expected {self.one[name][0].__name__}"
        return ""

    def _taken(self, name: str, found: Any, method: Callable[..., Any]) -> Any:
        return self._part(found) if name == "part" and found is not None else found

    def _part(self, found: Any) -> Any:
        from gapft_harness.report.part import Part
        from gapft_harness.report.results import OWN_KEYS

        if not isinstance(found, Part):
            raise self._entry.broke(f"returned {short(found)} as its part, expected a Part", found)
        if found.name != self._entry.name or found.name in OWN_KEYS:
            taken = "a reserved key of results.json" if found.name in OWN_KEYS else "not its name"
            raise self._entry.broke(
                f"names its part {found.name!r}, {taken}; expected {self._entry.name!r}", found
            )
        return CheckedPart(found, self._entry)

    def steps(self, view: View) -> Iterator[Mapping[str, Step]]:
        """Yield its steps, each mapping after the one before it is made; see ``Experiment``."""
        method: Callable[..., Any] = self._made.steps  # type: ignore[attr-defined]
        with self._entry.blamed():
            generator = method(view)
        if not isinstance(generator, Iterator):
            raise self._entry.broke(f"returned {short(generator)}, expected a generator", method)
        while True:
            with self._entry.blamed():
                given = next(generator, None)
            if given is None:
                return
            if not isinstance(given, Mapping):
                raise self._entry.broke(f"yielded {short(given)}, expected steps by file", method)
            for file, step in given.items():
                if not isinstance(step, Step):
                    raise self._entry.broke(f"yielded {short(step)}, expected a Step", method)
                if fault := step.fault(file):
                    raise self._entry.broke(f"has a step for the file {fault}", method)
            yield given


class CheckedPart(Checked):
    """An experiment's part of the report whose return values are checked."""

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
                raise self._entry.broke(f"returned a section with {fault}", method)
        if name == "tables":
            with self._entry.blamed():
                found = [(file, iter([*rows])) for file, rows in found]
        if name == "figures":
            found = [(figure, partial(self._call, "draw", draw)) for figure, draw in found]
        pattern = {"tables": r"[\w-]+\.csv", "figures": r"[\w-]+"}.get(name, "")
        for each in found if pattern else ():
            if not re.fullmatch(pattern, each[0]):
                raise self._entry.broke(
                    f"gives one of its {name} the invalid name {each[0]!r}", method
                )
        return found


def _list_fault(found: Any, kind: Any, *, pairs: bool) -> str:
    """Describe the fault of a list of a kind, or of pairs of a name and a kind; empty if valid."""
    what = f"a name and a {kind.__name__}" if pairs else kind.__name__
    if isinstance(found, str) or not isinstance(found, Iterable):
        return f"{short(found)}, expected {'pairs of' if pairs else 'a list of'} {what}"
    for each in found:
        pair = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)
        if not (pair and isinstance(each[1], kind) if pairs else isinstance(each, kind)):
            return f"{short(each)} in a list, expected {what}"
    return ""


def _block_fault(block: Any) -> str:
    """Describe the fault of a block (renderers accept only text); empty if it is valid."""
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
