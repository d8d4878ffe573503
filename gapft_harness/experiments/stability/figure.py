"""What moves, and what does not, when the source is sampled anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.experiments.stability.findings import StabilityFindings
from gapft_harness.report.figures.style import WIDTH, condition_rows, legend_below, spread
from gapft_harness.report.findings.whole import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {
    "Parts of the audit's change": (
        {
            "S_flow": "S flow",
            "U_flow": "U flow",
            "combined_correction": "S and U flow",
            "G_regression": "G regression",
            "total_gain": "total gain",
        },
        "percentage points of the audit",
    ),
    "Rates within the states": (
        {"kappa_S": r"$\kappa_S$", "kappa_U": r"$\kappa_U$"},
        "rate within the state, %",
    ),
}


def stability(findings: Findings, found: StabilityFindings) -> Figure:
    """Each quantity under every sample set, a marker a set; what rests on no sample is one."""
    from matplotlib.figure import Figure

    names = list(findings.distinct)
    heights = [(0.3 + 0.12 * len(names)) * len(of) + 0.9 for of, _ in _PANELS.values()]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    spread(figure)
    panels = figure.subplots(2, 1, height_ratios=heights)
    for axes, (title, (quantities, label)) in zip(panels, _PANELS.items(), strict=True):
        rows = {
            shown: {name: found.conditions[name].spreads[quantity].values for name in names}
            for quantity, shown in quantities.items()
        }
        condition_rows(axes, list(findings.conditions), rows)
        axes.set_xlabel(label)
        axes.set_title(title, x=0)
    legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0])
    return figure
