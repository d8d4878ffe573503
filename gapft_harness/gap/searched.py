"""Read the results of a run's search as arrays, from finalized tables only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.searches import Endings
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.reading.endings import EndingCounts, read_endings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import list_warnings


@dataclass(frozen=True, slots=True)
class SearchedRun:
    """A run with a finished search.

    Attributes:
        task: the task's name.
        verifier: the name of the task's verifier.
        splits: ``pool`` and ``audit``, or the one that was searched.
        recipe: the recipe as JSON values.
        warnings: the run's warnings.
        endings: by split, how responses ended.
    """

    task: str
    verifier: str
    splits: Mapping[str, Verdicts]
    recipe: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    endings: Mapping[str, Endings] = field(default_factory=dict)


def read_run(path: Path) -> SearchedRun:
    """Read the finalized search of a run directory.

    Raises:
        UserError: not a run directory, no finished search, K below 2, or a file that was changed
            after it was finalized.
    """
    run = RunDirectory.open(path)
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
    endings = read_endings(tables)
    return SearchedRun(
        task=run.task["name"],
        verifier=run.task["verifier"],
        splits={split: _read_split(table, k) for split, table in tables.items()},
        recipe=run.recipe.model_dump(mode="json"),
        warnings=tuple(list_warnings(run)),
        endings={split: _sum_endings(counts) for split, counts in endings.items()},
    )


def _read_split(table: Path, k: int) -> Verdicts:
    verdicts = read_verdicts(table, k)
    if not len(verdicts.passing):
        raise UserError(f"{table}: no responses found")
    return verdicts


def _sum_endings(counts: EndingCounts) -> Endings:
    return Endings(
        responses=sum(counts.responses.values()),
        cut=counts.responses.get("length", 0),
        unanswered=None if counts.unanswered is None else sum(counts.unanswered.values()),
    )
