"""Comparisons of Appendix B: coverage against repetition, the whole pool, related selections."""

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


#: Of the comparison of the whole pool: selectors with their labels, the reference first.
_WHOLE = {"uniform_with_replacement": "repeated draws", "uniform": "all verified"}


class Coverage(Control):
    """More problems against more exposures of each, at as many exposures in all (Table 3)."""

    name = "coverage"
    needs = (
        "two conditions or more of the selector repeated, such as distinct: {selector: repeated, "
        "params: {times: 1}} and twice: {selector: repeated, params: {times: 2}}"
    )
    title = "Coverage at the same exposures"
    axis = "slots of each problem"

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """By descending slots a problem."""
        return by_parameter(conditions, "repeated", "times", _slots)[::-1]


def _slots(times: float) -> str:
    return f"{times} slot{'' if times == 1 else 's'} each"


class FullPool(Control):
    """Every verified problem once against as many draws with replacement (Appendix B)."""

    name = "full_pool"
    needs = (
        "conditions of the selectors uniform and uniform_with_replacement with n: verified, such "
        "as whole_pool: {selector: uniform, n: verified} and replacement_draws: {selector: "
        "uniform_with_replacement, n: verified}"
    )
    title = "The whole pool"

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
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
    """What other methods select by, against GapFT and against random twins (Appendix B)."""

    name = "related"
    needs = (
        "a condition of the selector gapft and one of distinct_paths or difficulty_weighted, such "
        "as gapft: {} and difficulty_weighted: {}"
    )
    title = "Related selections"

    def part(self) -> RelatedPart:
        """Its section, figure and table."""
        return RelatedPart(self)

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """GapFT and uniform of its n; then each related selection and its twin, if there is one."""
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


class RelatedPart(ControlPart):
    """Every selection minus GapFT, and the related ones minus their random twins."""

    def differences(
        self, findings: api.ReportFindings, found: Any
    ) -> list[tuple[Step, api.Contrast]]:
        """Against GapFT, then against the twins."""
        return [*super().differences(findings, found), *self._twins(findings, found)]

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[api.Section]:
        """A sentence on each related selection, the figure, and both tables."""
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
        """Both kinds of differences with their intervals."""
        groups = self._groups(findings, found)
        yield self.name, lambda findings: api.forests(groups)

    def results(self, found: Any) -> dict[str, Any]:
        """The steps, and the twin of each that has one."""
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


_ALONE = "No random twin of a related selection is among the conditions."


def _said(step: Step, contrast: api.Contrast) -> str:
    """A selection against its twin in a sentence."""
    label = wording.capital(step.label)
    return (
        f"{label} minus as many examples at random from the same problems is "
        f"{points(contrast.delta)} points of Pass@1 {points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )
