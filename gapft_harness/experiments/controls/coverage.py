"""Coverage and repetition (Section 6.2), and the whole pool (Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness import api
from gapft_harness.experiments.controls.control import (
    Control,
    ControlStep,
    find_steps_by_parameter,
)

#: Selectors of the comparison of the whole pool, with their labels; the reference comes first.
_SELECTORS = {"uniform_with_replacement": "repeated draws", "uniform": "all verified"}


class CoverageControl(Control):
    """Compares more problems with more exposures of each, at the same total (Section 6.2)."""

    name = "coverage"
    requirement = (
        "two conditions or more of the selector repeated, such as distinct: {selector: repeated, "
        "params: {times: 1}} and twice: {selector: repeated, params: {times: 2}}"
    )
    title = "Coverage at the same exposures"
    axis = "slots of each problem"

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the steps, from most to fewest slots of each problem."""
        return find_steps_by_parameter(conditions, "repeated", "times", _format_slots)[::-1]


def _format_slots(times: float) -> str:
    return f"{times} slot{'' if times == 1 else 's'} each"


class FullPoolControl(Control):
    """Compares all verified problems with as many draws with replacement (Appendix B)."""

    name = "full_pool"
    requirement = (
        "conditions of the selectors uniform and uniform_with_replacement with n: verified, such "
        "as whole_pool: {selector: uniform, n: verified} and replacement_draws: {selector: "
        "uniform_with_replacement, n: verified}"
    )
    title = "The whole pool"

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the draws with replacement, then the condition with each problem once."""
        return [
            ControlStep(label, name)
            for selector, label in _SELECTORS.items()
            for name, condition in conditions.items()
            if condition.selector == selector and condition.n == "verified"
        ]
