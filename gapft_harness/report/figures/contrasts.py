"""Draw intervals of Pass@1 differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.core.records import SOURCE
from gapft_harness.presentation import palette
from gapft_harness.report.figures import style
from gapft_harness.report.figures.style import beside, interval_row, name_rows
from gapft_harness.report.findings.computation import Contrast, Findings
from gapft_harness.report.rendering import wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A difference's label, and the difference.
ForestRow = tuple[str, Estimate]


#: Most conditions of which every pair is drawn and is in the first table.
MAX_PAIRED = 5


def select_principal(findings: Findings) -> list[Contrast]:
    """Select the contrasts to show first: all, or with many conditions those of lead or source.

    Conditions whose models are those of another condition are left out.
    """
    names = {findings.lead, SOURCE, *findings.distinct}
    many = len(findings.conditions) > MAX_PAIRED
    return [
        contrast
        for contrast in findings.contrasts
        if {contrast.a, contrast.b} <= names
        and (not many or contrast.b == SOURCE or findings.lead in (contrast.a, contrast.b))
    ]


def format_contrast(findings: Findings, contrast: Contrast) -> str:
    """Format a contrast's name, with marks where budgets or settings are not matched."""
    names = (wording.condition_name(name) for name in (contrast.a, contrast.b))
    return " \N{MINUS SIGN} ".join(names) + findings.format_marks(contrast)


def draw_contrasts(findings: Findings) -> Figure:
    """Draw the intervals of the principal contrasts."""
    rows = [(contrast, _build_row(findings, contrast)) for contrast in select_principal(findings)]
    return forests(
        {
            "Between conditions": [row for contrast, row in rows if contrast.b != SOURCE],
            "Against the source model": [row for contrast, row in rows if contrast.b == SOURCE],
        }
    )


def forests(panels: Mapping[str, Sequence[ForestRow]]) -> Figure:
    """Draw differences in panels; a filled marker means that the interval excludes zero.

    Args:
        panels: rows for ``forest`` by panel title; panels without rows are left out.
    """
    panels = {title: rows for title, rows in panels.items() if rows}
    heights = [len(rows) + 1.4 for rows in panels.values()]
    figure, grid = style.panels(0.27 * sum(heights) + 0.5, len(panels), height_ratios=heights)
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        forest(axes, rows)
        axes.set_title(title, x=0, pad=6)
    grid[-1].set_xlabel("points of Pass@1, with 95% intervals")
    return figure


def _build_row(findings: Findings, contrast: Contrast) -> ForestRow:
    return format_contrast(findings, contrast), contrast.estimate


def forest(axes: Axes, rows: Sequence[ForestRow]) -> None:
    """Draw differences with their intervals in rows, with the numbers next to them.

    Args:
        axes: matplotlib axes.
        rows: from the top: a label, and a difference of rates.
    """
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, (_, estimate) in enumerate(rows):
        interval_row(axes, y, estimate)
        value = wording.points(estimate.value)
        beside(axes, y, f"{value} {wording.points_interval(estimate)}")
    name_rows(axes, [label for label, _ in rows])
