"""The change of Pass@1 from step to step of a control (Figure 4), and where it arises (Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from gapft_harness.experiments.controls.contrasts import against_first
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.report.figures.contrasts import forest
from gapft_harness.report.figures.style import WIDTH, spread
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.rendering import palette, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The rows under a difference: its terms on the source's states.
_PARTS = {
    "g": "of it on G, solved",
    "s": "of it on S, recovered",
    "u": "of it on U, missed",
}


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


def parts_by_state(findings: Findings, *, steps: Sequence[Step]) -> Figure:
    """A panel for each later step minus the first: the difference, and its parts on G, S and U.

    The difference has its interval; a filled marker's interval excludes zero. Bars are the parts,
    which sum to it. Each row has a tick for every seed.
    """
    from matplotlib.figure import Figure

    contrasts = against_first(findings, steps)
    height = 0.27 * (len(_PARTS) + 1) + 0.45
    figure = Figure(figsize=(WIDTH, height * len(contrasts) + 0.35), layout="constrained")
    panels = figure.subplots(len(contrasts), 1, squeeze=False, sharex=True)[:, 0]
    spread(figure)
    for axes, step, contrast in zip(panels, steps[1:], contrasts, strict=True):
        forest(axes, [("difference", contrast.delta, contrast.interval)])
        _parts(axes, findings, contrast)
        axes.set_title(f"{step.label} minus {steps[0].label}", x=0)
    panels[-1].set_xlabel("points of Pass@1")
    return figure


def _parts(axes: Axes, findings: Findings, contrast: Contrast) -> None:
    """Under the difference, which is at 0, its parts; and what each seed has of all four."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    seeds = [a[seed].decomposition.terms - b[seed].decomposition.terms for seed in a]
    _ticks(axes, 0, [of.total for of in seeds])
    for y, term in enumerate(_PARTS, start=1):
        part = getattr(contrast.terms, term)
        axes.barh(y, 100 * float(part), color=palette.RIGHT_PALE, height=0.55)
        axes.annotate(
            wording.points(part), (1.02, y), xycoords=("axes fraction", "data"), va="center",
            fontsize=8.5,
        )  # fmt: skip
        _ticks(axes, y, [getattr(of, term) for of in seeds])
    axes.set_yticks(range(len(_PARTS) + 1), ["difference", *_PARTS.values()])
    axes.set_ylim(len(_PARTS) + 0.5, -0.6)


def _ticks(axes: Axes, y: int, values: Sequence[Fraction]) -> None:
    axes.plot(
        [100 * float(value) for value in values], [y] * len(values), "|", color=palette.INK,
        markersize=9, markeredgewidth=0.9,
    )  # fmt: skip
