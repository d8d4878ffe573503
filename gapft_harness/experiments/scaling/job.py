"""Define the settings of adapter scaling, and choose the scale of an arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, field_validator

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED, SCALES, choose_scale, compute_simultaneous_bounds
from gapft_harness.api import layout


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


#: The folder of scaled adapters in a run directory.
FOLDER = layout.SCALED


@dataclass(frozen=True, slots=True)
class CalibratedScale:
    """The calibration result of one scale.

    Attributes:
        scale: the scale.
        regressed: how many problems that the source solves the scaled adapter fails.
        rho_G: their share of the problems that the source solves; None: it solves none.
        upper_bound: u_α, the upper bound of this share.
    """

    scale: float
    regressed: int
    rho_G: float | None
    upper_bound: float


@dataclass(frozen=True, slots=True)
class ScaleChoice:
    """The chosen scale of one checkpoint with its calibration: the content of ``scaling.json``.

    Attributes:
        scale: the chosen scale.
        level: the joint level of all bounds.
        tolerance: the highest bound that counts as safe.
        problems: the number of calibration problems.
        solved: how many of them the source solves.
        scales: the results of all scales, ascending.
    """

    scale: float
    level: float
    tolerance: float
    problems: int
    solved: int
    scales: tuple[CalibratedScale, ...]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ScaleChoice:
        """Build a choice from the content of ``scaling.json``."""
        field_values = {f.name: content[f.name] for f in fields(cls)}
        return cls(
            **{
                **field_values,
                "scales": tuple(CalibratedScale(**entry) for entry in content["scales"]),
            }
        )

    def find_scale(self, scale: float) -> CalibratedScale | None:
        """Return the calibration result of a scale; None for 0, the source itself."""
        return next((entry for entry in self.scales if entry.scale == scale), None)


def build_calibration_path(arm: api.Arm, scale: float) -> str:
    """Return the path of an arm's calibration decisions in a run directory."""
    return layout.decisions_path(arm, f"calibration-{scale:g}")


def list_audited_scales(chosen: float) -> list[float]:
    """List the scales at which the audit is decoded: chosen and fixed, without 0 and 1."""
    return sorted({chosen, FIXED} - {0.0, 1.0})


def read_chosen_scale(view: api.View, arm: api.Arm) -> float:
    """Read the scale that was chosen for an arm."""
    path = view.file(layout.arm_path(FOLDER, arm)) / "scaling.json"
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

    Args:
        output: the folder to create.
        problems: the file of calibration problems.
        source: the file of the source's responses to them.
        decisions: files of the arm's decisions on them, one for each of ``SCALES``.
        adapter: the folder of the arm's trained adapter.
        level: the joint level of all bounds.
        tolerance: the highest bound that counts as safe.
        **facts: further entries of ``scaling.json``.
    """
    from gapft_harness.training.adapter import scale_adapter

    ids = api.read_columns(problems, ("problem_id",))["problem_id"]
    choice = choose_arm_scale(ids, source, decisions, level, tolerance)
    scale_adapter(adapter, output, choice.scale, {**facts, **asdict(choice)})


def choose_arm_scale(
    ids: Sequence[str], source: Path, decisions: Sequence[Path], level: float, tolerance: float
) -> ScaleChoice:
    """Compute an arm's scale from the calibration split's decisions at all scales.

    Args:
        ids: the ids of the calibration problems.
        source: the file of the source's responses to them.
        decisions: files of the arm's decisions on them, one for each of ``SCALES``.
        level: the joint level of all bounds.
        tolerance: the highest bound that counts as safe.

    Raises:
        GapftError: a file contains other problems.
    """

    def read_passed(table: Path) -> NDArray[np.bool_]:
        statuses = api.read_decisions(table, ids, "the calibration split")
        passed: NDArray[np.bool_] = statuses == api.PASS
        return passed

    solved_mask = read_passed(source)
    n_solved = int(solved_mask.sum())
    n_regressed = [int((solved_mask & ~read_passed(table)).sum()) for table in decisions]
    bounds = compute_simultaneous_bounds(n_regressed, n_solved, level)
    return ScaleChoice(
        scale=choose_scale(dict(zip(SCALES, bounds, strict=True)), tolerance),
        level=level,
        tolerance=tolerance,
        problems=len(solved_mask),
        solved=n_solved,
        scales=tuple(
            CalibratedScale(scale_value, count, count / n_solved if n_solved else None, bound)
            for scale_value, count, bound in zip(SCALES, n_regressed, bounds, strict=True)
        ),
    )


def warn_too_few_solved(solved: int, settings: ScalingSettings) -> str:
    """Return a warning if no adapter can get a scale above 0; else an empty text.

    Args:
        solved: how many calibration problems the source solves.
        settings: the settings of adapter scaling.
    """
    (bound, *_) = compute_simultaneous_bounds([0] * len(SCALES), solved, settings.level)
    if bound <= settings.tolerance:
        return ""
    return (
        f"the source solves {solved} calibration problems, too few for any scale above 0: even "
        f"without a loss the upper bound is {bound:.1%}, above the tolerance of "
        f"{settings.tolerance:.1%}, so every adapter falls back to the source. Calibrate on more "
        "problems"
    )
