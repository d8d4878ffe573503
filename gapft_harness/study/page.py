"""A study's page: equal-weight means over cells, and the tables of the cells' reports, joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.content import Column, Figure, Section, Table, format_value
from gapft_harness.presentation.figures import forest
from gapft_harness.presentation.page import Page
from gapft_harness.report import replace_folder
from gapft_harness.report.document import build_page as build_report_page
from gapft_harness.report.names import condition_name
from gapft_harness.report.reading.published import parse_published
from gapft_harness.study.findings import StudyFindings
from gapft_harness.study.protocol import OWN_KEYS, SECTIONS
from gapft_harness.study.recipe import REPORT, STUDY

_MEANS_NOTE = (
    "Differences of Pass@1 with equal weights of the cells. A replicate draws training seeds once "
    "for all cells, and audit problems once for all cells with the same audit. Cells are not "
    "resampled: the mean describes these cells, not other models or tasks; where the differences "
    "do not vary, the interval's ends are the means of the ends of the cells' intervals. p: "
    "two-sided, from the same replicates. * Not budget-matched."
)
_CELLS_NOTE = (
    "Each run has its own report (report/ in its folder) with further tables: gained and lost "
    "problems, and every problem with its responses."
)
_PROTOCOL_TEXT = (
    "Equal in every cell, checked before the cells ran: the recipe's sections "
    f"{', '.join(SECTIONS)} (except {', '.join(OWN_KEYS)}; start tokens are compared where "
    "model.start_tokens is set), the conditions with their selectors, the seeds, and the rule of "
    "adapter scaling. Cells with the same task also have the same version of it, data and audit "
    "problems, which is checked afterwards. Model, task, verifier and the counts that follow from "
    "the search (n, N, L, J) may differ."
)
_COMMANDS_TEXT = (
    f"Run these in the study's folder: gapft run {STUDY} --run-dir . continues the study and "
    "writes this page again; gapft verify . verifies every cell and this report."
)


def write_study(findings: StudyFindings, folder: Path) -> Path:
    """Write the report of a study into its folder, and return the path of the page.

    Raises:
        GapftError: the folder cannot be written.
    """
    page = build_page(findings)
    replace_folder(folder / REPORT, page.build_files())
    return folder / REPORT / f"{page.name}.html"


def build_page(findings: StudyFindings) -> Page:
    """Build the page of a study."""
    pages = {
        name: build_report_page(inputs, findings.findings[name])
        for name, inputs in findings.inputs.items()
    }
    sections = [_build_opening(findings), *_join_sections(pages)]
    if findings.scaling:
        sections.append(Section("Adapter scaling", tables=findings.scaling))
    sections.append(_build_cells(findings, pages))
    files = join_tables({name: page.files for name, page in pages.items()})
    title = f"Study {findings.study.name}"
    return Page("index", title, sections, files)


def _join_sections(pages: Mapping[str, Page]) -> Iterator[Section]:
    """Join the tables of the cells' reports, section by section."""
    titles = [section.title for page in pages.values() for section in page.sections]
    for title in dict.fromkeys(titles):
        tables = {
            name: [t for section in page.sections if section.title == title for t in section.tables]
            for name, page in pages.items()
        }
        if joined := join_tables(tables):
            yield Section(title or "Main comparison", tables=joined)


def join_tables(tables: Mapping[str, Sequence[Table]]) -> list[Table]:
    """Join tables by name; the first column ``cell`` has the cell's name.

    Tables without a name are joined by their columns. Tables with a row for each problem stay in
    the cells' own reports.

    Args:
        tables: the tables of each cell's report.
    """
    groups: dict[str, list[tuple[str, Table]]] = {}
    for cell, cell_tables in tables.items():
        for table in cell_tables:
            if not table.csv_only:
                titles = [column.title for column in table.titled]
                groups.setdefault(table.name or f"{table.folded} {titles}", []).append(
                    (cell, table)
                )
    return [_join_rows(group) for group in groups.values()]


def _join_rows(tables: Sequence[tuple[str, Table]]) -> Table:
    """Join the rows of one table of all cells; a table without titles stays in files only."""
    first = tables[0][1]
    columns: dict[str, Column] = {}
    for column in (column for _, table in tables for column in table.columns):
        known = columns.setdefault(column.key, column)
        # the longest title, so that a mark such as † in any cell's title is kept
        columns[column.key] = max(known, column, key=lambda item: len(item.title or ""))
    return replace(
        first,
        columns=[Column("cell", "cell" if first.titled else None), *columns.values()],
        rows=[{"cell": cell, **row} for cell, table in tables for row in table.rows],
    )


def _build_opening(findings: StudyFindings) -> Section:
    """Build the means over cells with the forest of Figure 2, and name the incomplete cells."""
    study = findings.study
    pair = study.lead, study.reference
    contrast = _format_contrast(*pair)
    estimates = [
        (name, cell_findings.find_contrast(*pair).estimate)
        for name, cell_findings in findings.findings.items()
    ]
    answer = "There is no mean over cells, because some cells are incomplete."
    if findings.means:
        above = sum(estimate.value > 0 for _, estimate in estimates)
        mean = findings.means[pair]
        answer = (
            f"{contrast}, mean over {len(findings.cells)} cells with equal weights: "
            f"{format_value(mean, 'points')} points of Pass@1; above zero in {above} cells."
        )
        estimates.append(("equal-weight mean", mean))
    faults = [f"{cell.name} is incomplete: {cell.fault}" for cell in findings.cells if cell.fault]
    return Section(
        "",
        [answer, *filter(None, [study.description]), *study.notes],
        tables=[_build_means(findings)] if findings.means else [],
        figures=[_draw_forest(contrast, estimates)] if estimates else [],
        warnings=faults,
    )


def _draw_forest(contrast: str, estimates: Sequence[tuple[str, Estimate]]) -> Figure:
    numbers = (f"{name} {format_value(estimate, 'points')}" for name, estimate in estimates)
    return Figure(
        "forest",
        forest(estimates, f"{contrast}, points of Pass@1"),
        f"{contrast}: {'; '.join(numbers)}",
        "Each cell with its 95% interval. Filled marker: the interval excludes zero.",
    )


def _format_contrast(a: str, b: str) -> str:
    return f"{condition_name(a)} \N{MINUS SIGN} {condition_name(b)}"


def _build_means(findings: StudyFindings) -> Table:
    columns = [
        Column("label", "mean over cells"),
        Column("a"),
        Column("b"),
        Column("delta", "difference (points)", "points"),
        Column("p", "p", "p"),
        Column("matched_budget"),
    ]
    printed: dict[tuple[str, ...], list[str]] = {}
    for published in parse_published(findings.study.paper):
        text = f"{published.quantity_name} {published.printed:+} ({published.table})"
        printed.setdefault(published.conditions, []).append(text)
    if printed:
        columns.append(Column("printed", "paper"))
    rows = []
    for (a, b), mean in findings.means.items():
        matched = findings.is_matched(a, b)
        rows.append(
            {
                "label": _format_contrast(a, b) + " *" * (not matched and b != SOURCE),
                "a": a,
                "b": b,
                "delta": mean,
                "p": mean.p,
                "matched_budget": matched,
                "printed": "; ".join(printed.get((a, b), [])),
            }
        )
    return Table("means", columns, rows, _MEANS_NOTE)


def _build_cells(findings: StudyFindings, pages: Mapping[str, Page]) -> Section:
    """Build the section on the cells, their protocol, and the warnings of their runs."""
    columns = [
        Column("cell", "cell"),
        Column("state", "state"),
        Column("model", "model"),
        Column("task", "task"),
        Column("run", "run"),
    ]
    rows = [
        {
            "cell": cell.name,
            "state": cell.fault or "complete",
            "model": cell.inputs and cell.inputs.recipe["model"]["args"]["pretrained"],
            "task": cell.inputs and cell.inputs.task["name"],
            "run": str(findings.study.find_run_path(cell.name, Path())),
        }
        for cell in findings.cells
    ]
    warnings = [
        f"{name}: {warning}"
        for name, page in pages.items()
        for section in page.sections
        for warning in section.warnings
    ]
    table = Table("cells", columns, rows, _CELLS_NOTE)
    return Section("Cells", [_PROTOCOL_TEXT, _COMMANDS_TEXT], [table], warnings=warnings)
