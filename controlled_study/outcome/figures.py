"""Numbers of every pre-training seed, with their interval over the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

#: Points within which a difference counts as none.
NONE_POINTS: Final = 1.0
#: Of the intervals that are shown and, but for the nulls, decide.
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Figure:
    """A number of every pre-training seed. Where one seed lacks it, no mean is taken of the others.

    Attributes:
        name: what it is.
        values: by pre-training seed, in points unless the name says otherwise; NaN where a seed
            does not have it.
        missing: by seed why it does not.
        finished: whether the runs that it is computed from are finished for all seeds.
    """

    name: str
    values: tuple[float, ...]
    missing: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    finished: bool = True

    @property
    def mean(self) -> float:
        """Over all seeds; NaN where one has no value."""
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Student's interval; NaN for fewer than two seeds, or where one has no value."""
        from scipy.stats import t

        seeds = len(self.values)
        if seeds < 2:
            return math.nan, math.nan
        error = float(np.std(self.values, ddof=1)) / math.sqrt(seeds)
        half = float(t.ppf((1 + level) / 2, seeds - 1)) * error
        return self.mean - half, self.mean + half

    def above(self, level: float = LEVEL) -> bool:
        """Whether the whole interval is above 0."""
        return self.interval(level)[0] > 0

    def below(self, level: float = LEVEL) -> bool:
        """Whether the whole interval is below 0."""
        return self.interval(level)[1] < 0

    @property
    def none(self) -> bool:
        """Whether the whole interval of 95% is within one point of 0."""
        low, high = self.interval()
        return low >= -NONE_POINTS and high <= NONE_POINTS
