"""What the figures share: size, fonts, colours of lines and text, room between panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A rate or a difference as findings have it.
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
    "text.parse_math": False,  # a name that people give may have a $; what is math says so
    "svg.hashsalt": "gapft",  # ids in the SVG would be random otherwise
    "svg.fonttype": "path",
}


def panel(height: float) -> tuple[Figure, Axes]:
    """A figure of one panel, so many inches high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def panels(
    height: float, rows: int = 2, columns: int = 1, **given: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of several, with room between them; the rest goes to ``Figure.subplots``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    spread(figure)
    return figure, [*figure.subplots(rows, columns, squeeze=False, **given).flat]


def spread(figure: Figure) -> None:
    """Leaves room between the panels of a figure."""
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.1)


def legend_below(axes: Axes, handles: Sequence[Any]) -> None:
    """A legend under the axis label, across the figure, where it hides no data."""
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.2, 0),
        borderaxespad=4.6,  # in font sizes: under ticks and label, however high the panel is
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
    """Named rows with a marker of each condition at its rates, in percent.

    Args:
        axes: to draw on.
        conditions: all of the report's, by which colours are given.
        rows: by label from above, which may have mathtext, each condition's values; several are
            joined by a line, and one that is None is left out.
    """
    shown = list(dict.fromkeys(name for of in rows.values() for name in of))
    looks = palette.of_conditions(conditions)
    several = any(len(values) > 1 for of in rows.values() for values in of.values())
    for place, name in enumerate(shown):
        colour, marker = looks[name]
        offset = (place - (len(shown) - 1) / 2) * min(0.16, 0.7 / len(shown))
        for y, of in enumerate(rows.values()):
            known = [100 * float(rate) for rate in of.get(name, ()) if rate is not None]
            axes.plot(
                known, [y + offset] * len(known), color=colour, marker=marker, markersize=5.5,
                linewidth=1.1 if several else 0, clip_on=False, zorder=3,
                label="" if y else wording.condition_name(name),
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows), parse_math=True)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    if axes.dataLim.x0 >= 0:
        axes.set_xlim(left=0)
    rows_alone(axes)
    axes.tick_params(axis="y", pad=7)  # a marker at 0 reaches over the edge


def beside(axes: Axes, y: float, text: str, x: float = 1.02) -> None:
    """A row's numbers, on its right."""
    axes.annotate(text, (x, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names the rows, from above, and leaves them alone."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    rows_alone(axes)


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
