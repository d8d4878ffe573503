"""The findings on retraining noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.analysis.paired import Changes
from gapft_harness.core.records import Arm


@dataclass(frozen=True, slots=True)
class Replicate:
    """An arm that was trained again.

    Attributes:
        arm: the replicate; its variant says what was drawn anew.
        changes: of the arm's audit decisions.
        worded: responses that are worded otherwise, right or wrong.
        same: whether its weights are the arm's, to the byte.
    """

    arm: Arm
    changes: Changes
    worded: int
    same: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the training seeds of a condition are apart.

    Attributes:
        seeds: how many.
        share: of the decisions, those in which two seeds differ, mean over pairs; None for one.
        lowest: Pass@1 of the seed that has the lowest.
        highest: that of the highest.
    """

    seeds: int
    share: Fraction | None
    lowest: Fraction
    highest: Fraction


@dataclass(frozen=True, slots=True)
class NoiseFindings:
    """All of it.

    Attributes:
        replicates: by condition, what was drawn anew, seed.
        spreads: by condition.
    """

    replicates: Sequence[Replicate]
    spreads: Mapping[str, Spread]

    def groups(self) -> dict[tuple[str, str], list[Replicate]]:
        """The replicates by condition and what was drawn anew."""
        found: dict[tuple[str, str], list[Replicate]] = {}
        for of in self.replicates:
            found.setdefault((of.arm.condition, of.arm.variant), []).append(of)
        return found


def total(group: Sequence[Replicate]) -> Changes:
    """All of their decisions taken together."""
    parts = [of.changes for of in group]
    return Changes(
        sum(of.n for of in parts), sum(of.lost for of in parts), sum(of.gained for of in parts)
    )
