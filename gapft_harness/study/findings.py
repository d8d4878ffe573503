"""Compute a study's findings: each cell as in its own report, and the means over cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.across_runs import (
    Cell,
    equal_weight,
    joint_replicates,
    share_of,
)
from gapft_harness.analysis.bootstrap import (
    Difference,
    Interval,
    Replicates,
    p_value,
    percentile_interval,
)
from gapft_harness.core.records import SOURCE
from gapft_harness.core.streams import Stream
from gapft_harness.report.findings.whole import Findings, compute
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.study.cells import Collected
from gapft_harness.study.recipe import StudyRecipe


@dataclass(frozen=True, slots=True)
class CellFindings:
    """A complete cell with its findings."""

    cell: Collected
    inputs: ReportInputs
    found: Findings

    @property
    def name(self) -> str:
        """The cell's name in the study."""
        return self.cell.name


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a larger budget's gain that the first condition reaches (Section 4.2).

    Attributes:
        reference: the condition with its own, larger budget.
        gain: the first condition's gain over the source, divided by that of ``reference``; None
            where ``reference`` gains nothing.
        problems: the first condition's distinct problems, divided by those of ``reference``.
    """

    full: str
    gain: Fraction | None
    problems: Fraction


@dataclass(frozen=True, slots=True)
class Mean:
    """An equal-weight mean over all cells of ``a`` minus ``b`` (or the source).

    Attributes:
        a: a condition's name.
        b: another condition's name, or ``SOURCE``.
        matched: whether both have the same budget in every cell.
        delta: the mean difference of Pass@1, from -1 to 1.
        resampled: its 95% interval and p value.
    """

    a: str
    b: str
    matched: bool
    delta: Fraction
    resampled: Difference

    @property
    def interval(self) -> Interval:
        """The 95% interval of ``delta``."""
        return self.resampled.interval


@dataclass(frozen=True, slots=True)
class StudyFindings:
    """All results of a study.

    Attributes:
        study: its recipe.
        collected: every cell, in the study's order.
        cells: the complete cells.
        means: the first condition minus each other condition, then each condition minus the
            source; empty where a cell is incomplete.
    """

    study: StudyRecipe
    collected: tuple[Collected, ...]
    cells: tuple[CellFindings, ...]
    means: tuple[Mean, ...]

    @property
    def lacking(self) -> Mapping[str, tuple[str, ...]]:
        """The incomplete cells, with the missing parts of each."""
        return {cell.name: cell.lacks for cell in self.collected if cell.lacks}

    def mean(self, a: str, b: str) -> Mean | None:
        """Return the mean of a minus b; None where a cell is incomplete."""
        return next((of for of in self.means if (of.a, of.b) == (a, b)), None)


def compute_study(study: StudyRecipe, collected: Sequence[Collected]) -> StudyFindings:
    """Compute all findings. The order of cells affects the order of tables, but no number."""
    cells = tuple(
        CellFindings(cell, cell.inputs, compute(cell.inputs, study.conditions))
        for cell in collected
        if cell.inputs is not None
    )
    whole = len(cells) == len(collected)
    means = _means(study.conditions, cells) if whole and cells else ()
    return StudyFindings(study, tuple(collected), cells, means)


def shares(of: CellFindings, lead: str) -> list[Share]:
    """Compare the first condition with each condition that has its own budget."""
    gain = of.found.contrast(lead, SOURCE).delta
    return [
        Share(
            name,
            share_of(gain, of.found.contrast(name, SOURCE).delta),
            _problems(of, lead) / _problems(of, name),
        )
        for name, condition in of.found.conditions.items()
        if not condition.matched and name != lead
    ]


def _problems(of: CellFindings, condition: str) -> Fraction:
    """Count the distinct training problems of a condition, mean over seeds."""
    seeds = of.found.conditions[condition].seeds.values()
    return Fraction(sum(seed.problems for seed in seeds), len(seeds))


def _means(conditions: Sequence[str], cells: Sequence[CellFindings]) -> tuple[Mean, ...]:
    statistics = cells[0].inputs.recipe["statistics"]  # all cells have the same protocol
    drawn = joint_replicates(
        [_decisions(conditions, of.inputs) for of in cells],
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
        nested=statistics.get("items") == "nested",
    )
    lead, *others = conditions
    pairs = [*((lead, other) for other in others), *((name, SOURCE) for name in conditions)]
    return tuple(_mean(a, b, conditions, cells, drawn) for a, b in pairs)


def _decisions(conditions: Sequence[str], inputs: ReportInputs) -> Cell:
    return Cell(
        passed=np.array([[arm.passed for arm in inputs.of(name)] for name in conditions]),
        source_passed=inputs.audit.verdicts.greedy,
        item_ids=inputs.audit.ids,
        seeds=np.array(inputs.seeds, dtype=np.int64),
    )


def _mean(
    a: str,
    b: str,
    conditions: Sequence[str],
    cells: Sequence[CellFindings],
    drawn: Sequence[Replicates],
) -> Mean:
    def counts(of: Replicates, name: str) -> NDArray[np.int64]:
        return of.source if name == SOURCE else of.conditions[:, conditions.index(name)]

    values = equal_weight(
        [counts(of, a) - counts(of, b) for of in drawn], [of.decisions for of in drawn]
    )
    contrasts = [of.found.contrast(a, b) for of in cells]
    delta = sum((contrast.delta for contrast in contrasts), Fraction(0)) / len(cells)
    matched = all(of.found.fair(found) for of, found in zip(cells, contrasts, strict=True))
    return Mean(
        a,
        b,
        matched and b != SOURCE,
        delta,
        Difference(percentile_interval(values), p_value(values)),
    )
