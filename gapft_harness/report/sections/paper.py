"""Comparison with the paper: the figures that a paper prints, as given in the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from statistics import fmean
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.published import (
    BUDGET,
    OTHER_RULE,
    PublishedValue,
    list_published,
)
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import condition_name, format_signed_count, points
from gapft_harness.report.sections.comparison import split_by_state
from gapft_harness.report.sections.other_rule import agreements, compute_other_findings

TITLE = "Comparison with the paper"


def collect_figures(inputs: ReportInputs, findings: Findings) -> list[PublishedValue]:
    """Collect all printed figures with this run's values: the search's, then the conditions'."""
    figures = [
        figure
        for figure in list_published(inputs.recipe)
        if figure.conditions and {*figure.conditions} <= {SOURCE, *findings.conditions}
    ]
    rule = inputs.other_rule
    needs_rule = any(f.name.startswith(OTHER_RULE) or f.name == "invalid" for f in figures)
    other, invalid = None, dict[str, Fraction]()
    if needs_rule and rule is not None and not rule.reason:
        other = compute_other_findings(inputs, findings, rule)
        invalid = {
            model.name: Fraction(model.invalid, model.total)
            for model in agreements(inputs, rule)
            if model.invalid is not None
        }

    def measure(figure: PublishedValue) -> float | None:
        if figure.name == "invalid":
            return _to_percent(invalid.get(figure.subject))
        if not figure.name.startswith(OTHER_RULE):
            return _measure_condition(findings, figure)
        plain = replace(figure, quantity=figure.quantity.removeprefix(OTHER_RULE))
        return None if other is None else _measure_condition(other, plain)

    return [*inputs.paper, *(replace(figure, measured=measure(figure)) for figure in figures)]


def _measure_condition(findings: Findings, figure: PublishedValue) -> float | None:
    """Return a condition's or a difference's value; None: the run does not have it."""
    name = figure.name
    if figure.k:
        lines = _read_part(findings, "scope").get("lines", ())
        place = figure.subject, int(figure.k)
        rates = [line[name] for line in lines if (line["condition"], line["K"]) == place]
        return _to_percent(rates[0]) if rates else None
    if name == "flat_solved_share":
        drawn = _read_part(findings, "online").get("drawn", ())
        shares = [row[name] for row in drawn if row["condition"] == figure.subject]
        return _to_percent(shares[0]) if shares else None
    if name == "changed":
        for replicate in findings.replicates:
            if (replicate.condition, replicate.original) == figure.conditions:
                return fmean(seed.changes.changed for seed in replicate.retrainings)
        return None
    if figure.is_difference:
        contrast = findings.find_contrast(*figure.conditions)
        parts: dict[str, Any] = {
            "delta": contrast.delta,
            "ci95_low": contrast.estimate.low,
            "ci95_high": contrast.estimate.high,
            **split_by_state(contrast.terms),
        }
        return _to_percent(parts[name])
    if figure.subject == SOURCE:
        return _to_percent(findings.source.pass_at_1)
    condition = findings.conditions[figure.subject]
    if name in BUDGET:
        return fmean(getattr(budget, name) for budget in condition.budgets)
    if name == "k_eq":
        return condition.k_eq
    return _to_percent(getattr(condition.mean, name.lower()))


def _read_part(findings: Findings, name: str) -> Mapping[str, Any]:
    """Return what an experiment writes to results.json; empty: the run does not have it."""
    for entry in findings.parts:
        if entry.part.name == name:
            return entry.part.results(entry.findings) or {}
    return {}


def _to_percent(share: Any) -> float | None:
    return None if share is None else 100 * float(share)


def list_printed(inputs: ReportInputs, names: Mapping[str, str]) -> dict[str, str]:
    """List the printed figures by row; empty where the recipe has none of these.

    Args:
        inputs: the inputs of the report.
        names: by row, the name of the quantity, such as ``audit.greedy``.
    """
    figures_by_name = {
        f"{figure.subject}.{figure.quantity}": figure for figure in list_published(inputs.recipe)
    }
    figures_by_row = {
        row: figures_by_name[name] for row, name in names.items() if name in figures_by_name
    }
    return {row: figure.format_value(figure.printed) for row, figure in figures_by_row.items()}


def build_blocks(values: list[PublishedValue]) -> list[Block]:
    """Build the table, and a warning where the source differs from the paper's."""
    note = (
        "Counts, rates in percent, and differences in percentage points. Off: the difference of a "
        "source figure from the printed one, in standard errors of a share. Searches with the same "
        "prompt on the same problems differ by less."
    )
    warning = (
        "The source differs from the paper's source by more than chance explains, so its prompt, "
        "rule, data or weights are different, and later results are not comparable."
    )
    return [
        *([Text(warning, "warning")] if any(value.is_far for value in values) else []),
        Frame(FIGURES, values).table(note, words=2),
    ]


def _format_difference(figure: PublishedValue) -> str:
    if figure.measured is None:
        return "–"
    if figure.is_count:
        return format_signed_count(round(figure.measured - figure.printed))
    return points((figure.measured - figure.printed) / 100, figure.digits)


def build_content(values: list[PublishedValue]) -> list[dict[str, Any]]:
    """Build the entries for results.json."""
    return Frame(FIGURES, values).entries()


def _format_label(figure: PublishedValue) -> str:
    subject = MINUS.join(map(condition_name, figure.conditions)) or figure.subject
    return f"{subject}: {figure.label.partition(': ')[2]}"


def _format_measured(figure: PublishedValue) -> str:
    return "–" if figure.measured is None else figure.format_value(figure.measured)


_PRINTED = "the printed quantity, and the paper's table"
_FIGURES = "the printed figure, this run's figure, and this run's minus the printed"

FIGURES: tuple[Column[PublishedValue], ...] = (
    Column("of", "", lambda figure: figure.subject),
    Column("figure", "", lambda figure: figure.quantity),
    Column("", _PRINTED, _format_label, "figure"),
    Column("source", _PRINTED, lambda figure: figure.table, "source"),
    Column("paper", "", lambda figure: figure.printed),
    Column("here", "", lambda figure: figure.measured),
    Column("", _FIGURES, lambda figure: figure.format_value(figure.printed), "paper"),
    Column("", _FIGURES, _format_measured, "this run"),
    Column("", _FIGURES, _format_difference, "difference"),
    Column(
        "standard_errors",
        "the difference in standard errors of a share",
        lambda figure: figure.standard_errors,
        "off",
        "{:.1f}".format,
    ),
)
