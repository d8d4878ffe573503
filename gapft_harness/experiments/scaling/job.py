"""Adapter scaling's settings, and the choice of one arm's scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, field_validator

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED, SCALES, choose_scale, simultaneous_bounds
from gapft_harness.api import layout


class Scaling(api.RecipeSection):
    """What a recipe says of adapter scaling."""

    # strict, as the search reads it off the recipe as it stands there
    calibration: StrictInt | Literal["validation"] = Field(
        description="the calibration problems: `validation`, the task's validation split, or how "
        "many to take out of the training split"
    )
    level: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="level of all upper bounds of a checkpoint together, one-sided",
    )
    tolerance: float = Field(
        0.10, ge=0, le=1, description="highest upper bound of the G regression that counts as safe"
    )

    @field_validator("calibration")
    @classmethod
    def _some(cls, calibration: int | str) -> int | str:
        if isinstance(calibration, int) and calibration < 1:
            raise ValueError("must be at least 1, or `validation`")
        return calibration


def scaled(recipe: api.Recipe) -> Scaling | None:
    """What a checked recipe says; None if it scales nothing."""
    said = recipe.experiments.get("scaling")
    return None if said is None else Scaling.model_validate(said)


#: Where the chosen adapters are in a run directory.
FOLDER = layout.SCALED


@dataclass(frozen=True, slots=True)
class AtScale:
    """What the calibration says of one scale.

    Attributes:
        regressed: of the problems that the source solves, how many the scaled adapter fails.
        rho_G: their share; None where the source solves none.
        upper_bound: u_α.
    """

    scale: float
    regressed: int
    rho_G: float | None
    upper_bound: float


@dataclass(frozen=True, slots=True)
class ScaleChoice:
    """One checkpoint's scale and what it was chosen by: the content of ``scaling.json``.

    Attributes:
        level: of all bounds together.
        tolerance: the highest bound that counts as safe.
        problems: of the calibration split.
        solved: those of them that the source solves.
        scales: ascending.
    """

    scale: float
    level: float
    tolerance: float
    problems: int
    solved: int
    scales: tuple[AtScale, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ScaleChoice:
        """Reads it off a ``scaling.json``."""
        plain = {f.name: content[f.name] for f in fields(cls)}
        return cls(**{**plain, "scales": tuple(AtScale(**of) for of in content["scales"])})

    def at(self, scale: float) -> AtScale | None:
        """What the calibration says of a nonzero scale; None of 0, the source itself."""
        return next((found for found in self.scales if found.scale == scale), None)


def calibration_file(arm: api.Arm, scale: float) -> str:
    """Where an arm's decisions on the calibration split stand in a run directory."""
    return layout.decisions(arm, f"calibration-{scale:g}")


def audited_scales(chosen: float) -> list[float]:
    """The scales whose audit decisions are decoded anew: the chosen and the fixed, not 0 and 1."""
    return sorted({chosen, FIXED} - {0.0, 1.0})


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
        output: the folder to make.
        problems: the calibration problems.
        source: the source's decisions on them.
        decisions: the arm's, at each of ``SCALES``.
        adapter: the arm's, as trained.
        level: of all bounds together.
        tolerance: the highest bound that counts as safe.
        **facts: what ``scaling.json`` says besides.
    """
    from gapft_harness.training.adapter import scale_adapter

    ids = api.read_columns(problems, ("problem_id",))["problem_id"]
    choice = choose(ids, source, decisions, level, tolerance)
    scale_adapter(adapter, output, choice.scale, {**facts, **asdict(choice)})


def choose(
    ids: Sequence[str], source: Path, decisions: Sequence[Path], level: float, tolerance: float
) -> ScaleChoice:
    """Compute an arm's scale from the calibration split's decisions at all scales.

    Args:
        ids: of the calibration problems.
        source: the source's decisions on them.
        decisions: the arm's, at each of ``SCALES``.
        level: of all bounds together.
        tolerance: the highest bound that counts as safe.

    Raises:
        GapftError: the decisions are of other problems.
    """

    def read_passed(table: Path) -> NDArray[np.bool_]:
        passed: NDArray[np.bool_] = (
            api.read_decisions(table, ids, "the calibration split") == api.PASS
        )
        return passed

    solves = read_passed(source)
    solved = int(solves.sum())
    regressed = [int((solves & ~read_passed(table)).sum()) for table in decisions]
    bounds = simultaneous_bounds(regressed, solved, level)
    return ScaleChoice(
        scale=choose_scale(dict(zip(SCALES, bounds, strict=True)), tolerance),
        level=level,
        tolerance=tolerance,
        problems=len(solves),
        solved=solved,
        scales=tuple(
            AtScale(at, count, count / solved if solved else None, bound)
            for at, count, bound in zip(SCALES, regressed, bounds, strict=True)
        ),
    )


def no_scale_warning(solved: int, settings: Scaling) -> str:
    """A sentence if no adapter could get a scale above 0, however well it does; else nothing."""
    (bound, *_) = simultaneous_bounds([0] * len(SCALES), solved, settings.level)
    if bound <= settings.tolerance:
        return ""
    return (
        f"the source solves {solved} calibration problems, too few for any scale above 0: without "
        f"a single loss the upper bound is {bound:.1%}, above the tolerance of "
        f"{settings.tolerance:.1%}; every adapter will fall back to the source. Calibrate on more "
        "problems"
    )
