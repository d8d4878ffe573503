"""Test the contrasts of controls by permutation (Table 4, "inclusion tests and controls")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.paired import SignFlips, flip_signs
from gapft_harness.api import wording
from gapft_harness.experiments.controls.control import ControlPart, ControlStep


class PermutationSettings(api.RecipeSection):
    """The settings of a control with permutation tests."""

    permutations: int = Field(
        2000, gt=0, description="permutations of the paired test of each contrast"
    )


@dataclass(frozen=True, slots=True)
class ContrastTest:
    """The test of one step against another.

    Attributes:
        step: the step.
        against: the step that it is compared with.
        difference: the mean of the step minus the other over seeds and problems.
        test: the sign-flip test: exchanging the conditions on a problem, for all seeds together,
            flips the sign of its difference.
    """

    step: ControlStep
    against: ControlStep
    difference: Fraction
    test: SignFlips


@dataclass(frozen=True, slots=True)
class TestedSteps:
    """The steps of a control and the tests of their contrasts; the reference comes first."""

    steps: tuple[ControlStep, ...]
    tests: tuple[ContrastTest, ...]


class TestedPart(ControlPart):
    """The part of the report on a control, with a test of every later step against the first.

    The result of ``compute`` has the attributes ``steps`` and ``tests``.
    """

    def compute(self, inputs: api.ReportInputs, read: tuple[ControlStep, ...]) -> Any:
        """Compute the tests of the steps."""
        return TestedSteps(read, self.test_pairs(inputs, [(step, read[0]) for step in read[1:]]))

    def test_pairs(
        self, inputs: api.ReportInputs, pairs: Sequence[tuple[ControlStep, ControlStep]]
    ) -> tuple[ContrastTest, ...]:
        """Test each step of a pair against the other.

        Args:
            inputs: the inputs of the report.
            pairs: steps, each with the step that it is compared with.
        """
        statistics = inputs.recipe["statistics"]
        settings = inputs.recipe["experiments"][self.name] or {}
        default = PermutationSettings().permutations

        by_id = np.argsort(inputs.audit.ids)

        def count_passed(step: ControlStep) -> Any:
            """Count the seeds under which each problem passes, in the order of ids."""
            arms = inputs.find_arms(step.condition)
            return np.array([arm.deployed.passed for arm in arms]).sum(axis=0)[by_id]

        def test_pair(step: ControlStep, against: ControlStep) -> ContrastTest:
            differences = count_passed(step) - count_passed(against)
            decisions = len(inputs.find_arms(step.condition)) * len(by_id)
            test = flip_signs(
                differences,
                flips=settings.get("permutations", default),
                stream=api.Stream(statistics["seed"], f"report/{self.name}"),
            )
            return ContrastTest(step, against, Fraction(int(differences.sum()), decisions), test)

        return tuple(test_pair(step, against) for step, against in pairs)

    def list_steps(self, part_findings: Any) -> tuple[ControlStep, ...]:
        """Return the steps, the reference first."""
        steps: tuple[ControlStep, ...] = part_findings.steps
        return steps

    def write_remark(self, findings: api.ReportFindings, part_findings: Any) -> str:
        """Describe the tests."""
        tests: tuple[ContrastTest, ...] = part_findings.tests
        test_texts = [
            f"{test.step.label} minus {test.against.label}, p {_format_p_value(test.test)}"
            for test in tests
        ]
        n_permutations = max(test.test.flips for test in tests)
        return (
            f" Permutation test, two-sided, by {wording.format_count(n_permutations)} permutations "
            "that exchange the two conditions on audit problems, in the same way for all seeds: "
            f"{'; '.join(test_texts)}. It treats the trained models as fixed; the interval also "
            "covers the spread over seeds."
        )

    def results(self, part_findings: Any) -> dict[str, Any]:
        """Return the steps and the tests."""
        tests = [
            {
                "condition": test.step.condition,
                "against": test.against.condition,
                "difference": float(test.difference),
                "p": test.test.p_value,
                "permutations": test.test.flips,
                "exact": test.test.exhaustive,
            }
            for test in part_findings.tests
        ]
        return {**super().results(part_findings), "permutation_tests": tests}

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of the steps and of the tests."""
        yield from super().tables(inputs, findings, part_findings)
        tests = self.results(part_findings)["permutation_tests"]
        yield f"{self.name}_test.csv", iter([[*tests[0]], *([*test.values()] for test in tests)])


def _format_p_value(test: SignFlips) -> str:
    p_text = wording.format_p_value(test.p_value)
    p_text = p_text.replace("<", "< ") if p_text.startswith("<") else f"= {p_text}"
    return p_text + " (exact)" * test.exhaustive
