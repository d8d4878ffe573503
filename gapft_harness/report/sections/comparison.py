"""Tables of one audit: Pass@1 by condition, contrasts, and where the change comes from."""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.core.records import SOURCE
from gapft_harness.report.figures.contrasts import named, principal
from gapft_harness.report.findings.whole import ConditionFindings, Contrast, Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.wording import UNSTABLE, percent, points, whole

#: The columns of ``accuracy``.
ACCURACY = ("condition", "Pass@1", "95% interval", "each seed", "K_eq")


def accuracy(condition: ConditionFindings, k: int) -> list[str]:
    """A condition's Pass@1, as cells; a star marks a budget of its own."""
    return [
        condition.label + ("" if condition.matched else " *"),
        percent(condition.mean.pass_at_1),
        wording.percent_interval(condition.interval),
        " ".join(
            f"{100 * float(seed.decomposition.pass_at_1):.1f}" for seed in condition.seeds.values()
        ),
        wording.k_eq(condition.k_eq, k),
    ]


def contrasts(inputs: ReportInputs, findings: Findings, *, explained: bool = True) -> list[Table]:
    """Every contrast with its interval, its parts and p; of many conditions the others folded.

    Args:
        inputs: what the findings are of.
        findings: of one audit.
        explained: whether the columns are; else they were before.
    """
    own = {SOURCE, *findings.distinct}
    every = [of for of in findings.contrasts if {of.a, of.b} <= own]
    first = principal(findings)
    others = [contrast for contrast in every if contrast not in first]
    replicates = whole(inputs.recipe["statistics"]["replicates"])
    note = (
        "In percentage points of Pass@1; S, U and G are the parts of each difference that arise "
        f"on these states of the source, and sum to it. Intervals are percentiles of {replicates} "
        "replicates that resample training seeds and audit problems, both jointly for all "
        "conditions. p: two-sided, from the same replicates, so below 0.05 exactly where the "
        f"interval excludes zero. Neither is corrected for the number of contrasts ({len(every)})."
    )
    if not explained:
        note = f"Columns as above. p is not corrected for the number of contrasts ({len(every)})."
    note += findings.remark(every)
    tables = [Table(_CONTRAST, [_contrast(findings, c) for c in first], note=note)]
    if others:
        rows = [_contrast(findings, c) for c in others]
        tables.append(Table(_CONTRAST, rows, summary=f"The other {whole(len(others))} contrasts"))
    return tables


_CONTRAST = ("contrast", "difference", "95% interval", "S", "U", "G", "p")


def _contrast(findings: Findings, c: Contrast) -> list[str]:
    return [
        named(findings, c),
        points(c.delta),
        wording.points_interval(c.interval),
        *(points(term) for term in (c.terms.s, c.terms.u, c.terms.g)),
        wording.p_value(c.resampled.p_value),
    ]


def decomposition(findings: Findings, *, explained: bool = True) -> Table:
    """The rates of correction and regression of every condition, and their terms.

    Args:
        findings: of one audit.
        explained: whether the columns are; else they were before.
    """
    unstable = findings.source.unstable

    def rate(value: Fraction | None, state: str) -> str:
        mark = UNSTABLE if state in unstable and value is not None else ""
        return percent(value) + mark

    rows = []
    for condition in findings.conditions.values():
        mean = condition.mean
        rows.append(
            [
                condition.label,
                rate(mean.kappa_s, "S"),
                rate(mean.kappa_u, "U"),
                rate(mean.rho_g, "G"),
                *(points(term, 2) for term in (mean.terms.s, mean.terms.u, mean.terms.g)),
                points(mean.terms.total, 2),
            ]
        )
    note = (
        "κ_S: share of the failures that search recovered that are right now. κ_U: the same of the "
        "failures that search missed. ρ_G: share of the problems that the source solved that are "
        "wrong now. The three terms are these rates times each state's share of the audit, in "
        "percentage points, and sum exactly to the change of Pass@1."
    )
    if not explained:
        note = "Columns as above."
    if unstable:
        few = [f"{state} ({findings.source.states[state]})" for state in unstable]
        note += (
            f" {UNSTABLE} Unstable: the rate rests on fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}. A dash: the state is empty, its rate undefined and its term 0."
        )
    columns = ["condition", "κ_S", "κ_U", "ρ_G", "S term", "U term", "G term", "change"]
    return Table(columns, rows, note=note)
