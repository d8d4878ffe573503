"""Test the contrasts of controls by permutation (Table 4, "inclusion tests and controls")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.permutation import PairedPermutation, paired_permutation
from gapft_harness.api import wording
from gapft_harness.experiments.controls.control import ControlPart, Step


class Permutations(api.RecipeSection):
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
        permutation_test: the test.
    """

    step: Step
    against: Step
    found: PairedPermutation


@dataclass(frozen=True, slots=True)
class TestedSteps:
    """The steps of a control and the tests of their contrasts; the reference comes first."""

    steps: tuple[Step, ...]
    tests: tuple[ContrastTest, ...]


class TestedPart(ControlPart):
    """The part of the report on a control, with a test of every later step against the first.

    The result of ``compute`` has the attributes ``steps`` and ``tests``.
    """

    def compute(self, inputs: api.ReportInputs, read: tuple[Step, ...]) -> Any:
        """Compute the tests of the steps."""
        return TestedSteps(read, self.tested(inputs, [(step, read[0]) for step in read[1:]]))

    def tested(
        self, inputs: api.ReportInputs, pairs: Sequence[tuple[Step, Step]]
    ) -> tuple[ContrastTest, ...]:
        """Test each step of a pair against the other.

        Args:
            inputs: the inputs of the report.
            pairs: steps, each with the step that it is compared with.
        """
        statistics = inputs.recipe["statistics"]
        settings = inputs.recipe["experiments"][self.name] or {}
        default = Permutations().permutations

        def passed(step: Step) -> Any:
            return np.array([arm.passed for arm in inputs.of(step.condition)])

        return tuple(
            ContrastTest(
                step,
                against,
                paired_permutation(
                    passed(step),
                    passed(against),
                    item_ids=inputs.audit.ids,
                    permutations=settings.get("permutations", default),
                    stream=api.Stream(statistics["seed"], f"report/{self.name}"),
                ),
            )
            for step, against in pairs
        )

    def shown(self, found: Any) -> tuple[Step, ...]:
        """Return the steps, the reference first."""
        steps: tuple[Step, ...] = found.steps
        return steps

    def remark(self, findings: api.ReportFindings, found: Any) -> str:
        """Describe the tests."""
        tests: tuple[ContrastTest, ...] = found.tests
        said = [
            f"{test.step.label} minus {test.against.label}, p {_shown(test.found)}"
            for test in tests
        ]
        most = max(test.found.permutations for test in tests)
        return (
            f" Permutation test, two-sided, by {wording.whole(most)} permutations that exchange "
            "the two conditions on audit problems, in the same way for all seeds: "
            f"{'; '.join(said)}. It treats the trained models as fixed; the interval also covers "
            "the spread over seeds."
        )

    def results(self, found: Any) -> dict[str, Any]:
        """Return the steps and the tests."""
        tests = [
            {
                "condition": test.step.condition,
                "against": test.against.condition,
                "difference": float(test.found.difference),
                "p": float(test.found.p_value),
                "permutations": test.found.permutations,
                "exact": test.found.exhaustive,
            }
            for test in found.tests
        ]
        return {**super().results(found), "permutation_tests": tests}

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of the steps and of the tests."""
        yield from super().tables(inputs, findings, found)
        tests = self.results(found)["permutation_tests"]
        yield f"{self.name}_test.csv", iter([[*tests[0]], *([*test.values()] for test in tests)])


def _shown(found: PairedPermutation) -> str:
    said = wording.p_value(float(found.p_value))
    said = said.replace("<", "< ") if said.startswith("<") else f"= {said}"
    return said + " (exact)" * found.exhaustive
