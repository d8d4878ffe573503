"""The figures, as matplotlib draws them: SVG and PNG, the same bytes for the same findings.

Drawn small, so that their text stays readable when a phone shows them 350 pixels wide.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.report.figures.contrasts import contrasts
from gapft_harness.report.figures.flows import flows
from gapft_harness.report.figures.search_curve import search_curve
from gapft_harness.report.figures.style import STYLE
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering.blocks import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "draw_all", "rendered"]


def draw_all(findings: Findings) -> tuple[Drawing, ...]:
    """Draws the figures that the findings allow: without conditions, the source's curve alone."""
    draws: list[tuple[str, Callable[[Findings], Figure]]] = [("search_curve", search_curve)]
    if findings.conditions:
        draws = [("contrasts", contrasts), *draws, ("flows", flows)]
    for of in findings.parts:
        draws += of.part.figures(findings, of.found)
    return tuple(rendered(name, partial(draw, findings)) for name, draw in draws)


def rendered(name: str, draw: Callable[[], Figure]) -> Drawing:
    """A figure in the report's style, as SVG and PNG."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = draw()
        svg, png = io.StringIO(), io.BytesIO()
        nothing: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
        no_software: Any = {"Software": None}
        figure.savefig(png, format="png", dpi=180, metadata=no_software)
    return Drawing(name, svg.getvalue(), png.getvalue())
