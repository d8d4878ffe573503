"""The opening: the answer, every condition beside the source, and the contrasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import format_k
from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.content import (
    Column,
    Figure,
    Row,
    Section,
    Table,
    add_hidden,
    format_value,
)
from gapft_harness.presentation.figures import forest
from gapft_harness.report.findings.computation import (
    OWN_BUDGET_MARK,
    ConditionFindings,
    Contrast,
    Findings,
    find_differing_settings,
    is_budget_matched,
)
from gapft_harness.report.names import (
    condition_name,
    describe_deployment,
    name_decode,
    name_source,
)
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.published import format_printed

#: The answer of a run that trained nothing.
NOTHING_TO_TRAIN_ON = (
    "The search found nothing to train on: no pool problem that the source failed in one decode "
    "was solved by any of its samples. A larger search.k, a higher temperature or an easier pool "
    "may reveal failures that can be recovered."
)
#: The most conditions of which every pair is shown; else only those with the lead.
MAX_PAIRED = 5

CONDITION_COLUMNS = (
    Column("label", "condition"),
    Column("pass_at_1", "Pass@1", "share"),
    Column("change", "change (points)", "points"),
    Column("K_eq", "K_eq", "written"),
)
_PRINTED_COLUMN = Column("printed", "paper", "written")
_CONTRAST_COLUMNS = (
    Column("label", "contrast"),
    Column("delta", "difference (points)", "points"),
    Column("p", "p", "p"),
    Column("term_S", "S", "points"),
    Column("term_U", "U", "points"),
    Column("term_G", "G", "points"),
)
_NOISE_COLUMNS = (
    Column("lost", "right → wrong", "count"),
    Column("gained", "wrong → right", "count"),
)

_CONDITION_NOTE = (
    "Pass@1: share of audit problems whose one deployment decode passes, mean over seeds. Change: "
    "minus the source. K_eq: the most source samples, with a verifier to choose among them, that "
    "one decode is worth; K means at least K; a dash: more samples do not help the source. "
    "Brackets: 95% intervals over training seeds and audit problems, which few seeds make too "
    "narrow; Wilson's for the source; Wilson's or Newcombe's where resampling shows no variation. "
    "* Not budget-matched."
)
_CONTRAST_NOTE = (
    "S, U and G: the parts of the difference on these states of the source. p: two-sided, not "
    "corrected for the number of contrasts. * Budgets are not matched. ‡ The two differ in a "
    "declared setting."
)
_NOISE_NOTE = (
    " Right → wrong, wrong → right: decisions that differ between two trainings with the same "
    "data, settings and seeds; a difference of this size may have no other cause."
)


def build_opening(inputs: ReportInputs, findings: Findings) -> Section:
    """Build the section that answers the report's first question."""
    notes = [str(note) for note in inputs.recipe.get("notes", ())]
    if inputs.deployment:
        notes.insert(0, describe_deployment(inputs.deployment))
    warnings = list(inputs.warnings)
    problems = len(inputs.audit.ids)
    if problems < STABLE_ITEMS:
        warnings.append(
            f"{problems} audit problems, fewer than {STABLE_ITEMS}: shares are unstable"
        )
    text = [describe_answer(inputs, findings), *notes]
    tables = [_build_conditions(inputs, findings)]
    if not findings.conditions:
        return Section("", text, tables, warnings=warnings)
    tables += _build_contrasts(findings)
    return Section("", text, tables, [_draw_contrasts(findings)], warnings)


def describe_answer(inputs: ReportInputs, findings: Findings) -> str:
    """Describe how the lead condition differs from the source, and from its first rival."""
    if not findings.conditions:
        return NOTHING_TO_TRAIN_ON
    before = findings.source.verdicts.pass_at_1
    lead = findings.conditions[findings.lead]
    gain = findings.find_contrast(lead.name, SOURCE)
    answer = (
        f"{condition_name(lead.name)} answers {format_value(lead.mean.pass_at_1, 'share')} of "
        f"{len(inputs.audit.ids):,} audit problems correctly in one "
        f"{name_decode(inputs.deployment)}, the source {format_value(before, 'share')}: "
        f"{format_value(gain.estimate, 'points')} points."
    )
    rival = next(_list_rivals(findings, lead), None)
    if rival is None:
        return answer
    difference = findings.find_contrast(lead.name, rival.name).estimate
    return (
        f"{answer} Against {condition_name(rival.name)} at the same training budget: "
        f"{format_value(difference, 'points')} points."
    )


def _list_rivals(findings: Findings, lead: ConditionFindings) -> Iterator[ConditionFindings]:
    """Yield conditions with the budget of the lead that do not repeat its training."""
    repeated = {frozenset((row["condition"], row["original"])) for row in findings.replicates}
    for other in findings.distinct.values():
        is_same = other.name == lead.name or frozenset((other.name, lead.name)) in repeated
        if not is_same and is_budget_matched(lead, other):
            yield other


def _build_conditions(inputs: ReportInputs, findings: Findings) -> Table:
    printed = format_printed(inputs.recipe, "pass_at_1") | format_printed(inputs.recipe, "greedy")
    rows: list[Row] = [
        {
            "label": name_source(inputs.deployment),
            "condition": SOURCE,
            "pass_at_1": findings.source.greedy,
            "printed": printed.get("audit", ""),
        }
    ]
    rows += [
        {
            "label": condition.label + ("" if condition.matched else f" {OWN_BUDGET_MARK}"),
            "condition": name,
            "matched_budget": condition.matched,
            "pass_at_1": condition.estimate,
            "change": findings.find_contrast(name, SOURCE).estimate,
            "K_eq": None if condition.k_eq is None else format_k(condition.k_eq),
            "printed": printed.get(name, ""),
        }
        for name, condition in findings.conditions.items()
    ]
    columns = [*CONDITION_COLUMNS, *([_PRINTED_COLUMN] if printed else [])]
    return Table("conditions", add_hidden(columns, rows), rows, _CONDITION_NOTE)


def _build_contrasts(findings: Findings) -> Iterator[Table]:
    """Build the tables of contrasts between conditions, and that of all contrasts for files."""
    columns = list(_CONTRAST_COLUMNS)
    note = _CONTRAST_NOTE
    if findings.replicates:
        columns += _NOISE_COLUMNS
        note += _NOISE_NOTE
    names = {*findings.distinct}
    shown = [contrast for contrast in findings.contrasts if {contrast.a, contrast.b} <= names]
    first = [contrast for contrast in shown if contrast in select_principal(findings)]
    others = [contrast for contrast in shown if contrast not in first]
    if first:
        yield Table("", columns, _list_rows(findings, first), note)
    if others:
        yield Table("", columns, _list_rows(findings, others), folded="The other contrasts")
    rows = _list_rows(findings, findings.contrasts)
    yield Table("contrasts", add_hidden((), rows), rows)
    if findings.replicates:
        yield Table("replicates", add_hidden((), findings.replicates), findings.replicates)


def select_principal(findings: Findings) -> list[Contrast]:
    """Select the contrasts to show first: all, or with many conditions those of lead or source.

    Conditions whose models are those of another condition are left out.
    """
    names = {findings.lead, SOURCE, *findings.distinct}
    many = len(findings.conditions) > MAX_PAIRED
    return [
        contrast
        for contrast in findings.contrasts
        if {contrast.a, contrast.b} <= names
        and (not many or contrast.b == SOURCE or findings.lead in (contrast.a, contrast.b))
    ]


def _list_rows(findings: Findings, contrasts: Sequence[Contrast]) -> list[Row]:
    return [
        {
            "label": findings.format_label(contrast),
            "a": contrast.a,
            "b": contrast.b,
            "delta": contrast.estimate,
            "p": contrast.estimate.p,
            "term_S": contrast.terms.s,
            "term_U": contrast.terms.u,
            "term_G": contrast.terms.g,
            "matched_budget": contrast.b != SOURCE and findings.is_matched(contrast),
            "differs": " ".join(find_differing_settings(*findings.list_sides(contrast))),
            **_count_noise(findings, contrast),
        }
        for contrast in contrasts
    ]


def _count_noise(findings: Findings, contrast: Contrast) -> Row:
    """Count the decisions that a lost and gained over b; empty if neither repeats the other."""
    counts = {"lost": 0, "gained": 0}
    pair = {contrast.a, contrast.b}
    repeats = [row for row in findings.replicates if {row["condition"], row["original"]} == pair]
    for row in repeats:
        is_forward = row["condition"] == contrast.a
        counts["lost"] += row["lost" if is_forward else "gained"]
        counts["gained"] += row["gained" if is_forward else "lost"]
    return counts if repeats else {}


def _draw_contrasts(findings: Findings) -> Figure:
    rows = [
        (findings.format_label(contrast), contrast.estimate)
        for contrast in select_principal(findings)
    ]
    numbers = (f"{label} {format_value(estimate, 'points')}" for label, estimate in rows)
    return Figure(
        "contrasts",
        forest(rows, "points of Pass@1"),
        f"Differences of Pass@1: {'; '.join(numbers)}",
        "Differences of Pass@1 with 95% intervals. Filled: the interval excludes zero.",
    )
