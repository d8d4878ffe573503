"""A study's report as blocks: the tables of the paper's main comparison, cell by cell."""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.core.records import SOURCE
from gapft_harness.report.findings.whole import ConditionFindings, budget_matched
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Figure, Section, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole
from gapft_harness.report.sections import comparison
from gapft_harness.study import budgets
from gapft_harness.study.findings import CellFindings, StudyFindings
from gapft_harness.study.opening import opening
from gapft_harness.study.provenance import pages, provenance

_MINUS = " \N{MINUS SIGN} "


def build(of: StudyFindings) -> list[Section]:
    """Every section."""
    sections = [Section("", opening(of))]
    if of.cells:
        sections += [
            Section("Main comparison", _main(of)),
            Section(_minus(of.study.lead, of.study.reference), _forest(of)),
            Section("Equal-weight means", _means(of)),
            Section("Where the change comes from", _decomposition(of)),
            Section("What one decode is worth", budgets.amortization(of)),
            Section("Share of a larger budget's gain", budgets.shared(of)),
            Section("Training budgets", budgets.spent(of)),
        ]
    return [*sections, *provenance(of)]


def _minus(a: str, b: str) -> str:
    return f"{condition_name(a)}{_MINUS}{condition_name(b)}"


def _main(of: StudyFindings) -> list[Block]:
    """Table 1, and every Pass@1 with its interval."""
    lead = of.study.lead
    # as the paper has it: the study's condition last, but for those with another budget
    own = [n for n in of.study.conditions if n != lead and not _matched(of, n)]
    order = [*(n for n in reversed(of.study.conditions) if n != lead and n not in own), lead, *own]
    rows, every = [], []
    by_name = {cell.name: cell for cell in of.cells}
    for collected in of.collected:
        cell = by_name.get(collected.name)
        if cell is None:
            rows.append([collected.name, *["–"] * (len(order) + 3)])
            continue
        found = cell.found
        gain = found.contrast(lead, SOURCE)
        rows.append(
            [
                cell.name,
                whole(_budget_n(found.conditions[lead])),
                _plain(found.source.pass_at_1),
                *(_plain(found.conditions[name].mean.pass_at_1) for name in order),
                f"{points(gain.delta, 2)} {wording.points_interval(gain.interval, 2)}",
            ]
        )
        for name in order:
            every.append([cell.name, *comparison.accuracy(found.conditions[name], cell.inputs.k)])
    note = (
        "Pass@1 in percent on each cell's audit: one greedy decode, mean over seeds "
        f"{wording.listed([str(seed) for seed in of.study.seeds])}. n: example slots of a matched "
        "condition. Brackets are 95% intervals, in percentage points."
    )
    if own:
        note += f" * Not budget-matched: {wording.listed([*map(condition_name, own)])}."
    if of.lacking:
        note += " A dash: the cell is not whole; see the top of the page."
    names = [condition_name(name) + (" *" if name in own else "") for name in order]
    columns = ["cell", "n", "source", *names, _minus(lead, SOURCE)]
    return [
        Table(columns, rows, note=note, links=pages(of)),
        Table(
            ["cell", *comparison.ACCURACY],
            every,
            words=2,
            note="Intervals resample training seeds and audit problems.",
            summary="Every condition's Pass@1 with its interval",
        ),
    ]


def _plain(rate: Fraction) -> str:
    """In percent without the sign, as Table 1 has it: every cell of the table is one."""
    return percent(rate, 2).removesuffix("%")


def _matched(of: StudyFindings, condition: str) -> bool:
    """Whether a condition has the first one's budget in every cell."""
    each = [cell.found.conditions for cell in of.cells]
    return all(budget_matched(of_cell[of.study.lead], of_cell[condition]) for of_cell in each)


def _budget_n(condition: ConditionFindings) -> int:
    return next(iter(condition.seeds.values())).budget.n


def _forest(of: StudyFindings) -> list[Block]:
    lead, reference = of.study.lead, of.study.reference
    rows = []
    for cell in of.cells:
        found = cell.found.contrast(lead, reference)
        rows.append(
            [
                cell.name + ("" if cell.found.fair(found) else " *"),
                points(found.delta, 2),
                wording.points_interval(found.interval, 2),
                *(points(term, 2) for term in (found.terms.s, found.terms.u, found.terms.g)),
                wording.p_value(found.resampled.p_value),
            ]
        )
    note = (
        "In percentage points of Pass@1; S, U and G are the parts of each difference that arise on "
        "these states of the source, and sum to it. p: two-sided, from the same replicates; not "
        f"corrected for the number of cells ({len(rows)})."
    )
    if not all(cell.found.fair(cell.found.contrast(lead, reference)) for cell in of.cells):
        note += " * Not budget-matched."
    return [
        Figure(
            "forest",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in rows),
            "One row a cell, with 95% intervals. Filled: the interval excludes zero.",
        ),
        Table(["cell", "difference", "95% interval", "S", "U", "G", "p"], rows, note=note),
    ]


def _means(of: StudyFindings) -> list[Block]:
    if not of.means:
        return [
            Text(
                "Not given: a mean over fewer cells would not be the study's. See the top of the "
                "page for what is missing.",
                "warning",
            )
        ]
    rows = [
        [
            _minus(mean.a, mean.b) + ("" if mean.matched or mean.b == SOURCE else " *"),
            points(mean.delta, 2),
            wording.points_interval(mean.interval, 2),
            wording.p_value(mean.resampled.p_value),
        ]
        for mean in of.means
    ]
    note = (
        f"Over {len(of.cells)} cells, each counted the same. A replicate draws training seeds once "
        "for all cells, and audit problems once for all cells on one audit. Cells are not "
        "resampled: the mean describes these cells, and not other models or tasks."
    )
    if not all(mean.matched or mean.b == SOURCE for mean in of.means):
        note += " * Not budget-matched."
    return [Table(["contrast", "mean difference", "95% interval", "p"], rows, note=note)]


def _decomposition(of: StudyFindings) -> list[Block]:
    reference = of.study.reference
    rows, differences, few = [], [], []
    for cell in of.cells:
        table = comparison.decomposition(cell.found, explained=False)
        states = cell.found.source.states
        shares = (percent(Fraction(states[s], cell.found.source.n)) for s in ("G", "S", "U"))
        of_states = " / ".join(share.removesuffix("%") for share in shares)
        for number, (condition, *row) in enumerate(table.rows):
            rows.append([cell.name, condition, "" if number else of_states, *row])
        few += [f"{state} of {cell.name} ({states[state]})" for state in cell.found.source.unstable]
        for name in of.study.conditions:
            if name != reference:
                found = cell.found.contrast(name, reference)
                parts = (found.terms.s, found.terms.u, found.terms.g, found.delta)
                differences.append(
                    [cell.name, condition_name(name), *(points(part, 2) for part in parts)]
                )
    note = (
        "p: share of the audit, in percent, in each state of the source. κ_S, κ_U: of the failures "
        "that search recovered, and of those it missed, the share that is right now. ρ_G: of the "
        "solved, the share that is wrong now. The terms S = p_S κ_S, U = p_U κ_U and G = "
        "−p_G ρ_G are computed from counts and sum exactly to the change of Pass@1."
    )
    if few:
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}."
        )
    lead = condition_name(of.study.lead)
    rates = ["κ_S", "κ_U", "ρ_G", "S", "U", "G", "change"]
    return [
        Figure(
            "flows",
            "; ".join(_flow(cell, of.study.lead) for cell in of.cells),
            f"Where the audit problems of each source state end up after {lead}, in shares of the "
            "audit, mean over seeds.",
        ),
        Table(["cell", "condition", "p_G / p_S / p_U", *rates], rows, note=note, words=2),
        Table(
            ["cell", "condition", "S", "U", "G", "difference"],
            differences,
            words=2,
            note=f"The terms minus those of {condition_name(reference)}, in percentage points; "
            "each row sums to its difference of Pass@1. A negative G means more regression.",
            summary=f"Term differences from {condition_name(reference)}",
        ),
    ]


def _flow(cell: CellFindings, lead: str) -> str:
    mean = cell.found.conditions[lead].mean
    return (
        f"{cell.name}: of the solved {percent(mean.rho_g)} are lost, of the recovered "
        f"{percent(mean.kappa_s)} corrected, of the missed {percent(mean.kappa_u)}"
    )
