"""Adapter scaling in the report: read decisions, compute findings, build section and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import api
from gapft_harness.analysis.decomposition import Decomposition, by_state
from gapft_harness.analysis.estimate import Estimate, estimate_mean
from gapft_harness.analysis.resampling import Scores, average_differences, resample_environments
from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.api import (
    condition_name,
    layout,
    listed,
    percent,
    points,
    points_interval,
    wording,
)
from gapft_harness.experiments.scaling.job import CalibratedScale, ScaleChoice
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.results import to_float
from gapft_harness.stages.train.stored import TRAINED_AS


@dataclass(frozen=True, slots=True)
class ScaledArm:
    """The audit verdicts of one adapter at the compared scales.

    Attributes:
        arm: the arm.
        choice: its scale, and the calibration results of all scales.
        trained: shape (P,), V of its greedy decode at scale 1.
        fixed: shape (P,), the same at the fixed scale.
        chosen: shape (P,), the same at the chosen scale; at scale 0, V of the source.
        is_copy: whether the adapter is a copy of another arm's, trained on the same set.
    """

    arm: api.Arm
    choice: ScaleChoice
    trained: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    chosen: NDArray[np.bool_]
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """The checkpoints of a run; every condition is one environment.

    Attributes:
        name: the name of the run.
        item_ids: shape (P,), the ids of the audit problems.
        source: shape (P,), V of the source's greedy decode; where it is true, the state is G.
        states: shape (P,), ``G``, ``S`` or ``U``.
        checkpoints: by condition in the recipe's order, then by ascending seed.
    """

    name: str
    item_ids: NDArray[np.str_]
    source: NDArray[np.bool_]
    states: NDArray[np.str_]
    checkpoints: tuple[ScaledArm, ...]


def read_scaled_run(
    run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
) -> ScaledRun | None:
    """Read the scaled decisions of a run; None if it scales no adapters or has no arms.

    Args:
        run_path: the run directory.
        manifest: its manifest.
        arms: the arms to read.

    Raises:
        GapftError: the tables contain different problems.
    """
    recipe = manifest["recipe"]
    if "scaling" not in recipe["experiments"] or not arms:
        return None
    table, k = run_path / layout.responses_path("audit"), recipe["search"]["k"]
    audit = read_verdicts(table, k)
    ids = api.read_columns(run_path / layout.problems_path("audit"), ("problem_id",))["problem_id"]

    def read_at_scale(arm: api.Arm, scale: float) -> NDArray[np.bool_]:
        if not scale:
            return audit.deployed
        table = run_path / layout.scaled_decisions_path(arm, scale)
        passed: NDArray[np.bool_] = api.read_decisions(table, ids) == api.PASS
        return passed

    checkpoints, condition_names = [], list(dict.fromkeys(arm.condition for arm in arms))
    for arm in sorted(arms, key=lambda arm: (condition_names.index(arm.condition), arm.seed)):
        choice = ScaleChoice.from_json(read_choice(run_path, arm))
        copied = TRAINED_AS in manifest["training"].get(arm.name, {})
        checkpoints.append(
            ScaledArm(
                arm,
                choice,
                read_at_scale(arm, 1.0),
                read_at_scale(arm, FIXED),
                read_at_scale(arm, choice.scale),
                copied,
            )
        )
    audit_arrays = np.array(ids, dtype=np.str_), audit.deployed, audit.states
    return ScaledRun(recipe["name"], *audit_arrays, tuple(checkpoints))


#: What the chosen scale is compared with: the source, the fixed scale, the trained adapter.
COMPARED_WITH = ("source", "fixed", "trained")


@dataclass(frozen=True, slots=True)
class CheckpointFindings:
    """One adapter before scaling (scale 1) and after (its chosen scale), on the audit.

    Attributes:
        environment: the name of its environment.
        arm: the arm.
        is_copy: whether the adapter is a copy of another arm's.
        choice: its scale, and the calibration results of all scales.
        before: the decomposition of its change on the audit at scale 1.
        after: the same at the chosen scale.
        pass_at_1: Pass@1 by ``source``, ``trained``, ``fixed`` and ``chosen``.
    """

    environment: str
    arm: api.Arm
    is_copy: bool
    choice: ScaleChoice
    before: Decomposition
    after: Decomposition
    pass_at_1: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class EnvironmentGroup:
    """Checkpoints that are counted and averaged together: one environment or several.

    Attributes:
        environments: names, ascending.
        count_by_scale: the number of checkpoints by chosen scale, including 0.
        above_before: the number of checkpoints whose ρ_G on the audit exceeds the tolerance at
            scale 1.
        above_after: the same at the chosen scale.
        comparisons: Pass@1 at the chosen scale minus that of each row in ``COMPARED_WITH``, mean
            over environments.
    """

    environments: tuple[str, ...]
    count_by_scale: Mapping[float, int]
    above_before: int
    above_after: int
    comparisons: Mapping[str, Estimate]

    @property
    def n_checkpoints(self) -> int:
        """The number of checkpoints."""
        return sum(self.count_by_scale.values())


@dataclass(frozen=True, slots=True)
class ScalingFindings:
    """The findings on adapter scaling.

    Attributes:
        level: the joint level of the four bounds of a checkpoint.
        tolerance: the highest bound that counts as safe.
        replicates: the number of replicates of every interval.
        checkpoints: ordered by environment, then as in its run.
        environments: each environment alone, by name.
        mean: the mean over all environments; None: the environments are conditions of a single
            run, which may have the same budget.
    """

    level: float
    tolerance: float
    replicates: int
    checkpoints: tuple[CheckpointFindings, ...]
    environments: Mapping[str, EnvironmentGroup]
    mean: EnvironmentGroup | None

    @property
    def distinct_checkpoints(self) -> list[CheckpointFindings]:
        """The checkpoints without copies of other arms' adapters."""
        return [checkpoint for checkpoint in self.checkpoints if not checkpoint.is_copy]


def compute_scaling(
    runs: Sequence[ScaledRun], replicates: int, seed: int, *, pooled: bool = False
) -> ScalingFindings:
    """Compute the findings of one run or several.

    Every condition of a run is one environment, with a checkpoint for each seed. The order of runs
    and conditions does not matter.

    Args:
        runs: runs with distinct names, scaled by the same rule.
        replicates: the number of replicates of every interval.
        seed: the seed of these.
        pooled: whether to compute a mean over environments, in which all have the same weight (the
            paper's appendix on adapter scaling).
    """
    ordered = sorted(runs, key=lambda run: run.name)
    run_by_environment = {
        format_environment_name(run.name, condition): (run, condition)
        for run in ordered
        for condition in dict.fromkeys(arm.arm.condition for arm in run.checkpoints)
    }
    checkpoints = {
        name: [_compute_checkpoint(name, run, arm) for arm in _select_arms(run, condition)]
        for name, (run, condition) in run_by_environment.items()
    }
    environments = {
        name: _build_environment(run, _select_arms(run, condition))
        for name, (run, condition) in run_by_environment.items()
    }
    stream = api.Stream(seed, "report/scaling")

    def compute_named_group(names: Iterable[str]) -> EnvironmentGroup:
        chosen_names = sorted(names)
        return _compute_group(
            {name: environments[name] for name in chosen_names},
            [checkpoint for name in chosen_names for checkpoint in checkpoints[name]],
            replicates,
            stream,
        )

    rule = next(iter(checkpoints.values()))[0].choice
    return ScalingFindings(
        level=rule.level,
        tolerance=rule.tolerance,
        replicates=replicates,
        checkpoints=tuple(
            checkpoint for checkpoint_list in checkpoints.values() for checkpoint in checkpoint_list
        ),
        environments={name: compute_named_group([name]) for name in environments},
        mean=compute_named_group(environments) if pooled and len(environments) > 1 else None,
    )


def format_environment_name(run: str, condition: str) -> str:
    """Return the name of the environment of a run and a condition."""
    return f"{run}/{condition}"


def _select_arms(run: ScaledRun, condition: str) -> list[ScaledArm]:
    return [arm for arm in run.checkpoints if arm.arm.condition == condition]


def _compute_checkpoint(environment: str, run: ScaledRun, arm: ScaledArm) -> CheckpointFindings:
    decisions = {
        "source": run.source, "trained": arm.trained, "fixed": arm.fixed, "chosen": arm.chosen,
    }  # fmt: skip
    return CheckpointFindings(
        environment=environment,
        arm=arm.arm,
        is_copy=arm.is_copy,
        choice=arm.choice,
        before=by_state(run.states, arm.trained),
        after=by_state(run.states, arm.chosen),
        pass_at_1={
            name: Fraction(int(passed.sum()), len(passed)) for name, passed in decisions.items()
        },
    )


def _compute_group(
    environments: Mapping[str, Scores],
    checkpoints: Sequence[CheckpointFindings],
    replicates: int,
    stream: api.Stream,
) -> EnvironmentGroup:
    resampled = resample_environments(
        environments, "chosen", COMPARED_WITH, replicates=replicates, stream=stream
    )
    tolerance = checkpoints[0].choice.tolerance
    counts = Counter(checkpoint.choice.scale for checkpoint in checkpoints)
    return EnvironmentGroup(
        environments=tuple(environments),
        count_by_scale={scale: counts[scale] for scale in (0.0, *SCALES)},
        above_before=sum(
            _exceeds(checkpoint.before.rho_g, tolerance) for checkpoint in checkpoints
        ),
        above_after=sum(_exceeds(checkpoint.after.rho_g, tolerance) for checkpoint in checkpoints),
        comparisons={
            other: estimate_mean(
                average_differences([*environments.values()], "chosen", other), resampled[other]
            )
            for other in COMPARED_WITH
        },
    )


def _exceeds(rate: Fraction | None, tolerance: float) -> bool:
    # Compare floats, so that 10 of 100 equals a tolerance written as 0.1.
    return rate is not None and float(rate) > tolerance


def _build_environment(run: ScaledRun, checkpoints: Sequence[ScaledArm]) -> Scores:
    return Scores(
        {
            "chosen": np.array([checkpoint.chosen for checkpoint in checkpoints]),
            "source": np.array([run.source for _ in checkpoints]),
            "fixed": np.array([checkpoint.fixed for checkpoint in checkpoints]),
            "trained": np.array([checkpoint.trained for checkpoint in checkpoints]),
        },
        seeds=np.array([checkpoint.arm.seed for checkpoint in checkpoints], dtype=np.int64),
        items=run.item_ids,
    )


def _count_calibration_losses(checkpoint: CheckpointFindings) -> tuple[int, int]:
    """Count solved calibration problems that are lost at scale 1 and at the chosen scale."""
    calibrated_scale = checkpoint.choice.find_scale(checkpoint.choice.scale)
    return checkpoint.choice.scales[
        -1
    ].regressed, 0 if calibrated_scale is None else calibrated_scale.regressed


def _list_rates(
    checkpoint: CheckpointFindings,
) -> list[tuple[str, Fraction | None, Fraction | None]]:
    """List audit rates at scale 1 and at the chosen scale, with their keys in results.json."""
    return [
        ("rho_G", checkpoint.before.rho_g, checkpoint.after.rho_g),
        ("kappa_S", checkpoint.before.kappa_s, checkpoint.after.kappa_s),
        ("kappa_U", checkpoint.before.kappa_u, checkpoint.after.kappa_u),
    ]


def _format_change(before: Fraction | None, after: Fraction | None) -> str:
    return f"{percent(before)} → {percent(after)}"


def _format_chosen_scales(counts: Mapping[float, int]) -> str:
    return ", ".join(
        f"{_format_scale(scale)} ({wording.format_count(counts[scale])})"
        for scale in (*reversed(SCALES), 0.0)
        if counts[scale]
    )


def _format_share(rate: float) -> str:
    """Format a setting as a percentage with the digits that it was written with."""
    return f"{100 * rate:g}%"


def _format_scale(scale: float) -> str:
    return f"{scale:g}"


class ScalingPart(api.Part):
    """The part of the report on adapter scaling."""

    name = "scaling"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> ScaledRun | None:
        """Read the decisions of the adapters at the compared scales."""
        return read_scaled_run(run_path, manifest, arms)

    def compute(self, inputs: api.ReportInputs, read: ScaledRun) -> ScalingFindings:
        """Compute the findings; each condition is an environment, without a common mean."""
        statistics = inputs.recipe["statistics"]
        return compute_scaling([read], statistics["replicates"], statistics["seed"])

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: ScalingFindings
    ) -> Iterator[api.Section]:
        """Return the section on adapter scaling."""
        yield api.Section("Adapter scaling", build_blocks(part_findings))

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: ScalingFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of all checkpoints and of all bounds."""
        yield from build_csv_tables(part_findings).items()

    def results(self, part_findings: ScalingFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        return build_content(part_findings)

    def verdicts(self, inputs: api.ReportInputs, read: ScaledRun) -> dict[str, Mapping[str, int]]:
        """Count the verdicts on the calibration split, and on the audit at other scales."""
        source = inputs.verdict_counts[str(api.CALIBRATION)]
        label = "source" if inputs.deployment else "source greedy"
        counts = {f"calibration, {label}": Counter(source)}
        for trained in inputs.arms:
            name = condition_name(trained.arm.condition)
            for label, infix in (
                (f"calibration, {name} at every scale", "calibration-"),
                (f"audit, {name} at scales below 1", "scale-"),
            ):
                for file, file_counts in inputs.verdict_counts.items():
                    if file.startswith(f"{trained.arm.name}.{infix}"):
                        counts.setdefault(label, Counter()).update(file_counts)
        return {label: dict(file_counts) for label, file_counts in counts.items()}


def build_blocks(part_findings: ScalingFindings) -> list[api.Block]:
    """Build the result, and tables of environments, checkpoints and bounds."""
    return [
        api.Text(_describe_result(part_findings)),
        _build_environment_table(part_findings),
        api.Text(_write_caution(part_findings), "note"),
        _build_checkpoint_table(part_findings),
        _build_audit_table(part_findings),
        _build_bound_table(part_findings),
    ]


def build_content(part_findings: ScalingFindings) -> dict[str, Any]:
    """Build the entry of results.json."""
    return {
        "level": part_findings.level,
        "tolerance": part_findings.tolerance,
        "comparisons": len(SCALES),
        "fixed": FIXED,
        "mean": None if part_findings.mean is None else _build_entry(part_findings.mean),
        "environments": {
            name: _build_entry(group) for name, group in part_findings.environments.items()
        },
        "checkpoints": [
            {
                "environment": checkpoint.environment,
                "condition": checkpoint.arm.condition,
                "seed": checkpoint.arm.seed,
                "scale": checkpoint.choice.scale,
                "calibration": {
                    "problems": checkpoint.choice.problems,
                    "solved": checkpoint.choice.solved,
                    "scales": [
                        asdict(calibrated_scale) for calibrated_scale in checkpoint.choice.scales
                    ],
                },
                "audit": {
                    "solved": checkpoint.after.n_g,
                    "regressed": {
                        "before": checkpoint.before.regressed_g,
                        "after": checkpoint.after.regressed_g,
                    },
                    **{
                        key: {"before": to_float(before), "after": to_float(after)}
                        for key, before, after in _list_rates(checkpoint)
                    },
                    "pass_at_1": {name: float(rate) for name, rate in checkpoint.pass_at_1.items()},
                },
            }
            for checkpoint in part_findings.checkpoints
        ],
    }


def _build_entry(group: EnvironmentGroup) -> dict[str, Any]:
    """Build the entry of one environment, or of the mean, for results.json."""
    return {
        "environments": list(group.environments),
        "checkpoints": group.n_checkpoints,
        "scales": {f"{scale:g}": count for scale, count in group.count_by_scale.items()},
        "above_tolerance": {"before": group.above_before, "after": group.above_after},
        **{
            f"against_{comparison}": {
                "mean": float(compared.value),
                "ci95": [compared.low, compared.high],
            }
            for comparison, compared in group.comparisons.items()
        },
    }


def build_csv_tables(part_findings: ScalingFindings) -> dict[str, api.Rows]:
    """Build CSV tables by file name: one row per checkpoint, and per checkpoint and scale."""
    columns = [*CHECKPOINT, *CALIBRATION, *LOST, *PASS_AT_1, *CORRECTED]
    return {
        "scaling.csv": api.Frame(columns, part_findings.checkpoints).csv(),
        "scaling_bounds.csv": api.Frame(BOUNDS, _list_bounds(part_findings)).csv(),
    }


def _describe_result(part_findings: ScalingFindings) -> str:
    checkpoints = part_findings.distinct_checkpoints
    total, scales = len(checkpoints), Counter(row.choice.scale for row in checkpoints)
    first, *other_texts = [
        f"{wording.format_count(scales[scale])}{{}} scale {_format_scale(scale)}"
        for scale in (*reversed(SCALES), 0.0)
        if scales[scale]
    ]
    scale_texts = listed([first.format(" chose"), *(other.format("") for other in other_texts)])
    before, after = (
        sum(_exceeds(parts.rho_g, part_findings.tolerance) for parts in decompositions)
        for decompositions in zip(*((row.before, row.after) for row in checkpoints), strict=True)
    )
    count = len(part_findings.environments)
    origin = (
        f" from {wording.format_count(count)} environments"
        if part_findings.mean is not None
        else ""
    )
    text = (
        f"Of {wording.format_count(total)} checkpoint{'s' * (total > 1)}{origin}, {scale_texts}. "
        f"As trained, {wording.format_count(before)} lost more than "
        f"{_format_share(part_findings.tolerance)} of the audit problems that the source solves; "
        f"at the chosen scale, {wording.format_count(after)}."
    )
    if part_findings.mean is None:
        return text
    gain, fixed = (part_findings.mean.comparisons[what] for what in ("source", "fixed"))
    return (
        f"{text} The equal-environment mean of Pass@1 at the chosen scales is "
        f"{points(gain.value)} points above the source {points_interval(gain)}, and "
        f"differs from the fixed scale {_format_scale(FIXED)} by {points(fixed.value)} "
        f"{points_interval(fixed)}."
    )


def _build_environment_table(part_findings: ScalingFindings) -> api.Table:
    if part_findings.mean is None:
        names = {
            row.environment: condition_name(row.arm.condition) for row in part_findings.checkpoints
        }
        rows = [(names[name], group) for name, group in part_findings.environments.items()]
    else:
        mean = (
            f"mean of {wording.format_count(len(part_findings.environments))}",
            part_findings.mean,
        )
        rows = [mean, *part_findings.environments.items()]
    return api.Frame(GROUPS, rows).table(
        "Pass@1 on the audit at the chosen scales, minus that of the source, of the fixed "
        f"scale {_format_scale(FIXED)}, and of the trained adapters (scale 1); in percentage "
        "points, with 95% intervals. Scales chosen: in brackets the number of checkpoints. Last "
        "column: checkpoints whose ρ_G on the audit exceeds the tolerance, as trained and at the "
        "chosen scale.",
        fill={"SHARE": _format_share(part_findings.tolerance)},
    )


EnvironmentGroupRow = tuple[str, EnvironmentGroup]
_COMPARISON_MEANING = "Pass@1 at chosen scales minus that of the source or of this scale"
_SCALE_MEANING = "the factor of the adapter; in brackets the number of adapters"


def build_comparison_column(comparison: str, title: str) -> api.Column[EnvironmentGroupRow]:
    """Build the column of differences between chosen scales and a reference."""

    def format_comparison(row: EnvironmentGroupRow) -> str:
        compared = row[1].comparisons[comparison]
        return f"{points(compared.value)} {points_interval(compared)}"

    return api.Column("", _COMPARISON_MEANING, format_comparison, f"against {title}")


def _format_above_tolerance(row: EnvironmentGroupRow) -> str:
    before, after, n_checkpoints = row[1].above_before, row[1].above_after, row[1].n_checkpoints
    return (
        f"{wording.format_count(before)} → {wording.format_count(after)} of "
        f"{wording.format_count(n_checkpoints)}"
    )


_ENVIRONMENT_MEANING = "a condition of a run: a task, a model and a budget"
GROUPS: tuple[api.Column[EnvironmentGroupRow], ...] = (
    api.Column("", _ENVIRONMENT_MEANING, lambda row: row[0], "environment"),
    api.Column(
        "",
        _SCALE_MEANING,
        lambda row: _format_chosen_scales(row[1].count_by_scale),
        "scales chosen",
    ),
    build_comparison_column("source", "source"),
    build_comparison_column("fixed", f"{FIXED:g}"),
    build_comparison_column("trained", "1"),
    api.Column(
        "",
        "number of adapters that lose a larger share of G on the audit",
        _format_above_tolerance,
        "ρ_G above SHARE",
    ),
)


def _write_caution(part_findings: ScalingFindings) -> str:
    replicates = wording.format_count(part_findings.replicates)
    if part_findings.mean is None:
        drawn = (
            f"Each condition is an environment. Its interval has {replicates} replicates that "
            "resample training seeds and audit problems; it does not cover other tasks, models or "
            "budgets. A study of several runs pools them. "
        )
    else:
        drawn = (
            "An environment is a condition of a run. Intervals of the mean have "
            f"{replicates} replicates that resample environments, then the training seeds of each, "
            "then its audit problems, the same ones for all seeds and for both sides of a "
            "difference; all environments have the same weight. "
        )
    return (
        f"{drawn}Scales are chosen on calibration problems alone: their bounds do not guarantee "
        "the audit result of a single checkpoint."
    )


def _select_columns(
    part_findings: ScalingFindings, *columns: api.Column[Any]
) -> list[api.Column[Any]]:
    """Leave out the environment in the report of a run, and the condition with environments."""
    hidden_title = "environment" if part_findings.mean is None else "condition"
    return [column for column in columns if column.title != hidden_title]


def _build_checkpoint_table(part_findings: ScalingFindings) -> api.Table:
    columns = _select_columns(part_findings, *CHECKPOINT, *CALIBRATION, *PASS_AT_1)
    return api.Frame(columns, part_findings.checkpoints).table(
        "Calibration ρ_G: lost share of the calibration problems that the source solves, at scale "
        "1 → at the chosen scale. Bound: upper bound of this rate at the chosen scale. Last four "
        "columns: Pass@1 on the audit.",
        words=1,
    )


def _build_audit_table(part_findings: ScalingFindings) -> api.Table:
    columns = _select_columns(part_findings, *CHECKPOINT, *LOST, *CORRECTED)
    return api.Frame(columns, part_findings.checkpoints).table(
        "On the audit, at scale 1 → at the chosen scale. ρ_G: lost share of the problems that the "
        "source solves. κ_S and κ_U: corrected shares of the failures that search recovered and "
        "missed.",
        words=1,
    )


def _format_loss_rates(row: CheckpointFindings) -> str:
    solved = row.choice.solved
    return _format_change(
        *(Fraction(n, solved) if solved else None for n in _count_calibration_losses(row))
    )


def _find_bound(row: CheckpointFindings) -> float | None:
    calibrated_scale = row.choice.find_scale(row.choice.scale)
    return None if calibrated_scale is None else calibrated_scale.upper_bound


def _build_pass_column(name: str, title: str) -> api.Column[CheckpointFindings]:
    return api.Column(
        f"pass_at_1_{name}", "Pass@1 at this scale", lambda row: row.pass_at_1[name], title, percent
    )


def _build_rate_column(
    key: str, title: str, value: Callable[[Decomposition], Fraction | None]
) -> tuple[api.Column[CheckpointFindings], ...]:
    """Build the column of a rate at scale 1 and at the chosen scale."""

    def find_pair(row: CheckpointFindings) -> tuple[Fraction | None, Fraction | None]:
        return value(row.before), value(row.after)

    names = (f"{key}_before", f"{key}_after")
    return (
        api.Column(key, "", find_pair, title, lambda rates: _format_change(*rates), names=names),
    )


_CALIBRATION_MEANING = (
    "lost share of solved calibration problems at scale 1 → at the chosen scale; its upper bound"
)
CHECKPOINT: tuple[api.Column[CheckpointFindings], ...] = (
    api.Column("environment", _ENVIRONMENT_MEANING, lambda row: row.environment, "environment"),
    api.Column("condition", "", lambda row: row.arm.condition, "condition", condition_name),
    api.Column("seed", "", lambda row: row.arm.seed, "seed"),
    api.Column("scale", _SCALE_MEANING, lambda row: row.choice.scale, "scale", _format_scale),
)
CALIBRATION: tuple[api.Column[CheckpointFindings], ...] = (
    api.Column("calibration_problems", "", lambda row: row.choice.problems),
    api.Column("calibration_solved", "", lambda row: row.choice.solved),
    api.Column(
        "calibration_lost",
        "",
        _count_calibration_losses,
        names=("calibration_lost_before", "calibration_lost_after"),
    ),
    api.Column("", _CALIBRATION_MEANING, _format_loss_rates, "calibration ρ_G"),
    api.Column("", _CALIBRATION_MEANING, _find_bound, "bound", percent),
)
PASS_AT_1: tuple[api.Column[CheckpointFindings], ...] = (
    _build_pass_column("source", "source"),
    _build_pass_column("trained", "at 1"),
    _build_pass_column("fixed", f"at {FIXED:g}"),
    _build_pass_column("chosen", "at chosen"),
)
LOST: tuple[api.Column[CheckpointFindings], ...] = (
    api.Column("audit_solved", "", lambda row: row.after.n_g),
    api.Column(
        "audit_lost",
        "",
        lambda row: (row.before.regressed_g, row.after.regressed_g),
        names=("audit_lost_before", "audit_lost_after"),
    ),
    api.Column("", "", lambda row: _format_change(row.before.rho_g, row.after.rho_g), "ρ_G"),
)
CORRECTED = (
    *_build_rate_column("kappa_S", "κ_S", lambda parts: parts.kappa_s),
    *_build_rate_column("kappa_U", "κ_U", lambda parts: parts.kappa_u),
)


def _build_bound_table(part_findings: ScalingFindings) -> api.Table:
    return api.Frame(_select_columns(part_findings, *BOUNDS), _list_bounds(part_findings)).table(
        "On the calibration split. Upper bound: one-sided Wilson, at level "
        f"{part_findings.level:g} / {len(SCALES)} each (Bonferroni). A scale is safe if its bound "
        f"is at most {_format_share(part_findings.tolerance)}. The chosen scale is the largest for "
        "which it and all smaller scales are safe, or 0, the source, if there is none. If the "
        "source solves no problem, the bound is 100%.",
        words=1,
        summary="Every scale of every checkpoint",
    )


BoundRow = tuple[CheckpointFindings, CalibratedScale]


def _list_bounds(part_findings: ScalingFindings) -> list[BoundRow]:
    return [(row, at) for row in part_findings.checkpoints for at in row.choice.scales]


def _format_losses(row: BoundRow) -> str:
    return (
        f"{wording.format_count(row[1].regressed)} of {wording.format_count(row[0].choice.solved)}"
    )


def _format_is_safe(row: BoundRow) -> str:
    return "yes" if row[1].upper_bound <= row[0].choice.tolerance else "no"


_SAFE_MEANING = "on the calibration split; safe: the bound is within the tolerance"
BOUNDS: tuple[api.Column[BoundRow], ...] = (
    api.Column("environment", _ENVIRONMENT_MEANING, lambda row: row[0].environment, "environment"),
    api.Column("condition", "", lambda row: row[0].arm.condition, "condition", condition_name),
    api.Column("seed", "", lambda row: row[0].arm.seed, "seed"),
    api.Column("scale", _SCALE_MEANING, lambda row: row[1].scale, "scale", _format_scale),
    api.Column("solved", "", lambda row: row[0].choice.solved),
    api.Column("lost", "", lambda row: row[1].regressed),
    api.Column("", _SAFE_MEANING, _format_losses, "solved problems lost"),
    api.Column("rho_G", "", lambda row: row[1].rho_G),
    api.Column(
        "upper_bound", _SAFE_MEANING, lambda row: row[1].upper_bound, "upper bound", percent
    ),
    api.Column("", _SAFE_MEANING, _format_is_safe, "safe"),
)
