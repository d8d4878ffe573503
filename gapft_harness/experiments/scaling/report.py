"""Adapter scaling in the report: read decisions, and build tables for one run or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import api
from gapft_harness.analysis.decomposition import by_state
from gapft_harness.analysis.estimate import Estimate, estimate_mean
from gapft_harness.analysis.resampling import (
    Scores,
    average_differences,
    average_estimates,
    resample_environments,
)
from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.api import layout
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.audits import read_decisions, read_verdicts
from gapft_harness.report.reading.columns import PASS

#: What the chosen scale is compared with, by the name of its verdicts.
COMPARED_WITH = {"source": "source", "fixed": f"scale {FIXED:g}", "trained": "scale 1"}

_ENVIRONMENTS_NOTE = (
    "An environment is a condition of a run. At 0 to 1: how many checkpoints got this scale; 0 is "
    "the source. Differences: Pass@1 on the audit at the chosen scales minus that of the source "
    "and of fixed scales, in points. Above: how many checkpoints lose a larger share of G on the "
    "audit (ρ_G) than the tolerance allows. Intervals resample the environments of a mean, then "
    "training seeds, then audit problems; those of one environment do not cover other tasks, "
    "models or budgets."
)
_CHECKPOINTS_NOTE = (
    "Pass@1 on the audit, and the lost share ρ_G of the audit problems that the source solves, as "
    "trained (scale 1) and at the chosen scale. Scales are chosen on calibration problems alone: "
    "their bounds do not guarantee the audit result of a single checkpoint."
)
_BOUNDS_NOTE = (
    "On the calibration problems. Upper bound of ρ_G: one-sided Wilson, at a fourth of "
    "experiments.scaling.level (Bonferroni); 100% if the source solves no problem. A scale is safe "
    "if its bound is at most the tolerance. The chosen scale is the largest for which it and all "
    "smaller scales are safe, or 0, the source, if there is none."
)


@dataclass(frozen=True, slots=True)
class ScaledArm:
    """One adapter at the compared scales.

    Attributes:
        arm: the arm.
        choice: the content of ``scaling.json``; see ``choose_arm_scale``.
        passed: V on the audit, each of shape (P,), of the ``source``, and of the adapter as
            ``trained``, at the ``fixed`` and at the ``chosen`` scale.
    """

    arm: api.Arm
    choice: Mapping[str, Any]
    passed: Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """The checkpoints of a run; every condition is one environment.

    Attributes:
        name: the name of the run.
        item_ids: shape (P,), the ids of the audit problems.
        states: shape (P,), ``G``, ``S`` or ``U``.
        checkpoints: its arms, in the order of the report.
    """

    name: str
    item_ids: NDArray[np.str_]
    states: NDArray[np.str_]
    checkpoints: tuple[ScaledArm, ...]

    @property
    def environments(self) -> dict[str, list[ScaledArm]]:
        """The checkpoints of each condition, by the name of its environment."""
        environments: dict[str, list[ScaledArm]] = {}
        for checkpoint in self.checkpoints:
            name = f"{self.name}/{checkpoint.arm.condition}"
            environments.setdefault(name, []).append(checkpoint)
        return environments


def read_scaled_run(run: api.RunDirectory, arms: Sequence[api.Arm]) -> ScaledRun | None:
    """Read the scaled decisions of a run; None if it scales no adapters or has no arms.

    Args:
        run: the run.
        arms: the arms to read, in the order of the report.

    Raises:
        GapftError: the tables contain different problems.
    """
    if "scaling" not in run.recipe.experiments or not arms:
        return None
    run_path = run.path
    audit = read_verdicts(run_path / layout.responses_path("audit"), run.recipe.search.k)
    ids = api.read_columns(run_path / layout.problems_path("audit"), ("problem_id",))["problem_id"]

    def read_at_scale(arm: api.Arm, scale: float) -> NDArray[np.bool_]:
        if not scale:
            return audit.deployed
        table = run_path / layout.scaled_decisions_path(arm, scale)
        passed: NDArray[np.bool_] = read_decisions(table, ids) == PASS
        return passed

    checkpoints = []
    for arm in arms:
        choice = read_choice(run_path, arm)
        scales = {"source": 0.0, "trained": 1.0, "fixed": FIXED, "chosen": choice["scale"]}
        passed = {name: read_at_scale(arm, scale) for name, scale in scales.items()}
        checkpoints.append(ScaledArm(arm, choice, passed))
    return ScaledRun(
        run.recipe.name, np.array(ids, dtype=np.str_), audit.states, tuple(checkpoints)
    )


def build_tables(
    runs: Sequence[ScaledRun], replicates: int, seed: int, *, pooled: bool = False
) -> list[api.Table]:
    """Build tables of environments, checkpoints and bounds of one run or several.

    Every condition of a run is one environment, with a checkpoint for each seed. The order of runs
    does not matter.

    Args:
        runs: runs with distinct names, scaled by the same rule.
        replicates: the number of replicates of every interval.
        seed: the seed of these.
        pooled: whether to add the mean over environments, in which all have the same weight (the
            paper's appendix on adapter scaling).
    """
    ordered = sorted(runs, key=lambda run: run.name)
    scores = {
        name: _stack_environment(run, arms)
        for run in ordered
        for name, arms in run.environments.items()
    }
    checkpoints = [
        _describe_checkpoint(name, run, arm)
        for run in ordered
        for name, arms in run.environments.items()
        for arm in arms
    ]
    stream = api.Stream(seed, "report/scaling")
    environments = [
        _describe_environments(name, {name: environment}, checkpoints, replicates, stream)
        for name, environment in scores.items()
    ]
    if pooled and len(scores) > 1:
        mean = _describe_environments("mean", scores, checkpoints, replicates, stream)
        environments.insert(0, mean)
    return [
        api.Table("scaling_environments", _ENVIRONMENTS, environments, _ENVIRONMENTS_NOTE),
        api.Table("scaling", _CHECKPOINTS, checkpoints, _CHECKPOINTS_NOTE),
        api.Table(
            "scaling_bounds",
            _BOUNDS,
            [row for run in ordered for row in _list_bounds(run)],
            _BOUNDS_NOTE,
            "Every scale of every checkpoint",
        ),
    ]


def _stack_environment(run: ScaledRun, arms: Sequence[ScaledArm]) -> Scores:
    names = ("chosen", *COMPARED_WITH)
    return Scores(
        {name: np.array([arm.passed[name] for arm in arms]) for name in names},
        np.array([arm.arm.seed for arm in arms], dtype=np.int64),
        run.item_ids,
    )


def _describe_checkpoint(environment: str, run: ScaledRun, checkpoint: ScaledArm) -> api.Row:
    """Describe an adapter before scaling (scale 1) and after (its chosen scale)."""
    choice = checkpoint.choice
    passed = checkpoint.passed
    before, after = (by_state(run.states, passed[name]) for name in ("trained", "chosen"))
    regressed = {0.0: 0} | {entry["scale"]: entry["regressed"] for entry in choice["scales"]}
    return {
        "environment": environment,
        "condition": checkpoint.arm.condition,
        "seed": checkpoint.arm.seed,
        "scale": choice["scale"],
        "tolerance": choice["tolerance"],
        "calibration_problems": choice["problems"],
        "calibration_solved": choice["solved"],
        "calibration_lost_before": regressed[1.0],
        "calibration_lost_after": regressed[choice["scale"]],
        "audit_solved": after.n_g,
        "audit_lost_before": before.regressed_g,
        "audit_lost_after": after.regressed_g,
        **{f"pass_at_1_{name}": Fraction(int(v.sum()), len(v)) for name, v in passed.items()},
        "rho_G_before": before.rho_g,
        "rho_G_after": after.rho_g,
        "kappa_S_before": before.kappa_s,
        "kappa_S_after": after.kappa_s,
        "kappa_U_before": before.kappa_u,
        "kappa_U_after": after.kappa_u,
    }


def _describe_environments(
    name: str,
    environments: Mapping[str, Scores],
    checkpoints: Iterable[api.Row],
    replicates: int,
    stream: api.Stream,
) -> api.Row:
    """Count the checkpoints of one or several environments, and estimate their mean gains."""
    members = [row for row in checkpoints if row["environment"] in environments]
    scales = Counter(row["scale"] for row in members)
    resampled = resample_environments(
        environments, "chosen", [*COMPARED_WITH], replicates=replicates, stream=stream
    )
    cells = [*environments.values()]
    return {
        "environment": name,
        "checkpoints": len(members),
        **{f"scale_{scale:g}": scales[scale] for scale in (0.0, *SCALES)},
        **{
            f"against_{other}": _estimate_gain(cells, other, resampled[other])
            for other in COMPARED_WITH
        },
        "above_before": sum(_exceeds_tolerance(row, "rho_G_before") for row in members),
        "above_after": sum(_exceeds_tolerance(row, "rho_G_after") for row in members),
    }


def _estimate_gain(
    cells: Sequence[Scores], other: str, replicates: NDArray[np.float64]
) -> Estimate:
    """Estimate the mean over environments of the chosen scale minus another one."""
    value = average_differences(cells, "chosen", other)
    estimate = estimate_mean(value, replicates)
    if estimate.low < estimate.high:
        return estimate
    return average_estimates(value, [cell.estimate_difference("chosen", other) for cell in cells])


def _exceeds_tolerance(row: api.Row, key: str) -> bool:
    # Compare floats, so that 10 of 100 equals a tolerance written as 0.1.
    return row[key] is not None and float(row[key]) > row["tolerance"]


def _list_bounds(run: ScaledRun) -> list[api.Row]:
    return [
        {
            "environment": name,
            "condition": checkpoint.arm.condition,
            "seed": checkpoint.arm.seed,
            "scale": entry["scale"],
            "solved": checkpoint.choice["solved"],
            "lost": entry["regressed"],
            "rho_G": entry["rho_G"],
            "upper_bound": entry["upper_bound"],
            "level": checkpoint.choice["level"],
            "tolerance": checkpoint.choice["tolerance"],
        }
        for name, arms in run.environments.items()
        for checkpoint in arms
        for entry in checkpoint.choice["scales"]
    ]


_LOST = ("lost_before", "lost_after")
_CHECKPOINT = (
    api.Column("environment", "environment"),
    api.Column("condition"),
    api.Column("seed", "seed"),
    api.Column("scale", "scale"),
)
_ENVIRONMENTS = (
    api.Column("environment", "environment"),
    api.Column("checkpoints", "checkpoints", "count"),
    *(api.Column(f"scale_{scale:g}", f"at {scale:g}", "count") for scale in (0.0, *SCALES)),
    *(
        api.Column(f"against_{name}", f"− {title}", "points")
        for name, title in COMPARED_WITH.items()
    ),
    api.Column("above_before", "above at scale 1", "count"),
    api.Column("above_after", "above at chosen", "count"),
)
_CHECKPOINTS = (
    *_CHECKPOINT,
    *(api.Column(f"calibration_{key}") for key in ("problems", "solved", *_LOST)),
    *(api.Column(f"audit_{key}") for key in ("solved", *_LOST)),
    api.Column("pass_at_1_source", "source", "share"),
    api.Column("pass_at_1_trained", "scale 1", "share"),
    api.Column("pass_at_1_fixed", f"scale {FIXED:g}", "share"),
    api.Column("pass_at_1_chosen", "chosen scale", "share"),
    api.Column("rho_G_before", "ρ_G at scale 1", "share"),
    api.Column("rho_G_after", "ρ_G at chosen", "share"),
    *(api.Column(f"kappa_{state}_{when}") for state in "SU" for when in ("before", "after")),
)
_BOUNDS = (
    *_CHECKPOINT,
    api.Column("solved", "solved", "count"),
    api.Column("lost", "lost", "count"),
    api.Column("rho_G", "ρ_G", "share"),
    api.Column("upper_bound", "upper bound", "share"),
    api.Column("level"),
    api.Column("tolerance", "tolerance", "share"),
)
