"""What the related selections add to the report: each against GapFT, and against its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gapft_harness.experiments.controls.contrasts import contrast_table, twin_table
from gapft_harness.experiments.controls.part import ControlPart
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.report.figures.contrasts import Row, forests
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Figure, Section, Text
from gapft_harness.report.rendering.wording import capital, points, points_interval, resolution

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


class RelatedPart(ControlPart):
    """Every selection minus GapFT, and the related ones minus their random twins."""

    def differences(self, findings: Findings, found: Any) -> list[tuple[Step, Contrast]]:
        """Against GapFT, then against the twins."""
        return [*super().differences(findings, found), *self._twins(findings, found)]

    def sections(self, inputs: ReportInputs, findings: Findings, found: Any) -> Iterator[Section]:
        """A sentence on each related selection, the figure, and both tables."""
        steps, twins = self.shown(found), self._twins(findings, found)
        groups = self._groups(findings, found)
        said = "; ".join(
            f"{title}: "
            + ", ".join(
                f"{label} {points(delta)} {points_interval(interval)}"
                for label, delta, interval in group
            )
            for title, group in groups.items()
            if group
        )
        blocks: list[Block] = [
            Text(" ".join(_said(step, contrast) for step, contrast in twins) or _ALONE),
            Figure(
                self.name,
                f"Differences of Pass@1 in points. {said}.",
                "Differences of Pass@1 at the same n, N and J, with 95% intervals. Filled: the "
                "interval excludes zero.",
            ),
            contrast_table(findings, steps),
        ]
        if twins:
            blocks.append(twin_table(findings, twins))
        yield Section(self.control.title, blocks)

    def figures(
        self, findings: Findings, found: Any
    ) -> Iterator[tuple[str, Callable[[Findings], Drawn]]]:
        """Both kinds of differences with their intervals."""
        groups = self._groups(findings, found)
        yield self.name, lambda findings: forests(groups)

    def results(self, found: Any) -> dict[str, Any]:
        """The steps, and the twin of each that has one."""
        twins = {step.condition: step.twin for step in self.shown(found) if step.twin}
        return {**super().results(found), "twins": twins}

    def _twins(self, findings: Findings, found: Any) -> list[tuple[Step, Contrast]]:
        return [
            (step, findings.contrast(step.condition, step.twin))
            for step in self.shown(found)
            if step.twin
        ]

    def _groups(self, findings: Findings, found: Any) -> dict[str, list[Row]]:
        groups = {
            f"Minus {self.shown(found)[0].label}": super().differences(findings, found),
            "Minus its random twin": self._twins(findings, found),
        }
        return {
            title: [(step.label, of.delta, of.interval) for step, of in group]
            for title, group in groups.items()
        }


_ALONE = "No random twin of a related selection is among the conditions."


def _said(step: Step, contrast: Contrast) -> str:
    """A selection against its twin in a sentence."""
    label = capital(step.label)
    return (
        f"{label} minus as many examples at random from the same problems is "
        f"{points(contrast.delta)} points of Pass@1 {points_interval(contrast.interval)}; "
        f"{resolution(contrast.interval)}."
    )
