"""Draw a study's figures: the forest of its cells, outcome flows, and the source's Pass@k."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.report.figures import AXIS, Drawing, curve, outcomes, outcomes_handles, rendered
from gapft_harness.report.figures.contrasts import forest
from gapft_harness.report.figures.style import panel, panels
from gapft_harness.report.rendering.wording import condition_name
from gapft_harness.study.findings import StudyFindings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_all(of: StudyFindings) -> list[Drawing]:
    """Draw all figures; none without a complete cell."""
    draws = {"forest": _forest, "flows": _flows, "curves": _curves} if of.cells else {}
    return [rendered(name, partial(draw, of)) for name, draw in draws.items()]


def _forest(of: StudyFindings) -> Figure:
    """Draw the lead minus the reference in every cell, and the equal-weight mean."""
    lead, reference = of.study.lead, of.study.reference
    found = [(cell.name, cell.found.contrast(lead, reference)) for cell in of.cells]
    rows = [(name, contrast.delta, contrast.interval) for name, contrast in found]
    mean = of.mean(lead, reference)
    if mean is not None:
        rows.append(("equal-weight mean", mean.delta, mean.interval))
    figure, axes = panel(0.27 * (len(rows) + 1.4) + 0.5)
    forest(axes, rows)
    axes.set_title(f"{condition_name(lead)} \N{MINUS SIGN} {condition_name(reference)}", x=0, pad=6)
    axes.set_xlabel("difference of Pass@1, percentage points, 95% interval")
    return figure


def _curves(of: StudyFindings) -> Figure:
    """Draw the source's Pass@k of every cell, with each model's greedy decode as a line."""
    figure, axes = panels(2.6 * len(of.cells) + 0.7, len(of.cells))
    for at, cell in zip(axes, of.cells, strict=True):
        curve(at, cell.found)
        at.set_title(f"{cell.name}: correct audit problems, %", x=0)
    axes[-1].set_xlabel(AXIS)
    return figure


def _flows(of: StudyFindings) -> Figure:
    """Draw stacked bars of every cell: each state's problems, right and wrong after the lead."""
    figure, axes = panels(1.25 * len(of.cells) + 0.7, len(of.cells))
    for at, cell in zip(axes, of.cells, strict=True):
        outcomes(at, cell.found)
        at.set_title(cell.name, x=0)
        if at is not axes[-1]:
            at.set_xlabel("")
    widest = max(at.get_xlim()[1] for at in axes)
    for at in axes:
        at.set_xlim(0, widest)
    style: Any = {"fontsize": 8.5, "handlelength": 0.9, "handleheight": 0.9, "columnspacing": 1.2}
    figure.legend(handles=outcomes_handles(), loc="outside lower center", ncols=4, **style)
    return figure
