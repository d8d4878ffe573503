"""Related selections at GapFT's budget, each against its random twin (Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.recipe.conditions import Condition

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.reports.related import RelatedPart

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
