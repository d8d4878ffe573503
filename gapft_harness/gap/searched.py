"""A finished search as arrays, and its reading from the finalized tables of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.outcomes.searches import Endings, SearchFindings, compute_search
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.names import describe_deployment
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.reading.endings import read_endings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import list_warnings, read_judged_facts


@dataclass(frozen=True)
class Search:
    """What was searched: the splits of a run, or one split of a task, judged by several filters.

    Attributes:
        task: the task's name.
        view: what distinguishes the verdicts: ``split`` or ``filter``.
        verdicts: the verdicts on all responses, by split or filter.
        chosen: the split or filter that is shown in full.
        split: the split that is shown in full.
        judge: the verifier or metric, in words.
        settings: the settings of the search, and those of the model where they are known.
        facts: further values of the row ``search`` in results.json.
        warnings: the warnings of the search.
        notes: remarks on how the numbers were made.
        endings: how responses ended, by split or filter.
        rows_by_id: of a task's split: by problem id, the problem's row number in the split.
        logs: of a task's split: the paths of both sample logs, by kind.
    """

    task: str
    view: str
    verdicts: Mapping[str, Verdicts]
    chosen: str
    split: str
    judge: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    endings: Mapping[str, Endings] = field(default_factory=dict)
    rows_by_id: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, Path] = field(default_factory=dict)

    def compute_findings(self) -> dict[str, SearchFindings]:
        """Compute the findings of each split or filter."""
        return {
            name: compute_search(verdicts, self.endings.get(name))
            for name, verdicts in self.verdicts.items()
        }


def note_deployment(recipe: Recipe) -> list[str]:
    """Describe a sampled deployment decode; none if it is greedy."""
    deployment = recipe.search.deployment
    return [f"{describe_deployment(deployment)} It is named greedy here."] if deployment else []


def read_search(run: RunDirectory, plugins: Plugins) -> Search:
    """Read the finalized search of a run.

    Args:
        run: the run.
        plugins: the loaded plugins; the run's verifier need not be among them.

    Raises:
        UserError: no finished search, K below 2, or a file that was changed after it was finalized.
    """
    path = run.path
    k = run.recipe.search.k
    searched_splits = [split for split in SPLITS if run.has(layout.responses_path(split))]
    if not searched_splits:
        raise UserError(f"{path}: no finished search; run `gapft run {path} --only search` first")
    if k < 2:
        raise UserError(
            f"{path}: found {k} sample{'' if k == 1 else 's'} of each problem (search.k), expected "
            "2 or more, better 8; search again with --set search.k=8"
        )
    tables = {split: run.file(layout.responses_path(split)) for split in searched_splits}
    verdicts = {split: _read_split(table, k) for split, table in tables.items()}
    rows = read_endings(tables, plugins.can_read_answers(run.task["verifier"]))
    counts = read_judged_facts(run, "verdicts")
    shown = searched_splits[-1]  # the audit, if it was searched
    return Search(
        task=run.task["name"],
        view="split",
        verdicts=verdicts,
        chosen=shown,
        split=shown,
        judge=f"verifier {run.task['verifier']}",
        settings=run.recipe.search.model_dump(mode="json"),
        warnings=list_warnings(run),
        notes=note_deployment(run.recipe),
        endings={
            split: Endings(
                verdicts[split].passing.size * (1 + k),
                row["limit"],
                row["unanswered"],
                counts[split].get("error", 0) + counts[split].get("timeout", 0),
            )
            for split, row in rows.items()
        },
    )


def _read_split(table: Path, k: int) -> Verdicts:
    verdicts = read_verdicts(table, k)
    if not len(verdicts.passing):
        raise UserError(f"{table}: no responses found")
    return verdicts
