"""Compute a study's findings: each cell as in its own report, and the means over cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.analysis.decomposition import compute_gain_share
from gapft_harness.analysis.estimate import Estimate
from gapft_harness.analysis.resampling import average_contrasts, resample_cells
from gapft_harness.core.records import SOURCE
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.scaling.report import ScalingFindings, compute_scaling
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.findings.computation import Findings, compute_findings, stack_scores
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.study.cells import CollectedCell
from gapft_harness.study.recipe import StudyRecipe


@dataclass(frozen=True, slots=True)
class CellFindings:
    """A complete cell with its findings."""

    cell: CollectedCell
    inputs: ReportInputs
    findings: Findings

    @property
    def name(self) -> str:
        """The cell's name in the study."""
        return self.cell.name


@dataclass(frozen=True, slots=True)
class GainShare:
    """The share of a larger budget's gain that the first condition reaches (Section 4.2).

    Attributes:
        reference: the condition with its own, larger budget.
        gain: the first condition's gain over the source, divided by that of ``reference``; None
            where ``reference`` gains nothing.
        problems: the first condition's distinct problems, divided by those of ``reference``.
    """

    reference: str
    gain: Fraction | None
    problems: Fraction


@dataclass(frozen=True, slots=True)
class MeanContrast:
    """An equal-weight mean over all cells of ``a`` minus ``b`` (or the source).

    Attributes:
        a: a condition's name.
        b: another condition's name, or ``SOURCE``.
        matched: whether both have the same budget in every cell.
        estimate: the mean difference of Pass@1, from -1 to 1.
    """

    a: str
    b: str
    matched: bool
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class StudyFindings:
    """All results of a study.

    Attributes:
        study: its recipe.
        collected: every cell, in the study's order.
        cells: the complete cells.
        means: the first condition minus each other condition, then each condition minus the
            source; empty where a cell is incomplete.
        scaling: the scaled adapters of all cells together (Appendix C); None where a cell scales
            none or is incomplete.
    """

    study: StudyRecipe
    collected: tuple[CollectedCell, ...]
    cells: tuple[CellFindings, ...]
    means: tuple[MeanContrast, ...]
    scaling: ScalingFindings | None

    @property
    def incomplete(self) -> Mapping[str, tuple[str, ...]]:
        """The incomplete cells, with the missing parts of each."""
        return {cell.name: cell.missing for cell in self.collected if cell.missing}

    @property
    def deployment(self) -> Deployment | None:
        """How the deployment decodes of all cells are sampled; None: they are greedy."""
        return self.cells[0].inputs.deployment if self.cells else None

    def find_mean(self, a: str, b: str) -> MeanContrast | None:
        """Return the mean of a minus b; None where a cell is incomplete."""
        return next((mean for mean in self.means if (mean.a, mean.b) == (a, b)), None)


def compute_study(study: StudyRecipe, collected: Sequence[CollectedCell]) -> StudyFindings:
    """Compute all findings. The order of cells affects the order of tables, but no number."""
    cells = tuple(
        CellFindings(cell, cell.inputs, compute_findings(cell.inputs, study.conditions))
        for cell in collected
        if cell.inputs is not None
    )
    is_complete = len(cells) == len(collected)
    means = _compute_means(study.conditions, cells) if is_complete and cells else ()
    return StudyFindings(study, tuple(collected), cells, means, _compute_scaling(collected, cells))


def _compute_scaling(
    collected: Sequence[CollectedCell], cells: Sequence[CellFindings]
) -> ScalingFindings | None:
    scaled_runs = [cell.scaled for cell in collected if cell.scaled is not None]
    if len(scaled_runs) < len(collected):
        return None
    statistics = cells[0].inputs.recipe["statistics"]  # all cells have the same protocol
    return compute_scaling(scaled_runs, statistics["replicates"], statistics["seed"], pooled=True)


def compute_shares(cell: CellFindings, lead: str) -> list[GainShare]:
    """Compare the first condition with each condition that has its own budget."""
    gain = cell.findings.find_contrast(lead, SOURCE).delta
    return [
        GainShare(
            name,
            compute_gain_share(gain, cell.findings.find_contrast(name, SOURCE).delta),
            _count_problems(cell, lead) / _count_problems(cell, name),
        )
        for name, condition in cell.findings.conditions.items()
        if not condition.matched and name != lead
    ]


def _count_problems(cell: CellFindings, condition: str) -> Fraction:
    """Count the distinct training problems of a condition, mean over seeds."""
    seeds = cell.findings.conditions[condition].seeds.values()
    return Fraction(sum(seed.problems for seed in seeds), len(seeds))


def _compute_means(
    conditions: Sequence[str], cells: Sequence[CellFindings]
) -> tuple[MeanContrast, ...]:
    statistics = cells[0].inputs.recipe["statistics"]  # all cells have the same protocol
    resampled = resample_cells(
        [stack_scores(cell.inputs, conditions) for cell in cells],
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    lead, *others = conditions
    pairs = [*((lead, other) for other in others), *((name, SOURCE) for name in conditions)]
    return tuple(
        MeanContrast(a, b, _are_matched(cells, a, b), average_contrasts(resampled, a, b))
        for a, b in pairs
    )


def _are_matched(cells: Sequence[CellFindings], a: str, b: str) -> bool:
    """Return whether two conditions have the same budget in every cell."""
    return b != SOURCE and all(
        cell.findings.is_matched(cell.findings.find_contrast(a, b)) for cell in cells
    )
