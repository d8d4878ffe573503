"""What the figures share: size, fonts, colours of lines and text, room between panels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.report.rendering import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    "svg.hashsalt": "gapft",  # ids in the SVG would be random otherwise
    "svg.fonttype": "path",
}


def spread(figure: Figure) -> None:
    """Leaves room between the panels of a figure."""
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.1)


def legend_below(axes: Axes, handles: Sequence[Any]) -> None:
    """A legend under the axis label, across the figure, where it hides no data."""
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.2, -0.27),
        ncols=4,
        fontsize=8.5,
        handlelength=0.9,
        handleheight=0.9,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0,
    )


def rows_alone(axes: Axes) -> None:
    """Axes whose rows are named on the left: no left line or ticks, a light grid behind."""
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=palette.RULE, linewidth=0.6)
    axes.set_axisbelow(True)


def interval_row(axes: Axes, y: float, middle: Fraction, interval: Interval) -> None:
    """A difference with its interval, in percentage points; filled if it excludes zero."""
    ends = [100 * interval.low, 100 * interval.high]
    axes.plot(ends, [y, y], color=palette.RIGHT, linewidth=1.6)
    axes.plot(
        [100 * float(middle)],
        [y],
        "o",
        markersize=6,
        markeredgecolor=palette.RIGHT,
        markeredgewidth=1.4,
        markerfacecolor=palette.RIGHT if interval.excludes_zero else palette.PAPER,
    )
