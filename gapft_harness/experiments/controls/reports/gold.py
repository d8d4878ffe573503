"""What the gold-label control adds to the report: the sign under each seed."""

from __future__ import annotations

from typing import Any

from gapft_harness.experiments.controls.contrasts import against_first, by_seed
from gapft_harness.experiments.controls.part import ControlPart
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering import wording


class GoldPart(ControlPart):
    """Gold-label selection minus GapFT, with the sign under each seed."""

    def remark(self, findings: Findings, found: Any) -> str:
        """How many seeds have which sign, and what the two have in common."""
        steps = self.shown(found)
        said = []
        for step, contrast in zip(steps[1:], against_first(findings, steps), strict=True):
            deltas = by_seed(findings, contrast).values()
            below, above = sum(d < 0 for d in deltas), sum(d > 0 for d in deltas)
            said.append(
                f"{step.label} is below {steps[0].label} under {below} of {len(deltas)} seeds and "
                f"above it under {above}"
            )
        return (
            f" {wording.capital('; '.join(said))}. Both have the same target strings, supervised "
            "tokens, exposures and steps, and as many problems of each gold answer; this was "
            "checked."
        )
