"""The control as a section of the report: its sentence, its figure and its two tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.core.records import SOURCE
from gapft_harness.experiments.diversity.matching import Compared, Matching
from gapft_harness.report.figures.style import WIDTH, interval_row, rows_alone
from gapft_harness.report.findings.whole import ConditionFindings, Findings
from gapft_harness.report.rendering import palette, wording
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def references(of: Compared) -> list[str]:
    """What conditions are held against besides the source: GapFT, and uniform if there is one."""
    return [of.names[0], *([of.uniform] if of.uniform else [])]


def size(condition: ConditionFindings) -> tuple[int, int]:
    """The distinct problems of a training set, and how often each is seen."""
    first = next(iter(condition.seeds.values()))
    return first.problems, first.budget.exposures // first.problems


def blocks(findings: Findings, found: Matching, figure: str) -> list[Block]:
    """The result in a sentence, the figure, the paper's table, and what is matched."""
    of = found.of
    gained = "; ".join(
        f"{condition_name(name)} {points(findings.contrast(name, SOURCE).delta)} points"
        for name in of.names
    )
    return [
        Text(_result(findings, found)),
        Figure(
            figure,
            f"Pass@1 minus the source's: {gained}.",
            "Pass@1 minus the source's, with 95% intervals. Filled: the interval excludes zero.",
        ),
        _outcomes(findings, of),
        _matching(findings, found),
    ]


def gains(findings: Findings, of: Compared) -> Drawn:
    """Every condition's gain over the source with its interval."""
    from matplotlib.figure import Figure as New

    figure = New(figsize=(WIDTH, 0.3 * len(of.names) + 0.9), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, name in enumerate(of.names):
        contrast = findings.contrast(name, SOURCE)
        interval_row(axes, y, contrast.delta, contrast.interval)
        axes.annotate(
            points(contrast.delta),
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(len(of.names)), [condition_name(name) for name in of.names])
    axes.set_ylim(len(of.names) - 0.4, -0.6)
    rows_alone(axes)
    axes.set_xlabel("points of Pass@1, 95% interval")
    axes.set_title("Pass@1 minus that of the source", x=0)
    return figure


def _result(findings: Findings, found: Matching) -> str:
    of, name = found.of, found.of.names[0]
    budget = next(iter(findings.conditions[name].seeds.values())).budget
    against = [SOURCE, *([of.uniform] if of.uniform else [])]
    said = [
        f"{points(contrast.delta)} points {wording.points_interval(contrast.interval)} "
        f"from {'the ' if other == SOURCE else ''}{condition_name(other)}"
        for other in against
        for contrast in [findings.contrast(name, other)]
    ]
    most = max(found.most_apart(name) for name in of.names)
    strata = (
        f"The problems of all conditions are matched by {wording.listed([*of.fields])}, to one "
        f"problem a stratum; the most that one differs by is {most:g}."
        if of.fields
        else "The problems are not matched in strata."
    )
    return (
        f"At N = {whole(budget.exposures)} exposures in J = {whole(budget.steps)} steps, Pass@1 of "
        f"{condition_name(name)} differs by {wording.listed(said)}. {strata} Supervised "
        "tokens differ under one seed by up to "
        f"{percent(found.tokens_apart, 2)} of the larger, and the recipe allows "
        f"{percent(found.tolerance, 2)}."
    )


def _outcomes(findings: Findings, of: Compared) -> Table:
    unstable = findings.source.unstable

    def rate(value: Fraction | None, state: str) -> str:
        return percent(value) + (
            wording.UNSTABLE if value is not None and state in unstable else ""
        )

    rows = []
    for name in of.names:
        condition = findings.conditions[name]
        mean, gain = condition.mean, findings.contrast(name, SOURCE)
        problems, each = size(condition)
        rows.append(
            [
                condition_name(name),
                f"{whole(problems)} × {each}",
                percent(mean.pass_at_1),
                points(gain.delta),
                wording.points_interval(gain.interval),
                rate(mean.kappa_s, "S"),
                rate(mean.kappa_u, "U"),
                rate(mean.rho_g, "G"),
            ]
        )
    counts = findings.source.states
    note = (
        "Problems × exposures of each. Δ: Pass@1 minus the source's in percentage points, with its "
        "95% interval. κ_S, κ_U: share of the audit's recovered and missed failures that are "
        f"corrected; ρ_G: share of the solved problems that are lost. The audit has {counts['G']} "
        f"problems of G, {counts['S']} of S and {counts['U']} of U."
    )
    if unstable:
        note += f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems."
    columns = ["condition", "problems", "Pass@1", "Δ source", "95% interval", "κ_S", "κ_U", "ρ_G"]
    return Table(columns, rows, note=note)


def _matching(findings: Findings, found: Matching) -> Table:
    of = found.of
    others = references(of)
    rows: list[Sequence[str]] = []
    for name in of.names:
        row = [condition_name(name)]
        for other in others:
            contrast = None if other == name else findings.contrast(name, other)
            row += ["ref.", ""] if contrast is None else [
                points(contrast.delta), wording.points_interval(contrast.interval),
            ]  # fmt: skip
        tokens = [s.budget.supervised_tokens for s in findings.conditions[name].seeds.values()]
        apart = f"{found.most_apart(name):g}" if of.fields else "–"
        new = whole(found.others(name))
        matched = ["ref.", "ref."] if name == of.names[0] else [new, apart]
        rows.append([*row, *matched, wording.span(tokens)])
    columns = ["condition"]
    for other in others:
        columns += [f"Δ {condition_name(other)}", "95% interval"]
    lead = condition_name(of.names[0])
    note = (
        f"New: problems that are not among {lead}'s, under the seed that has most. Strata: by how "
        "many problems the stratum that differs most differs from its share of "
        f"{lead}'s, under any seed. Tokens: supervised ones over all exposures, from the least to "
        "the most of the seeds."
    )
    return Table([*columns, "new", "strata", "tokens"], rows, note=note)
