"""The seam: what an experiment adds to a run. Stages, report, dry run and verify name none.

An experiment is registered by the hook ``register_experiments``; the bundled ones are too. The
harness goes through those that a recipe asks for and calls each where it has something to add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Job
from gapft_harness.hooks.registered import Registered
from gapft_harness.recipe.faults import explain
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory, Split
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences

if TYPE_CHECKING:
    from gapft_harness.report.part import Part


@dataclass(frozen=True, slots=True)
class Decodes:
    """What an experiment will generate and keep, told by the dry run.

    Attributes:
        lines: what it generates, a sentence each.
        responses: how many at most.
        adapters: further adapters that it keeps for each trained one.
    """

    lines: Sequence[str] = ()
    responses: int = 0
    adapters: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A table of decisions that an experiment seals.

    Attributes:
        file: in the run directory.
        split: whose problems it answers.
        ids: of those problems the ones it must answer, in any order; None: all.
        of: where these ids come from, for a message.
    """

    file: str
    split: str
    ids: Callable[[], Iterable[str]] | None = None
    of: str = ""


class Experiment:
    """What an experiment adds to a run. Every method adds nothing unless it is overridden.

    Attributes:
        name: its key in the recipe's section ``experiments``.
        section: the model of what the recipe says of it; None: it takes no settings.
        stage: the name of a stage of its own, between training and audit; empty: it has none.
        folder: where it seals a folder of its own for each arm; empty: it seals none.
    """

    name: str = ""
    section: type[BaseModel] | None = None
    stage: str = ""
    folder: str = ""

    def settings(self, recipe: Recipe) -> Any:
        """What a recipe says of it, checked; None if the recipe does not ask for it.

        Raises:
            UserError: a key is unknown, missing or wrong; the message names it.
        """
        given = recipe.experiment(self.name)
        if given is None or isinstance(given, BaseModel):
            return given
        model = self.section or _Nothing
        try:
            return model.model_validate(given)
        except ValidationError as error:
            where = f"recipe {recipe.name}, experiments.{self.name}"
            raise explain(error, given, model, where, {}) from error

    def part(self) -> Part | None:
        """What it adds to the report."""
        return None

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """Conditions that it compares: a report without one of them goes without it."""
        return ()

    # Stages

    def searched(self, context: Context, split: Split, facts: Mapping[str, Any]) -> Sequence[str]:
        """A split was searched; returns warnings, which the run keeps."""
        return ()

    def selected(self, context: Context) -> None:
        """Every arm's training set is sealed: what makes the experiment impossible is refused."""

    def run(self, context: Context) -> None:
        """The stage of its own. It may be called where the recipe does not ask for it."""

    def stale(self, context: Context) -> Iterable[str]:
        """Sealed files that another recipe made, to be made anew by the audit."""
        return ()

    def audits(self, context: Context) -> Iterable[tuple[str, Job]]:
        """Further jobs of the audit stage, each with the file that it makes (``decisions/…``)."""
        return ()

    def reads(self, context: Context) -> Iterable[str]:
        """Sealed files that its part of the report reads."""
        return ()

    # gapft verify

    def answered(self, run: RunDirectory, arm: Arm) -> Iterable[Answered]:
        """Every table of an arm's decisions that it may have sealed, asked for now or not."""
        return ()

    def check(
        self,
        run: RunDirectory,
        manifest: dict[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """Computes again what it sealed."""

    # gapft run --dry-run

    def plan(self, recipe: Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """The lines of the stage of its own."""
        return ()

    def decodes(self, recipe: Recipe, problems: Mapping[Split, int], adapters: int) -> Decodes:
        """What it generates and keeps."""
        return Decodes()


class _Nothing(BaseModel, extra="forbid"):
    """The settings of an experiment that takes none."""


def every_experiment(plugins: Plugins) -> list[Experiment]:
    """All that are registered, by name.

    Raises:
        PluginError: a plugin registers something that is none.
    """
    return [_made(entry) for entry in plugins.all() if entry.kind == "experiment"]


def experiments_of(context: Context) -> list[Experiment]:
    """Those that a run's recipe asks for, by name."""
    return asked(context.run.recipe, context.plugins)


def asked(recipe: Recipe, plugins: Plugins) -> list[Experiment]:
    """Those that a recipe asks for, by name.

    Raises:
        UserError: it asks for one that nobody registered, or with wrong settings.
    """
    for name in recipe.experiments:
        plugins.get("experiment", name)
    return [each for each in every_experiment(plugins) if each.settings(recipe) is not None]


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
    return cast(Experiment, _Guarded(made, entry))


class _Guarded:
    """An experiment, or its part of the report, whose mistakes are told by the plugin's name."""

    def __init__(self, made: object, entry: Registered) -> None:
        self._made, self._entry = made, entry

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._made, name)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*given: Any, **named: Any) -> Any:
            with self._entry.blamed():
                found = value(*given, **named)
                found = [*found] if isinstance(found, Iterator) else found
            return _Guarded(found, self._entry) if name == "part" and found is not None else found

        return call
