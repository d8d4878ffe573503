"""Intervals of Pass@1 differences."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.core.records import SOURCE
from gapft_harness.report.figures.style import WIDTH, interval_row, rows_alone, spread
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What a difference is called, it, and its interval.
Row = tuple[str, Fraction, Interval]


def contrasts(findings: Findings) -> Figure:
    """Intervals of contrasts; a filled marker's interval excludes zero."""
    from matplotlib.figure import Figure

    between = [c for c in findings.contrasts if c.b != SOURCE]
    against = [c for c in findings.contrasts if c.b == SOURCE]
    groups = [
        (title, rows)
        for title, rows in (
            ("Between conditions", between),
            ("Against the source model", against),
        )
        if rows
    ]
    heights = [len(rows) + 1.4 for _, rows in groups]
    figure = Figure(figsize=(WIDTH, 0.27 * sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
    spread(figure)
    for axes, (title, rows) in zip(grid[:, 0], groups, strict=True):
        forest(axes, [_row(contrast) for contrast in rows])
        axes.set_title(title, x=0, pad=6)
    grid[-1, 0].set_xlabel("difference of Pass@1, percentage points, 95% interval")
    return figure


def _row(of: Contrast) -> Row:
    names = (wording.condition_name(name) for name in (of.a, of.b))
    return " \N{MINUS SIGN} ".join(names), of.delta, of.interval


def forest(axes: Axes, rows: Sequence[Row]) -> None:
    """Differences with their intervals, one below the other, and the same in numbers."""
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, (_, delta, interval) in enumerate(rows):
        interval_row(axes, y, delta, interval)
        axes.annotate(
            f"{wording.points(delta)} {wording.points_interval(interval)}",
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    rows_alone(axes)
