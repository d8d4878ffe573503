"""The experiments that are registered, and those that a recipe asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from gapft_harness.core.errors import UnknownPluginError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import Registered
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.checked import Checked
from gapft_harness.stages.experiment.protocol import Experiment

if TYPE_CHECKING:
    from gapft_harness.report.part import Part

#: Stages that every run has, and what else the manifest keeps the time of.
_STAGES = ("search", "merge", "states", "select", "train", "audit", "report")

#: Folders that every run has.
_FOLDERS = (
    "pool", "audit", "calibration", "selections", "adapters", "decisions", "tracking", "report",
)  # fmt: skip


def every_experiment(plugins: Plugins) -> list[Experiment]:
    """All that are registered, by name.

    Raises:
        PluginError: a plugin registers something that is none, or one takes the name of a stage
            or folder that is taken.
    """
    entries = [entry for entry in plugins.all() if entry.kind == "experiment"]
    made = [_made(entry) for entry in entries]
    for attribute, taken in (("stage", _STAGES), ("folder", _FOLDERS)):
        whose = dict.fromkeys(taken, "every run")
        for entry, each in zip(entries, made, strict=True):
            name = getattr(each, attribute)
            if name in whose:
                raise entry.broke(f"has the {attribute} {name!r}, and so has {whose[name]}")
            whose |= {name: entry.who} if name else {}
    return made


def experiments_of(context: Context) -> list[Experiment]:
    """Those that a run's recipe asks for, by name, made and checked once for a context."""
    if "experiments" not in context.made:
        context.made["experiments"] = asked(context.run.recipe, context.plugins)
    found: list[Experiment] = context.made["experiments"]
    return found


def asked(
    recipe: Recipe, plugins: Plugins, options: Mapping[str, str] | None = None
) -> list[Experiment]:
    """Those that a recipe asks for, by name.

    Args:
        options: dotted key -> the option of the command line that set it, for messages.

    Raises:
        UserError: it asks for one that nobody registered, or with wrong settings.
    """
    for name in recipe.experiments:
        try:
            plugins.get("experiment", name)
        except UnknownPluginError as error:  # keeps its class: the run may know the file
            error.args = (f"{error}; --plugin FILE gives one that is in a file",)
            raise
    return [
        each for each in every_experiment(plugins) if each.settings(recipe, options) is not None
    ]


def parts(experiments: Iterable[Experiment]) -> list[Part]:
    """What they add to the report."""
    return [part for each in experiments if (part := each.part()) is not None]


def _made(entry: Registered) -> Experiment:
    with entry.blamed():
        made = entry.value()
    if not isinstance(made, Experiment):
        raise entry.broke(f"gave {type(made).__name__}, expected an Experiment")
    if made.name != entry.name:
        raise entry.broke(f"is named {made.name!r} by itself; expected {entry.name!r}")
    if (made.folder or made.suffix) and not made.stage:
        raise entry.broke("has a folder, and no stage that seals anything in it")
    if fault := _fault(made.stage) or _fault(made.folder):
        raise entry.broke(f"has a stage or folder that is no word: {fault!r}")
    section = made.section
    if section is not None and section.model_config.get("extra") != "forbid":
        raise entry.broke(
            f"has the settings {section.__name__}, which take unknown keys in silence; derive "
            "them from gapft_harness.api.RecipeSection"
        )
    return cast(Experiment, Checked(made, entry))


def _fault(word: str) -> str:
    return "" if not word or word.isidentifier() else word
