"""What an experiment is: an object with a method for each point at which a run asks for more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Arm
from gapft_harness.hooks.protocols import Job
from gapft_harness.hooks.registered import SamplerTraits
from gapft_harness.recipe.conditions import own_settings
from gapft_harness.recipe.faults import explain
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import RunDirectory, Split
from gapft_harness.run_directory.manifest import taken_sets
from gapft_harness.stages.context import Context
from gapft_harness.stages.integrity.differences import Differences

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
        sampled: it holds samples, as many of each problem, and no greedy decode.
    """

    file: str
    split: str
    ids: Callable[[], Iterable[str]] | None = None
    of: str = ""
    sampled: bool = False


class Experiment:
    """What an experiment adds to a run. Every method adds nothing unless it is overridden.

    Attributes:
        name: its key in the recipe's section ``experiments``.
        section: the model of what the recipe says of it, which refuses unknown keys
            (``api.RecipeSection``); None: it takes no settings.
        stage: the name of a stage of its own, between training and audit; empty: it has none.
        folder: where that stage seals a file or a folder for each arm; empty: it seals none.
        suffix: how the names of these files end, such as ``.json``; empty: they are folders.
        renews: it makes anew itself what other settings made, and keeps what still holds; else all
            that it made goes when a setting changes.
    """

    name: str = ""
    section: type[BaseModel] | None = None
    stage: str = ""
    folder: str = ""
    suffix: str = ""
    renews: bool = False

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """What a recipe says of it, checked; None if the recipe does not ask for it.

        Args:
            options: dotted key -> the option of the command line that set it.

        Raises:
            UserError: a key is unknown, missing or wrong; the message names it.
        """
        given = recipe.experiments.get(self.name)
        if given is None:
            return None
        model = self.section or RecipeSection
        try:
            return model.model_validate(given)
        except ValidationError as error:
            under, source = ("experiments", self.name), f"recipe {recipe.name}"
            raise explain(error, given, model, source, options or {}, under) from error

    def require_conditions(self, recipe: Recipe, key: str, names: Iterable[str]) -> None:
        """Refuses what its settings have under a key and the recipe has not.

        Raises:
            UserError: a name is no condition of the recipe.
        """
        for name in names:
            if name not in recipe.conditions:
                raise UserError(
                    f"recipe {recipe.name}: key 'experiments.{self.name}.{key}': {name!r} is no "
                    f"condition of the recipe; {did_you_mean(name, recipe.conditions)}"
                )

    def require_generates(self, context: Context) -> None:
        """Refuses a sampler that replays responses: of an adapter it has none but the arm's own.

        Raises:
            UserError: the recipe's backend is such a one.
        """
        backend = context.run.recipe.model.backend
        if not context.plugins.get("sampler", backend).declared(SamplerTraits).generates:
            raise UserError(
                f"experiments.{self.name}: needs a backend that generates: {backend!r} has the "
                "responses of each arm's own adapter, and no others"
            )

    def require_same_settings(
        self,
        recipe: Recipe,
        names: Sequence[str],
        taken: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Holds conditions to one K and training: they are to differ in their sets alone.

        Args:
            taken: where sets of other runs come from, by condition, once it is known.

        Raises:
            UserError: one has settings of its own; the message names the keys.
        """
        own = own_settings(recipe.model_dump(mode="json"), taken)
        for name in names:
            if differing := differences(own[names[0]], own[name]):
                raise UserError(
                    f"recipe {recipe.name}: the experiment {self.name} compares conditions that "
                    f"differ in their training sets alone, and {names[0]!r} and {name!r} "
                    f"have settings of their own: {'; '.join(differing)}. Give both the same, "
                    "or leave the experiment out: the report's contrasts compare them, marked"
                )

    def file(self, arm: Arm) -> str:
        """What its stage seals for an arm, as a path in the run directory."""
        return layout.of_arm(self.folder, arm) + self.suffix

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

    def require_same_origins(self, context: Context) -> None:
        """Holds the sets that it compares to one K and replay where another run chose them.

        Raises:
            UserError: they differ; the message names the keys.
        """
        recipe = context.run.recipe
        names = self.conditions(recipe)
        self.require_same_settings(recipe, names, taken_sets(context.run.manifest()))

    def selected(self, context: Context) -> None:
        """Every arm's training set is sealed: what makes the experiment impossible is refused."""

    def jobs(self, context: Context) -> Iterable[tuple[str, Job]]:
        """The jobs of the stage of its own, each with the file or folder that it makes."""
        return ()

    def run(self, context: Context) -> None:
        """The stage of its own: runs its jobs and seals what they made."""
        jobs = [*self.jobs(context)]
        context.executor.run([job for _, job in jobs], context.progress)
        for file, _ in jobs:
            context.run.seal(file)

    def stale(self, context: Context) -> Iterable[str]:
        """Sealed files that another recipe made, to be made anew by the audit."""
        return ()

    def audits(self, context: Context) -> Iterable[tuple[str, Job]]:
        """Further jobs of the audit stage, each with the file that it makes (``decisions/…``)."""
        return ()

    def reads(self, context: Context) -> Iterable[str]:
        """Sealed files that its part of the report reads; default: those of its stage."""
        return [self.file(arm) for arm in context.arms()] if self.folder else ()

    # gapft verify

    def answered(self, run: RunDirectory, arm: Arm) -> Iterable[Answered]:
        """Every table of an arm's decisions that it may have sealed, asked for now or not."""
        return ()

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """Computes again what it sealed; default: ``differences`` of each arm.

        Asked only where the recipe asks for the experiment.
        """
        if not self.folder:
            return
        there = [arm for arm in trained if self.file(arm) in manifest["files"]]
        for arm in there:
            found.gather(self.file(arm), partial(self.differences, run, arm))
        found.missing += [f"{self.file(arm)} is not made" for arm in trained if arm not in there]
        if there and type(self).differences is not Experiment.differences:
            found.checked.append(f"{self.folder}/ of {len(there)} arms was computed again")

    def differences(self, run: RunDirectory, arm: Arm) -> Iterable[str]:
        """Sentences on what its stage sealed for an arm and is other when it is computed again."""
        return ()

    # gapft run --dry-run

    def plan(self, recipe: Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """The lines of the stage of its own."""
        return ()

    def decodes(self, recipe: Recipe, problems: Mapping[Split, int], adapters: int) -> Decodes:
        """What it generates and keeps."""
        return Decodes()
