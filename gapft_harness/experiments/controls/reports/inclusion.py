"""What the randomized control adds to the report: the inclusion test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.analysis.permutation import PairedPermutation, paired_permutation
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.controls.part import ControlPart
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The steps, and by condition the test of each later one against the first."""

    steps: tuple[Step, ...]
    tests: Mapping[str, PairedPermutation]


class InclusionPart(ControlPart):
    """What a share of the late failures changes against none of them."""

    def compute(self, inputs: ReportInputs, read: tuple[Step, ...]) -> Inclusion:
        """The inclusion tests."""
        statistics = inputs.recipe["statistics"]
        settings = inputs.recipe["experiments"][self.name]
        passed = {
            step.condition: np.array([arm.passed for arm in inputs.of(step.condition)])
            for step in read
        }
        tests = {
            step.condition: paired_permutation(
                passed[step.condition],
                passed[read[0].condition],
                item_ids=inputs.audit.ids,
                permutations=settings.get("permutations", 2000),
                stream=Stream(statistics["seed"], f"report/{self.name}"),
            )
            for step in read[1:]
        }
        return Inclusion(read, tests)

    def shown(self, found: Inclusion) -> tuple[Step, ...]:
        """The steps."""
        return found.steps

    def remark(self, findings: Findings, found: Inclusion) -> str:
        """The inclusion tests."""
        label = {step.condition: step.label for step in found.steps}
        said = [
            f"{label[name]} minus {found.steps[0].label}, p {_shown(of.p_value)}"
            + (" (exact)" if of.exhaustive else "")
            for name, of in found.tests.items()
        ]
        most = max(of.permutations for of in found.tests.values())
        return (
            f" Inclusion test, two-sided, by {wording.whole(most)} permutations that exchange the "
            f"two conditions on audit problems, under all seeds alike: {'; '.join(said)}. It takes "
            "the trained models as they are; the interval also holds the spread over seeds."
        )

    def results(self, found: Inclusion) -> dict[str, Any]:
        """The steps and the tests."""
        tests = {
            name: {
                "p": float(of.p_value),
                "permutations": of.permutations,
                "exact": of.exhaustive,
            }
            for name, of in found.tests.items()
        }
        return {**super().results(found), "inclusion_test": tests}

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Inclusion
    ) -> Iterator[tuple[str, Any]]:
        """The steps, and the tests."""
        yield from super().tables(inputs, findings, found)
        rows: list[Sequence[object]] = [
            ("condition", "against", "difference", "p", "permutations", "exact")
        ]
        rows += [
            (
                name, found.steps[0].condition, float(of.difference), float(of.p_value),
                of.permutations, of.exhaustive,
            )
            for name, of in found.tests.items()
        ]  # fmt: skip
        yield f"{self.name}_test.csv", iter(rows)


def _shown(p: Fraction) -> str:
    said = wording.p_value(float(p))
    return said.replace("<", "< ") if said.startswith("<") else f"= {said}"
