"""Find the problems that an arm gained or lost, and choose examples by a fixed rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gapft_harness.core.streams import derive_key
from gapft_harness.report.reading.inputs import ReportInputs, TrainedArm

Change = Literal["gained", "lost"]
CHANGES: tuple[Change, ...] = ("gained", "lost")


@dataclass(frozen=True, slots=True)
class ChangedProblem:
    """One problem whose outcome differs between the source and one arm.

    Attributes:
        trained: the arm.
        position: the problem's index in ``Audit.ids``.
        change: gained or lost.
    """

    trained: TrainedArm
    position: int
    change: Change


@dataclass(frozen=True, slots=True)
class ChosenCase:
    """A problem that is shown as an example of a condition's changes.

    Attributes:
        position: its index in ``Audit.ids``.
        seeds: the seeds under which the condition changed it, ascending.
    """

    position: int
    seeds: tuple[int, ...]


def find_changes(inputs: ReportInputs) -> Iterator[ChangedProblem]:
    """Yield every gained and lost problem of every arm, by arm and problem id."""
    before = inputs.audit.deployed.passed
    for trained in inputs.arms:
        for position in np.flatnonzero(before != trained.deployed.passed):
            yield ChangedProblem(trained, int(position), "lost" if before[position] else "gained")


def choose_cases(
    inputs: ReportInputs, condition: str, change: Change, limit: int
) -> list[ChosenCase]:
    """Choose at most ``limit`` problems that a condition gained or lost.

    Those that changed under the most seeds come first; ties are ordered by a hash of the id.
    """
    before = inputs.audit.deployed.passed
    after = np.array([trained.deployed.passed for trained in inputs.find_arms(condition)])
    changed = after & ~before if change == "gained" else ~after & before
    counts = changed.sum(axis=0)
    ids = inputs.audit.ids
    order = sorted(
        np.flatnonzero(counts).tolist(),
        key=lambda p: (-counts[p], derive_key("case", str(ids[p])), str(ids[p])),
    )
    seeds = np.array(inputs.seeds)
    return [ChosenCase(p, tuple(seeds[changed[:, p]].tolist())) for p in order[:limit]]
