"""Load the registered experiments and those that a recipe requests.

The return values of an experiment are checked; its faults are reported with its plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import InstanceOf

from gapft_harness.core.errors import UnknownPluginError
from gapft_harness.engine.step import Step
from gapft_harness.hooks.checked import check_facts
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import Registration
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.view import View, find_name_fault

if TYPE_CHECKING:
    from gapft_harness.presentation.content import Table


def load_all_experiments(plugins: Plugins) -> list[Experiment]:
    """Load all registered experiments, by name.

    Raises:
        PluginError: a plugin registers something else.
    """
    return [_build_experiment(entry) for entry in plugins.all() if entry.kind == "experiment"]


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
    """An experiment whose return values are checked."""

    def __init__(self, wrapped: object, entry: Registration) -> None:
        self._wrapped = wrapped
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if not callable(value) or isinstance(value, type):
            return value
        return partial(self._call_method, name, value)

    def _call_method(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        entry = self._entry
        with entry.wrap_errors():
            result = method(*args, **kwargs)
            if isinstance(result, Iterator | Set):
                result = [*result]
        if (expected := _find_return_type(name)) is not None:
            entry.check_result(result, expected, method)
        for table in result if name == "tables" else ():
            _check_table(entry, table, method)
        return result

    def steps(self, view: View) -> Iterator[Sequence[Step]]:
        """Yield its steps, each list after the one before it is made; see ``Experiment``."""
        entry = self._entry
        method = cast(Any, self._wrapped).steps
        generator = entry.call(method, view, returns=InstanceOf[Iterator[Any]])
        while True:
            with entry.wrap_errors():
                next_steps = next(generator, None)
            if next_steps is None:
                return
            entry.check_result(next_steps, Sequence[InstanceOf[Step]], method)
            yield [_check_step(entry, step, method) for step in next_steps]


def _find_return_type(name: str) -> Any:
    """Return the type of what a method returns; None if it may return anything."""
    if name in ("conditions", "cost", "faults", "warnings", "leads"):
        return Sequence[str]
    if name == "verdicts":
        return InstanceOf[Mapping[str, Any]]
    if name == "tables":
        from gapft_harness.presentation.content import Table

        return Sequence[InstanceOf[Table]]
    return None


def _check_step(entry: Registration, step: Step, method: Callable[..., Any]) -> Step:
    """Check a step's name and function, and put the plugin's code into its key."""
    if fault := find_name_fault(step):
        raise entry.contract_error(f"has a step for the file {fault}", method)
    if not step.function_name.partition(":")[2].isidentifier():
        raise entry.contract_error(
            f"has a step of the function {step.function_name}, which other processes cannot "
            "import; expected a function at the top of a module",
            method,
        )
    if step.is_bundled or not entry.code_hash:
        return step
    return replace(step, code={**step.code, "experiment": entry.code_hash})


def _check_table(entry: Registration, table: Table, method: Callable[..., Any]) -> None:
    """Check that a table has an allowed name and values that can be written and shown."""
    if table.name and not re.fullmatch(rf"{re.escape(entry.name)}(_\w+)?", table.name):
        raise entry.contract_error(
            f"names a table {table.name!r}; expected {entry.name!r}, or {entry.name + '_'!r} and "
            "a word",
            method,
        )
    with entry.wrap_errors():
        entries = table.list_entries()
        for row in table.rows:
            for column in table.titled:
                column.format_cell(row)
    check_facts(entry, {"rows": entries}, f"a table {table.name!r}", method)
