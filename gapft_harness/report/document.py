"""Build the page of a report from its inputs and findings. Nothing is read or computed here."""

from __future__ import annotations

from collections.abc import Iterator

from gapft_harness.core.errors import PluginError
from gapft_harness.presentation.content import Column, Section, Table
from gapft_harness.presentation.page import Page
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.sections.opening import build_opening, describe_answer
from gapft_harness.report.sections.other_rule import build_other_rule
from gapft_harness.report.sections.paper import build_paper, measure_conditions
from gapft_harness.report.sections.responses import (
    build_cases,
    build_episodes,
    build_failures,
    build_problem_tables,
    build_verdicts,
)
from gapft_harness.report.sections.settings import build_settings
from gapft_harness.report.sections.states import build_decomposition, build_reach
from gapft_harness.report.sections.training import build_training


def build_page(inputs: ReportInputs, findings: Findings) -> Page:
    """Build the page of a report, without the page of every problem.

    Args:
        inputs: the result of ``read_inputs``.
        findings: the result of ``compute_findings``.

    Raises:
        PluginError: two tables have the same name.
    """
    sections = _build_sections(inputs, findings)
    tables = [table for section in sections for table in section.tables]
    figures = [*inputs.paper, *measure_conditions(inputs.recipe, tables, inputs.conditions)]
    if figures:
        sections.append(build_paper(figures))
    title = f"{inputs.recipe['name']} on {inputs.task['name']}"
    files = [_build_run(inputs, findings), *build_problem_tables(inputs)]
    sections += [build_verdicts(inputs), build_settings(inputs)]
    page = Page("index", title, sections, files)
    names = [table.name for table in page.tables]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise PluginError(f"two tables of the report are named {repeated[0]!r}: rename one")
    return page


def _build_sections(inputs: ReportInputs, findings: Findings) -> list[Section]:
    """Build the sections in order, with those of experiments where they belong."""
    sections = list(_build_own_sections(inputs, findings))
    for loaded in inputs.experiments if findings.conditions else ():
        experiment = loaded.experiment
        tables = list(experiment.tables(inputs, findings, loaded.data))
        titles = [section.title for section in sections]
        is_placed = experiment.after in titles
        place = titles.index(experiment.after) + 1 if is_placed else len(sections)
        if tables:
            sections.insert(place, Section(experiment.title, tables=tables))
    return sections


def _build_own_sections(inputs: ReportInputs, findings: Findings) -> Iterator[Section]:
    trained = bool(findings.conditions)
    yield build_opening(inputs, findings)
    if inputs.failures.reasons:
        yield build_failures(inputs)
    if trained:
        yield build_decomposition(findings)
    yield build_reach(inputs, findings)
    if trained:
        yield build_training(findings)
    if inputs.episodes is not None:
        yield build_episodes(inputs.episodes)
    if trained:
        yield build_cases(inputs, findings)
    if inputs.other_rule is not None:
        yield build_other_rule(inputs, findings, inputs.other_rule)


def _build_run(inputs: ReportInputs, findings: Findings) -> Table:
    """Build the row of a run, which is in files only."""
    run = {
        "recipe": inputs.recipe["name"],
        "task": inputs.task["name"],
        "k": inputs.k,
        "problems": len(inputs.audit.ids),
        "lead": findings.lead,
        "answer": describe_answer(inputs, findings),
    }
    return Table("run", [Column(key) for key in run], [run])
