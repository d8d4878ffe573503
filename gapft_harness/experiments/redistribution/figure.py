"""Observed correction rates against those of redistributed answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.experiments.redistribution.findings import RedistributionFindings
from gapft_harness.report.figures.style import WIDTH, legend_below, rows_alone, spread
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STATES = {"S": "Of S, recovered by search, corrected", "U": "Of U, missed by search, corrected"}


def redistribution(findings: Findings, found: RedistributionFindings) -> Figure:
    """Two panels, S and U: a row for each condition, from the null rate to the observed one."""
    from matplotlib.figure import Figure

    names = list(findings.distinct)
    figure = Figure(figsize=(WIDTH, 0.5 * len(names) + 2.2), layout="constrained")
    spread(figure)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, (state, title) in zip(panels, _STATES.items(), strict=True):
        for y, name in enumerate(names):
            of = found.conditions[name].get(state)  # type: ignore[call-overload]
            if of is not None:
                _row(axes, y, 100 * float(of.null), 100 * float(of.observed))
        axes.set_yticks(range(len(names)), [wording.condition_name(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(-2, 102)
        rows_alone(axes)
        axes.set_title(title, x=0)
    panels[-1].set_xlabel("share of the state's problems, %")
    legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0][:2])
    return figure


def _row(axes: Axes, y: int, null: float, observed: float) -> None:
    axes.plot([null, observed], [y, y], color=palette.RIGHT_PALE, linewidth=2.2)
    axes.plot(
        null, y, "o", markersize=5.5, markeredgecolor=palette.MUTED, markeredgewidth=1.3,
        markerfacecolor=palette.PAPER, linestyle="", label="answers dealt out anew",
    )  # fmt: skip
    axes.plot(
        observed, y, "o", markersize=6, color=palette.RIGHT, linestyle="", label="observed"
    )  # fmt: skip
    axes.annotate(
        f"{observed:.1f} / {null:.1f}",
        (1.02, y),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
    )
