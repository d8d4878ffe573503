"""The context of a stage: the run, its executor and runner, and the options of the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.planner import Planner
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import open_store
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Executor, Progress
from gapft_harness.hooks.registration import SamplerTraits
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory, Split, list_arms
from gapft_harness.stages.selection.choosing import count_slots


@dataclass(frozen=True)
class Context:
    """The context of every stage and every experiment.

    Attributes:
        run: the run directory; its lock is held.
        executor: runs search, training and audit jobs.
        plugin_files: files given by ``--plugin``, for jobs to load.
        include_paths: folders with task YAML, for jobs to search.
        splits: the splits that the search stage searches.
        only_these_splits: whether the task needs only these splits and may lack the others.
        conditions: the conditions that the report shows; empty for all of the run.
        seeds: the training seeds that the report shows; empty for all.
        progress: called with the progress of jobs.
        report_line: called with a line to show now, such as a warning or a count of dropped
            problems.
        cache: what is found once for a command, such as the description of the machine.
    """

    run: RunDirectory
    executor: Executor
    plugin_files: Sequence[str] = ()
    include_paths: Sequence[str] = ()
    splits: Sequence[Split] = SPLITS
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    progress: Progress = field(default=lambda label, done, total, tokens=0, note="": None)
    report_line: Callable[[str], None] = field(default=lambda line: None)
    only_these_splits: bool = False
    cache: dict[str, Any] = field(repr=False, compare=False, default_factory=dict)

    def warn(self, warnings: Iterable[str], name: str = "") -> None:
        """Print warnings, each after the name of its split or arm."""
        for warning in warnings:
            self.report_line(f"warning: {name}{': ' if name else ''}{warning}")

    @property
    def plugins(self) -> Plugins:
        """The loaded plugins."""
        return load_plugins(self.plugin_files)

    @property
    def has_own_process(self) -> bool:
        """Whether generation runs in processes that end with their stage."""
        sampler = self.plugins.get("sampler", self.run.recipe.model.backend)
        return sampler.require_traits(SamplerTraits).own_process

    def build_runner(self) -> Runner:
        """Build the runner of the run's steps."""
        return Runner(
            self.run,
            open_store(self.run.path),
            self.executor,
            self.plugin_files,
            self.progress,
            self.report_line,
        )

    def plan(self, steps: Iterable[Step]) -> Planner:
        """Find which outputs of steps the run or the store has."""
        planner = Planner(self.run, open_store(self.run.path))
        planner(steps)
        return planner

    def make_decodes(self, runner: Runner, steps: Iterable[Step]) -> dict[str, Output]:
        """Make the outputs of steps, and print the warnings of new tables of decisions."""
        before = {name: record.digest for name, record in runner.run.read_records().items()}
        outputs = runner(steps)
        records = runner.run.read_records()
        for name, output in outputs.items():
            place = layout.parse_path(name)
            is_new = before.get(name) != records[name].digest
            if is_new and place is not None and place.kind == layout.DECISIONS:
                self.warn(output.facts.get("warnings", ()), place.name)
        return outputs

    def list_trainable_arms(self) -> list[Arm]:
        """List the recipe's arms that have a training budget."""
        return [arm for arm in list_arms(self.run.recipe) if self.run.has(layout.budget_path(arm))]


def find_slots(run: RunDirectory) -> int | None:
    """Return n, the slots of a matched selector, without replay; None before the states."""
    record = run.read_records().get(layout.states_path("pool"))
    return None if record is None else count_slots(run.recipe.budget.n, record.facts["states"])


def is_selected(run: RunDirectory) -> bool:
    """Return whether every arm has a training set and a budget, or there is nothing to train on."""
    slots = find_slots(run)
    return slots == 0 or (
        slots is not None and all(run.has(layout.budget_path(arm)) for arm in list_arms(run.recipe))
    )


def require_selected(run: RunDirectory) -> None:
    """Require that the select stage has run.

    Raises:
        UserError: it has not.
    """
    if not is_selected(run):
        raise UserError(f"{run.path}: nothing is selected yet; run gapft run --only select first")
