"""Define the settings of adapter scaling, and choose the scale of an arm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, field_validator

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED, SCALES, choose_scale, compute_simultaneous_bounds
from gapft_harness.api import layout
from gapft_harness.report.reading.audits import read_decisions
from gapft_harness.report.reading.columns import PASS


class ScalingSettings(api.RecipeSection):
    """The settings ``experiments.scaling``."""

    # strict, because the search reads the value from the recipe without conversion
    calibration: StrictInt | Literal["validation"] = Field(
        description="the calibration problems: `validation`, the task's validation split, or a "
        "number of problems of the training split, which the pool leaves out"
    )
    level: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="joint one-sided level of all upper bounds of a checkpoint",
    )
    tolerance: float = Field(
        0.10, ge=0, le=1, description="highest upper bound of the G regression that counts as safe"
    )

    @field_validator("calibration")
    @classmethod
    def _check_count(cls, calibration: int | str) -> int | str:
        if isinstance(calibration, int) and calibration < 1:
            raise ValueError("must be at least 1, or `validation`")
        return calibration


def find_settings(recipe: api.Recipe) -> ScalingSettings | None:
    """Return the settings of a checked recipe; None if it does not scale adapters."""
    settings = recipe.experiments.get("scaling")
    return None if settings is None else ScalingSettings.model_validate(settings)


def build_calibration_path(arm: api.Arm, scale: float) -> str:
    """Return the path of an arm's calibration decisions in a run directory."""
    return layout.decisions_path(arm, f"calibration-{scale:g}")


def list_audited_scales(chosen: float) -> list[float]:
    """List the scales at which the audit is decoded: chosen and fixed, without 0 and 1."""
    return sorted({chosen, FIXED} - {0.0, 1.0})


def read_chosen_scale(view: api.View, arm: api.Arm) -> float:
    """Read the scale that was chosen for an arm."""
    path = view.file(layout.arm_path(layout.SCALED, arm)) / "scaling.json"
    return float(json.loads(path.read_text("utf-8"))["scale"])


def scale(
    output: Path,
    problems: Path,
    source: Path,
    decisions: Sequence[Path],
    adapter: Path,
    level: float,
    tolerance: float,
    **facts: Any,
) -> None:
    """Choose an arm's scale and write its adapter at that scale: the function of a step.

    The folder's ``scaling.json`` has the facts and the result of ``choose_arm_scale``.

    Args:
        output: the folder to create.
        problems: the file of calibration problems.
        source: the file of the source's responses to them.
        decisions: files of the arm's decisions on them, one for each of ``SCALES``.
        adapter: the folder of the arm's trained adapter.
        level: the joint level of all bounds.
        tolerance: the highest bound that counts as safe.
        **facts: further entries of ``scaling.json``.

    Raises:
        GapftError: a file contains other problems.
    """
    from gapft_harness.training.adapter import scale_adapter

    ids = api.read_columns(problems, ("problem_id",))["problem_id"]
    source_passed, *passed = (
        read_decisions(table, ids, "the calibration split") == PASS
        for table in (source, *decisions)
    )
    choice = choose_arm_scale(source_passed, passed, level, tolerance)
    scale_adapter(adapter, output, choice["scale"], {**facts, **choice})


def choose_arm_scale(
    source: NDArray[np.bool_], passed: Sequence[NDArray[np.bool_]], level: float, tolerance: float
) -> dict[str, Any]:
    """Choose an arm's scale by its decisions on the P calibration problems.

    Args:
        source: shape (P,), V of the source.
        passed: V of the adapter at each of ``SCALES``, each of shape (P,).
        level: the joint level of all bounds.
        tolerance: the highest bound that counts as safe.

    Returns:
        The chosen ``scale``, ``level``, ``tolerance``, the number of ``problems``, how many the
        source ``solved``, and for each of ``scales`` how many of these ``regressed``, their share
        ``rho_G`` (None if the source solves none) and its ``upper_bound``.
    """
    solved = int(source.sum())
    regressed = [int((source & ~scaled).sum()) for scaled in passed]
    bounds = compute_simultaneous_bounds(regressed, solved, level)
    return {
        "scale": choose_scale(dict(zip(SCALES, bounds, strict=True)), tolerance),
        "level": level,
        "tolerance": tolerance,
        "problems": len(source),
        "solved": solved,
        "scales": [
            {
                "scale": scale_value,
                "regressed": count,
                "rho_G": count / solved if solved else None,
                "upper_bound": bound,
            }
            for scale_value, count, bound in zip(SCALES, regressed, bounds, strict=True)
        ],
    }
