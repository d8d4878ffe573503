"""Comparisons of Appendix B: coverage against repetition, the whole pool, related selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.steps import Step, by_parameter
from gapft_harness.recipe.conditions import Condition

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.reports.related import RelatedPart

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
        "as whole_pool: {selector: uniform, n: verified} and replacement_draws: {selector: "
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


#: Selectors after other methods, and which responses the random twin of each draws from.
_RELATED = {"distinct_paths": "verified", "difficulty_weighted": "kept"}


class Related(Control):
    """At one budget, what other methods select by against GapFT and against drawing at random."""

    name = "related"
    needs = (
        "a condition of the selector gapft and one of distinct_paths or difficulty_weighted, such "
        "as gapft: {} and difficulty_weighted: {}"
    )
    title = "Related selections"

    def part(self) -> RelatedPart:
        """Its section, figure and table."""
        from gapft_harness.experiments.controls.reports.related import RelatedPart

        return RelatedPart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """GapFT and uniform of its n; then each related selection and its twin, if there is one."""
        from gapft_harness.report.rendering.wording import condition_name as shown

        called = {
            selector: [name for name, of in conditions.items() if of.selector == selector]
            for selector in ("gapft", "uniform", *_RELATED)
        }
        if not called["gapft"] or not any(called[selector] for selector in _RELATED):
            return ()
        gapft = called["gapft"][0]
        uniform = [name for name in called["uniform"] if conditions[name].n == conditions[gapft].n]
        found = [Step(shown(name), name) for name in (gapft, *uniform)]
        for selector in _RELATED:
            for name in called[selector]:
                twin = _twin(conditions, conditions[name])
                found.append(Step(shown(name), name, twin=twin))
                if twin and twin not in (step.condition for step in found):
                    found.append(Step(shown(twin), twin))
        return found


def _twin(conditions: Mapping[str, Condition], of: Condition) -> str:
    """The condition that draws at random from the states and responses that a selection takes."""
    wanted = _draws({"responses": _RELATED[of.selector], "states": of.params.get("states", "GS")})
    names = (
        name
        for name, other in conditions.items()
        if other.selector == "random_twin" and _draws(other.params) == wanted
    )
    return next(names, "")


def _draws(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a random twin draws from, with the selector's defaults."""
    defaults = {"states": "GS", "responses": "kept", "repeats": False}
    return tuple({**defaults, **params}[key] for key in defaults)
