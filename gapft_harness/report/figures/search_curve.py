"""What search reaches, and what one trained decode is worth in samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gapft_harness.report.figures.style import WIDTH
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What stands along the curve.
AXIS = "k, source samples a verifier may choose from"


def search_curve(findings: Findings) -> Figure:
    """The source's Pass@k by k; each condition's one decode as a line, marked at its K_eq."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    curve(axes, findings)
    axes.set_xlabel(AXIS)
    axes.set_title("Correct audit problems, %", x=0)
    return figure


def curve(axes: Axes, findings: Findings) -> None:
    """The same on axes that may be one panel of several."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ks = list(findings.source.curve)
    rates = [100 * float(rate) for rate in findings.source.curve.values()]
    axes.plot(ks, rates, color=palette.INK, marker=".", linewidth=1.6, zorder=3)
    lines = [("source, greedy", 100 * float(findings.source.pass_at_1), palette.MUTED, 0, "")]
    looks = palette.of_conditions(list(findings.conditions))
    for name, condition in findings.distinct.items():
        colour, marker = looks[name]
        rate = 100 * float(condition.mean.pass_at_1)
        lines.append((wording.condition_name(name), rate, colour, condition.k_eq, marker))
    for _, rate, colour, k, marker in lines:
        axes.axhline(rate, color=colour, linewidth=1.1, linestyle="-" if marker else (0, (4, 3)))
        if k:
            axes.plot([k], [rate], color=colour, marker=marker, markersize=6.5, zorder=4)
    low, high = axes.get_ylim()
    gap = 0.062 * (high - low)
    heights = _apart([rate for _, rate, *_ in lines], gap)
    for (label, rate, colour, *_), height in zip(lines, heights, strict=True):
        axes.annotate(
            f"{label} {rate:.1f}",
            (1.015, height),
            xycoords=("axes fraction", "data"),
            color=colour,
            va="center",
            fontsize=9,
        )
    if ks[-1] > 16:
        axes.set_xscale("log", base=2)
    shown = [k for k in ks if len(ks) <= 10 or k & (k - 1) == 0]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shown, [str(k) for k in shown])
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
    axes.set_ylim(low, max(high, max(heights) + gap))


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Moves labels up until no two are nearer than ``gap``; their order stays."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + gap)
    return moved
