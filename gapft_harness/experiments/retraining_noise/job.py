"""Auditing one replicate: the stage function that executors run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.hooks.protocols import ReportProgress
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.audit.job import decode_split


def replicate_file(arm: Arm) -> str:
    """A replicate's decisions: apart from those of a further audit, whose names are free."""
    return layout.decisions(arm.original, f"replicate-{arm.variant}")


def audit_replicate(
    run_path: str,
    condition: str,
    seed: int,
    variant: str,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes the audit problems greedily with a replicate's adapter, and verifies the answers.

    Returns:
        Facts for the manifest, those of ``sealing.write_responses``.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed, variant)
    file, purpose = replicate_file(arm), f"audit/{arm.original.name}"  # decoded as the arm was
    return decode_split(run, arm, "audit", file, purpose, plugin_files, progress)
