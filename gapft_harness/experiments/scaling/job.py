"""Adapter scaling's settings, and the work on one arm: its scale, and the audit at other scales."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, field_validator

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED, SCALES, choose_scale, simultaneous_bounds
from gapft_harness.api import layout
from gapft_harness.core.weights import adapter_facts
from gapft_harness.report.reading.adapters import read_choice


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


#: Where the chosen adapters lie in a run directory, and where others lie while they are decoded.
FOLDER = layout.SCALED

#: How the warning of ``no_scale_warning`` begins.
NO_SCALE = "the source solves "


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


def scale_arm(
    run_path: str,
    condition: str,
    seed: int,
    plugin_files: Sequence[str] = (),
    progress: api.ReportProgress = api.report_nothing,
) -> dict[str, Any]:
    """Chooses one arm's scale on the calibration split and exports the adapter at that scale.

    Returns:
        ``choice``, the content of ``scaled/ARM/scaling.json``, and ``decisions``: by scale, the
        facts of ``sealing.write_responses``.

    Raises:
        UserError: the recipe has no experiment ``scaling``, the adapter cannot be scaled, or the
            folder of the scaled one is there and incomplete.
    """
    run = api.RunDirectory.open(run_path)
    arm = api.Arm(condition, seed)
    settings = _settings(run)
    trained = run.sealed(layout.adapter(arm))
    decisions: dict[str, dict[str, Any]] = {}
    for number, scale in enumerate(SCALES):
        decisions[f"{scale:g}"] = api.decode_split(
            run,
            arm,
            api.CALIBRATION,
            calibration_file(arm, scale),
            plugin_files,
            partial(_report_part, progress, number),
            adapter=partial(_adapter_at, run, arm, scale),
        )
    output = run.path / layout.of_arm(FOLDER, arm)
    if adapter_facts(output, "scaling.json") is None:
        from gapft_harness.training.adapter import scale_adapter

        choice = choose(run, arm, settings)
        facts = {
            "condition": condition,
            "seed": seed,
            "base_model": run.recipe.model.args["pretrained"],
            "base_revision": run.manifest()["source"].get("revision"),
            **asdict(choice),
        }
        scale_adapter(trained, output, choice.scale, facts)
    return {"choice": read_choice(run.path, arm), "decisions": decisions}


def _report_part(
    progress: api.ReportProgress,
    number: int,
    done: int,
    total: int,
    /,
    tokens: int = 0,
    note: str = "",
) -> None:
    """Report one scale's progress as a part of all scales'."""
    progress(number * total + done, len(SCALES) * total, tokens, note)


def audit_scaled_arm(
    run_path: str,
    condition: str,
    seed: int,
    scale: float,
    plugin_files: Sequence[str] = (),
    progress: api.ReportProgress = api.report_nothing,
) -> dict[str, Any]:
    """Decodes the audit problems greedily with one arm's adapter at one scale.

    Returns:
        Facts for the manifest, those of ``sealing.write_responses``.
    """
    run, arm = api.RunDirectory.open(run_path), api.Arm(condition, seed)
    file, made = layout.decisions_at(arm, scale), partial(_adapter_at, run, arm, scale)
    return api.decode_split(run, arm, "audit", file, plugin_files, progress, adapter=made)


def choose(run: api.RunDirectory, arm: api.Arm, settings: Scaling) -> ScaleChoice:
    """Computes an arm's scale from the calibration split's decisions at all scales.

    Raises:
        GapftError: the decisions are of other problems than the source's.
    """
    ids = api.read_columns(run.path / layout.problems(api.CALIBRATION), ("problem_id",))[
        "problem_id"
    ]

    def passed(table: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (
            api.read_decisions(run.path / table, ids, "the calibration split") == api.PASS
        )
        return found

    source = passed(layout.responses(api.CALIBRATION))
    solved = int(source.sum())
    regressed = [int((source & ~passed(calibration_file(arm, scale))).sum()) for scale in SCALES]
    bounds = simultaneous_bounds(regressed, solved, settings.level)
    return ScaleChoice(
        scale=choose_scale(dict(zip(SCALES, bounds, strict=True)), settings.tolerance),
        level=settings.level,
        tolerance=settings.tolerance,
        problems=len(source),
        solved=solved,
        scales=tuple(
            AtScale(scale, count, count / solved if solved else None, bound)
            for scale, count, bound in zip(SCALES, regressed, bounds, strict=True)
        ),
    )


def no_scale_warning(solved: int, settings: Scaling) -> str:
    """A sentence if no adapter could get a scale above 0, however well it does; else nothing."""
    (bound, *_) = simultaneous_bounds([0] * len(SCALES), solved, settings.level)
    if bound <= settings.tolerance:
        return ""
    return (
        f"{NO_SCALE}{solved} problems, too few for any scale above 0: without a single "
        f"loss the upper bound is {bound:.1%}, above the tolerance of {settings.tolerance:.1%}; "
        "every adapter will fall back to the source. Calibrate on more problems"
    )


def is_stale(run: api.RunDirectory, arm: api.Arm) -> bool:
    """Whether an arm's scale is there, and was chosen at another level or tolerance."""
    if adapter_facts(run.path / layout.of_arm(FOLDER, arm), "scaling.json") is None:
        return False
    chosen, settings = read_choice(run.path, arm), _settings(run)
    return (chosen["level"], chosen["tolerance"]) != (settings.level, settings.tolerance)


@contextlib.contextmanager
def _adapter_at(run: api.RunDirectory, arm: api.Arm, scale: float) -> Iterator[api.Adapter]:
    """An arm's adapter at a scale: the trained one itself, or one that is taken away again."""
    from gapft_harness.training.adapter import scale_adapter

    trained = run.sealed(layout.adapter(arm))
    if scale == 1:
        yield api.Adapter(arm, str(trained))
        return
    folder = run.path / FOLDER / f".{arm.name}-{scale:g}"
    shutil.rmtree(folder, ignore_errors=True)  # of a command that was killed
    scale_adapter(trained, folder, scale, {"scale": scale})
    try:
        yield api.Adapter(arm, str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(run: api.RunDirectory) -> Scaling:
    settings = scaled(run.recipe)
    if settings is None:
        raise api.UserError(
            f"{run.path}: its recipe has no experiments.scaling: no scale is chosen"
        )
    return settings
