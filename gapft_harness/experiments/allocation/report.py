"""What the allocation comparison adds to the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapft_harness.core.records import Arm
from gapft_harness.experiments.allocation import section, tables
from gapft_harness.experiments.allocation.figure import allocation
from gapft_harness.experiments.allocation.findings import Coverage, compute_coverage
from gapft_harness.experiments.allocation.reading import Exposures, read_exposures
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Opening, Part, Rows, Summary
from gapft_harness.report.reading.columns import count_codes
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Section, Stat
from gapft_harness.run_directory.directory import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class AllocationPart(Part):
    """Coverage against repetition: the opening, a section, a figure and two tables."""

    name = "allocation"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> Exposures | None:
        """The problems that both conditions trained on, and how each now decides them."""
        said = manifest["recipe"]["experiments"].get(self.name)
        return (
            read_exposures(run_path, said, manifest["recipe"]["seeds"]) if said and arms else None
        )

    def in_order(self, read: Exposures, seeds: Sequence[int]) -> Exposures:
        """The same with seeds ascending and problems by id."""
        ordered = read.in_order()
        require(
            tuple(of.seed for of in ordered.seeds) == tuple(seeds),
            "the report needs the compared problems of every seed",
        )
        return ordered

    def leads(self, read: Exposures) -> Sequence[str]:
        """The diffuse condition leads."""
        return read.diffuse, read.concentrated

    def compute(self, inputs: ReportInputs, read: Exposures) -> Coverage:
        """The seven quantities with their intervals."""
        return compute_coverage(inputs, read)

    def opening(self, findings: Findings, found: Coverage) -> Opening:
        """The contrast, first if the report is about it."""
        interval = wording.points_interval(found.intervals["contrast"])
        value = wording.points(found.mean.contrast)
        stat = Stat("on problems trained on", value, f"points {interval}")
        return Opening(section.result(found), findings.lead == found.diffuse, stat)

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: Coverage
    ) -> Iterator[Section]:
        """Coverage against repetition."""
        yield Section("Coverage against repetition", section.blocks(inputs, findings, found))

    def figures(
        self, findings: Findings, found: Coverage
    ) -> Iterator[tuple[str, Callable[[Findings], Figure]]]:
        """Success by exposures, and what of it transfers."""
        yield "allocation", lambda findings: allocation(findings, found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Coverage
    ) -> Iterator[tuple[str, Rows]]:
        """Every quantity by seed, and every compared problem."""
        yield "allocation.csv", tables.quantity_rows(found)
        yield "exposed.csv", tables.problem_rows(inputs.read(self.name))

    def results(self, found: Coverage) -> dict[str, Any]:
        """For results.json."""
        return tables.content(found)

    def verdicts(self, inputs: ReportInputs, read: Exposures) -> dict[str, Mapping[str, int]]:
        """Both conditions' verdicts on the problems trained on."""
        return {
            f"problems trained on, {wording.condition_name(name)}": count_codes(
                np.concatenate(codes)
            )
            for name, codes in (
                (read.diffuse, [of.diffuse for of in read.seeds]),
                (read.concentrated, [of.concentrated for of in read.seeds]),
            )
        }

    def summary(self, content: Mapping[str, Any]) -> Summary:
        """The contrast in one line."""
        contrast = content["contrast"]
        mean, low, high = map(wording.points, (contrast["mean"], *contrast["ci95"]))
        return Summary(
            f"{content['diffuse']} minus {content['concentrated']} on the problems trained on: "
            f"{mean} points [{low}, {high}]",
            min(seed["problems_a_half"] for seed in content["seeds"].values()),
        )
