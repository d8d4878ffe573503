"""The steps of a control: which conditions it compares, as their selectors say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gapft_harness.recipe.conditions import Condition


@dataclass(frozen=True, slots=True)
class Step:
    """One condition of a control.

    Attributes:
        label: its place on the way, such as ``K = 1``.
        condition: its name in the recipe.
        value: the setting that it stands for, for programs.
        slots: by seed, how many of its example slots hold problems of each state.
        twin: the condition that draws as many examples at random, where it is compared with one.
    """

    label: str
    condition: str
    value: float | None = None
    slots: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    twin: str = ""


class Compared(Protocol):
    """What the report of a control asks the experiment; see ``Control``."""

    name: str
    title: str
    axis: str

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """The conditions that are compared, the reference first."""
        ...


def by_parameter(
    conditions: Mapping[str, Condition],
    selector: str,
    parameter: str,
    label: Callable[[Any], str],
) -> list[Step]:
    """The conditions of a selector, ascending by one of its parameters.

    A value that is no number is left to the selector, which refuses it.
    """
    values = {
        name: of.params.get(parameter) for name, of in conditions.items() if of.selector == selector
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return [
        Step(label(value), name, value)
        for name, value in sorted(numbers.items(), key=lambda named: named[1])
    ]


def gapft_and(conditions: Mapping[str, Condition], selector: str) -> list[Step]:
    """GapFT, then the conditions of a selector; without GapFT none."""
    from gapft_harness.report.rendering.wording import condition_name as shown

    called = {
        wanted: [name for name, of in conditions.items() if of.selector == wanted]
        for wanted in ("gapft", selector)
    }
    names = [*called["gapft"][:1], *called[selector]] if called["gapft"] else []
    return [Step(shown(name), name) for name in names]
