"""Coverage against repetition on the trained problems, and what of it transfers to the audit."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.experiments.allocation.findings import Coverage, quantities
from gapft_harness.report.figures.style import WIDTH, interval_row, rows_alone, spread
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Each half: its rates by exposures, its colour and marker.
_HALVES = (
    ("A", ((1, "a_A_1"), (2, "a_A_2")), palette.series(4)),
    ("B", ((0, "a_B_0"), (1, "a_B_1")), palette.series(2)),
)


def allocation(findings: Findings, coverage: Coverage) -> Figure:
    """Two panels: success on A and B by exposures; the audit contrast in its S, U and G terms."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    spread(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1])
    _exposures(left, coverage)
    _transfer(right, findings.contrast(coverage.diffuse, coverage.concentrated))
    return figure


def _exposures(axes: Axes, coverage: Coverage) -> None:
    """Both halves' success by exposures: the mean with its interval, every seed in pale."""
    mean = quantities(coverage.mean)
    seeds = [quantities(of.found) for of in coverage.seeds.values()]
    for half, points, (colour, marker) in _HALVES:
        exposures = [r for r, _ in points]
        # The halves meet at one exposure: moved apart, so that both intervals can be seen.
        places = [r + (0.06 if half == "A" else -0.06) for r in exposures]
        if len(seeds) > 1:
            for of in seeds:
                rates = [100 * float(of[name]) for _, name in points]
                axes.plot(places, rates, color=colour, linewidth=0.8, alpha=0.35)
        rates = [100 * float(mean[name]) for _, name in points]
        axes.plot(places, rates, color=colour, marker=marker, markersize=6, linewidth=1.8)
        for place, (_, name) in zip(places, points, strict=True):
            interval = coverage.intervals[name]
            axes.plot(
                [place, place],
                [100 * interval.low, 100 * interval.high],
                color=colour,
                linewidth=1.1,
            )
        end = -1 if half == "A" else 0
        axes.annotate(
            half,
            (places[end], rates[end]),
            xytext=(8 if half == "A" else -8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            ha="left" if half == "A" else "right",
            fontweight="bold",
        )
    axes.set_xticks([0, 1, 2])
    axes.set_xlim(-0.65, 2.65)
    axes.set_xlabel("exposures" if coverage.repetitions == 1 else "times selected")
    _titles(
        axes,
        "Solved of A and B, %",
        "contrast",
        coverage.mean.contrast,
        coverage.intervals["contrast"],
    )


def _transfer(axes: Axes, contrast: Contrast) -> None:
    """The terms of diffuse minus concentrated on the audit, and their sum with its interval."""
    terms = [("S", contrast.terms.s), ("U", contrast.terms.u), ("G", contrast.terms.g)]
    for y, (_, term) in enumerate(terms):
        colour = palette.RIGHT if term > 0 else palette.WRONG
        axes.barh(y, 100 * float(term), height=0.5, color=colour)
    interval_row(axes, len(terms), contrast.delta, contrast.interval)
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    shown = [wording.points(value) for value in (*(term for _, term in terms), contrast.delta)]
    for y, text in enumerate(shown):
        axes.annotate(
            text,
            (1.04, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(4), [*(name for name, _ in terms), "sum"])
    axes.set_ylim(3.6, -0.6)
    rows_alone(axes)
    axes.set_xlabel("points of Pass@1")
    _titles(axes, "Audit difference by state", "sum", contrast.delta, contrast.interval)


def _titles(axes: Axes, title: str, name: str, middle: Fraction, interval: Interval) -> None:
    """A title, and under it a difference with its interval."""
    axes.set_title(title, x=0, pad=22)
    axes.annotate(
        f"{name} {wording.points(middle)} {wording.points_interval(interval)}",
        (0, 1),
        xytext=(0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8.5,
        color=palette.MUTED,
    )
