"""The format of a metric's numbers and changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.estimate import Estimate
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.wording import UNSTABLE, percent, points


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """The format of a metric's numbers and changes."""

    level: Callable[[float], str]
    change: Callable[[float], str]

    def interval(self, estimate: Estimate, units: int) -> str:
        """Format an interval of changes; mark one from few documents or clusters."""
        if not estimate.has_interval:
            return "–"
        few = UNSTABLE if units < STABLE_ITEMS else ""
        return f"[{self.change(estimate.low)}, {self.change(estimate.high)}]{few}"


def choose_format(is_share: bool) -> NumberFormat:
    """Choose percent and points for shares, else the metric's own unit."""
    if is_share:
        return NumberFormat(percent, points)
    return NumberFormat(wording.format_number, lambda change: wording.format_signed(change, 4))
