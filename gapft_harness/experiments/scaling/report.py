"""What adapter scaling adds to the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling import section
from gapft_harness.experiments.scaling.findings import ScalingFindings, compute_scaling
from gapft_harness.experiments.scaling.reading import ScaledRun, read_scaled_run
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory.directory import CALIBRATION


class ScalingPart(Part):
    """Adapter scaling: a section and two tables."""

    name = "scaling"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> ScaledRun | None:
        """What the adapters decided at the scales that are compared."""
        return read_scaled_run(run_path, manifest, arms)

    def in_order(self, read: ScaledRun, seeds: Sequence[int]) -> ScaledRun:
        """The same with problems by id and seeds ascending."""
        return read.in_order()

    def compute(self, inputs: ReportInputs, read: ScaledRun) -> ScalingFindings:
        """The run is the one environment of its conditions."""
        statistics = inputs.recipe["statistics"]
        return compute_scaling([read], statistics["replicates"], statistics["seed"])

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: ScalingFindings
    ) -> Iterator[Section]:
        """Adapter scaling."""
        yield Section("Adapter scaling", section.blocks(found))

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: ScalingFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every checkpoint, and every bound."""
        yield "scaling.csv", section.checkpoint_rows(found)
        yield "scaling_bounds.csv", section.bound_rows(found)

    def results(self, found: ScalingFindings) -> dict[str, Any]:
        """For results.json."""
        return section.content(found)

    def verdicts(self, inputs: ReportInputs, read: ScaledRun) -> dict[str, Mapping[str, int]]:
        """The calibration split's, and those at other scales."""
        source = inputs.verdict_counts[str(CALIBRATION)]
        counts = {"calibration, source greedy": Counter(source)}
        for trained in inputs.arms:
            name = wording.condition_name(trained.arm.condition)
            for label, infix in (
                (f"calibration, {name} at every scale", "calibration-"),
                (f"audit, {name} at scales below 1", "scale-"),
            ):
                for file, of in inputs.verdict_counts.items():
                    if file.startswith(f"{trained.arm.name}.{infix}"):
                        counts.setdefault(label, Counter()).update(of)
        return {label: dict(of) for label, of in counts.items()}
