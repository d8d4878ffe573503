"""The change of Pass@1 from step to step of a control (Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapft_harness.experiments.controls.contrasts import against_first
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.report.figures.style import WIDTH
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def change_by_step(findings: Findings, *, steps: Sequence[Step], axis: str) -> Figure:
    """Each step's Pass@1 minus the first one's; a filled marker's interval excludes zero.

    The line goes through the steps that have a value, in which they differ.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.subplots()
    contrasts = against_first(findings, steps)
    deltas = [0.0, *(100 * float(contrast.delta) for contrast in contrasts)]
    axes.axhline(0, color=palette.MUTED, linewidth=0.9)
    scale = [x for x, step in enumerate(steps) if step.value is not None]
    axes.plot(scale, [deltas[x] for x in scale], color=palette.RIGHT_PALE, linewidth=1.6)
    axes.plot(0, 0, "o", color=palette.MUTED, markersize=6)
    for x, contrast in enumerate(contrasts, start=1):
        ends = [100 * contrast.interval.low, 100 * contrast.interval.high]
        axes.plot([x, x], ends, color=palette.RIGHT, linewidth=1.6)
        filled = palette.RIGHT if contrast.interval.excludes_zero else palette.PAPER
        axes.plot(
            x, deltas[x], "o", markersize=6, markeredgecolor=palette.RIGHT, markeredgewidth=1.4,
            markerfacecolor=filled,
        )  # fmt: skip
        axes.annotate(
            wording.points(contrast.delta),
            (x, deltas[x]),
            xytext=(7, -8),  # under the line, which mostly rises
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_xticks(range(len(steps)), [step.label for step in steps])
    axes.set_xlim(-0.3, len(steps) - 0.5)
    axes.set_xlabel(axis)
    axes.set_title(f"Pass@1 minus that of {steps[0].label}, points", x=0)
    return figure
