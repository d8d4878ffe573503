"""Load the registered experiments and those that a recipe requests.

The return values of an experiment are checked; its faults are reported with its plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, cast

from gapft_harness.core.errors import UnknownPluginError
from gapft_harness.engine.step import Step
from gapft_harness.hooks.checked import check_facts
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import Registration
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.view import View, find_name_fault

if TYPE_CHECKING:
    from gapft_harness.presentation.content import Table
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
        object_methods: methods that return one object, with its allowed types.
    """

    list_methods: Mapping[str, type] = dict.fromkeys(
        ("conditions", "cost", "faults", "warnings"), str
    )
    object_methods: Mapping[str, tuple[type, ...]] = {}

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
        if name in self.list_methods:
            return _find_list_fault(result, self.list_methods[name])
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

    def steps(self, view: View) -> Iterator[Sequence[Step]]:
        """Yield its steps, each list after the one before it is made; see ``Experiment``."""
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
            if not isinstance(next_steps, Sequence) or isinstance(next_steps, str):
                raise self._entry.contract_error(
                    f"yielded {short(next_steps)}, expected a list of steps", method
                )
            yield [self._check_step(step, method) for step in next_steps]

    def _check_step(self, step: Any, method: Callable[..., Any]) -> Step:
        """Check a step's name and function, and put the plugin's code into its key."""
        if not isinstance(step, Step):
            raise self._entry.contract_error(f"yielded {short(step)}, expected a Step", method)
        if fault := find_name_fault(step):
            raise self._entry.contract_error(f"has a step for the file {fault}", method)
        if not step.function_name.partition(":")[2].isidentifier():
            raise self._entry.contract_error(
                f"has a step of the function {step.function_name}, which other processes cannot "
                "import; expected a function at the top of a module",
                method,
            )
        if step.is_bundled or not self._entry.code_hash:
            return step
        return replace(step, code={**step.code, "experiment": self._entry.code_hash})


class CheckedPart(CheckedExperiment):
    """An experiment's part of the report whose return values are checked."""

    def __init__(self, wrapped: object, entry: Registration) -> None:
        from gapft_harness.presentation.content import Table

        super().__init__(wrapped, entry)
        self.list_methods = {"leads": str, "tables": Table}
        self.object_methods = {"verdicts": (Mapping,)}

    def _convert_result(self, name: str, result: Any, method: Callable[..., Any]) -> Any:
        if name == "tables":
            for table in result:
                self._check_table(table, method)
        return result

    def _check_table(self, table: Table, method: Callable[..., Any]) -> None:
        """Check that a table has an allowed name and values that can be written and shown."""
        name = self._entry.name
        if table.name and not re.fullmatch(rf"{re.escape(name)}(_\w+)?", table.name):
            raise self._entry.contract_error(
                f"names a table {table.name!r}; expected {name!r}, or {name + '_'!r} and a word",
                method,
            )
        with self._entry.wrap_errors():
            entries = table.list_entries()
            for row in table.rows:
                for column in table.titled:
                    column.format_cell(row)
        check_facts(self._entry, {"rows": entries}, f"a table {table.name!r}", method)


def _find_list_fault(value: Any, kind: type) -> str:
    """Describe the fault of a list of objects of a type; empty if it is valid."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return f"{short(value)}, expected a list of {kind.__name__}"
    for item in value:
        if not isinstance(item, kind):
            return f"{short(item)} in a list, expected {kind.__name__}"
    return ""
