"""The states of the audit at each search budget, and the rates within them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.experiments.scope.findings import ScopeFindings
from gapft_harness.report.figures.style import WIDTH, condition_rows, legend_below, spread
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: From the left: what search adds stands between what needs no search and what it misses.
_BARS = {
    "G": (palette.RIGHT_PALE, palette.INK),
    "S": (palette.RIGHT, palette.PAPER),
    "U": (palette.WRONG_PALE, palette.INK),
}


def scope(findings: Findings, found: ScopeFindings) -> Figure:
    """Above, G, S and U at each K; below, every condition's rates of correction at each K."""
    from matplotlib.figure import Figure

    budgets = list(dict.fromkeys(line.row.k for line in found.lines))
    heights = [0.34 * len(budgets) + 1.1, 0.9 * len(budgets) + 1.2]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    spread(figure)
    above, below = figure.subplots(2, 1, height_ratios=heights)
    _sizes(above, {line.row.k: line.row.sizes for line in found.lines})
    names = list(findings.distinct)
    rates = {(line.condition, line.row.k): line.row.mean for line in found.lines}
    condition_rows(
        below,
        list(findings.conditions),
        {
            rf"$\kappa_{state}$, K = {k}": {
                name: [rates[name, k].kappa_s if state == "S" else rates[name, k].kappa_u]
                for name in names
            }
            for state in "SU"
            for k in budgets
        },
    )
    below.set_xlabel("rate of correction within the state, %")
    below.set_title("Corrected of S and of U", x=0)
    legend_below(below, below.get_legend_handles_labels()[0])
    return figure


def _sizes(axes: Axes, sizes: dict[int, tuple[int, int, int]]) -> None:
    from matplotlib.patches import Patch

    for y, of in enumerate(sizes.values()):
        left = 0.0
        for count, (colour, ink) in zip(of, _BARS.values(), strict=True):
            share = 100 * count / sum(of)
            axes.barh(y, share, left=left, color=colour, height=0.62)
            if share > 7:
                axes.annotate(
                    wording.whole(count), (left + share / 2, y), ha="center", va="center",
                    fontsize=8.5, color=ink,
                )  # fmt: skip
            left += share
    axes.set_yticks(range(len(sizes)), [f"K = {k}" for k in sizes])
    axes.set_ylim(len(sizes) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of the audit, %")
    axes.set_title("Audit problems by state", x=0)
    named = zip(_BARS.items(), wording.STATE_NAMES.values(), strict=True)
    legend_below(
        axes, [Patch(color=of[0], label=f"{s}  {name.split()[0]}") for (s, of), name in named]
    )
