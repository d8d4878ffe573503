"""Section "Beside the paper": what the recipe says a paper prints, and what this run came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.paper import Figure, printed
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import condition_name, points, signed_whole

TITLE = "Beside the paper"


def figures(inputs: ReportInputs, findings: Findings) -> list[Figure]:
    """All printed figures with this run's: the search's as they were read, then conditions'."""
    return [
        *inputs.paper,
        *(
            replace(figure, here=_of_condition(findings, figure))
            for figure in printed(inputs.recipe)
            if figure.of in findings.conditions
        ),
    ]


def _of_condition(findings: Findings, figure: Figure) -> float | None:
    mean = findings.conditions[figure.of].mean
    rate = getattr(mean, figure.what.lower())
    return None if rate is None else 100 * float(rate)


def column(inputs: ReportInputs, names: Mapping[str, str]) -> dict[str, str]:
    """By condition the Pass@1 that is printed, and under ``source`` the greedy one; empty: none.

    Args:
        inputs: the run.
        names: of rows the quantity that stands in them, such as ``audit.greedy``.
    """
    of = {f"{figure.of}.{figure.what}": figure for figure in printed(inputs.recipe)}
    found = {row: of[name] for row, name in names.items() if name in of}
    return {row: figure.shown(figure.printed) for row, figure in found.items()}


def blocks(shown: list[Figure]) -> list[Block]:
    """The table, and a warning where the source is not the paper's."""
    rows = [
        [
            f"{condition_name(of.of)}: {of.label.partition(': ')[2]}",
            of.where,
            of.shown(of.printed),
            "–" if of.here is None else of.shown(of.here),
            _difference(of),
            "–" if of.apart is None else f"{of.apart:.1f}",
        ]
        for of in shown
    ]
    note = (
        "Counts of problems, and rates in percent. Off: of the source's figures, by how many "
        "standard errors of a share they differ from the printed ones; searches by one prompt of "
        "the same problems differ by less."
    )
    warning = (
        "The source differs from the paper's by more than chance explains, so its prompt, rule, "
        "data or weights are others, and so is what follows."
    )
    columns = ["figure", "source", "paper", "here", "difference", "off"]
    return [
        *([Text(warning, "warning")] if any(of.is_far for of in shown) else []),
        Table(columns, rows, words=2, note=note),
    ]


def _difference(figure: Figure) -> str:
    if figure.here is None:
        return "–"
    if figure.is_count:
        return signed_whole(round(figure.here - figure.printed))
    return points((figure.here - figure.printed) / 100, figure.digits)


def content(shown: list[Figure]) -> list[dict[str, Any]]:
    """What results.json says of it."""
    return [
        {
            "of": of.of,
            "figure": of.what,
            "source": of.where,
            "paper": of.printed,
            "here": of.here,
            "standard_errors": of.apart,
        }
        for of in shown
    ]
