"""Adapter scaling in the report: what was decided, the findings, section and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import api
from gapft_harness.analysis.across_runs import Environment, replicate_means
from gapft_harness.analysis.bootstrap import Interval, percentile_interval
from gapft_harness.analysis.decomposition import Decomposition, decompose
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
from gapft_harness.experiments.scaling.job import ScaleChoice
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.results import number


@dataclass(frozen=True, slots=True)
class ScaledArm:
    """One adapter at the scales that are compared, on the audit.

    Attributes:
        arm: condition and seed.
        choice: its scale, and what the calibration split said of every scale.
        trained: shape (P,), V of its greedy decode at scale 1.
        fixed: shape (P,), the same at the fixed scale.
        chosen: shape (P,), the same at the chosen scale; the source's own where that is 0.
    """

    arm: api.Arm
    choice: ScaleChoice
    trained: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    chosen: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """A run's checkpoints. It is one environment of every condition that it has.

    Attributes:
        name: names the environment.
        item_ids: shape (P,), the audit problems.
        source: shape (P,), V of the source's greedy decode; where it holds, the state is G.
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
    """Reads the scaled decisions of a run; None if its recipe scales nothing, or it has no arms.

    Args:
        run_path: the run directory; the caller has checked the hashes of its files.
        manifest: its manifest.
        arms: the trained models.

    Raises:
        GapftError: the tables are not of the same problems.
    """
    recipe = manifest["recipe"]
    if "scaling" not in recipe["experiments"] or not arms:
        return None
    audit = read_verdicts(run_path / layout.responses("audit"), recipe["search"]["k"])
    ids = api.read_columns(run_path / layout.problems("audit"), ("problem_id",))["problem_id"]

    def at(arm: api.Arm, scale: float) -> NDArray[np.bool_]:
        if not scale:
            return audit.greedy
        passed: NDArray[np.bool_] = (
            api.read_decisions(run_path / layout.decisions_at(arm, scale), ids) == api.PASS
        )
        return passed

    checkpoints, names = [], list(dict.fromkeys(arm.condition for arm in arms))
    for arm in sorted(arms, key=lambda arm: (names.index(arm.condition), arm.seed)):
        choice = ScaleChoice.of(read_choice(run_path, arm))
        checkpoints.append(
            ScaledArm(arm, choice, at(arm, 1.0), at(arm, FIXED), at(arm, choice.scale))
        )
    of_audit = np.array(ids, dtype=np.str_), audit.greedy, audit.states
    return ScaledRun(recipe["name"], *of_audit, tuple(checkpoints))


#: What the chosen scale is compared with: the source, the fixed scale, the adapter as trained.
AGAINST = ("source", "fixed", "trained")


@dataclass(frozen=True, slots=True)
class CheckpointFindings:
    """One adapter before scaling (scale 1) and after (its chosen scale), on the audit.

    Attributes:
        environment: its run.
        before: what the adapter did to the audit's states at scale 1.
        after: the same at the chosen scale.
        pass_at_1: by ``source``, ``trained``, ``fixed`` and ``chosen``.
    """

    environment: str
    arm: api.Arm
    choice: ScaleChoice
    before: Decomposition
    after: Decomposition
    pass_at_1: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pass@1 at the chosen scale minus something, mean over environments."""

    mean: Fraction
    interval: Interval


@dataclass(frozen=True, slots=True)
class ConditionScaling:
    """One condition over its environments.

    Attributes:
        environments: names, ascending.
        chosen: checkpoints by scale, 0 among them.
        above_before: checkpoints whose ρ_G on the audit is above the tolerance at scale 1.
        above_after: the same at the chosen scale.
        against: by ``AGAINST``.
    """

    environments: tuple[str, ...]
    chosen: Mapping[float, int]
    above_before: int
    above_after: int
    against: Mapping[str, Comparison]

    @property
    def checkpoints(self) -> int:
        """How many adapters chose a scale."""
        return sum(self.chosen.values())


@dataclass(frozen=True, slots=True)
class ScalingFindings:
    """All of it.

    Attributes:
        level: of a checkpoint's four bounds together.
        tolerance: the highest bound that counts as safe.
        replicates: of every interval.
        checkpoints: by environment, then as in its run.
        conditions: in the order in which the environments have them.
    """

    level: float
    tolerance: float
    replicates: int
    checkpoints: tuple[CheckpointFindings, ...]
    conditions: Mapping[str, ConditionScaling]


def compute_scaling(runs: Sequence[ScaledRun], replicates: int, seed: int) -> ScalingFindings:
    """Computes the findings of one run or several, each an environment of its conditions.

    Args:
        runs: at least one, of distinct names and one rule; their order changes no figure.
        replicates: B.
        seed: of the replicates.
    """
    ordered = sorted(runs, key=lambda run: run.name)
    checkpoints = tuple(_checkpoint(run, of) for run in ordered for of in run.checkpoints)
    rule = checkpoints[0].choice
    names = dict.fromkeys(of.arm.condition for of in checkpoints)
    return ScalingFindings(
        level=rule.level,
        tolerance=rule.tolerance,
        replicates=replicates,
        checkpoints=checkpoints,
        conditions={
            name: _condition(
                name,
                [run for run in ordered if _of(run, name)],
                [found for found in checkpoints if found.arm.condition == name],
                replicates,
                api.Stream(seed, "report/scaling"),
            )
            for name in names
        },
    )


def _of(run: ScaledRun, condition: str) -> list[ScaledArm]:
    return [of for of in run.checkpoints if of.arm.condition == condition]


def _checkpoint(run: ScaledRun, of: ScaledArm) -> CheckpointFindings:
    decided = {"source": run.source, "trained": of.trained, "fixed": of.fixed, "chosen": of.chosen}
    return CheckpointFindings(
        environment=run.name,
        arm=of.arm,
        choice=of.choice,
        before=decompose(run.states, of.trained),
        after=decompose(run.states, of.chosen),
        pass_at_1={
            name: Fraction(int(passed.sum()), len(passed)) for name, passed in decided.items()
        },
    )


def _condition(
    name: str,
    runs: Sequence[ScaledRun],
    checkpoints: Sequence[CheckpointFindings],
    replicates: int,
    stream: api.Stream,
) -> ConditionScaling:
    environments = [_environment(run, _of(run, name)) for run in runs]
    drawn = replicate_means(environments, replicates=replicates, stream=stream)
    tolerance = checkpoints[0].choice.tolerance
    counts = Counter(found.choice.scale for found in checkpoints)
    return ConditionScaling(
        environments=tuple(run.name for run in runs),
        chosen={scale: counts[scale] for scale in (0.0, *SCALES)},
        above_before=sum(_above(found.before.rho_g, tolerance) for found in checkpoints),
        above_after=sum(_above(found.after.rho_g, tolerance) for found in checkpoints),
        against={
            what: Comparison(_mean(environments, what), percentile_interval(drawn[what]))
            for what in AGAINST
        },
    )


def _above(rate: Fraction | None, tolerance: float) -> bool:
    # As floats: 10 of 100 is then exactly a tolerance that was written 0.1.
    return rate is not None and float(rate) > tolerance


def _environment(run: ScaledRun, checkpoints: Sequence[ScaledArm]) -> Environment:
    def minus(other: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        chosen = np.array([of.chosen for of in checkpoints], dtype=np.int64)
        return chosen - np.array(other, dtype=np.int64)

    return Environment(
        name=run.name,
        seeds=np.array([of.arm.seed for of in checkpoints], dtype=np.int64),
        item_ids=run.item_ids,
        differences={
            "source": minus([run.source for _ in checkpoints]),
            "fixed": minus([of.fixed for of in checkpoints]),
            "trained": minus([of.trained for of in checkpoints]),
        },
    )


def _mean(environments: Sequence[Environment], what: str) -> Fraction:
    """Exact, every environment counting the same."""
    means = [
        Fraction(int(of.differences[what].sum()), of.differences[what].size) for of in environments
    ]
    return sum(means, Fraction(0)) / len(means)


class ScalingPart(api.Part):
    """Adapter scaling: a section and two tables."""

    name = "scaling"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> ScaledRun | None:
        """What the adapters decided at the scales that are compared."""
        return read_scaled_run(run_path, manifest, arms)

    def compute(self, inputs: api.ReportInputs, read: ScaledRun) -> ScalingFindings:
        """The run is the one environment of its conditions."""
        statistics = inputs.recipe["statistics"]
        return compute_scaling([read], statistics["replicates"], statistics["seed"])

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: ScalingFindings
    ) -> Iterator[api.Section]:
        """Adapter scaling."""
        yield api.Section("Adapter scaling", blocks(found))

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: ScalingFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Every checkpoint, and every bound."""
        yield "scaling.csv", checkpoint_rows(found)
        yield "scaling_bounds.csv", bound_rows(found)

    def results(self, found: ScalingFindings) -> dict[str, Any]:
        """For results.json."""
        return content(found)

    def verdicts(self, inputs: api.ReportInputs, read: ScaledRun) -> dict[str, Mapping[str, int]]:
        """The calibration split's, and those at other scales."""
        source = inputs.verdict_counts[str(api.CALIBRATION)]
        counts = {"calibration, source greedy": Counter(source)}
        for trained in inputs.arms:
            name = condition_name(trained.arm.condition)
            for label, infix in (
                (f"calibration, {name} at every scale", "calibration-"),
                (f"audit, {name} at scales below 1", "scale-"),
            ):
                for file, of in inputs.verdict_counts.items():
                    if file.startswith(f"{trained.arm.name}.{infix}"):
                        counts.setdefault(label, Counter()).update(of)
        return {label: dict(of) for label, of in counts.items()}


def blocks(found: ScalingFindings) -> list[api.Block]:
    """A sentence, the conditions over environments, every checkpoint twice, and every bound."""
    return [
        api.Text(_result(found)),
        _conditions(found),
        api.Text(_caution(found), "note"),
        _checkpoints(found),
        _audited(found),
        _bounds(found),
    ]


def content(found: ScalingFindings) -> dict[str, Any]:
    """For results.json."""
    return {
        "level": found.level,
        "tolerance": found.tolerance,
        "comparisons": len(SCALES),
        "fixed": FIXED,
        "conditions": {
            name: {
                "environments": list(of.environments),
                "checkpoints": of.checkpoints,
                "scales": {f"{scale:g}": count for scale, count in of.chosen.items()},
                "above_tolerance": {"before": of.above_before, "after": of.above_after},
                **{
                    f"against_{what}": {
                        "mean": float(compared.mean),
                        "ci95": [compared.interval.low, compared.interval.high],
                    }
                    for what, compared in of.against.items()
                },
            }
            for name, of in found.conditions.items()
        },
        "checkpoints": [
            {
                "environment": of.environment,
                "condition": of.arm.condition,
                "seed": of.arm.seed,
                "scale": of.choice.scale,
                "calibration": {
                    "problems": of.choice.problems,
                    "solved": of.choice.solved,
                    "scales": [asdict(at) for at in of.choice.scales],
                },
                "audit": {
                    "solved": of.after.n_g,
                    "regressed": {
                        "before": of.before.regressed_g,
                        "after": of.after.regressed_g,
                    },
                    **{
                        key: {"before": number(before), "after": number(after)}
                        for key, before, after in _rates(of)
                    },
                    "pass_at_1": {name: float(rate) for name, rate in of.pass_at_1.items()},
                },
            }
            for of in found.checkpoints
        ],
    }


def checkpoint_rows(found: ScalingFindings) -> api.Rows:
    """A line a checkpoint; the first names the columns."""
    yield (
        "environment", "condition", "seed", "scale", "calibration_problems", "calibration_solved",
        "calibration_lost_before", "calibration_lost_after", "audit_solved", "audit_lost_before",
        "audit_lost_after", "pass_at_1_source", "pass_at_1_trained", "pass_at_1_fixed",
        "pass_at_1_chosen", "kappa_S_before", "kappa_S_after", "kappa_U_before", "kappa_U_after",
    )  # fmt: skip
    for of in found.checkpoints:
        yield (
            *(of.environment, of.arm.condition, of.arm.seed, of.choice.scale),
            *(of.choice.problems, of.choice.solved, *_calibration_lost(of)),
            *(of.after.n_g, of.before.regressed_g, of.after.regressed_g),
            *(float(of.pass_at_1[name]) for name in ("source", "trained", "fixed", "chosen")),
            *(number(rate) for _, *pair in _rates(of)[1:] for rate in pair),
        )


def bound_rows(found: ScalingFindings) -> api.Rows:
    """A line a checkpoint and scale."""
    yield "environment", "condition", "seed", "scale", "solved", "lost", "rho_G", "upper_bound"
    for of in found.checkpoints:
        for at in of.choice.scales:
            rate = "" if at.rho_G is None else at.rho_G
            counts = (of.choice.solved, at.regressed, rate, at.upper_bound)
            yield (of.environment, of.arm.condition, of.arm.seed, at.scale, *counts)


def _result(found: ScalingFindings) -> str:
    conditions = found.conditions.values()
    total = sum(of.checkpoints for of in conditions)
    counts = {
        scale: sum(of.chosen[scale] for of in conditions) for scale in (*reversed(SCALES), 0.0)
    }
    first, *others = [
        f"{wording.whole(count)}{{}} scale {_scale(scale)}"
        for scale, count in counts.items()
        if count
    ]
    chosen = listed([first.format(" chose"), *(other.format("") for other in others)])
    before, after = (
        sum(getattr(of, name) for of in conditions) for name in ("above_before", "above_after")
    )
    return (
        f"Of {wording.whole(total)} checkpoint{'s' * (total > 1)}, {chosen}. As trained, "
        f"{wording.whole(before)} lost more than {_share(found.tolerance)} of the audit problems "
        f"that the source solves; at the chosen scale, {wording.whole(after)}."
    )


def _conditions(found: ScalingFindings) -> api.Table:
    several = _several(found)
    rows = [
        [
            condition_name(name),
            *([wording.whole(len(of.environments))] if several else []),
            _chosen(of.chosen),
            *(
                f"{points(compared.mean)} {points_interval(compared.interval)}"
                for compared in of.against.values()
            ),
            f"{wording.whole(of.above_before)} → {wording.whole(of.above_after)} of "
            f"{wording.whole(of.checkpoints)}",
        ]
        for name, of in found.conditions.items()
    ]
    return api.Table(
        [
            "condition",
            *(["environments"] if several else []),
            "scales chosen",
            "against source",
            f"against {_scale(FIXED)}",
            "against 1",
            f"ρ_G above {_share(found.tolerance)}",
        ],
        rows,
        words=1,
        note="Pass@1 on the audit at the chosen scales, minus that of the source, of the fixed "
        f"scale {_scale(FIXED)}, and of the adapters as trained (scale 1); in percentage points, "
        "mean over environments with 95% intervals. Scales chosen: in brackets how many "
        "checkpoints chose each. Last column: checkpoints of which ρ_G on the audit is above the "
        "tolerance, as trained and at the chosen scale.",
    )


def _caution(found: ScalingFindings) -> str:
    text = (
        "A run is one environment of each of its conditions. Intervals are percentiles of "
        f"{wording.whole(found.replicates)} replicates that resample environments, then the "
        "training seeds of each, then its audit problems, the same ones for all seeds and for both "
        "sides of a difference; every environment counts the same. "
    )
    if not _several(found):
        text += (
            "There is one environment here, so the intervals hold nothing of how another task, "
            "model or budget would come out; gapft study --scaling takes several runs together. "
        )
    return text + (
        "Scales are chosen on calibration problems alone: a bound that holds there is no promise "
        "about the audit of any one checkpoint."
    )


def _checkpoints(found: ScalingFindings) -> api.Table:
    rows = []
    for of in found.checkpoints:
        choice, lost = of.choice, _calibration_lost(of)
        at = choice.at(choice.scale)
        calibration = [Fraction(n, choice.solved) if choice.solved else None for n in lost]
        rows.append(
            [
                *_names(found, of, choice.scale),
                _change(*calibration),
                "–" if at is None else percent(at.upper_bound),
                *(percent(of.pass_at_1[name]) for name in ("source", "trained", "fixed", "chosen")),
            ]
        )
    return api.Table(
        [
            *_NAMES[not _several(found) :],
            *("calibration ρ_G", "bound", "source", "at 1", f"at {_scale(FIXED)}", "at chosen"),
        ],
        rows,
        words=1 + _several(found),
        note="Calibration ρ_G: share of the calibration problems that the source solves that are "
        "lost, at scale 1 → at the chosen scale. Bound: of this rate at the chosen scale. Last "
        "four columns: Pass@1 on the audit.",
    )


def _audited(found: ScalingFindings) -> api.Table:
    return api.Table(
        [*_NAMES[not _several(found) :], "ρ_G", "κ_S", "κ_U"],
        [
            [
                *_names(found, of, of.choice.scale),
                *(_change(before, after) for _, before, after in _rates(of)),
            ]
            for of in found.checkpoints
        ],
        words=1 + _several(found),
        note="On the audit, at scale 1 → at the chosen scale. ρ_G: share of the problems that the "
        "source solves that are lost. κ_S and κ_U: shares of the failures that search recovered "
        "and missed that are right now.",
    )


#: What a checkpoint is told by; the first only where there are several environments.
_NAMES = ("environment", "condition", "seed", "scale")


def _names(found: ScalingFindings, of: CheckpointFindings, scale: float) -> list[str]:
    names = [of.environment, condition_name(of.arm.condition), str(of.arm.seed), _scale(scale)]
    return names[not _several(found) :]


def _bounds(found: ScalingFindings) -> api.Table:
    rows = [
        [
            *_names(found, of, at.scale),
            f"{wording.whole(at.regressed)} of {wording.whole(of.choice.solved)}",
            percent(at.upper_bound),
            "yes" if at.upper_bound <= of.choice.tolerance else "no",
        ]
        for of in found.checkpoints
        for at in of.choice.scales
    ]
    return api.Table(
        [*_NAMES[not _several(found) :], "solved problems lost", "upper bound", "safe"],
        rows,
        words=1 + _several(found),
        note="On the calibration split. Upper bound: one-sided Wilson, at level "
        f"{found.level:g} / {len(SCALES)} each (Bonferroni). A scale is safe if its bound is at "
        f"most {_share(found.tolerance)}; chosen is the largest below which, itself among them, "
        "every scale is safe, and 0, the source, where there is none. Without a problem that the "
        "source solves the bound is 100%.",
        summary="Every scale of every checkpoint",
    )


def _calibration_lost(of: CheckpointFindings) -> tuple[int, int]:
    """Solved calibration problems lost at scale 1, and at the chosen scale."""
    at = of.choice.at(of.choice.scale)
    return of.choice.scales[-1].regressed, 0 if at is None else at.regressed


def _rates(of: CheckpointFindings) -> list[tuple[str, Fraction | None, Fraction | None]]:
    """The audit's rates at scale 1 and at the chosen scale, by their names in results.json."""
    return [
        ("rho_G", of.before.rho_g, of.after.rho_g),
        ("kappa_S", of.before.kappa_s, of.after.kappa_s),
        ("kappa_U", of.before.kappa_u, of.after.kappa_u),
    ]


def _change(before: Fraction | None, after: Fraction | None) -> str:
    return f"{percent(before)} → {percent(after)}"


def _chosen(counts: Mapping[float, int]) -> str:
    return ", ".join(
        f"{_scale(scale)} ({wording.whole(counts[scale])})"
        for scale in (*reversed(SCALES), 0.0)
        if counts[scale]
    )


def _share(rate: float) -> str:
    """A setting as a percentage, as it was written."""
    return f"{100 * rate:g}%"


def _several(found: ScalingFindings) -> bool:
    return len({of.environment for of in found.checkpoints}) > 1


def _scale(scale: float) -> str:
    return f"{scale:g}"
