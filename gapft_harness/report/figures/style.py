"""The common style of figures: size, fonts, colours of lines and text, space between panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.presentation import palette
from gapft_harness.report.rendering import wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A rate or a difference in the findings.
Rate = Fraction | float

WIDTH = 4.8  # inches
STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": palette.RULE,
    "axes.labelcolor": palette.MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titlecolor": palette.INK,
    "text.color": palette.INK,
    "xtick.color": palette.MUTED,
    "ytick.color": palette.MUTED,
    "xtick.labelcolor": palette.INK,
    "ytick.labelcolor": palette.INK,
    "figure.facecolor": palette.PAPER,
    "axes.facecolor": palette.PAPER,
    "legend.frameon": False,
    "text.parse_math": False,  # users' names may contain $; math is enabled where it is needed
    "svg.hashsalt": "gapft",  # ids in the SVG would be random otherwise
    "svg.fonttype": "path",
}


def panel(height: float) -> tuple[Figure, Axes]:
    """Create a figure with one panel.

    Args:
        height: in inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def panels(
    height: float, rows: int = 2, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Create a figure with several panels and space between them.

    Args:
        height: in inches.
        rows: rows of panels.
        columns: columns of panels.
        options: more arguments for ``Figure.subplots``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    spread(figure)
    return figure, [*figure.subplots(rows, columns, squeeze=False, **options).flat]


def spread(figure: Figure) -> None:
    """Leave space between the panels of a figure."""
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.1)


def legend_below(axes: Axes, handles: Sequence[Any]) -> None:
    """Add a legend below the axis label, where it hides no data."""
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.2, 0),
        borderaxespad=4.6,  # in font sizes: below ticks and label for any height of the panel
        ncols=4,
        fontsize=8.5,
        handlelength=0.9,
        handleheight=0.9,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0,
    )


def condition_rows(
    axes: Axes, conditions: Sequence[str], rows: Mapping[str, Mapping[str, Sequence[Rate | None]]]
) -> None:
    """Draw named rows with a marker for each condition at its rates, in percent.

    Args:
        axes: matplotlib axes.
        conditions: all conditions of the report; they determine the colours.
        rows: by label (may contain mathtext), from the top: each condition's values. Several values
            are joined by a line; None is left out.
    """
    names = list(dict.fromkeys(name for row_values in rows.values() for name in row_values))
    looks = palette.assign_series(conditions)
    has_lines = any(
        len(values) > 1 for row_values in rows.values() for values in row_values.values()
    )
    for place, name in enumerate(names):
        colour, marker = looks[name]
        offset = (place - (len(names) - 1) / 2) * min(0.16, 0.7 / len(names))
        for y, row_values in enumerate(rows.values()):
            percentages = [
                100 * float(rate) for rate in row_values.get(name, ()) if rate is not None
            ]
            axes.plot(
                percentages, [y + offset] * len(percentages), color=colour, marker=marker,
                markersize=5.5, linewidth=1.1 if has_lines else 0, clip_on=False, zorder=3,
                label="" if y else wording.condition_name(name),
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows), parse_math=True)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    if axes.dataLim.x0 >= 0:
        axes.set_xlim(left=0)
    rows_alone(axes)
    axes.tick_params(axis="y", pad=7)  # a marker at 0 extends over the edge


def beside(axes: Axes, y: float, text: str, x: float = 1.02) -> None:
    """Write a row's numbers to its right."""
    axes.annotate(text, (x, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows, from the top, and hide the left axis."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    rows_alone(axes)


def rows_alone(axes: Axes) -> None:
    """Style axes whose rows are named on the left: no left line or ticks, and a light grid."""
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=palette.RULE, linewidth=0.6)
    axes.set_axisbelow(True)


def interval_row(axes: Axes, y: float, estimate: Estimate) -> None:
    """Draw a difference with its interval, in percentage points; filled if it excludes zero."""
    ends = [100 * estimate.low, 100 * estimate.high]
    axes.plot(ends, [y, y], color=palette.RIGHT, linewidth=1.6)
    axes.plot(
        [100 * float(estimate.value)],
        [y],
        "o",
        markersize=6,
        markeredgecolor=palette.RIGHT,
        markeredgewidth=1.4,
        markerfacecolor=palette.RIGHT if estimate.excludes_zero else palette.PAPER,
    )
