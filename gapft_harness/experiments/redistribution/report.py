"""What answer redistribution adds to the report: findings, a section, an entry in results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.partition.redistribution import redistribute
from gapft_harness.core.records import Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.redistribution import section
from gapft_harness.experiments.redistribution.figure import redistribution
from gapft_harness.experiments.redistribution.findings import RedistributionFindings
from gapft_harness.experiments.redistribution.settings import RedistributionSettings
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.adapters import tables
from gapft_harness.report.reading.answers import Answers, answers_or_why
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory.directory import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RedistributionPart(Part):
    """Answer redistribution."""

    name = "redistribution"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> tuple[Answers | None, str] | None:
        """The answers of the source and of every arm, or why they cannot be redistributed."""
        if not arms:
            return None
        given = manifest["recipe"]["experiments"][self.name] or {}
        adapters = RedistributionSettings.model_validate(given).adapters
        return answers_or_why(run_path, manifest["task"], tables(run_path, arms, adapters))

    def in_order(
        self, read: tuple[Answers | None, str], seeds: Sequence[int]
    ) -> tuple[Answers | None, str]:
        """The same with problems by id."""
        answers, why = read
        return answers and answers.in_order(), why

    def compute(
        self, inputs: ReportInputs, read: tuple[Answers | None, str]
    ) -> RedistributionFindings:
        """Each condition's rates."""
        answers, why = read
        given = inputs.recipe["experiments"][self.name] or {}
        settings = RedistributionSettings.model_validate(given)
        permutations, adapters = settings.permutations, settings.adapters
        if answers is None:
            return RedistributionFindings(permutations, adapters, {}, why)
        require(
            bool((answers.ids == inputs.audit.ids).all()),
            "redistribution: the answers are to other problems than the audit's",
        )
        stream = Stream(inputs.recipe["statistics"]["seed"], "report/redistribution")
        return RedistributionFindings(
            permutations,
            adapters,
            {
                name: redistribute(
                    answers.of(name),
                    answers.golds,
                    answers.source,
                    inputs.audit.states,
                    item_ids=answers.ids,
                    permutations=permutations,
                    stream=stream,
                )
                for name in inputs.conditions
            },
        )

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: RedistributionFindings
    ) -> Iterator[Section]:
        """Answer redistribution."""
        yield Section("Answer redistribution", section.blocks(findings.lead, found))

    def figures(
        self, findings: Findings, found: RedistributionFindings
    ) -> Iterator[tuple[str, Callable[[Findings], Figure]]]:
        """Observed against null rates."""
        if not found.why:
            yield self.name, partial(redistribution, found=found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: RedistributionFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every rate, unrounded."""
        yield "redistribution.csv", section.rows(found)

    def results(self, found: RedistributionFindings) -> dict[str, Any]:
        """For results.json."""
        return {
            "adapters": found.adapters,
            "permutations": found.permutations,
            "no_rates": found.why or None,
            "conditions": {
                name: {
                    state: {
                        "problems": of.items,
                        "fixed": of.fixed,
                        "observed": float(of.observed),
                        "null": float(of.null),
                        "p": float(of.p_value),
                    }
                    for state, of in states.items()
                }
                for name, states in found.conditions.items()
            },
        }
