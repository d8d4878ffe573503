"""The controls of Appendix B: coverage and repetition, the whole pool, related selections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gapft_harness import api
from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.api import condition_name, points, points_interval, wording
from gapft_harness.experiments.controls.control import (
    Control,
    ControlPart,
    Step,
    by_parameter,
    contrast_table,
    twin_table,
)

if TYPE_CHECKING:
    pass


#: Selectors of the comparison of the whole pool, with their labels; the reference comes first.
_WHOLE = {"uniform_with_replacement": "repeated draws", "uniform": "all verified"}


class Coverage(Control):
    """Compares more problems with more exposures of each, at the same total (Table 3)."""

    name = "coverage"
    needs = (
        "two conditions or more of the selector repeated, such as distinct: {selector: repeated, "
        "params: {times: 1}} and twice: {selector: repeated, params: {times: 2}}"
    )
    title = "Coverage at the same exposures"
    axis = "slots of each problem"

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """Return the steps, from most to fewest slots of each problem."""
        return by_parameter(conditions, "repeated", "times", _slots)[::-1]


def _slots(times: float) -> str:
    return f"{times} slot{'' if times == 1 else 's'} each"


class FullPool(Control):
    """Compares all verified problems with as many draws with replacement (Appendix B)."""

    name = "full_pool"
    needs = (
        "conditions of the selectors uniform and uniform_with_replacement with n: verified, such "
        "as whole_pool: {selector: uniform, n: verified} and replacement_draws: {selector: "
        "uniform_with_replacement, n: verified}"
    )
    title = "The whole pool"

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """Return the draws with replacement, then the condition with each problem once."""
        return [
            Step(label, name)
            for selector, label in _WHOLE.items()
            for name, condition in conditions.items()
            if condition.selector == selector and condition.n == "verified"
        ]


#: Selectors of related methods, each with the responses from which its random twin draws.
_RELATED = {"distinct_paths": "verified", "difficulty_weighted": "kept"}


class Related(Control):
    """Compares selections of related methods with GapFT and with random twins (Appendix B)."""

    name = "related"
    needs = (
        "a condition of the selector gapft and one of distinct_paths or difficulty_weighted, such "
        "as gapft: {} and difficulty_weighted: {}"
    )
    title = "Related selections"

    def part(self) -> RelatedPart:
        """Return the part of the report."""
        return RelatedPart(self)

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """Return GapFT, uniform with its n, and each related selection with its twin, if any."""
        called = {
            selector: [name for name, of in conditions.items() if of.selector == selector]
            for selector in ("gapft", "uniform", *_RELATED)
        }
        if not called["gapft"] or not any(called[selector] for selector in _RELATED):
            return ()
        gapft = called["gapft"][0]
        uniform = [name for name in called["uniform"] if conditions[name].n == conditions[gapft].n]
        found = [Step(condition_name(name), name) for name in (gapft, *uniform)]
        for selector in _RELATED:
            for name in called[selector]:
                twin = _twin(conditions, conditions[name])
                found.append(Step(condition_name(name), name, twin=twin))
                if twin and twin not in (step.condition for step in found):
                    found.append(Step(condition_name(twin), twin))
        return found


def _twin(conditions: Mapping[str, api.Condition], of: api.Condition) -> str:
    """Find the condition that draws at random from the states and responses of a selection.

    Returns:
        Its name; empty: there is none.
    """
    wanted = _draws({"responses": _RELATED[of.selector], "states": of.params.get("states", "GS")})
    names = (
        name
        for name, other in conditions.items()
        if other.selector == "random_twin" and _draws(other.params) == wanted
    )
    return next(names, "")


def _draws(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """List the settings of a random twin that decide what it draws, with defaults."""
    defaults = {"states": "GS", "responses": "kept", "repeats": False}
    return tuple({**defaults, **params}[key] for key in defaults)


class RelatedPart(ControlPart):
    """The part of the report: differences from GapFT and from random twins."""

    def differences(
        self, findings: api.ReportFindings, found: Any
    ) -> list[tuple[Step, api.Contrast]]:
        """Return the differences from GapFT, then those from the twins."""
        return [*super().differences(findings, found), *self._twins(findings, found)]

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[api.Section]:
        """Return the section: a sentence on each related selection, figure, tables."""
        steps, twins = self.shown(found), self._twins(findings, found)
        groups = self._groups(findings, found)
        said = "; ".join(
            f"{title}: "
            + ", ".join(
                f"{label} {points(delta)} {points_interval(interval)}"
                for label, delta, interval in group
            )
            for title, group in groups.items()
            if group
        )
        blocks: list[api.Block] = [
            api.Text(" ".join(_said(step, contrast) for step, contrast in twins) or _ALONE),
            api.Figure(
                self.name,
                f"Differences of Pass@1 in points. {said}.",
                "Differences of Pass@1 at the same n, N and J, with 95% intervals. Filled: the "
                "interval excludes zero.",
            ),
            contrast_table(findings, steps),
        ]
        if twins:
            blocks.append(twin_table(findings, twins))
        yield api.Section(self.control.title, blocks)

    def figures(self, findings: api.ReportFindings, found: Any) -> api.Figures:
        """Return the figure of both kinds of differences with intervals."""
        groups = self._groups(findings, found)
        yield self.name, lambda findings: api.forests(groups)

    def results(self, found: Any) -> dict[str, Any]:
        """Return the steps, and their twins by condition."""
        twins = {step.condition: step.twin for step in self.shown(found) if step.twin}
        return {**super().results(found), "twins": twins}

    def _twins(self, findings: api.ReportFindings, found: Any) -> list[tuple[Step, api.Contrast]]:
        return [
            (step, findings.contrast(step.condition, step.twin))
            for step in self.shown(found)
            if step.twin
        ]

    def _groups(
        self, findings: api.ReportFindings, found: Any
    ) -> dict[str, list[tuple[str, Fraction, Interval]]]:
        groups = {
            f"Minus {self.shown(found)[0].label}": super().differences(findings, found),
            "Minus its random twin": self._twins(findings, found),
        }
        return {
            title: [(step.label, of.delta, of.interval) for step, of in group]
            for title, group in groups.items()
        }


_ALONE = "No condition is the random twin of a related selection."


def _said(step: Step, contrast: api.Contrast) -> str:
    """Describe the difference of a selection from its twin."""
    label = wording.capital(step.label)
    return (
        f"{label} minus as many random examples of the same problems is "
        f"{points(contrast.delta)} points of Pass@1 {points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )
