"""Coverage and repetition (Section 6.2), the whole pool (Appendix B), and related selections."""

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
    ControlStep,
    build_contrast_table,
    build_twin_table,
    find_steps_by_parameter,
)

if TYPE_CHECKING:
    pass


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


#: Selectors of related methods, each with the responses from which its random twin draws.
_TWIN_RESPONSES = {"distinct_paths": "verified", "difficulty_weighted": "kept"}


class RelatedSelections(Control):
    """Compares selections of related methods with GapFT and with random twins; not in the paper."""

    name = "related"
    requirement = (
        "a condition of the selector gapft and one of distinct_paths or difficulty_weighted, such "
        "as gapft: {} and difficulty_weighted: {}"
    )
    title = "Related selections"

    def part(self) -> RelatedPart:
        """Return the part of the report."""
        return RelatedPart(self)

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return GapFT, uniform with its n, and each related selection with its twin, if any."""
        names_by_selector = {
            selector: [
                name for name, condition in conditions.items() if condition.selector == selector
            ]
            for selector in ("gapft", "uniform", *_TWIN_RESPONSES)
        }
        if not names_by_selector["gapft"] or not any(
            names_by_selector[selector] for selector in _TWIN_RESPONSES
        ):
            return ()
        gapft = names_by_selector["gapft"][0]
        uniform = [
            name
            for name in names_by_selector["uniform"]
            if conditions[name].n == conditions[gapft].n
        ]
        steps = [ControlStep(condition_name(name), name) for name in (gapft, *uniform)]
        for selector in _TWIN_RESPONSES:
            for name in names_by_selector[selector]:
                twin = _find_twin(conditions, conditions[name])
                steps.append(ControlStep(condition_name(name), name, twin=twin))
                if twin and twin not in (step.condition for step in steps):
                    steps.append(ControlStep(condition_name(twin), twin))
        return steps


def _find_twin(conditions: Mapping[str, api.Condition], selection: api.Condition) -> str:
    """Find the condition that draws at random from the states and responses of a selection.

    Returns:
        Its name; empty: there is none.
    """
    draw_settings = _list_draw_settings(
        {
            "responses": _TWIN_RESPONSES[selection.selector],
            "states": selection.params.get("states", "GS"),
        }
    )
    names = (
        name
        for name, other in conditions.items()
        if other.selector == "random_twin" and _list_draw_settings(other.params) == draw_settings
    )
    return next(names, "")


def _list_draw_settings(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """List the settings of a random twin that decide what it draws, with defaults."""
    defaults = {"states": "GS", "responses": "kept", "repeats": False}
    return tuple({**defaults, **params}[key] for key in defaults)


class RelatedPart(ControlPart):
    """The part of the report: differences from GapFT and from random twins."""

    def list_differences(
        self, findings: api.ReportFindings, part_findings: Any
    ) -> list[tuple[ControlStep, api.Contrast]]:
        """Return the differences from GapFT, then those from the twins."""
        return [
            *super().list_differences(findings, part_findings),
            *self._list_twin_differences(findings, part_findings),
        ]

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[api.Section]:
        """Return the section: a sentence on each related selection, figure, tables."""
        steps, twin_differences = (
            self.list_steps(part_findings),
            self._list_twin_differences(findings, part_findings),
        )
        groups = self._group_differences(findings, part_findings)
        group_texts = "; ".join(
            f"{title}: "
            + ", ".join(
                f"{label} {points(delta)} {points_interval(interval)}"
                for label, delta, interval in group
            )
            for title, group in groups.items()
            if group
        )
        blocks: list[api.Block] = [
            api.Text(
                " ".join(
                    _describe_difference(step, contrast) for step, contrast in twin_differences
                )
                or _NO_TWIN
            ),
            api.Figure(
                self.name,
                f"Differences of Pass@1 in points. {group_texts}.",
                "Differences of Pass@1 at the same n, N and J, with 95% intervals. Filled: the "
                "interval excludes zero.",
            ),
            build_contrast_table(findings, steps),
        ]
        if twin_differences:
            blocks.append(build_twin_table(findings, twin_differences))
        yield api.Section(self.control.title, blocks)

    def figures(self, findings: api.ReportFindings, part_findings: Any) -> api.Figures:
        """Return the figure of both kinds of differences with intervals."""
        groups = self._group_differences(findings, part_findings)
        yield self.name, lambda findings: api.forests(groups)

    def results(self, part_findings: Any) -> dict[str, Any]:
        """Return the steps, and their twins by condition."""
        twins = {step.condition: step.twin for step in self.list_steps(part_findings) if step.twin}
        return {**super().results(part_findings), "twins": twins}

    def _list_twin_differences(
        self, findings: api.ReportFindings, part_findings: Any
    ) -> list[tuple[ControlStep, api.Contrast]]:
        return [
            (step, findings.find_contrast(step.condition, step.twin))
            for step in self.list_steps(part_findings)
            if step.twin
        ]

    def _group_differences(
        self, findings: api.ReportFindings, part_findings: Any
    ) -> dict[str, list[tuple[str, Fraction, Interval]]]:
        groups = {
            f"Minus {self.list_steps(part_findings)[0].label}": super().list_differences(
                findings, part_findings
            ),
            "Minus its random twin": self._list_twin_differences(findings, part_findings),
        }
        return {
            title: [
                (step.label, difference.delta, difference.interval) for step, difference in group
            ]
            for title, group in groups.items()
        }


_NO_TWIN = "No condition is the random twin of a related selection."


def _describe_difference(step: ControlStep, contrast: api.Contrast) -> str:
    """Describe the difference of a selection from its twin."""
    label = wording.capitalize_first(step.label)
    return (
        f"{label} minus as many random examples of the same problems is "
        f"{points(contrast.delta)} points of Pass@1 {points_interval(contrast.interval)}; "
        f"{wording.describe_resolution(contrast.interval)}."
    )
