"""Compute a study's findings: each cell as in its own report, and the means over cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.analysis.resampling import average_contrasts, resample_cells
from gapft_harness.core.records import SOURCE
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.scaling.report import build_tables
from gapft_harness.presentation.content import Table
from gapft_harness.report.findings.computation import (
    Findings,
    compute_findings,
    is_budget_matched,
    stack_scores,
)
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.study.cells import Cell, require_comparable
from gapft_harness.study.recipe import StudyRecipe


@dataclass(frozen=True, slots=True)
class StudyFindings:
    """All results of a study.

    Attributes:
        study: its recipe.
        cells: every cell, in the study's order.
        inputs: the inputs of the complete cells, by name.
        findings: the findings of the complete cells, by name.
        means: the equal-weight mean over cells of Pass@1 of a minus b, for each pair (a, b) of
            ``StudyRecipe.contrasts``; empty where a cell is incomplete.
        scaling: the tables on the scaled adapters of all cells together (Appendix C); empty where a
            cell scales none or is incomplete.
    """

    study: StudyRecipe
    cells: Sequence[Cell]
    inputs: Mapping[str, ReportInputs]
    findings: Mapping[str, Findings]
    means: Mapping[tuple[str, str], Estimate]
    scaling: Sequence[Table] = ()

    def is_matched(self, a: str, b: str) -> bool:
        """Return whether two conditions, not the source, have the same budget in every cell."""
        return b != SOURCE and all(
            is_budget_matched(findings.conditions[a], findings.conditions[b])
            for findings in self.findings.values()
        )


def compute_study(study: StudyRecipe, cells: Sequence[Cell]) -> StudyFindings:
    """Check that cells are comparable, and compute all findings.

    The order of cells affects the order of tables, but no number.

    Raises:
        UserError: two cells have different protocols, or contain the same checkpoint.
    """
    require_comparable(cells)
    inputs = {cell.name: cell.inputs for cell in cells if cell.inputs is not None}
    findings = {name: compute_findings(item, study.conditions) for name, item in inputs.items()}
    if len(inputs) < len(cells):
        return StudyFindings(study, cells, inputs, findings, {})
    statistics = inputs[cells[0].name].recipe["statistics"]  # all cells have the same protocol
    replicates = statistics["replicates"]
    seed = statistics["seed"]
    resampled = resample_cells(
        [stack_scores(item, study.conditions) for item in inputs.values()],
        replicates=replicates,
        stream=Stream(seed, "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    means = {(a, b): average_contrasts(resampled, a, b) for a, b in study.contrasts}
    scaled = [cell.scaled for cell in cells if cell.scaled is not None]
    is_scaled = len(scaled) == len(cells)
    scaling = build_tables(scaled, replicates, seed, pooled=True) if is_scaled else []
    return StudyFindings(study, cells, inputs, findings, means, scaling)
