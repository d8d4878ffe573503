"""A control's part of the report: a sentence, a figure, the paper's table (Table 2, Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.contrasts import (
    against_first,
    by_seed,
    contrast_table,
    count_slots,
    result,
)
from gapft_harness.experiments.controls.figure import change_by_step, parts_by_state
from gapft_harness.experiments.controls.steps import Compared, Step
from gapft_harness.recipe.conditions import conditions_of
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Figure, Section, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


class ControlPart(Part):
    """Conditions of one n that differ in which problems fill their slots.

    ``read`` gives the steps, and so does ``compute``; the first is the reference.

    Attributes:
        control: the experiment whose part it is.
    """

    after = "Contrasts"

    def __init__(self, control: Compared) -> None:
        self.control, self.name = control, control.name

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> tuple[Step, ...] | None:
        """The steps that the report's arms have, and what fills their slots."""
        asked = manifest["recipe"].get("experiments", {})
        if self.name not in asked or not arms:
            return None
        return count_slots(run_path, self.control.steps(conditions_of(manifest["recipe"])), arms)

    def compute(self, inputs: ReportInputs, read: tuple[Step, ...]) -> Any:
        """The steps: their contrasts are among those of every report."""
        return read

    def shown(self, found: Any) -> tuple[Step, ...]:
        """The steps of what ``compute`` gave."""
        steps: tuple[Step, ...] = found
        return steps

    def compared(self, found: Any) -> Sequence[Step]:
        """The steps of which the first sentence compares the last with the first."""
        return self.shown(found)

    def differences(self, findings: Findings, found: Any) -> list[tuple[Step, Contrast]]:
        """Steps with their differences: every later one minus the first."""
        steps = self.shown(found)
        return list(zip(steps[1:], against_first(findings, steps), strict=True))

    def sections(self, inputs: ReportInputs, findings: Findings, found: Any) -> Iterator[Section]:
        """The result in a sentence, the figure, and a row for each step."""
        steps = self.shown(found)
        said = result(findings, self.compared(found)) + self.remark(findings, found)
        shown = (
            f"{step.label} {wording.points(contrast.delta)} points"
            for step, contrast in self.differences(findings, found)
        )
        alternative = f"Change of Pass@1 against {steps[0].label}: {'; '.join(shown)}."
        caption = (
            f"Pass@1 minus that of {steps[0].label}, with 95% intervals. Filled: the interval "
            "excludes zero."
        )
        if not self.control.axis:
            caption += " Bars: its parts on G, S and U, which sum to it. Ticks: each seed."
        blocks: list[Block] = [
            Text(said),
            Figure(self.name, alternative, caption),
            contrast_table(findings, steps),
        ]
        yield Section(self.control.title, blocks)

    def remark(self, findings: Findings, found: Any) -> str:
        """What follows the result, beginning with a space; nothing by default."""
        return ""

    def figures(
        self, findings: Findings, found: Any
    ) -> Iterator[tuple[str, Callable[[Findings], Drawn]]]:
        """The change of Pass@1 from step to step; without an axis, where it arises."""
        steps, axis = self.shown(found), self.control.axis
        draw = partial(change_by_step, axis=axis) if axis else parts_by_state
        yield self.name, partial(draw, steps=steps)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Any
    ) -> Iterator[tuple[str, Rows]]:
        """A row for each step and seed, and for each step's mean."""
        yield f"{self.name}.csv", _rows(findings, self.differences(findings, found))

    def results(self, found: Any) -> dict[str, Any]:
        """The steps and what fills their slots; their contrasts stand under ``contrasts``."""
        return {
            "steps": [
                {
                    "condition": step.condition,
                    "value": step.value,
                    "slots": {str(seed): dict(of) for seed, of in step.slots.items()},
                }
                for step in self.shown(found)
            ]
        }


def _rows(findings: Findings, compared: Sequence[tuple[Step, Contrast]]) -> Rows:
    yield (
        "condition", "value", "against", "seed", "slots_G", "slots_S", "slots_U", "delta",
        "ci95_low", "ci95_high", "S", "U", "G",
    )  # fmt: skip
    for step, contrast in compared:
        name = step.condition, step.value, contrast.b
        ends, terms = contrast.interval, contrast.terms
        yield (
            *name, "mean", "", "", "", float(contrast.delta), ends.low, ends.high,
            float(terms.s), float(terms.u), float(terms.g),
        )  # fmt: skip
        for seed, delta in by_seed(findings, contrast).items():
            slots = [step.slots[seed][state] for state in "GSU"]
            yield (*name, seed, *slots, float(delta), "", "", "", "", "")
