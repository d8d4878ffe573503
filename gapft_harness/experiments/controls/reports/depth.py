"""What the search-depth control adds to the report: how much of the gain few samples give."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from gapft_harness.analysis.across_runs import share_of
from gapft_harness.experiments.controls.contrasts import against_first
from gapft_harness.experiments.controls.part import ControlPart
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering.wording import listed, percent


class DepthPart(ControlPart):
    """Every depth minus the first, and the share of the deepest one's gain that each has."""

    def remark(self, findings: Findings, found: Any) -> str:
        """The shares of gain and of recovered failures (Section 5, "Replacing replay ...")."""
        steps = self.shown(found)
        *others, last = zip(steps[1:], against_first(findings, steps), strict=True)
        said = []
        for step, contrast in others:
            gain = share_of(contrast.delta, last[1].delta)
            slots = [
                Fraction(of["S"], sum(of.values()))
                for of in step.slots.values()
                if any(of.values())
            ]
            if gain is not None and slots:
                filled = percent(sum(slots, Fraction(0)) / len(slots))
                said.append(
                    f"{step.label} has {percent(gain)} of that gain, with {filled} of the slots"
                )
        return f" {listed(said)}; the other slots are replay." if said else ""
