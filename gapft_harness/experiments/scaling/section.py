"""Adapter scaling as a section of the report, for results.json, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.experiments.scaling.findings import CheckpointFindings, ScalingFindings
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole
from gapft_harness.report.results import number

Rows = Iterator[Sequence[object]]


def blocks(found: ScalingFindings) -> list[Block]:
    """A sentence, the conditions over environments, every checkpoint twice, and every bound."""
    return [
        Text(_result(found)),
        _conditions(found),
        Text(_caution(found), "note"),
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


def checkpoint_rows(found: ScalingFindings) -> Rows:
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


def bound_rows(found: ScalingFindings) -> Rows:
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
        f"{whole(count)}{{}} scale {_scale(scale)}" for scale, count in counts.items() if count
    ]
    chosen = wording.listed([first.format(" chose"), *(other.format("") for other in others)])
    before, after = (
        sum(getattr(of, name) for of in conditions) for name in ("above_before", "above_after")
    )
    return (
        f"Of {whole(total)} checkpoint{'s' * (total > 1)}, {chosen}. As trained, {whole(before)} "
        f"lost more than {_share(found.tolerance)} of the audit problems that the source solves; "
        f"at the chosen scale, {whole(after)}."
    )


def _conditions(found: ScalingFindings) -> Table:
    several = _several(found)
    rows = [
        [
            condition_name(name),
            *([whole(len(of.environments))] if several else []),
            _chosen(of.chosen),
            *(
                f"{points(compared.mean)} {wording.points_interval(compared.interval)}"
                for compared in of.against.values()
            ),
            f"{whole(of.above_before)} → {whole(of.above_after)} of {whole(of.checkpoints)}",
        ]
        for name, of in found.conditions.items()
    ]
    return Table(
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
        f"{whole(found.replicates)} replicates that resample environments, then the training seeds "
        "of each, then its audit problems, the same ones for all seeds and for both sides of a "
        "difference; every environment counts the same. "
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


def _checkpoints(found: ScalingFindings) -> Table:
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
    return Table(
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


def _audited(found: ScalingFindings) -> Table:
    return Table(
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


def _bounds(found: ScalingFindings) -> Table:
    rows = [
        [
            *_names(found, of, at.scale),
            f"{whole(at.regressed)} of {whole(of.choice.solved)}",
            percent(at.upper_bound),
            "yes" if at.upper_bound <= of.choice.tolerance else "no",
        ]
        for of in found.checkpoints
        for at in of.choice.scales
    ]
    return Table(
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
        f"{_scale(scale)} ({whole(counts[scale])})"
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
