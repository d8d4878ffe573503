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
from gapft_harness.hooks.checked import check_facts
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import Registration
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Cost, Experiment
from gapft_harness.stages.experiment.steps import Step, View

if TYPE_CHECKING:
    from gapft_harness.report.part import Part


def load_all_experiments(plugins: Plugins) -> list[Experiment]:
    """Load all registered experiments, by name.

    Raises:
        PluginError: a plugin registers something else.
    """
    return [_build_experiment(entry) for entry in plugins.all() if entry.kind == "experiment"]


def find_experiments(context: Context) -> list[Experiment]:
    """Return the experiments of a run's recipe, by name; loaded once for a context."""
    if "experiments" not in context.cache:
        context.cache["experiments"] = load_experiments(context.run.recipe, context.plugins)
    experiments: list[Experiment] = context.cache["experiments"]
    return experiments


def load_experiments(
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
        experiment
        for experiment in load_all_experiments(plugins)
        if experiment.settings(recipe, options) is not None
    ]


def list_report_parts(experiments: Iterable[Experiment]) -> list[Part]:
    """List the parts that experiments add to the report."""
    return [part for experiment in experiments if (part := experiment.part()) is not None]


def _build_experiment(entry: Registration) -> Experiment:
    with entry.wrap_errors():
        experiment = entry.value()
    if not isinstance(experiment, Experiment):
        raise entry.contract_error(f"returned {type(experiment).__name__}, expected an Experiment")
    if experiment.name != entry.name:
        raise entry.contract_error(f"has the name {experiment.name!r}; expected {entry.name!r}")
    section = experiment.section
    if section is not None and section.model_config.get("extra") != "forbid":
        raise entry.contract_error(
            f"has settings ({section.__name__}) that silently ignore unknown keys; derive them "
            "from gapft_harness.api.RecipeSection"
        )
    return cast(Experiment, CheckedExperiment(experiment, entry))


class CheckedExperiment:
    """An experiment or its part whose return values are checked.

    Attributes:
        list_methods: methods that return a list, with the type of its items.
        pair_methods: methods that return a list of pairs of a name and an object of this type.
        object_methods: methods that return one object, with its allowed types.
    """

    list_methods: Mapping[str, type] = dict.fromkeys(("conditions", "faults", "warnings"), str)
    pair_methods: Mapping[str, Any] = {}
    object_methods: Mapping[str, tuple[type, ...]] = {"cost": (Cost,)}

    def __init__(self, wrapped: object, entry: Registration) -> None:
        self._wrapped, self._entry = wrapped, entry

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if not callable(value) or isinstance(value, type):
            return value
        return partial(self._call_method, name, value)

    def _call_method(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._entry.wrap_errors():
            result = method(*args, **kwargs)
            if isinstance(result, Iterator):
                result = [*result]
        if fault := self._find_fault(name, result):
            raise self._entry.contract_error(f"returned {fault}", method)
        return self._convert_result(name, result, method)

    def _find_fault(self, name: str, result: Any) -> str:
        """Describe the fault of a method's return value; empty if it is valid."""
        if name in self.list_methods or name in self.pair_methods:
            kind = self.list_methods.get(name) or self.pair_methods[name]
            return _find_list_fault(result, kind, pairs=name in self.pair_methods)
        if name in self.object_methods and not isinstance(result, self.object_methods[name]):
            return f"{short(result)} as {name}, expected {self.object_methods[name][0].__name__}"
        return ""

    def _convert_result(self, name: str, result: Any, method: Callable[..., Any]) -> Any:
        return self._check_part(result) if name == "part" and result is not None else result

    def _check_part(self, part: Any) -> Any:
        from gapft_harness.report.part import Part

        if not isinstance(part, Part):
            raise self._entry.contract_error(
                f"returned {short(part)} as its part, expected a Part", part
            )
        if part.name != self._entry.name:
            raise self._entry.contract_error(
                f"names its part {part.name!r}, not its name; expected {self._entry.name!r}", part
            )
        return CheckedPart(part, self._entry)

    def steps(self, view: View) -> Iterator[Mapping[str, Step]]:
        """Yield its steps, each mapping after the one before it is made; see ``Experiment``."""
        method: Callable[..., Any] = self._wrapped.steps  # type: ignore[attr-defined]
        with self._entry.wrap_errors():
            generator = method(view)
        if not isinstance(generator, Iterator):
            raise self._entry.contract_error(
                f"returned {short(generator)}, expected a generator", method
            )
        while True:
            with self._entry.wrap_errors():
                next_steps = next(generator, None)
            if next_steps is None:
                return
            if not isinstance(next_steps, Mapping):
                raise self._entry.contract_error(
                    f"yielded {short(next_steps)}, expected steps by file", method
                )
            for file, step in next_steps.items():
                if not isinstance(step, Step):
                    raise self._entry.contract_error(
                        f"yielded {short(step)}, expected a Step", method
                    )
                if fault := step.fault(file):
                    raise self._entry.contract_error(f"has a step for the file {fault}", method)
            yield next_steps


class CheckedPart(CheckedExperiment):
    """An experiment's part of the report whose return values are checked."""

    def __init__(self, wrapped: object, entry: Registration) -> None:
        from gapft_harness.report.part import Opening, Summary
        from gapft_harness.report.rendering.blocks import Section

        super().__init__(wrapped, entry)
        nothing = type(None)
        self.list_methods = {"leads": str, "sections": Section}
        self.pair_methods = {"figures": Callable, "tables": Iterable}
        self.object_methods = {
            "opening": (Opening, nothing),
            "summary": (Summary, nothing),
            "verdicts": (Mapping,),
        }

    def _convert_result(self, name: str, result: Any, method: Callable[..., Any]) -> Any:
        if name == "results" and result is not None:
            return check_facts(self._entry, result, "an entry of results.json", method)
        if name == "sections":
            for fault in filter(None, (_find_block_fault(b) for s in result for b in s.blocks)):
                raise self._entry.contract_error(f"returned a section with {fault}", method)
        if name == "tables":
            with self._entry.wrap_errors():
                result = [(file, iter([*rows])) for file, rows in result]
        if name == "figures":
            result = [(figure, partial(self._call_method, "draw", draw)) for figure, draw in result]
        pattern = {"tables": r"[\w-]+\.csv", "figures": r"[\w-]+"}.get(name, "")
        for pair in result if pattern else ():
            if not re.fullmatch(pattern, pair[0]):
                raise self._entry.contract_error(
                    f"gives one of its {name} the invalid name {pair[0]!r}", method
                )
        return result


def _find_list_fault(value: Any, kind: Any, *, pairs: bool) -> str:
    """Describe the fault of a list of a kind, or of pairs of a name and a kind; empty if valid."""
    description = f"a name and a {kind.__name__}" if pairs else kind.__name__
    if isinstance(value, str) or not isinstance(value, Iterable):
        return f"{short(value)}, expected {'pairs of' if pairs else 'a list of'} {description}"
    for item in value:
        is_pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        if not (is_pair and isinstance(item[1], kind) if pairs else isinstance(item, kind)):
            return f"{short(item)} in a list, expected {description}"
    return ""


def _find_block_fault(block: Any) -> str:
    """Describe the fault of a block (renderers accept only text); empty if it is valid."""
    from gapft_harness.report.rendering.blocks import Block, Table

    if not isinstance(block, get_args(Block)):
        return f"{short(block)}; expected a block such as Text or Table"
    if isinstance(block, Table):
        for row in (block.columns, *block.rows):
            if len(row) != len(block.columns):
                return f"a table with a row of {len(row)} cells, expected {len(block.columns)}"
            if wrong_cells := [cell for cell in row if not isinstance(cell, str)]:
                return f"a table with the cell {short(wrong_cells[0])}, expected text"
    return ""
