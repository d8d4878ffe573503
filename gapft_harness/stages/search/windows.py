"""States by parts of the audit's samples, for the experiments that rest on them.

Adjacent windows of one search are independent sample sets; windows from sample 0 are nested search
budgets. Each window's table of states is sealed, and ``gapft verify`` computes it again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Experiment
from gapft_harness.stages.experiment.adapters import OfAdapters
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.search.states import Window, partition

SPLIT = "audit"


class OfWindows(OfAdapters):
    """The settings of an experiment on several parts of the samples, its ``windows()``."""

    @abstractmethod
    def windows(self) -> list[Window]:
        """The parts of the samples."""

    def tables(self) -> list[str]:
        """The tables of the audit's states by them."""
        return [layout.states(SPLIT, (window.offset, window.k)) for window in self.windows()]


class OnWindows(Experiment):
    """An experiment on the audit's states by several parts of the samples.

    Its stage seals their tables. Its section is an ``OfWindows``, which says the parts.
    """

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """As of every experiment; a window beyond the samples of the search is refused."""
        found = super().settings(recipe, options)
        if found is None:
            return None
        found.require_scales(recipe, self.name)
        drawn, needed = recipe.search.k, max(window.end for window in found.windows())
        if needed > drawn:
            key = f"experiments.{self.name}"
            raise UserError(
                f"recipe {recipe.name}: key '{key}': needs {needed} samples of each problem, and "
                f"search.k is {drawn}; ask for fewer, or search with search.k {needed} or more in "
                "a new run directory"
            )
        return found

    def run(self, context: Context) -> None:
        """Writes and seals the states of every window."""
        run = context.run
        run.sealed(layout.responses(SPLIT))
        settings: OfWindows = self.settings(run.recipe)
        for window, table in zip(settings.windows(), settings.tables(), strict=True):
            if not run.is_sealed(table):
                partition(str(run.path), SPLIT, context.plugin_files, window)
            run.seal(table)

    def reads(self, context: Context) -> Iterator[str]:
        """These tables, and those of the models where they are scaled."""
        found = self.settings(context.run.recipe)
        yield from (*found.tables(), *found.reads(context))

    def plan(self, recipe: Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """The stage's line."""
        windows = ", ".join(window.shown for window in self.settings(recipe).windows())
        line = f"{self.stage}  states by samples {windows} of the audit"
        return [f"{line} -> {run_dir}/{SPLIT}/states/"]

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        findings: Differences,
    ) -> None:
        """Every window has its table; what these hold is checked with all states."""
        tables = self.settings(run.recipe).tables()
        missing = [table for table in tables if table not in manifest["files"]]
        findings.missing += [f"{table} is not made" for table in missing]
        if not missing:
            findings.checked.append(
                f"{self.name}: the states by {len(tables)} parts of the audit's samples were "
                "computed again from its verdicts"
            )
