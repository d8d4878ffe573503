"""The findings on adapter scaling: by checkpoint, and by condition over environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.across_runs import Environment, replicate_means
from gapft_harness.analysis.bootstrap import Interval, percentile_interval
from gapft_harness.analysis.decomposition import Decomposition, decompose
from gapft_harness.analysis.scaling import SCALES
from gapft_harness.core.records import Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.scaling.job import ScaleChoice
from gapft_harness.experiments.scaling.reading import ScaledArm, ScaledRun

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
    arm: Arm
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
    ordered = sorted((run.in_order() for run in runs), key=lambda run: run.name)
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
                Stream(seed, "report/scaling"),
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
    stream: Stream,
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
