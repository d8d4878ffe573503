"""Run-to-run noise: how much two runs of one model differ on the same items.

Two runs of one model on m items give differences d_i, whose mean is 0 for every item. If items are
independent, the mean difference of two further runs on n items has variance v / n with v = E[d^2].
A mean over S runs after minus one run before has variance v (1 + 1/S) / (2 n), because each run
contributes v / 2. v is the share of changed items times the mean square of their differences, which
is 1 if numbers are 0 or 1. To allow for few changed items, the share is replaced by the upper end
of its exact 95% interval (Clopper and Pearson 1934, Biometrika 26, 404-413).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from gapft_harness.analysis.bootstrap import Interval

_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class RunNoise:
    """The differences of two runs of one model.

    Attributes:
        items: m, number of items.
        changed: number of items whose number differs.
        mean_square: mean of the squared differences that are not 0; None if no item changed.
    """

    items: int
    changed: int
    mean_square: float | None

    @property
    def share_interval(self) -> Interval:
        """The exact 95% interval of the share of changed items."""
        interval = stats.binomtest(self.changed, self.items).proportion_ci(1 - _LEVEL, "exact")
        return Interval(float(interval.low), float(interval.high))

    def compute_limit(
        self, items: int, *, seeds: int = 1, mean_square: float | None = None
    ) -> float:
        """Compute the largest difference that noise alone explains (level 5%, two-sided).

        Args:
            items: n, number of items of the difference.
            seeds: S, number of runs after, whose mean is compared with one run before.
            mean_square: replaces this noise's, if no item of it changed; without both, it is 1.
        """
        square = self.mean_square if self.mean_square is not None else mean_square
        variance = self.share_interval.high * (1.0 if square is None else square)
        quantile = float(stats.norm.ppf(1 - _LEVEL / 2))
        return quantile * math.sqrt(variance * (1 + 1 / seeds) / (2 * items))
