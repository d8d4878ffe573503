"""The control's part of the report: the paper's Table 3, what is matched, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.experiments.diversity import section
from gapft_harness.experiments.diversity.matching import Matching, compared, read_matching
from gapft_harness.recipe.conditions import conditions_of
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


class DiversityPart(Part):
    """Table 3 on the run's own audit."""

    name = "matched_diversity"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> Matching | None:
        """What is compared, with its strata."""
        of = compared(conditions_of(manifest["recipe"]))
        return Matching(of, read_matching(run_path, of, arms)) if of and arms else None

    def compute(self, inputs: ReportInputs, read: Matching) -> Matching:
        """With how far tokens are apart: all else is among the figures of every report."""
        shares = []
        for seed in inputs.seeds:
            tokens = [
                trained.budget.supervised_tokens
                for trained in inputs.arms
                if trained.arm.seed == seed and trained.arm.condition in read.of.names
            ]
            shares.append((max(tokens) - min(tokens)) / max(tokens))
        tolerance = inputs.recipe["budget"]["token_tolerance"]
        return replace(read, tokens_apart=max(shares), tolerance=tolerance)

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: Matching
    ) -> Iterator[Section]:
        """The result, the figure, and both tables."""
        yield Section("Matched diversity", section.blocks(findings, found, self.name))

    def figures(
        self, findings: Findings, found: Matching
    ) -> Iterator[tuple[str, Callable[[Findings], Drawn]]]:
        """The gains, with the rates on each state."""
        yield self.name, lambda findings: section.gains(findings, found.of)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Matching
    ) -> Iterator[tuple[str, Rows]]:
        """A row for each condition."""
        yield f"{self.name}.csv", self._rows(findings, found)

    def results(self, found: Matching) -> dict[str, Any]:
        """What is matched; the figures stand under ``conditions`` and ``contrasts``."""
        return {
            "strata": list(found.of.fields),
            "conditions": {name: found.most_apart(name) for name in found.of.names},
            "problems_not_gapfts": {name: found.others(name) for name in found.of.names},
            "supervised_tokens_apart": found.tokens_apart,
            "token_tolerance": found.tolerance,
        }

    def _rows(self, findings: Findings, found: Matching) -> Rows:
        references = [SOURCE, *section.references(found.of)]
        ends = ("delta", "ci95_low", "ci95_high")
        yield (
            "condition", "problems", "exposures_each", "problems_not_gapfts", "strata_most_apart",
            "L_supervised_least", "L_supervised_most", "pass_at_1", "kappa_S", "kappa_U", "rho_G",
            *(f"{end}_minus_{name}" for name in references for end in ends),
        )  # fmt: skip
        for name in found.of.names:
            of = findings.conditions[name]
            budgets = [seed.budget for seed in of.seeds.values()]
            tokens = [budget.supervised_tokens for budget in budgets]
            rates = (of.mean.kappa_s, of.mean.kappa_u, of.mean.rho_g)
            row: list[object] = [name, *section.size(of), found.others(name)]
            row.append(found.most_apart(name) if found.of.fields else "")
            row += [min(tokens), max(tokens), float(of.mean.pass_at_1)]
            row += ["" if rate is None else float(rate) for rate in rates]
            for other in references:
                contrast = None if other == name else findings.contrast(name, other)
                row += ["", "", ""] if contrast is None else [
                    float(contrast.delta), contrast.interval.low, contrast.interval.high,
                ]  # fmt: skip
            yield row
