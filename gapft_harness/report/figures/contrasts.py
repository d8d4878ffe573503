"""Intervals of Pass@1 differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.core.records import SOURCE
from gapft_harness.report.figures import style
from gapft_harness.report.figures.style import beside, interval_row, name_rows
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What a difference is called, it, and its interval.
ForestRow = tuple[str, Fraction, Interval]


#: Conditions of which every pair is drawn, and said first in the table.
MANY = 5


def principal(findings: Findings) -> list[Contrast]:
    """The contrasts that come first: all, or of many conditions those of the lead or the source.

    A condition whose models are another's has no place among them.
    """
    own = {findings.lead, SOURCE, *findings.distinct}
    many = len(findings.conditions) > MANY
    return [
        of
        for of in findings.contrasts
        if {of.a, of.b} <= own and (not many or of.b == SOURCE or findings.lead in (of.a, of.b))
    ]


def named(findings: Findings, contrast: Contrast) -> str:
    """What a contrast is called; marks say that budgets or settings are not matched."""
    names = (wording.condition_name(name) for name in (contrast.a, contrast.b))
    return " \N{MINUS SIGN} ".join(names) + findings.marks(contrast)


def contrasts(findings: Findings) -> Figure:
    """Intervals of the principal contrasts."""
    rows = [(of, _row(findings, of)) for of in principal(findings)]
    return forests(
        {
            "Between conditions": [row for of, row in rows if of.b != SOURCE],
            "Against the source model": [row for of, row in rows if of.b == SOURCE],
        }
    )


def forests(panels: Mapping[str, Sequence[ForestRow]]) -> Figure:
    """Draw differences in panels; a filled marker's interval excludes zero.

    Args:
        panels: by title, rows as ``forest`` draws them; a panel without rows is left out.
    """
    panels = {title: rows for title, rows in panels.items() if rows}
    heights = [len(rows) + 1.4 for rows in panels.values()]
    figure, grid = style.panels(0.27 * sum(heights) + 0.5, len(panels), height_ratios=heights)
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        forest(axes, rows)
        axes.set_title(title, x=0, pad=6)
    grid[-1].set_xlabel("points of Pass@1, with 95% intervals")
    return figure


def _row(findings: Findings, contrast: Contrast) -> ForestRow:
    return named(findings, contrast), contrast.delta, contrast.interval


def forest(axes: Axes, rows: Sequence[ForestRow]) -> None:
    """Draw differences with their intervals, one below the other, and the same in numbers.

    Args:
        axes: of matplotlib.
        rows: from above, of each a label, a difference of rates and its interval.
    """
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, (_, delta, interval) in enumerate(rows):
        interval_row(axes, y, delta, interval)
        beside(axes, y, f"{wording.points(delta)} {wording.points_interval(interval)}")
    name_rows(axes, [label for label, *_ in rows])
