"""Draw a study's figures: the forest of its cells, outcome flows, and the source's Pass@k."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.report.figures import (
    CURVE_AXIS,
    Drawing,
    build_outcome_handles,
    draw_curve,
    draw_outcomes,
    render_figure,
)
from gapft_harness.report.figures.contrasts import forest
from gapft_harness.report.figures.style import panel, panels
from gapft_harness.report.rendering.wording import condition_name
from gapft_harness.study.findings import StudyFindings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_study_figures(findings: StudyFindings) -> list[Drawing]:
    """Draw all figures; none without a complete cell."""
    draws = (
        {"forest": _draw_forest, "flows": _draw_flows, "curves": _draw_curves}
        if findings.cells
        else {}
    )
    return [render_figure(name, partial(draw, findings)) for name, draw in draws.items()]


def _draw_forest(findings: StudyFindings) -> Figure:
    """Draw the lead minus the reference in every cell, and the equal-weight mean."""
    lead, reference = findings.study.lead, findings.study.reference
    contrasts = [
        (cell.name, cell.findings.find_contrast(lead, reference)) for cell in findings.cells
    ]
    rows = [(name, contrast.estimate) for name, contrast in contrasts]
    mean = findings.find_mean(lead, reference)
    if mean is not None:
        rows.append(("equal-weight mean", mean.estimate))
    figure, axes = panel(0.27 * (len(rows) + 1.4) + 0.5)
    forest(axes, rows)
    axes.set_title(f"{condition_name(lead)} \N{MINUS SIGN} {condition_name(reference)}", x=0, pad=6)
    axes.set_xlabel("difference of Pass@1, percentage points, 95% interval")
    return figure


def _draw_curves(findings: StudyFindings) -> Figure:
    """Draw the source's Pass@k of every cell, with one decode of each model as a line."""
    figure, axes = panels(2.6 * len(findings.cells) + 0.7, len(findings.cells))
    for cell_axes, cell in zip(axes, findings.cells, strict=True):
        draw_curve(cell_axes, cell.findings)
        cell_axes.set_title(f"{cell.name}: correct audit problems, %", x=0)
    axes[-1].set_xlabel(CURVE_AXIS)
    return figure


def _draw_flows(findings: StudyFindings) -> Figure:
    """Draw stacked bars of every cell: each state's problems, right and wrong after the lead."""
    figure, axes = panels(1.25 * len(findings.cells) + 0.7, len(findings.cells))
    for cell_axes, cell in zip(axes, findings.cells, strict=True):
        draw_outcomes(cell_axes, cell.findings)
        cell_axes.set_title(cell.name, x=0)
        if cell_axes is not axes[-1]:
            cell_axes.set_xlabel("")
    widest = max(cell_axes.get_xlim()[1] for cell_axes in axes)
    for cell_axes in axes:
        cell_axes.set_xlim(0, widest)
    style: Any = {"fontsize": 8.5, "handlelength": 0.9, "handleheight": 0.9, "columnspacing": 1.2}
    figure.legend(handles=build_outcome_handles(), loc="outside lower center", ncols=4, **style)
    return figure
