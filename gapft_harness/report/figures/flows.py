"""Outcome flows by source state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.report.figures.style import WIDTH, condition_rows, legend_below, spread
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch


def flows(findings: Findings) -> Figure:
    """Where problems of each source state end up, in shares of the audit and as rates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[1, 1.15])
    spread(figure)
    outcomes(above, findings)
    above.set_title(f"Every audit problem after {wording.condition_name(findings.lead)}", x=0)
    legend_below(above, outcomes_handles())
    _rates(below, findings)
    return figure


def outcomes(axes: Axes, findings: Findings) -> None:
    """Stacked bars of the lead condition: every state's problems, right and wrong afterwards."""
    mean = findings.conditions[findings.lead].mean
    bars = [
        ("G", mean.n_g - mean.regressed_g, palette.RIGHT_PALE, mean.regressed_g, palette.WRONG),
        ("S", mean.corrected_s, palette.RIGHT, mean.n_s - mean.corrected_s, palette.WRONG_PALE),
        ("U", mean.corrected_u, palette.RIGHT, mean.n_u - mean.corrected_u, palette.WRONG_PALE),
    ]
    for y, (_, right, right_colour, wrong, wrong_colour) in enumerate(bars):
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
    axes.set_yticks(range(3), [f"{s}  {wording.STATE_NAMES[s]}" for s, *_ in bars])
    axes.invert_yaxis()
    widest = max(mean.n_g, mean.n_s, mean.n_u) * 100 / mean.n
    axes.set_xlim(0, widest * 2.05)  # room for the words
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of the audit, %")


def outcomes_handles() -> list[Patch]:
    """What the colours of ``outcomes`` mean, for a legend."""
    from matplotlib.patches import Patch

    names = {
        "stays right": palette.RIGHT_PALE,
        "corrected": palette.RIGHT,
        "regressed": palette.WRONG,
        "stays wrong": palette.WRONG_PALE,
    }
    return [Patch(color=colour, label=name) for name, colour in names.items()]


def _rates(axes: Axes, findings: Findings) -> None:
    """Rates within each state, one marker a condition."""
    means = {name: of.mean for name, of in findings.distinct.items()}
    condition_rows(
        axes,
        list(findings.conditions),
        {
            r"$\kappa_S$  of recovered, corrected": {n: [of.kappa_s] for n, of in means.items()},
            r"$\kappa_U$  of missed, corrected": {n: [of.kappa_u] for n, of in means.items()},
            r"$\rho_G$  of solved, lost": {n: [of.rho_g] for n, of in means.items()},
        },
    )
    axes.set_xlabel("rate within the state, %")
    axes.set_title("The same as rates, every condition", x=0)
    legend_below(axes, axes.get_legend_handles_labels()[0])
