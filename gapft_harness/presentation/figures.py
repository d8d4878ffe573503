"""The figures of all pages: estimates in rows, curves with bands, and outcomes by state."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.presentation import palette
from gapft_harness.presentation.content import Format, format_value
from gapft_harness.presentation.visible import make_visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 5.6  # inches
#: The smallest distance between the names of two lines, as a share of the vertical axis.
_LABEL_GAP = 0.075
#: Maximum characters of a row's name.
_MAX_LABEL = 36
_STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": palette.RULE,
    "axes.labelcolor": palette.MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": palette.INK,
    "xtick.color": palette.MUTED,
    "ytick.color": palette.MUTED,
    "xtick.labelcolor": palette.INK,
    "ytick.labelcolor": palette.INK,
    "figure.facecolor": palette.PAPER,
    "axes.facecolor": palette.PAPER,
    "text.parse_math": False,  # users' names may contain $
    "svg.hashsalt": "gapft",  # ids in the SVG would be random otherwise
    "svg.fonttype": "path",
}


def forest(rows: Sequence[tuple[str, Estimate]], label: str, format: Format = "points") -> str:
    """Draw estimates with their intervals in rows, with the numbers beside them, as SVG.

    A filled marker means that the interval excludes zero. Shares are drawn in percent.

    Args:
        rows: from the top: a name and its estimate.
        label: of the horizontal axis.
        format: of the numbers.
    """
    scale = 100 if format in ("share", "points") else 1

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=palette.MUTED, linewidth=0.9)
        for y, (_, estimate) in enumerate(rows):
            if estimate.has_interval:
                ends = [scale * estimate.low, scale * estimate.high]
                axes.plot(ends, [y, y], color=palette.RIGHT, linewidth=1.6)
            axes.plot(
                [scale * float(estimate.value)],
                [y],
                "o",
                markeredgecolor=palette.RIGHT,
                markerfacecolor=palette.RIGHT if estimate.excludes_zero else palette.PAPER,
            )
            place = (1.02, y)
            text = format_value(estimate, format)
            axes.annotate(text, place, xycoords=("axes fraction", "data"), va="center")
        axes.set_yticks(range(len(rows)), [_fit_label(name) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=palette.RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(label)

    return _draw_svg(draw, 0.27 * len(rows) + 0.8)


def lines(
    name: str, curve: Mapping[int, Estimate], label: str, levels: Mapping[str, Estimate]
) -> str:
    """Draw shares by a whole number as a curve with a band of their intervals, as SVG.

    Args:
        name: of the curve.
        curve: its points by x.
        label: of the horizontal axis.
        levels: by name, shares that do not depend on x, as dashed lines.
    """

    def draw(axes: Axes) -> None:
        xs = list(curve)
        values = [100 * float(point.value) for point in curve.values()]
        axes.plot(xs, values, color=palette.RIGHT, marker="o", markersize=4, linewidth=1.6)
        band_low = [100 * point.low for point in curve.values()]
        band_high = [100 * point.high for point in curve.values()]
        axes.fill_between(xs, band_low, band_high, color=palette.RIGHT, alpha=0.15, linewidth=0)
        labels = [(values[-1], f"{make_visible(name)} {values[-1]:.1f}", palette.RIGHT)]
        for level_name, level in levels.items():
            height = 100 * float(level.value)
            axes.axhline(height, color=palette.MUTED, linewidth=1.1, linestyle=(0, (4, 3)))
            labels.append((height, f"{make_visible(level_name)} {height:.1f}", palette.MUTED))
        ticks = [x for x in xs if x & (x - 1) == 0]
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.grid(axis="y", color=palette.RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_ylabel("%", rotation=0, loc="top")
        _name_lines(axes, labels)

    return _draw_svg(draw, 2.9)


def flows(rows: Mapping[str, Sequence[float]]) -> str:
    """Draw what happened to the problems of each state as stacked bars, as SVG.

    Args:
        rows: by the name of a state, from the top: the shares of all problems that stay right, are
            corrected, are lost, and stay wrong, from 0 to 1.
    """
    kinds = {
        "stays right": palette.RIGHT_PALE,
        "corrected": palette.RIGHT,
        "lost": palette.WRONG,
        "stays wrong": palette.WRONG_PALE,
    }

    def draw(axes: Axes) -> None:
        for y, shares in enumerate(rows.values()):
            start = 0.0
            texts = []
            for (kind, colour), share in zip(kinds.items(), shares, strict=True):
                axes.barh(y, 100 * share, left=start, color=colour, height=0.62)
                start += 100 * share
                if share:
                    texts.append(f"{100 * share:.1f} {kind}")
            axes.annotate(
                ", ".join(texts), (1.02, y), xycoords=("axes fraction", "data"), va="center"
            )
        axes.set_yticks(range(len(rows)), [make_visible(name) for name in rows])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("share of all problems, %")

    return _draw_svg(draw, 0.36 * len(rows) + 0.8)


def _fit_label(name: str) -> str:
    """Shorten a name, such as a path, to its end, so that the axes have room."""
    text = make_visible(name)
    return text if len(text) <= _MAX_LABEL else f"…{text[1 - _MAX_LABEL :]}"


def _name_lines(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Name lines at their right ends; names of lines that are close are moved apart.

    Args:
        axes: the axes, with their final limits.
        labels: height, text and colour of each line.
    """
    gap = _LABEL_GAP * axes.get_ylim()[1]
    place = -gap
    for height, text, colour in sorted(labels):
        place = max(height, place + gap)
        at = (1.02, place)
        axes.annotate(text, at, xycoords=("axes fraction", "data"), color=colour, va="center")


def _draw_svg(draw: Any, height: float) -> str:
    """Draw on axes of a new figure in the common style, and return its SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    with rc_context(_STYLE):
        canvas: Canvas = Canvas(figsize=(_WIDTH, height), layout="constrained")
        draw(canvas.subplots())
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
