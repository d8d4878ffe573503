"""A study's report: the tables of the paper's main comparison, cell by cell, and its figures.

It has the same files as a run's report, and is computed from the cells' sealed tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.core.records import SOURCE, Budget
from gapft_harness.experiments.scaling import report as scaling
from gapft_harness.report import FILES, replace_folder
from gapft_harness.report import results as of_run
from gapft_harness.report.findings.computation import ConditionFindings, Contrast, is_budget_matched
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.published import PublishedValue, parse_published
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import (
    Block,
    Bullets,
    Code,
    Drawing,
    Figure,
    Section,
    Stat,
    Stats,
    Text,
)
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    condition_name,
    describe_days,
    format_count,
    format_rounded,
    percent,
    points,
    points_interval,
)
from gapft_harness.report.sections import comparison, paper
from gapft_harness.report.sections.budgets import format_group, measure_token_spread
from gapft_harness.report.sections.provenance import SETTINGS, flatten
from gapft_harness.report.tables import build_cell_tables
from gapft_harness.study.cells import CollectedCell, require_different
from gapft_harness.study.figures import draw_study_figures
from gapft_harness.study.findings import (
    CellFindings,
    GainShare,
    MeanContrast,
    StudyFindings,
    compute_shares,
    compute_study,
)
from gapft_harness.study.protocol import (
    OWN_KEYS,
    SECTIONS,
    require_comparable,
    require_one_protocol,
)
from gapft_harness.study.recipe import (
    CELLS,
    REPORT,
    STUDY,
    StudyRecipe,
    make_folder_name,
)

_MINUS = " \N{MINUS SIGN} "
_format_points, _format_interval = partial(points, digits=2), partial(points_interval, digits=2)

# Meanings of columns in several tables.
_ABOUT = "a property of the cell"
_CELL = "the cell, conditions or contrast"
_DIFFERENCE = "of Pass@1; its mean over cells"
_GAIN = "gains over the source, and their ratio"
_OF_SOURCE = "the source's rate"
_SLOTS = "example slots of a condition with another budget"
_TERM = "terms (Equation 9)"


def build_document(findings: StudyFindings, drawings: Sequence[Drawing]) -> Document:
    """Build the report from the findings and the drawn figures."""
    cells = [(cell.name, cell.inputs, cell.findings) for cell in findings.cells]
    tables = {
        **dict(build_cell_tables(cells)),
        "means.csv": Frame(MEANS, findings.means).csv(),
        "shares.csv": Frame(SHARES, _list_shares(findings)).csv(),
        **(scaling.build_csv_tables(findings.scaling) if findings.scaling else {}),
    }
    return Document(
        title=f"Study {findings.study.name}",
        subtitle=findings.study.description,
        date_note=describe_days(day for cell in findings.cells for day in cell.inputs.days),
        sections=build_sections(findings),
        names=FILES,
        results=build_study_results(findings),
        tables={f"tables/{name}": rows for name, rows in tables.items()},
        drawings=drawings,
    )


def build_sections(findings: StudyFindings) -> list[Section]:
    """Build all sections."""
    built = [Section("", _build_opening(findings))]
    if findings.cells:
        built += [
            Section("Main comparison", _build_main(findings)),
            Section(
                _format_difference(findings.study.lead, findings.study.reference),
                _build_forest(findings),
            ),
            Section("Equal-weight means", _build_means(findings)),
            *(
                [Section(paper.TITLE, paper.build_blocks(published))]
                if (published := collect_published(findings))
                else []
            ),
            Section("Where the change comes from", _build_decomposition(findings)),
            Section("What one decode is worth", _build_amortization(findings)),
            Section("Share of a larger budget's gain", _build_shares(findings)),
            Section("Training budgets", build_budgets(findings)),
        ]
    if findings.scaling:
        built.append(Section("Adapter scaling", scaling.build_blocks(findings.scaling)))
    return [*built, *build_provenance(findings)]


def _format_difference(a: str, b: str) -> str:
    return f"{condition_name(a)}{_MINUS}{condition_name(b)}"


def _build_main(findings: StudyFindings) -> list[Block]:
    """Build Table 1, and the table of every Pass@1 with its interval."""
    lead = findings.study.lead
    # the paper's order: the study's condition is last, before those with another budget
    unmatched = [n for n in findings.study.conditions if n != lead and not _is_matched(findings, n)]
    order = [
        *(n for n in reversed(findings.study.conditions) if n != lead and n not in unmatched),
        lead,
        *unmatched,
    ]
    by_name = {cell.name: cell for cell in findings.cells}
    rows = [(collected.name, by_name.get(collected.name)) for collected in findings.collected]
    models = [
        CellModel(
            cell, comparison.ModelRow.from_condition(cell.findings.conditions[name], cell.inputs.k)
        )
        for cell in findings.cells
        for name in order
    ]
    note = (
        f"Pass@1 in percent on each cell's audit: one {wording.name_decode(findings.deployment)}, "
        f"mean over seeds {wording.listed([str(seed) for seed in findings.study.seeds])}. n: "
        "example slots of a matched condition. Among the source and the matched conditions, the "
        "best of each row is bold and the second-best underlined. Brackets are 95% intervals, in "
        "percentage points."
    )
    if unmatched:
        note += f" * Not budget-matched: {wording.listed([*map(condition_name, unmatched)])}."
    if findings.incomplete:
        note += " A dash: the cell is incomplete; see the top of the page."
    titles = {name: condition_name(name) + " *" * (name in unmatched) for name in order}
    columns = [*build_main_columns(lead, titles, unmatched)]
    return [
        Frame(columns, rows).table(note, links=find_pages(findings)),
        Frame(ACCURACY, models).table(
            "Intervals resample training seeds and audit problems.",
            words=2,
            summary="Every condition's Pass@1 with its interval",
        ),
    ]


def _find_pass_at_1(name: str, cell: CellFindings) -> Fraction:
    return cell.findings.conditions[name].mean.pass_at_1


#: A row of the main comparison; an incomplete cell has only a name.
MainRow = tuple[str, CellFindings | None]


def build_main_columns(
    lead: str, titles: Mapping[str, str], unmatched: Sequence[str] = ()
) -> Iterator[Column[MainRow]]:
    """Build the columns of slots, the source, each condition, and the gain of the lead condition.

    Args:
        lead: the study's first condition.
        titles: titles by condition, in the order of the columns.
        unmatched: conditions with another budget; their slots are shown, and they are not ranked.
    """

    def build_column(
        title: str,
        meaning: str,
        value: Callable[[CellFindings], Any],
        format_value: Callable[[Any], str] = str,
        ranked: bool = False,
    ) -> Column[MainRow]:
        return Column("", meaning, value, title, format_value, ranked=ranked).map_rows(
            lambda row: row[1]
        )

    def format_gain(cell: CellFindings) -> str:
        return _format_mean(cell.findings.find_contrast(lead, SOURCE))

    def count_slots(name: str, cell: CellFindings) -> int:
        return _find_n(cell.findings.conditions[name])

    yield Column("", _CELL, lambda row: row[0], "cell")
    yield build_column("n", "", partial(count_slots, lead), format_count)
    for name in unmatched:
        yield build_column(f"n, {titles[name]}", _SLOTS, partial(count_slots, name), format_count)
    yield build_column(
        "source", _OF_SOURCE, lambda cell: cell.findings.source.pass_at_1, _format_rate, True
    )
    for name, title in titles.items():
        pass_at_1 = partial(_find_pass_at_1, name)
        yield build_column(
            title, "Pass@1 of that condition", pass_at_1, _format_rate, name not in unmatched
        )
    yield build_column(_format_difference(lead, SOURCE), _GAIN, format_gain)


def _format_rate(rate: Fraction) -> str:
    """Format a rate in percent without the percent sign, as in Table 1."""
    return percent(rate, 2).removesuffix("%")


MAIN = tuple(build_main_columns("CONDITION", {"CONDITION": "CONDITION"}, ["CONDITION"]))


def _is_matched(findings: StudyFindings, condition: str) -> bool:
    """Return whether a condition has the budget of the first condition in every cell."""
    cell_conditions = [cell.findings.conditions for cell in findings.cells]
    return all(
        is_budget_matched(conditions[findings.study.lead], conditions[condition])
        for conditions in cell_conditions
    )


def _find_n(condition: ConditionFindings) -> int:
    return next(iter(condition.seeds.values())).budget.n


def _build_forest(findings: StudyFindings) -> list[Block]:
    lead, reference = findings.study.lead, findings.study.reference
    rows = [(cell, cell.findings.find_contrast(lead, reference)) for cell in findings.cells]
    note = (
        "In percentage points of Pass@1. S, U and G: the parts of each difference on these states "
        "of the source; they add up to it. p: two-sided, from the same replicates, not corrected "
        f"for the number of cells ({len(rows)})."
    )
    if not all(cell.findings.is_matched(contrast) for cell, contrast in rows):
        note += " * Not budget-matched."
    table = Frame(FOREST, rows).table(note)
    return [
        Figure(
            "forest",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in table.rows),
            "One row for each cell, with 95% intervals. Filled marker: the interval excludes zero.",
        ),
        table,
    ]


CellContrast = tuple[CellFindings, Contrast]
TERMS: list[Column[CellContrast]] = [
    Column("", _TERM, lambda row: row[1].terms.s, "S", _format_points),
    Column("", _TERM, lambda row: row[1].terms.u, "U", _format_points),
    Column("", _TERM, lambda row: row[1].terms.g, "G", _format_points),
]
FOREST: tuple[Column[CellContrast], ...] = (
    Column(
        "", _CELL, lambda row: row[0].name + " *" * (not row[0].findings.is_matched(row[1])), "cell"
    ),
    Column("", _DIFFERENCE, lambda row: row[1].delta, "difference", _format_points),
    Column("", "", lambda row: row[1].estimate, "95% interval", _format_interval),
    *TERMS,
    Column("", "", lambda row: row[1].estimate.p, "p", wording.format_p_value),
)


def _build_means(findings: StudyFindings) -> list[Block]:
    if not findings.means:
        return [
            Text(
                "Not available: some cells are incomplete, and the mean is defined over all cells. "
                "The top of the page lists the missing parts.",
                "warning",
            )
        ]
    note = (
        f"Over {len(findings.cells)} cells with equal weights. A replicate draws training seeds "
        "once for all cells, and audit problems once for all cells with the same audit. Cells are "
        "not resampled: the mean describes these cells, not other models or tasks."
    )
    if not all(mean.matched or mean.b == SOURCE for mean in findings.means):
        note += " * Not budget-matched."
    return [Frame(MEANS, findings.means).table(note)]


MEANS: tuple[Column[MeanContrast], ...] = (
    Column("a", "", lambda mean: mean.a),
    Column("b", "", lambda mean: mean.b),
    Column(
        "",
        _CELL,
        lambda mean: (
            _format_difference(mean.a, mean.b) + " *" * (not mean.matched and mean.b != SOURCE)
        ),
        "contrast",
    ),
    Column(
        "delta",
        _DIFFERENCE,
        lambda mean: mean.estimate.value,
        "mean difference",
        _format_points,
        names=("mean_difference",),
    ),
    Column("ci95", "", lambda mean: mean.estimate, "95% interval", _format_interval, names=CI95),
    Column("p", "", lambda mean: mean.estimate.p, "p", wording.format_p_value),
    Column("matched_budget", "", lambda mean: mean.matched),
)


def collect_published(findings: StudyFindings) -> list[PublishedValue]:
    """List the means that a paper prints with this study's values; None without a mean."""
    figures = []
    for figure in parse_published(findings.study.paper):
        a, b = figure.conditions
        if (mean := findings.find_mean(a, b)) is not None:
            values = {
                "delta": float(mean.estimate.value),
                "ci95_low": mean.estimate.low,
                "ci95_high": mean.estimate.high,
            }
            figure = replace(figure, measured=100 * values[figure.name])
        figures.append(figure)
    return figures


def _build_decomposition(findings: StudyFindings) -> list[Block]:
    reference = findings.study.reference
    rows, differences, few = [], [], []
    for cell in findings.cells:
        states = cell.findings.source.states
        for number, condition in enumerate(cell.findings.conditions.values()):
            model = comparison.ModelRow.from_condition(condition, cell.inputs.k)
            rows.append(CellModel(cell, model, is_first=not number))
        few += [
            f"{state} of {cell.name} ({states[state]})"
            for state in cell.findings.source.unstable_states
        ]
        differences += [
            (cell, cell.findings.find_contrast(name, reference))
            for name in findings.study.conditions
            if name != reference
        ]
    note = (
        "p: share of the audit in each state of the source, in percent. κ_S, κ_U: share of the "
        "failures recovered by search, and of the failures missed by it, that are right after "
        "training. ρ_G: share of the solved problems that are wrong after training. The terms "
        "S = p_S κ_S, U = p_U κ_U and G = −p_G ρ_G are computed from counts, and add up exactly to "
        "the change of Pass@1."
    )
    if few:
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}."
        )
    lead = condition_name(findings.study.lead)
    return [
        Figure(
            "flows",
            "; ".join(_describe_flow(cell, findings.study.lead) for cell in findings.cells),
            f"Outcomes after {lead} by source state, as shares of the audit, mean over seeds.",
        ),
        Frame(DECOMPOSITION, rows).table(note, words=2),
        Frame(TERM_DIFFERENCES, differences).table(
            f"The terms minus those of {condition_name(reference)}, in percentage points; they add "
            "up to the row's difference of Pass@1. A negative G means more regression.",
            words=2,
            summary=f"Term differences from {condition_name(reference)}",
        ),
    ]


@dataclass(frozen=True, slots=True)
class CellModel:
    """A condition in a cell; ``is_first``: whether it is the first row of the cell."""

    cell: CellFindings
    model: comparison.ModelRow
    is_first: bool = False

    @property
    def state_shares(self) -> str:
        """The shares of the audit's states, in percent."""
        source = self.cell.findings.source
        shares = (percent(Fraction(count, source.n)) for count in source.states.values())
        return " / ".join(share.removesuffix("%") for share in shares)


def _map_to_cells(columns: Iterable[Column[comparison.ModelRow]]) -> Iterator[Column[CellModel]]:
    """Convert columns of a report's conditions to columns of a cell's conditions."""
    for column in columns:
        title = column.title and column.title.removesuffix(" term")
        yield replace(column.map_rows(lambda row: row.model), title=title)


NAME: tuple[Column[CellModel], ...] = (Column("", _CELL, lambda row: row.cell.name, "cell"),)
ACCURACY = (*NAME, *_map_to_cells(comparison.ACCURACY))
DECOMPOSITION = (
    *NAME,
    *_map_to_cells(comparison.DECOMPOSITION[:1]),
    Column(
        "",
        "shares of the audit",
        lambda row: row.state_shares if row.is_first else "",
        "p_G / p_S / p_U",
    ),
    *_map_to_cells(comparison.RATES),
)
TERM_DIFFERENCES: tuple[Column[CellContrast], ...] = (
    Column("", _CELL, lambda row: row[0].name, "cell"),
    Column("", "", lambda row: row[1].a, "condition", condition_name),
    *TERMS,
    Column("", _DIFFERENCE, lambda row: row[1].delta, "difference", _format_points),
)


def _describe_flow(cell: CellFindings, lead: str) -> str:
    mean = cell.findings.conditions[lead].mean
    return (
        f"{cell.name}: of the solved {percent(mean.rho_g)} are lost, of the recovered "
        f"{percent(mean.kappa_s)} corrected, of the missed {percent(mean.kappa_u)}"
    )


def _build_opening(findings: StudyFindings) -> list[Block]:
    """Build the opening: the mean over cells, or the incomplete cells; then remarks."""
    remarks = [Text(note, "note") for note in findings.study.notes]
    if findings.deployment:
        remarks.insert(0, Text(wording.describe_deployment(findings.deployment), "note"))
    if findings.incomplete:
        complete_count = len(findings.cells)
        text = (
            f"{complete_count} of {len(findings.collected)} cells are complete. The mean over "
            "cells needs all cells; these are incomplete:"
        )
        lines = [f"{name}: {'; '.join(lacks)}" for name, lacks in findings.incomplete.items()]
        return [Text(text, "warning"), Bullets(lines), *remarks]
    lead, reference = findings.study.lead, findings.study.reference
    reference_mean, source_mean = (
        findings.find_mean(lead, reference),
        findings.find_mean(lead, SOURCE),
    )
    assert reference_mean is not None
    assert source_mean is not None
    above = sum(cell.findings.find_contrast(lead, reference).delta > 0 for cell in findings.cells)
    resolved = sum(
        cell.findings.find_contrast(lead, reference).estimate.excludes_zero
        for cell in findings.cells
    )
    count = len(findings.cells)
    cells = f"{count} cells" if count > 1 else "1 cell"
    sentence = (
        f"Over {cells} with equal weights, {condition_name(lead)} minus "
        f"{condition_name(reference)} is {_format_mean(reference_mean)} points of Pass@1"
        f"{' at the same training budget' * reference_mean.matched}; "
        f"{wording.describe_resolution(reference_mean.estimate)}. Minus the source it is "
        f"{_format_mean(source_mean)} points. {condition_name(lead)} is above "
        f"{condition_name(reference)} in {above} of {count} cells; the interval excludes zero, on "
        f"either side, in {resolved}. Brackets are 95% intervals."
    )
    stats = [
        _build_stat(f"{condition_name(lead)} against {condition_name(reference)}", reference_mean),
        _build_stat(f"{condition_name(lead)} against the source", source_mean),
        Stat("cells", str(count), f"{len(findings.study.seeds)} seeds each"),
    ]
    return [Text(sentence, "lead"), Stats(stats), *remarks]


def _format_mean(mean: MeanContrast | Contrast) -> str:
    return f"{points(mean.estimate.value, 2)} {points_interval(mean.estimate, 2)}"


def _build_stat(label: str, mean: MeanContrast) -> Stat:
    return Stat(
        label,
        points(mean.estimate.value, 2),
        f"points {points_interval(mean.estimate, 2)}, mean",
    )


def _build_amortization(findings: StudyFindings) -> list[Block]:
    """Build the table of the source's Pass@k and each condition's K_eq."""
    samples = findings.cells[0].inputs.k  # all cells have the same protocol
    k_values = list_reported_k(samples)[-2:]
    note = (
        f"Pass@k of the source: unbiased estimates from {samples} samples of each problem, an "
        "oracle reference that needs search and a verifier at inference. K_eq of a condition: the "
        "largest K whose source Pass@K does not exceed the condition's Pass@1; <1: the condition "
        f"is below one sample of the source; ≥{samples}: no more samples were drawn."
    )
    names = {name: condition_name(name) for name in findings.study.conditions}
    names[findings.study.lead] = f"K_eq: {names[findings.study.lead]}"
    decode = "one decode" if findings.deployment else "greedy"
    table = Frame([*build_worth_columns(k_values, names, decode)], findings.cells).table(note)
    return [
        Figure(
            "curves",
            "; ".join(
                f"{row[0]}: {decode} {row[1]}, Pass@{samples} {row[1 + len(k_values)]}"
                for row in table.rows
            ),
            "The source's accuracy when a verifier picks among k samples. Lines: one "
            f"{wording.name_decode(findings.deployment)} of each model; the marker is at its K_eq.",
        ),
        table,
    ]


_format_percent = partial(percent, digits=2)


def _find_pass_at(k: Any, cell: CellFindings) -> Fraction:
    return cell.findings.source.curve[k]


def _format_cell_k_eq(name: str, cell: CellFindings) -> str:
    return wording.format_k_eq(cell.findings.conditions[name].k_eq, cell.inputs.k)


def build_worth_columns(
    ks: Iterable[int | str], titles: Mapping[str, str], decode: str = "greedy"
) -> Iterator[Column[CellFindings]]:
    """Build the columns of the source's Pass@k, and of each condition's K_eq.

    Args:
        ks: the values of k.
        titles: the titles of the columns of K_eq, by condition.
        decode: the title of the column of one decode.
    """
    yield Column("", _CELL, lambda cell: cell.name, "cell")
    yield Column(
        "", _OF_SOURCE, lambda cell: cell.findings.source.pass_at_1, decode, _format_percent
    )
    for k in ks:
        yield Column("", _OF_SOURCE, partial(_find_pass_at, k), f"Pass@{k}", _format_percent)
    for name, title in titles.items():
        meaning = "this column and those to its right: K_eq"
        yield Column("", meaning, partial(_format_cell_k_eq, name), title)


WORTH = tuple(build_worth_columns(["k"], {"": "K_eq: CONDITION"}))


def _build_shares(findings: StudyFindings) -> list[Block]:
    """Build the table of the lead condition's share of the gain and problems of larger budgets."""
    lead = condition_name(findings.study.lead)
    rows = _list_shares(findings)
    if not rows:
        return [Text("No condition of this study has its own, larger budget.")]
    note = (
        f"The distinct training problems of {lead}, and its gain over the source in percentage "
        "points, compared with a reference that has a larger budget. The share has little meaning "
        "where the reference gains little; a dash: the reference gains nothing."
    )
    return [Frame(SHARES, rows).table(note, words=2, fill={"CONDITION": lead})]


CellShare = tuple[CellFindings, str, GainShare]


def _list_shares(findings: StudyFindings) -> list[CellShare]:
    lead = findings.study.lead
    return [(cell, lead, share) for cell in findings.cells for share in compute_shares(cell, lead)]


def _find_gain(cell: CellFindings, condition: str) -> Fraction:
    return cell.findings.find_contrast(condition, SOURCE).delta


_LARGER = "the condition with a larger budget; GapFT's distinct problems divided by its"


SHARES: tuple[Column[CellShare], ...] = (
    Column("cell", _CELL, lambda row: row[0].name, "cell"),
    Column("reference", _LARGER, lambda row: row[2].reference, "reference", condition_name),
    Column(
        "share_of_problems", _LARGER, lambda row: row[2].problems, "share of its problems", percent
    ),
    Column("", _GAIN, lambda row: _find_gain(row[0], row[1]), "gain of CONDITION", _format_points),
    Column("", _GAIN, lambda row: _find_gain(row[0], row[2].reference), "its gain", _format_points),
    Column("share_of_gain", _GAIN, lambda row: row[2].gain, "share of it", percent),
)


def build_budgets(findings: StudyFindings) -> list[Block]:
    """Build the table of n, N, L and J of every cell, with a row for each budget."""
    rows = []
    for cell in findings.cells:
        conditions = cell.findings.conditions
        groups = cell.findings.groups + [
            [condition] for condition in conditions.values() if not condition.matched
        ]
        for group in groups:
            rows.append(BudgetRow(cell, group, findings.study.lead))
    note = (
        "n: example slots. N: exposures. L: processed tokens, over conditions and seeds; the first "
        "L is of the study's first condition, mean over seeds, as in the paper. J: optimizer "
        "steps. Within a row n, N and J are the same; tokens are reported, not enforced."
    )
    lead = condition_name(findings.study.lead)
    return [Frame(SPENT, rows).table(note, words=2, fill={"CONDITION": lead})]


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """Conditions of a cell with the same budget."""

    cell: CellFindings
    group: Sequence[ConditionFindings]
    lead: str

    @property
    def budget(self) -> Budget:
        """The common budget: n, N and J are the same for all."""
        return self.group[0].budgets[0]

    @property
    def lead_tokens(self) -> float | None:
        """Tokens L of the study's first condition, mean over seeds; None if it is not included."""
        tokens = [
            budget.tokens
            for condition in self.group
            if condition.name == self.lead
            for budget in condition.budgets
        ]
        return fmean(tokens) if tokens else None


_L = "over conditions with the same budget"
_OWN_L = "processed tokens of the first condition, mean over seeds"


SPENT: tuple[Column[BudgetRow], ...] = (
    Column("", _CELL, lambda row: row.cell.name, "cell"),
    Column("", _CELL, lambda row: format_group(row.group), "conditions"),
    Column("", "", lambda row: row.budget.n, "n", format_count),
    Column("", "", lambda row: row.budget.exposures, "N", format_count),
    Column("", _OWN_L, lambda row: row.lead_tokens, "L of CONDITION", format_rounded),
    Column("", _L, lambda row: measure_token_spread(row.group)[0], "L, fewest", format_count),
    Column("", _L, lambda row: measure_token_spread(row.group)[1], "L, most", format_count),
    Column("", _L, lambda row: measure_token_spread(row.group)[2], "spread of L", percent),
    Column("", "", lambda row: row.budget.steps, "J", format_count),
)


def build_provenance(findings: StudyFindings) -> list[Section]:
    """Build the sections on cells, settings, and commands."""
    return [
        Section("Cells", _build_cells(findings)),
        Section("Settings", _build_settings(findings)),
        Section("Reproduce", _build_reproduce(findings)),
    ]


def _build_cells(findings: StudyFindings) -> list[Block]:
    rows = [
        (cell, findings.study.cells[cell.name].run or f"{CELLS}/{make_folder_name(cell.name)}")
        for cell in findings.collected
    ]
    note = (
        "Each run has its own report (report/index.html in its folder, linked from the cell's "
        "name) with more details: counts for every seed, problems gained and lost, verdicts, "
        "warnings."
    )
    lines = [f"{cell.name}: {line}" for cell in findings.collected for line in cell.warnings]
    return [
        Frame(CELL, rows).table(note, words=7, links=find_pages(findings)),
        *([Bullets(lines)] if lines else []),
    ]


#: A cell, and where its run is.
CellRow = tuple[CollectedCell, str]


def _build_run_column(title: str, value: Callable[[ReportInputs], str]) -> Column[CellRow]:
    """Build the column of a property of a cell's run; a dash for an incomplete cell."""
    return Column("", _ABOUT, value, title).map_rows(lambda row: row[0].inputs)


def _format_verifier(inputs: ReportInputs) -> str:
    params = json.dumps(inputs.task.get("verifier_params", {}), ensure_ascii=False)
    text = f"{inputs.task['verifier']} {params}"
    if inputs.splits_with_imported_verdicts:
        splits = " and ".join(inputs.splits_with_imported_verdicts)
        text += f" (except {splits}: verdicts of logs)"
    return text


CELL: tuple[Column[CellRow], ...] = (
    Column("", _CELL, lambda row: row[0].name, "cell"),
    Column("", _ABOUT, lambda row: "; ".join(row[0].missing) or "complete", "state"),
    _build_run_column("model", lambda inputs: str(inputs.recipe["model"]["args"]["pretrained"])),
    _build_run_column("task", lambda inputs: str(inputs.task["name"])),
    _build_run_column("verifier", _format_verifier),
    _build_run_column("audit problems", lambda inputs: format_count(len(inputs.audit.ids))),
    Column("", _ABOUT, lambda row: row[1], "run"),
)


def find_pages(findings: StudyFindings) -> dict[str, str]:
    """Return the addresses of the cells' reports, by cell."""
    return {cell.name: cell.page for cell in findings.collected if cell.page}


def _build_settings(findings: StudyFindings) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "These settings were checked before anything was run, and are the same in every cell: "
            f"the sections {', '.join(SECTIONS)} of the recipe, except {', '.join(OWN_KEYS)}; the "
            "conditions with their selectors; and the seeds. Model, task, verifier and the numbers "
            "of a budget may differ between cells. Cells with the same task have the same audit."
        )
    ]
    if findings.cells:
        recipe = findings.cells[0].inputs.recipe
        sections_content = {name: recipe[name] for name in ("conditions", "seeds", *SECTIONS)}
        excluded_keys = {*OWN_KEYS, *(f"{name}.run" for name in findings.study.conditions)}
        rows = [
            (key, value) for key, value in flatten(sections_content) if key not in excluded_keys
        ]
        blocks.append(Frame(SETTINGS, rows).table(words=2, summary="Settings of all cells"))
    return blocks


def _build_reproduce(of: StudyFindings) -> list[Block]:
    text = (
        f"The study's folder contains {STUDY}, and a run for each cell that names a recipe. Run "
        "these commands in that folder to continue or to write this page again, and to verify "
        "every cell and this report:"
    )
    return [Text(text), Code(f"gapft run {STUDY} --run-dir .\ngapft verify .")]


def build_study_results(findings: StudyFindings) -> dict[str, Any]:
    """Build the content of a study's results.json (schema 1; keys in docs/studies.md)."""
    study, published = findings.study, collect_published(findings)
    cells: dict[str, Any] = {}
    complete_cells = {cell.name: cell for cell in findings.cells}
    for collected in findings.collected:
        cell = complete_cells.get(collected.name)
        if cell is None:
            cells[collected.name] = {"lacks": list(collected.missing)}
            continue
        cells[collected.name] = {
            **of_run.build_results(cell.inputs, cell.findings),
            "shares": {
                share.reference: {
                    "gain": of_run.to_float(share.gain),
                    "problems": float(share.problems),
                }
                for share in compute_shares(cell, study.lead)
            },
            "files": dict(collected.files),
        }
    return {
        "schema": 1,
        "study": study.name,
        "conditions": list(study.conditions),
        "reference": study.reference,
        "seeds": list(study.seeds),
        "whole": not findings.incomplete,
        "means": Frame(MEANS, findings.means).entries() or None,
        **({"paper": paper.build_content(published)} if published else {}),
        **({"scaling": scaling.build_content(findings.scaling)} if findings.scaling else {}),
        "cells": cells,
    }


def write_study(
    study: StudyRecipe, collected: Sequence[CollectedCell], folder: Path
) -> StudyFindings:
    """Compute and write a study's report.

    Raises:
        UserError: the cells are not comparable; an earlier report stays.
        GapftError: the folder cannot be written.
    """
    findings = compute_checked(study, collected)
    replace_folder(
        folder / REPORT, build_document(findings, draw_study_figures(findings)).build_files()
    )
    return findings


def compute_checked(study: StudyRecipe, collected: Sequence[CollectedCell]) -> StudyFindings:
    """Check that cells are comparable, and compute the study's findings.

    Raises:
        UserError: the cells are not comparable.
    """
    require_different(collected)
    require_one_protocol(
        study, {cell.name: cell.recipe for cell in collected if cell.recipe is not None}
    )
    require_comparable(study, collected)
    return compute_study(study, collected)
