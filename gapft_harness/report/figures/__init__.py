"""Draw the figures with matplotlib as SVG and PNG; the same findings give the same bytes.

Figures are small, so that their text is readable on a phone, 350 pixels wide.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gapft_harness.presentation import palette
from gapft_harness.report.figures.contrasts import draw_contrasts
from gapft_harness.report.figures.style import STYLE, condition_rows, legend_below, panel, panels
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

__all__ = ["Drawing", "draw_figures", "render_figure"]


def draw_figures(findings: Findings) -> tuple[Drawing, ...]:
    """Draw the figures of the findings: without conditions, only the source's curve."""
    draws: list[tuple[str, Callable[[Findings], Figure]]] = [("search_curve", draw_search_curve)]
    if findings.conditions:
        draws = [("contrasts", draw_contrasts), *draws, ("flows", draw_flows)]
    for part_findings in findings.parts:
        draws += part_findings.part.figures(findings, part_findings.findings)
    return tuple(render_figure(name, partial(draw, findings)) for name, draw in draws)


def render_figure(name: str, draw: Callable[[], Figure]) -> Drawing:
    """Render a figure in the report's style, as SVG and PNG."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = draw()
        svg, png = io.StringIO(), io.BytesIO()
        no_metadata: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=no_metadata)
        no_software: Any = {"Software": None}
        figure.savefig(png, format="png", dpi=180, metadata=no_software)
    return Drawing(name, svg.getvalue(), png.getvalue())


def draw_flows(findings: Findings) -> Figure:
    """Draw the outcomes of each source state, as shares of the audit and as rates."""
    figure, (above, below) = panels(5.0, height_ratios=[1, 1.15])
    draw_outcomes(above, findings)
    above.set_title(f"Every audit problem after {wording.condition_name(findings.lead)}", x=0)
    legend_below(above, build_outcome_handles())
    _draw_rates(below, findings)
    return figure


def draw_outcomes(axes: Axes, findings: Findings) -> None:
    """Draw stacked bars of the lead condition: what happened to the problems of each state."""
    mean = findings.conditions[findings.lead].mean
    bars = [
        (mean.n_g - mean.regressed_g, palette.RIGHT_PALE, mean.regressed_g, palette.WRONG),
        (mean.corrected_s, palette.RIGHT, mean.n_s - mean.corrected_s, palette.WRONG_PALE),
        (mean.corrected_u, palette.RIGHT, mean.n_u - mean.corrected_u, palette.WRONG_PALE),
    ]
    for y, (right, right_colour, wrong, wrong_colour) in enumerate(bars):
        shares = [100 * count / mean.n for count in (right, wrong)]
        axes.barh(y, shares[0], color=right_colour, height=0.62)
        axes.barh(y, shares[1], left=shares[0], color=wrong_colour, height=0.62)
        axes.annotate(
            f"{shares[0]:.1f} right, {shares[1]:.1f} wrong",
            (sum(shares), y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(3), [f"{state}  {name}" for state, name in wording.STATE_NAMES.items()])
    axes.invert_yaxis()
    widest = max(mean.n_g, mean.n_s, mean.n_u) * 100 / mean.n
    limit = widest * 2.05  # space for the words
    axes.set_xlim(0, limit)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 100])
    axes.set_xlim(0, limit)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of the audit, %")


def build_outcome_handles() -> list[Patch]:
    """Build the legend's entries for the colours of ``draw_outcomes``."""
    from matplotlib.patches import Patch

    names = {
        "stays right": palette.RIGHT_PALE,
        "corrected": palette.RIGHT,
        "regressed": palette.WRONG,
        "stays wrong": palette.WRONG_PALE,
    }
    return [Patch(color=colour, label=name) for name, colour in names.items()]


def _draw_rates(axes: Axes, findings: Findings) -> None:
    """Draw the rates within each state, one marker for each condition."""
    means = {name: value.mean for name, value in findings.distinct.items()}
    condition_rows(
        axes,
        list(findings.conditions),
        {
            r"$\kappa_S$  of recovered, corrected": {
                n: [value.kappa_s] for n, value in means.items()
            },
            r"$\kappa_U$  of missed, corrected": {n: [value.kappa_u] for n, value in means.items()},
            r"$\rho_G$  of solved, lost": {n: [value.rho_g] for n, value in means.items()},
        },
    )
    axes.set_xlabel("rate within the state, %")
    axes.set_title("Rates within each state", x=0)
    legend_below(axes, axes.get_legend_handles_labels()[0])


#: The label of the horizontal axis.
CURVE_AXIS = "k, source samples a verifier may choose from"


def draw_search_curve(findings: Findings) -> Figure:
    """Draw the source's Pass@k; one decode of each condition is a line, marked at its K_eq."""
    figure, axes = panel(3.4)
    draw_curve(axes, findings)
    axes.set_xlabel(CURVE_AXIS)
    axes.set_title("Correct audit problems, %", x=0)
    return figure


def draw_curve(axes: Axes, findings: Findings) -> None:
    """Draw the curve on axes, which may be one panel of several."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ks = list(findings.source.curve)
    rates = [100 * float(rate) for rate in findings.source.curve.values()]
    axes.plot(ks, rates, color=palette.INK, marker=".", linewidth=1.6, zorder=3)
    source_name = wording.name_source(findings.source.deployment)
    lines = [(source_name, 100 * float(findings.source.pass_at_1), palette.MUTED, 0, "")]
    looks = palette.assign_series(list(findings.conditions))
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
    heights = _separate_labels([rate for _, rate, *_ in lines], gap)
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
    ticks = [k for k in ks if len(ks) <= 10 or k & (k - 1) == 0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
    axes.set_ylim(low, max(high, max(heights) + gap))


def _separate_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels up until their distances are at least ``gap``; keep their order."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + gap)
    return moved
