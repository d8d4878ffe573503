"""Coverage and repetition (Section 6.2), and the whole pool (Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness import api
from gapft_harness.experiments.controls.control import Control, list_selected, order_by_parameter


class CoverageControl(Control):
    """Compares more problems with more exposures of each, at the same total (Section 6.2)."""

    name = "coverage"
    title = "Coverage at the same exposures"
    requirement = (
        "two conditions or more of the selector repeated, such as distinct: {selector: repeated, "
        "params: {times: 1}} and twice: {selector: repeated, params: {times: 2}}"
    )
    parameter = "times"

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the conditions, from most to fewest slots of each problem."""
        return order_by_parameter(conditions, "repeated", "times")[::-1]


class FullPoolControl(Control):
    """Compares all verified problems with as many draws with replacement (Appendix B)."""

    name = "full_pool"
    title = "The whole pool"
    requirement = (
        "conditions of the selectors uniform and uniform_with_replacement with n: verified, such "
        "as whole_pool: {selector: uniform, n: verified} and replacement_draws: {selector: "
        "uniform_with_replacement, n: verified}"
    )

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the draws with replacement, then the condition with each problem once."""
        return [
            name
            for selector in ("uniform_with_replacement", "uniform")
            for name in list_selected(conditions, selector)
            if conditions[name].n == "verified"
        ]
