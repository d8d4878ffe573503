"""Findings on adapter scaling: exact means, counts, independence of order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.job import CalibratedScale, ScaleChoice
from gapft_harness.experiments.scaling.report import (
    ScaledArm,
    ScaledRun,
    build_blocks,
    build_content,
    compute_scaling,
)


def build_checkpoint(arm: Arm, source: np.ndarray, lost: int, scale: float) -> ScaledArm:
    """Build an arm that loses ``lost`` solved problems at scale 1, half of them at 0.75."""
    trained, fixed = source.copy(), source.copy()
    solved, wrong = np.flatnonzero(source), np.flatnonzero(~source)
    for passed, share in ((trained, 2), (fixed, 1)):
        passed[solved[: lost * share // 2]] = False
        passed[wrong[: len(wrong) * share // 2]] = True
    half = source.copy()
    half[wrong[: len(wrong) // 4]] = True
    by_scale = {0.0: source, 0.25: half, 0.5: half, 0.75: fixed, 1.0: trained}
    scales = tuple(CalibratedScale(s, 0, 0.0, 0.05) for s in (0.25, 0.5, 0.75, 1.0))
    choice = ScaleChoice(scale, 0.05, 0.10, 100, 60, scales)
    return ScaledArm(arm, choice, trained, fixed, by_scale[scale])


def build_run(name: str, chosen: dict[str, tuple[int, float]], solved: int = 50) -> ScaledRun:
    """Build a run; ``chosen`` has the problems lost at scale 1 and the chosen scale of each arm."""
    source = np.arange(100) < solved
    arms = [Arm(arm.split("-")[0], int(arm.split("-")[1])) for arm in chosen]
    checkpoints = tuple(
        build_checkpoint(arm, source, lost, scale)
        for arm, (lost, scale) in zip(arms, chosen.values(), strict=True)
    )
    states = np.where(source, "G", np.where(np.arange(100) % 2, "S", "U"))
    return ScaledRun(name, np.array([f"p{i:03}" for i in range(100)]), source, states, checkpoints)


def test_loss_equal_to_tolerance_is_not_above() -> None:
    """5 of 50 is 10%; 6 of 50 is more; the fixed scale loses half as many."""
    scaling = compute_scaling([build_run("r", {"a-1": (5, 1.0), "a-2": (6, 0.75)})], 20, 0)
    environment = scaling.environments["r/a"]
    assert (environment.above_before, environment.above_after) == (1, 0)
    assert [c.before.rho_g for c in scaling.checkpoints] == [Fraction(1, 10), Fraction(6, 50)]
    assert [c.after.rho_g for c in scaling.checkpoints] == [Fraction(1, 10), Fraction(3, 50)]


def test_environments_have_equal_weight() -> None:
    """Environments with three seeds and with one seed have the same weight."""
    three_seeds = build_run("one", {"a-1": (4, 1.0), "a-2": (4, 1.0), "a-3": (4, 1.0)})
    one_seed = build_run("two", {"a-1": (0, 0.0)})
    mean = compute_scaling([three_seeds, one_seed], 20, 0, pooled=True).mean
    assert mean is not None
    gain = Fraction(50 - 4, 100)
    assert mean.comparisons["source"].value == gain / 2
    assert mean.comparisons["fixed"].value == (gain - Fraction(25 - 2, 100) - Fraction(25, 100)) / 2
    assert mean.comparisons["trained"].value == (0 - Fraction(50, 100)) / 2
    assert mean.count_by_scale == {0.0: 1, 0.25: 0, 0.5: 0, 0.75: 0, 1.0: 3}


def build_shifted_arm(
    arm: Arm, source: np.ndarray, gained: int, lost: int, scale: float
) -> ScaledArm:
    """Build an arm that gains failures at its chosen scale and loses problems at scale 1."""
    chosen, trained = source.copy(), source.copy()
    chosen[np.flatnonzero(~source)[:gained]] = True
    trained[np.flatnonzero(source)[:lost]] = False
    scales = tuple(CalibratedScale(s, 0, 0.0, 0.05) for s in (0.25, 0.5, 0.75, 1.0))
    choice = ScaleChoice(scale, 0.05, 0.10, 100, 60, scales)
    return ScaledArm(arm, choice, trained, source, chosen)


def test_eight_environments_with_24_checkpoints_as_in_paper() -> None:
    """Two tasks, two models, two budgets, three seeds each.

    In the paper 17 checkpoints choose scale 1, six 0.75, one 0.5; four lose over 10% before.
    """
    scales = iter([1.0] * 17 + [0.75] * 6 + [0.5])
    losses = iter([6] * 4 + [5] * 20)  # of 50 solved problems
    gains = {"uniform": (0, 10, 20, 30), "uniform_4": (0, 10, 20, 50)}
    runs = []
    for number, size in enumerate((100, 100, 200, 400)):  # audits of different sizes
        source = np.arange(size) < 50
        states = np.where(source, "G", np.where(np.arange(size) % 2, "S", "U"))
        arms = []
        for condition, shares in gains.items():
            gained = shares[number] * size // 100
            arms += [
                build_shifted_arm(Arm(condition, seed), source, gained, next(losses), next(scales))
                for seed in (13, 21, 42)
            ]
        ids = np.array([f"p{i:03}" for i in range(size)])
        runs.append(ScaledRun(f"run{number}", ids, source, states, tuple(arms)))
    scaling = compute_scaling(runs, 400, 0, pooled=True)
    mean = scaling.mean
    assert mean is not None
    assert (len(mean.environments), mean.n_checkpoints) == (8, 24)
    assert mean.count_by_scale == {0.0: 0, 0.25: 0, 0.5: 1, 0.75: 6, 1.0: 17}
    assert (mean.above_before, mean.above_after) == (4, 0)
    # of 100, 100, 200 and 400 problems: (0 + 10 + 20 + 30 + 0 + 10 + 20 + 50) / 8 points
    assert mean.comparisons["source"].value == Fraction(140, 800)
    assert build_content(scaling)["mean"]["against_source"]["mean"] == 0.175
    alone = scaling.environments["run3/uniform_4"]
    assert (alone.n_checkpoints, alone.comparisons["source"].value) == (3, Fraction(1, 2))


def test_interval_of_mean_resamples_environments() -> None:
    """Two environments without other variance: a replicate's mean is the mean of two draws."""
    low, high = build_run("low", {"a-1": (0, 0.0)}), build_run("high", {"a-1": (0, 1.0)}, solved=0)
    mean = compute_scaling([low, high], 2000, 0, pooled=True).mean
    assert mean is not None
    assert mean.comparisons["source"].value == Fraction(1, 2)
    interval = mean.comparisons["source"]
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_copied_adapter_counts_once() -> None:
    run = build_run("r", {"a-1": (0, 1.0), "a-2": (0, 1.0), "b-1": (0, 1.0)})
    copied = replace(run.checkpoints[2], is_copy=True)
    scaling = compute_scaling([replace(run, checkpoints=(*run.checkpoints[:2], copied))], 20, 0)
    assert len(scaling.distinct_checkpoints) == 2
    assert scaling.environments["r/b"].n_checkpoints == 1


def test_source_without_solved_problems_has_no_rate() -> None:
    scaling = compute_scaling([build_run("r", {"a-1": (0, 0.5)}, solved=0)], 20, 0)
    assert build_content(scaling)["checkpoints"][0]["audit"]["rho_G"] == {
        "before": None,
        "after": None,
    }
    assert scaling.environments["r/a"].above_before == 0
    assert len(build_blocks(scaling)) == 6


def test_run_order_does_not_change_results() -> None:
    runs = [
        build_run("x", {"a-1": (3, 1.0), "a-2": (8, 0.5), "b-1": (2, 0.75), "b-2": (1, 0.0)}),
        build_run("y", {"a-1": (5, 0.75), "a-2": (0, 1.0)}, solved=40),
    ]
    forward, backward = (compute_scaling(order, 30, 0, pooled=True) for order in (runs, runs[::-1]))
    assert build_content(forward) == build_content(backward)


def test_added_condition_does_not_change_others() -> None:
    alone = compute_scaling([build_run("x", {"a-1": (3, 1.0), "a-2": (8, 0.5)})], 50, 0)
    both = compute_scaling(
        [build_run("x", {"a-1": (3, 1.0), "a-2": (8, 0.5), "b-1": (2, 0.75), "b-2": (1, 0.0)})],
        50,
        0,
    )
    assert both.environments["x/a"] == alone.environments["x/a"]
