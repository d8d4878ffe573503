"""Coverage against repetition: on any task at one budget, and of the whole pool (Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.steps import Step, by_parameter
from gapft_harness.recipe.conditions import Condition

#: Of the comparison of the whole pool: selectors with their labels, the reference first.
_WHOLE = {"uniform_with_replacement": "repeated draws", "uniform": "all verified"}


class Coverage(Control):
    """At one budget, more problems against more slots of each."""

    name = "coverage"
    needs = (
        "two conditions or more of the selector repeated, such as distinct: {selector: repeated, "
        "params: {times: 1}} and twice: {selector: repeated, params: {times: 2}}"
    )
    title = "Coverage at the same exposures"
    axis = "slots of each problem"

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """By descending slots a problem."""
        return by_parameter(conditions, "repeated", "times", _slots)[::-1]


def _slots(times: float) -> str:
    return f"{times} slot{'' if times == 1 else 's'} each"


class FullPool(Control):
    """At n = |E_G| + |E_S,K|: every verified problem once, or as many draws with replacement."""

    name = "full_pool"
    needs = (
        "conditions of the selectors uniform and uniform_with_replacement with n: verified, such "
        "as whole: {selector: uniform, n: verified} and again: {selector: "
        "uniform_with_replacement, n: verified}"
    )
    title = "The whole pool"

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """The draws with replacement, then every problem once."""
        return [
            Step(label, name)
            for selector, label in _WHOLE.items()
            for name, of in conditions.items()
            if of.selector == selector and of.n == "verified"
        ]
