"""What every stage gets: the run, its executor, and what the command was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Executor, Job, Progress
from gapft_harness.hooks.registered import SamplerTraits
from gapft_harness.run_directory.directory import SPLITS, RunDirectory, Split
from gapft_harness.stages.selection.stage import arms


@dataclass(frozen=True)
class Context:
    """What every stage and every experiment gets.

    Attributes:
        run: the run directory; its lock is held.
        executor: runs search, training and audit jobs.
        plugin_files: files given by ``--plugin``, for jobs to load.
        include_paths: folders with task YAML, for jobs to search.
        splits: what the search stage searches.
        alone: these splits are all that the task is asked for; it need not have the others.
        searching: what searches a split in the model's place, as a job (``gapft import``).
        conditions: what the report shows; none named shows all that the run has.
        seeds: the training seeds that it shows; none named shows all.
        progress: called with what jobs report.
        say: called with a sentence people should see now: a warning, or what was dropped.
        made: what is made once for a context, by whoever makes it (its experiments).
    """

    run: RunDirectory
    executor: Executor
    plugin_files: Sequence[str] = ()
    include_paths: Sequence[str] = ()
    splits: Sequence[Split] = SPLITS
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    progress: Progress = field(default=lambda label, done, total, tokens=0, note="": None)
    say: Callable[[str], None] = field(default=lambda line: None)
    alone: bool = False
    searching: Callable[..., dict[str, Any]] | None = None
    made: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def warn(self, warnings: Iterable[str], name: str = "") -> None:
        """Says warnings, after the name of what they are of."""
        for warning in warnings:
            self.say(f"warning: {name}{': ' if name else ''}{warning}")

    @property
    def plugins(self) -> Plugins:
        """The loaded plugins."""
        return load_plugins(self.plugin_files)

    @property
    def own_process(self) -> bool:
        """Whether the processes that generate end with their stage."""
        sampler = self.plugins.get("sampler", self.run.recipe.model.backend)
        return sampler.declared(SamplerTraits).own_process

    def arms(self) -> list[Arm]:
        """The recipe's arms that have something to train on."""
        budgets = self.run.manifest()["budgets"]
        return [arm for arm in arms(self.run.recipe) if arm.name in budgets]

    def arm_job(self, verb: str, function: Callable[..., dict[str, Any]], arm: Arm) -> Job:
        """A job on one arm; its function may be a ``partial``, and gives facts for the manifest."""
        job = Job.of(
            f"{verb} {arm.name}",
            function,
            run_path=str(self.run.path),
            condition=arm.condition,
            seed=arm.seed,
            plugin_files=list(self.plugin_files),
        )
        return replace(job, own_process=self.own_process)


def require_selected(run: RunDirectory) -> None:
    """Stops a stage that needs training sets, or to know that there are none.

    Raises:
        UserError: selection has not been made.
    """
    if "n" not in run.manifest():
        raise UserError(f"{run.path}: nothing is selected yet; gapft run --only select does it")
