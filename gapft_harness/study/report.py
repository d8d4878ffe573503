"""A study's report: the same files as a run's, made of its cells' sealed tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.report import FILES, replace_folder
from gapft_harness.report import results as of_run
from gapft_harness.report.part import Rows
from gapft_harness.report.rendering.blocks import Drawing, Section
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import made_on
from gapft_harness.report.tables import tables_of_cells
from gapft_harness.study import figures, sections
from gapft_harness.study.cells import Collected, collect, require_different
from gapft_harness.study.findings import Mean, StudyFindings, compute_study, shares
from gapft_harness.study.protocol import require_comparable, require_one_protocol
from gapft_harness.study.recipe import REPORT, STUDY, StudyRecipe, read_study


def write_study(study: StudyRecipe, collected: Sequence[Collected], folder: Path) -> StudyFindings:
    """Computes and writes a study's report.

    Raises:
        UserError: cells cannot stand in one comparison; an earlier report stays.
        GapftError: the folder cannot be written.
    """
    found = checked(study, collected)
    replace_folder(folder / REPORT, document(found, figures.draw_all(found)).files())
    return found


def checked(study: StudyRecipe, collected: Sequence[Collected]) -> StudyFindings:
    """A study's findings, of cells that may be compared.

    Raises:
        UserError: they may not.
    """
    require_different(collected)
    require_one_protocol(study, {of.name: of.recipe for of in collected if of.recipe is not None})
    require_comparable(study, collected)
    return compute_study(study, collected)


def read_sections(folder: Path) -> list[Section]:
    """The sections of a study's report, computed again from its cells' sealed tables.

    Raises:
        UserError: it is no study, or a cell is not whole.
    """
    study = read_study(str(folder / STUDY))
    found = checked(study, collect(study, folder))
    if found.lacking:
        told = [f"{name}: {'; '.join(lacks)}" for name, lacks in found.lacking.items()]
        raise UserError("\n".join([f"{folder}: cells are not whole:", *told]))
    return sections.build(found)


def document(found: StudyFindings, drawings: Sequence[Drawing]) -> Document:
    """The report: a function of the findings and of how figures are drawn."""
    cells = [(cell.name, cell.inputs, cell.found) for cell in found.cells]
    tables = {
        **dict(tables_of_cells(cells)),
        "means.csv": _mean_rows(found),
        "shares.csv": _share_rows(found),
    }
    return Document(
        title=f"Study {found.study.name}",
        subtitle=found.study.description,
        made=made_on(day for cell in found.cells for day in cell.inputs.days),
        sections=sections.build(found),
        names=FILES,
        results=results(found),
        tables={f"tables/{name}": rows for name, rows in tables.items()},
        drawings=drawings,
    )


def results(found: StudyFindings) -> dict[str, Any]:
    """The content of a study's results.json (schema 1; keys in docs/studies.md)."""
    study = found.study
    cells: dict[str, Any] = {}
    whole = {cell.name: cell for cell in found.cells}
    for collected in found.collected:
        cell = whole.get(collected.name)
        if cell is None:
            cells[collected.name] = {"lacks": list(collected.lacks)}
            continue
        cells[collected.name] = {
            **of_run.results(cell.inputs, cell.found),
            "shares": {
                share.full: {
                    "gain": of_run.number(share.gain),
                    "problems": float(share.problems),
                }
                for share in shares(cell, study.lead)
            },
            "files": dict(collected.files),
        }
    return {
        "schema": 1,
        "study": study.name,
        "conditions": list(study.conditions),
        "reference": study.reference,
        "seeds": list(study.seeds),
        "whole": not found.lacking,
        "means": [_mean(mean) for mean in found.means] or None,
        "cells": cells,
    }


def _mean(mean: Mean) -> dict[str, Any]:
    return {
        "a": mean.a,
        "b": mean.b,
        "delta": float(mean.delta),
        "ci95": [mean.interval.low, mean.interval.high],
        "p": mean.resampled.p_value,
        "matched_budget": mean.matched,
    }


def _mean_rows(found: StudyFindings) -> Rows:
    yield "a", "b", "mean_difference", "ci95_low", "ci95_high", "p", "matched_budget"
    for of in (_mean(mean) for mean in found.means):
        p = "" if of["p"] is None else of["p"]
        yield of["a"], of["b"], of["delta"], *of["ci95"], p, of["matched_budget"]


def _share_rows(found: StudyFindings) -> Rows:
    yield "cell", "reference", "share_of_problems", "share_of_gain"
    for cell in found.cells:
        for of in shares(cell, found.study.lead):
            gain = "" if of.gain is None else float(of.gain)
            yield cell.name, of.full, float(of.problems), gain
