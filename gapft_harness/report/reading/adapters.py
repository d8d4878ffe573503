"""Read the decisions of trained models, unscaled or at the scales chosen for their adapters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import Arm
from gapft_harness.report.reading.audits import read_decisions
from gapft_harness.report.reading.columns import PASS, read_columns
from gapft_harness.run_directory import layout

T = TypeVar("T", np.bool_, np.int64)


def read_choice(run_path: Path, arm: Arm) -> dict[str, Any]:
    """Read an arm's ``scaling.json``; the caller has checked the hash of its folder."""
    path = run_path / layout.arm_path(layout.SCALED, arm) / "scaling.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def find_tables(run_path: Path, arms: Sequence[Arm], adapters: str) -> dict[Arm, str]:
    """Return the table with each arm's decisions on the audit, relative to the run directory.

    Args:
        run_path: the run directory.
        arms: the trained models.
        adapters: ``trained``, or ``scaled``: at the scale that ``scaling`` chose. At scale 0 these
            are the source's decisions.
    """

    def find_table(arm: Arm) -> str:
        scale = read_choice(run_path, arm)["scale"] if adapters == "scaled" else 1
        return layout.scaled_decisions_path(arm, scale) if scale else layout.responses_path("audit")

    return {arm: find_table(arm) for arm in arms}


def stacked(values: Mapping[Arm, NDArray[T]], condition: str) -> NDArray[T]:
    """Stack the arrays of a condition's arms by ascending seed, the first axis of the result.

    Args:
        values: an array by arm, of equal shapes.
        condition: the condition's name.
    """
    seeds = sorted(arm.seed for arm in values if arm.condition == condition)
    return np.array([values[Arm(condition, seed)] for seed in seeds])


def read_decided(
    run_path: Path, arms: Sequence[Arm], adapters: str
) -> dict[Arm, NDArray[np.bool_]]:
    """Read whether each arm's decodes of the audit pass; by arm, shape (P,).

    Args:
        run_path: the run directory.
        arms: the trained models.
        adapters: ``trained`` or ``scaled``; see ``find_tables``.

    Raises:
        GapftError: a table contains other problems than the audit.
    """
    ids = read_columns(run_path / layout.problems_path("audit"), ("problem_id",))["problem_id"]
    tables_by_arm = find_tables(run_path, arms, adapters)
    return {
        arm: read_decisions(run_path / table, ids) == PASS for arm, table in tables_by_arm.items()
    }
