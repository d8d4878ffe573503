"""Decisions on the problems that an allocation comparison trains on.

``exposed_arm`` decodes, with one arm's adapter, the recovered pool problems that either condition
of its seed selected, and writes ``decisions/ARM.exposed.parquet``: a_C(r) of Equation
coverage_repetition is read off it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.allocation.halves import exposed_file, read_halves
from gapft_harness.experiments.allocation.settings import compared
from gapft_harness.hooks.protocols import ReportProgress
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_ids
from gapft_harness.stages.audit.job import decode_split


def exposed_arm(
    run_path: str,
    condition: str,
    seed: int,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes halves A and B greedily with one arm's adapter, and verifies the answers.

    Returns:
        Facts for the manifest: ``verdicts`` and ``finish_reasons`` by count.

    Raises:
        UserError: the recipe compares no allocations, or the selections are no such comparison.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed)
    allocation = compared(run.recipe)
    if allocation is None or condition not in (allocation.diffuse, allocation.concentrated):
        raise UserError(
            f"{run.path}: condition {condition!r} is no part of an allocation comparison; its "
            f"recipe says experiments.allocation: {allocation and allocation.model_dump()}"
        )

    def halves() -> tuple[str, ...]:
        return read_halves(run, allocation, seed).problems

    file, purpose = exposed_file(arm), f"exposed/{arm.name}"
    return decode_split(run, arm, "pool", file, purpose, plugin_files, progress, only=halves)


def stale_exposed(run: RunDirectory, arms: Sequence[Arm]) -> list[str]:
    """Files of decisions on other halves than the arms have now: they were compared otherwise."""
    allocation, stale = compared(run.recipe), []
    for arm in arms if allocation else ():
        path = run.path / exposed_file(arm)
        assert allocation is not None
        if path.exists():
            wanted = sorted(read_halves(run, allocation, arm.seed).problems)
            if list(read_ids(path)) != wanted:
                stale.append(exposed_file(arm))
    return stale
