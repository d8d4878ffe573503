"""What stability adds to the report: findings, a section, a table, an entry in results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.partition.stability import (
    QUANTITIES,
    agreement,
    flows,
    spreads,
)
from gapft_harness.core.records import Arm
from gapft_harness.experiments.stability import section
from gapft_harness.experiments.stability.figure import stability
from gapft_harness.experiments.stability.findings import Moved, StabilityFindings, StabilityRead
from gapft_harness.experiments.stability.settings import StabilitySettings
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows, Summary
from gapft_harness.report.reading.adapters import read_decided
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.windows import read_windows
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.results import number
from gapft_harness.run_directory.directory import require
from gapft_harness.stages.search.windows import window_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StabilityPart(Part):
    """Stability of the source states."""

    name = "stability"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> StabilityRead:
        """The states under every sample set."""
        settings = StabilitySettings.model_validate(
            manifest["recipe"]["experiments"][self.name] or {}
        )
        tables = [window_table(window) for window in settings.windows()]
        decided = read_decided(run_path, arms, settings.adapters)
        return StabilityRead(settings.k, read_windows(run_path, tables), decided)

    def in_order(self, read: StabilityRead, seeds: Sequence[int]) -> StabilityRead:
        """The same with problems by id."""
        return StabilityRead(read.k, read.windows.in_order(), read.decided.in_order())

    def compute(self, inputs: ReportInputs, read: StabilityRead) -> StabilityFindings:
        """Agreement of the sets, and what they move in each condition."""
        states = read.windows.states
        require(
            bool((read.windows.ids == inputs.audit.ids).all()),
            "stability: the states are of other problems than the audit's",
        )
        conditions = {}
        for name in inputs.conditions:
            by_set = flows(states, read.decided.of(name))
            ranges = [
                spreads([[of] for of in seed])["S_flow"].range for seed in zip(*by_set, strict=True)
            ]
            conditions[name] = Moved(spreads(by_set), max(of for of in ranges if of is not None))
        return StabilityFindings(
            k=read.k,
            sizes=tuple(
                (int((of == "G").sum()), int((of == "S").sum()), int((of == "U").sum()))
                for of in states
            ),
            agreement=agreement(states),
            conditions=conditions,
            adapters=read.decided.adapters,
        )

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: StabilityFindings
    ) -> Iterator[Section]:
        """Stability of the source states."""
        yield Section("Stability of the source states", section.blocks(found))

    def figures(
        self, findings: Findings, found: StabilityFindings
    ) -> Iterator[tuple[str, Callable[[Findings], Figure]]]:
        """Every quantity under every set."""
        yield self.name, partial(stability, found=found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: StabilityFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every quantity under every set."""
        yield "stability.csv", section.rows(found)

    def results(self, found: StabilityFindings) -> dict[str, Any]:
        """For results.json."""
        agreed = found.agreement
        return {
            "adapters": found.adapters,
            "K": found.k,
            "sets": [dict(zip("GSU", sizes, strict=True)) for sizes in found.sizes],
            "source_failures": agreed and agreed.failures,
            "unstable_share": agreed and float(agreed.unstable),
            "agreement": agreed and float(agreed.same),
            "S_jaccard": agreed and float(agreed.jaccard),
            "conditions": {
                name: {
                    **{
                        quantity: {
                            "sets": [number(value) for value in of.spreads[quantity].values],
                            "mean": number(of.spreads[quantity].mean),
                            "range": number(of.spreads[quantity].range),
                        }
                        for quantity in QUANTITIES
                    },
                    "largest_flow_range_of_a_seed": float(of.one_seed),
                }
                for name, of in found.conditions.items()
            },
        }

    def summary(self, content: Mapping[str, Any]) -> Summary | None:
        """How many failures change their state."""
        if content["unstable_share"] is None:
            return None
        return Summary(
            f"S/U under {len(content['sets'])} sets of {content['K']} samples: "
            f"{100 * content['unstable_share']:.1f}% of the source's failures change",
            content["source_failures"],
        )
