"""Tables on adapter scaling: exact means, and the limit of a loss."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.job import choose_arm_scale
from gapft_harness.experiments.scaling.report import ScaledArm, ScaledRun, build_tables

Rows = list[dict[str, Any]]


def build_choice(scale: float) -> dict[str, Any]:
    """Build the content of a scaling.json, for a rule that accepts every scale."""
    solved = np.arange(100) < 60
    return {**choose_arm_scale(solved, [solved] * 4, 0.05, 0.10), "scale": scale}


def build_checkpoint(arm: Arm, source: np.ndarray, lost: int, scale: float) -> ScaledArm:
    """Build an arm that loses ``lost`` solved problems at scale 1, half of them at 0.75."""
    trained, fixed, low = source.copy(), source.copy(), source.copy()
    solved, wrong = np.flatnonzero(source), np.flatnonzero(~source)
    for passed, share in ((trained, 2), (fixed, 1)):
        passed[solved[: lost * share // 2]] = False
        passed[wrong[: len(wrong) * share // 2]] = True
    low[wrong[: len(wrong) // 4]] = True
    chosen = {0.0: source, 0.25: low, 0.5: low, 0.75: fixed, 1.0: trained}[scale]
    passed_by_scale = {"source": source, "trained": trained, "fixed": fixed, "chosen": chosen}
    return ScaledArm(arm, build_choice(scale), passed_by_scale)


def build_run(name: str, chosen: dict[str, tuple[int, float]], solved: int = 50) -> ScaledRun:
    """Build a run; ``chosen`` has the problems lost at scale 1 and the chosen scale of each arm."""
    source = np.arange(100) < solved
    checkpoints = [
        build_checkpoint(Arm(arm.split("-")[0], int(arm.split("-")[1])), source, lost, scale)
        for arm, (lost, scale) in chosen.items()
    ]
    states = np.where(source, "G", np.where(np.arange(100) % 2, "S", "U"))
    return ScaledRun(name, np.array([f"p{i:03}" for i in range(100)]), states, tuple(checkpoints))


def build_rows(*runs: ScaledRun, pooled: bool = False) -> dict[str, Rows]:
    tables = build_tables(runs, 20, 0, pooled=pooled)
    return {table.name: table.list_entries() for table in tables}


def test_loss_equal_to_tolerance_is_not_above() -> None:
    """5 of 50 is 10%; 6 of 50 is more; the fixed scale loses half as many."""
    tables = build_rows(build_run("r", {"a-1": (5, 1.0), "a-2": (6, 0.75)}))
    (environment,) = tables["scaling_environments"]
    assert (environment["above_before"], environment["above_after"]) == (1, 0)
    assert [row["rho_G_before"] for row in tables["scaling"]] == [5 / 50, 6 / 50]
    assert [row["rho_G_after"] for row in tables["scaling"]] == [5 / 50, 3 / 50]


def test_intervals_have_a_width_without_variation() -> None:
    same = build_run("r", {"a-1": (0, 0.0)})
    (environment,) = build_rows(same)["scaling_environments"]
    low, high = (environment[f"against_source_{end}"] for end in ("low", "high"))
    assert environment["against_source"] == 0
    assert low == -high < 0


def test_environments_have_equal_weight() -> None:
    """Environments with three seeds and with one seed have the same weight."""
    three_seeds = build_run("one", {"a-1": (4, 1.0), "a-2": (4, 1.0), "a-3": (4, 1.0)})
    one_seed = build_run("two", {"a-1": (0, 0.0)})
    mean, *_ = build_rows(three_seeds, one_seed, pooled=True)["scaling_environments"]
    assert mean["environment"] == "mean"
    gain = Fraction(50 - 4, 100)
    assert mean["against_source"] == float(gain / 2)
    fixed = (gain - Fraction(25 - 2, 100) - Fraction(25, 100)) / 2
    assert mean["against_fixed"] == float(fixed)
    assert mean["against_trained"] == (0 - 0.5) / 2
    assert mean["checkpoints"] == 4
    assert (mean["scale_0"], mean["scale_0.25"], mean["scale_1"]) == (1, 0, 3)
