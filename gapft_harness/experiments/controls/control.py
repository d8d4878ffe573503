"""Controls: compare conditions of one budget with different training sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness import api
from gapft_harness.api import (
    condition_name,
    layout,
    listed,
    palette,
    percent,
    points,
    points_interval,
    style,
    wording,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


@dataclass(frozen=True, slots=True)
class Step:
    """One condition of a control.

    Attributes:
        label: its label, such as ``K = 1``.
        condition: the name of the condition.
        value: the value of the setting that the steps vary; None: they vary none.
        slots: by seed, the number of its examples by state of their problems.
        twin: the condition with as many random examples, its random twin; empty: none.
        kept: by seed, how many slots of gold-label selection keep the example of the search,
            because its target contains more than the answer.
    """

    label: str
    condition: str
    value: float | None = None
    slots: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    twin: str = ""
    kept: Mapping[int, int] = field(default_factory=dict)


def by_parameter(
    conditions: Mapping[str, api.Condition],
    selector: str,
    parameter: str,
    label: Callable[[Any], str],
) -> list[Step]:
    """Find the conditions of a selector, ascending by one of its parameters, without replicates.

    Values that are not numbers are skipped; the selector itself reports them.

    Args:
        conditions: the conditions of a recipe.
        selector: the selector.
        parameter: its parameter.
        label: formats a value of the parameter.
    """
    values = {
        name: of.params.get(parameter)
        for name, of in conditions.items()
        if of.selector == selector and not of.replicate
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return [
        Step(label(value), name, value)
        for name, value in sorted(numbers.items(), key=lambda named: named[1])
    ]


def gapft_and(conditions: Mapping[str, api.Condition], selector: str) -> list[Step]:
    """Find GapFT, then the conditions of a selector, without replicates; none without GapFT."""
    called = {
        wanted: [
            name for name, of in conditions.items() if of.selector == wanted and not of.replicate
        ]
        for wanted in ("gapft", selector)
    }
    names = [*called["gapft"][:1], *called[selector]] if called["gapft"] else []
    return [Step(condition_name(name), name) for name in names]


class Control(api.Experiment, ABC):
    """An experiment that compares conditions, which it finds by their selectors.

    Attributes:
        requirement: the conditions that a recipe must have, as the end of a sentence.
        title: the title of its section in the report.
        axis: the label of the figure's axis, for what the steps vary; empty: the steps have no
            order, and the figure shows the parts of every difference instead.
    """

    needs: str = ""
    title: str = ""
    axis: str = ""

    @abstractmethod
    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """Return the steps to compare, the reference first; at least two are needed."""

    def part(self) -> ControlPart:
        """Return the part of the report."""
        return ControlPart(self)

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has fewer than two of its conditions, or two of different n.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        names = self.conditions(recipe)
        if len(names) < 2:
            there = ", ".join(names) or "none"
            raise api.UserError(f"{where} needs {self.needs}; found: {there}")
        slots = {name: recipe.slots(name) for name in names}
        if len(set(slots.values())) > 1:
            said = ", ".join(f"{name} {n}" for name, n in slots.items())
            raise api.UserError(
                f"{where} expected the same n in all compared conditions, found {said}; set n "
                "to the same value in all of them, or in none"
            )
        api.require_same_settings(recipe, self.name, names)
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the conditions of its steps."""
        return [step.condition for step in self.compared(recipe.conditions)]

    def faults(self, view: api.View) -> Iterator[str]:
        """Report conditions that differ in more than their sets, and sets that do not match."""
        if view.arms():
            yield from api.find_own_settings(view, self.name, self.conditions(view.recipe))
            yield from self.find_mismatches(view.run, view.arms())

    def find_mismatches(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Iterable[str]:
        """Report properties that training sets must share but do not."""
        return ()


def count_slots(run_path: Path, steps: Sequence[Step], arms: Sequence[api.Arm]) -> tuple[Step, ...]:
    """Add to steps the number of examples by state in their sealed training sets."""
    found = []
    for step in steps:
        slots = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if arm.condition == step.condition:
                states = api.read_columns(run_path / layout.selection(arm), ("state",))["state"]
                slots[arm.seed] = {state: states.count(state) for state in "GSU"}
        found.append(replace(step, slots=slots))
    return tuple(found)


def against_first(findings: api.ReportFindings, steps: Sequence[Step]) -> list[api.Contrast]:
    """Return the contrasts of every later step minus the first, which is the reference."""
    return [findings.contrast(step.condition, steps[0].condition) for step in steps[1:]]


def by_seed(findings: api.ReportFindings, contrast: api.Contrast) -> dict[int, Fraction]:
    """Return the difference in Pass@1 of a contrast by seed."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    return {
        seed: of.decomposition.pass_at_1 - b[seed].decomposition.pass_at_1 for seed, of in a.items()
    }


def result(findings: api.ReportFindings, steps: Sequence[Step]) -> str:
    """Describe the difference of the last step from the first."""
    contrast = against_first(findings, steps)[-1]
    return (
        f"{wording.capital(steps[-1].label)} minus {steps[0].label}, at the same n, N and J, is "
        f"{points(contrast.delta)} points of Pass@1 {points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )


def contrast_table(
    findings: api.ReportFindings, steps: Sequence[Step], source: bool = False
) -> api.Table:
    """Build a table with a row for each step: difference from the first, Pass@1, slots.

    Args:
        findings: the findings of the report.
        steps: the conditions, the reference first.
        source: whether to begin with a row of the model before training and leave out the slots,
            which another table shows.
    """
    counts = [] if source else [of for step in steps for of in step.slots.values()]
    filled = [state for state in "SUG" if any(of[state] for of in counts)]
    rows = [StepRow(findings, "no post-training")] if source else []
    for step, contrast in zip(steps, [None, *against_first(findings, steps)], strict=True):
        rows.append(StepRow(findings, step.label, step, contrast))
    seeds = listed([str(seed) for seed in steps[0].slots])
    said = {
        "S": "failures that search recovered",
        "U": "failures that search missed",
        "G": "solved problems",
    }
    note = (
        f"Difference from {steps[0].label} in percentage points, with its 95% interval; G, S and U "
        "are its parts on these states of the audit, which sum to it. Each seed: the difference "
        f"for the seeds {seeds}, in this order."
    )
    if filled:
        note += (
            " Slots: number of examples of the pool's "
            f"{listed([said[state] for state in filled])}; if seeds differ, smallest to largest."
        )
    columns = [*DIFFERENCE, *PASS_AT_1, *(slots(state) for state in filled)]
    return api.Frame(columns, rows).table(note)


def twin_table(
    findings: api.ReportFindings, twins: Sequence[tuple[Step, api.Contrast]]
) -> api.Table:
    """Build a table with a row for each selection: its difference from its random twin."""
    rows = [
        StepRow(findings, f"{step.label} − {condition_name(contrast.b)}", step, contrast)
        for step, contrast in twins
    ]
    note = "Differences from the random twin; columns as above."
    return api.Frame(DIFFERENCE, rows).table(note)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of a control's table.

    Attributes:
        findings: the findings of the report.
        label: the label of the row.
        step: the step; None: the source.
        contrast: its contrast with the reference; None: the reference itself, or the source.
    """

    findings: api.ReportFindings
    label: str
    step: Step | None = None
    contrast: api.Contrast | None = None

    @property
    def pass_at_1(self) -> Fraction:
        """Pass@1 of its condition, or of the source."""
        if self.step is None:
            return self.findings.source.pass_at_1
        return self.findings.conditions[self.step.condition].mean.pass_at_1

    @property
    def each_seed(self) -> str:
        """The difference for each seed, as text."""
        if self.contrast is None:
            return ""
        return " ".join(map(points, by_seed(self.findings, self.contrast).values()))


def _delta(row: StepRow) -> str:
    if row.contrast is None:
        return "ref." if row.step else ""
    return points(row.contrast.delta)


_PART = "parts of the difference"
#: Columns of a difference's interval, and of its parts on the source's states.
PARTS: tuple[api.Column[api.Contrast], ...] = (
    api.Column("", "", lambda contrast: contrast.interval, "95% interval", points_interval),
    api.Column("", _PART, lambda contrast: contrast.terms.g, "G", points),
    api.Column("", _PART, lambda contrast: contrast.terms.s, "S", points),
    api.Column("", _PART, lambda contrast: contrast.terms.u, "U", points),
)
DIFFERENCE: tuple[api.Column[StepRow], ...] = (
    api.Column("", "", lambda row: row.label, ""),
    api.Column("", "", _delta, "difference"),
    *(column.of(lambda row: row.contrast, missing="") for column in PARTS),
    api.Column("", "", lambda row: row.each_seed, "each seed"),
)
PASS_AT_1: tuple[api.Column[StepRow], ...] = (
    api.Column("", "", lambda row: row.pass_at_1, "Pass@1", percent),
)


def slots(state: str) -> api.Column[StepRow]:
    """Build the column of the number of examples in a state."""

    def span(row: StepRow) -> str:
        counts = [count[state] for count in row.step.slots.values()] if row.step else []
        return wording.span(counts) if counts else ""

    return api.Column(
        "", "examples in this state, or beyond the shared core", span, f"slots {state}"
    )


SLOTS = (slots("STATE"),)


#: Labels of the rows below a difference: its parts on the source's states.
_PARTS = {
    "g": "of it on G, solved",
    "s": "of it on S, recovered",
    "u": "of it on U, missed",
}


def change_by_step(findings: api.ReportFindings, *, steps: Sequence[Step], axis: str) -> Drawn:
    """Draw Pass@1 of each step minus that of the first; filled: the interval excludes zero.

    A line joins the steps that have a value.

    Args:
        findings: the findings of the report.
        steps: the steps, the reference first.
        axis: the label of the axis.
    """
    figure, axes = style.panel(2.9)
    contrasts = against_first(findings, steps)
    deltas = [0.0, *(100 * float(contrast.delta) for contrast in contrasts)]
    axes.axhline(0, color=palette.MUTED, linewidth=0.9)
    scale = [x for x, step in enumerate(steps) if step.value is not None]
    axes.plot(scale, [deltas[x] for x in scale], color=palette.RIGHT_PALE, linewidth=1.6)
    axes.plot(0, 0, "o", color=palette.MUTED, markersize=6)
    for x, contrast in enumerate(contrasts, start=1):
        ends = [100 * contrast.interval.low, 100 * contrast.interval.high]
        axes.plot([x, x], ends, color=palette.RIGHT, linewidth=1.6)
        filled = palette.RIGHT if contrast.interval.excludes_zero else palette.PAPER
        axes.plot(
            x, deltas[x], "o", markersize=6, markeredgecolor=palette.RIGHT, markeredgewidth=1.4,
            markerfacecolor=filled,
        )  # fmt: skip
        axes.annotate(
            points(contrast.delta),
            (x, deltas[x]),
            xytext=(7, -8),  # below the line, which mostly rises
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_xticks(range(len(steps)), [step.label for step in steps])
    axes.set_xlim(-0.3, len(steps) - 0.5)
    axes.set_xlabel(axis)
    axes.set_title(f"Pass@1 minus that of {steps[0].label}, points", x=0)
    return figure


def parts_by_state(findings: api.ReportFindings, *, steps: Sequence[Step]) -> Drawn:
    """Draw a panel for each later step minus the first: the difference, and its parts.

    The difference has its interval; filled: the interval excludes zero. Bars are the parts on G, S
    and U, which sum to it. Each row has a tick for every seed.
    """
    contrasts = against_first(findings, steps)
    height = 0.27 * (len(_PARTS) + 1) + 0.45
    count = len(contrasts)
    figure, panels = style.panels(height * count + 0.35, count, sharex=True)
    for axes, step, contrast in zip(panels, steps[1:], contrasts, strict=True):
        api.forest(axes, [("difference", contrast.delta, contrast.interval)])
        _parts(axes, findings, contrast)
        axes.set_title(f"{step.label} minus {steps[0].label}", x=0)
    panels[-1].set_xlabel("points of Pass@1")
    return figure


def _parts(axes: Axes, findings: api.ReportFindings, contrast: api.Contrast) -> None:
    """Draw the parts below the difference, which is in row 0; add ticks for each seed."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    seeds = [a[seed].decomposition.terms - b[seed].decomposition.terms for seed in a]
    _ticks(axes, 0, [of.total for of in seeds])
    for y, term in enumerate(_PARTS, start=1):
        part = getattr(contrast.terms, term)
        axes.barh(y, 100 * float(part), color=palette.RIGHT_PALE, height=0.55)
        style.beside(axes, y, points(part))
        _ticks(axes, y, [getattr(of, term) for of in seeds])
    axes.set_yticks(range(len(_PARTS) + 1), ["difference", *_PARTS.values()])
    axes.set_ylim(len(_PARTS) + 0.5, -0.6)


def _ticks(axes: Axes, y: int, values: Sequence[Fraction]) -> None:
    axes.plot(
        [100 * float(value) for value in values], [y] * len(values), "|", color=palette.INK,
        markersize=9, markeredgewidth=0.9,
    )  # fmt: skip


class ControlPart(api.Part):
    """The part of the report on a control.

    ``read`` and ``compute`` return the steps; the first is the reference.
    """

    after = "Contrasts"

    def __init__(self, control: Control) -> None:
        self.control, self.name = control, control.name

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> tuple[Step, ...] | None:
        """Read the steps with the number of their examples by state."""
        asked = manifest["recipe"].get("experiments", {})
        if self.name not in asked or not arms:
            return None
        return count_slots(
            run_path, self.control.compared(api.conditions_of(manifest["recipe"])), arms
        )

    def compute(self, inputs: api.ReportInputs, read: tuple[Step, ...]) -> Any:
        """Return the steps; their contrasts are part of every report."""
        return read

    def shown(self, found: Any) -> tuple[Step, ...]:
        """Return the steps of the result of ``compute``."""
        steps: tuple[Step, ...] = found
        return steps

    def compared(self, found: Any) -> Sequence[Step]:
        """Return the steps whose first and last the opening sentence compares."""
        return self.shown(found)

    def differences(
        self, findings: api.ReportFindings, found: Any
    ) -> list[tuple[Step, api.Contrast]]:
        """Return every later step with its contrast minus the first."""
        steps = self.shown(found)
        return list(zip(steps[1:], against_first(findings, steps), strict=True))

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, and a table with a row for each step."""
        steps = self.shown(found)
        said = result(findings, self.compared(found)) + self.remark(findings, found)
        shown = (
            f"{step.label} {points(contrast.delta)} points"
            for step, contrast in self.differences(findings, found)
        )
        alternative = f"Change of Pass@1 against {steps[0].label}: {'; '.join(shown)}."
        caption = (
            f"Pass@1 minus that of {steps[0].label}, with 95% intervals. Filled: the interval "
            "excludes zero."
        )
        if not self.control.axis:
            caption += " Bars: its parts on G, S and U, which sum to it. Ticks: seeds."
        blocks: list[api.Block] = [
            api.Text(said),
            api.Figure(self.name, alternative, caption),
            contrast_table(findings, steps),
        ]
        yield api.Section(self.control.title, blocks)

    def remark(self, findings: api.ReportFindings, found: Any) -> str:
        """Return text to add after the result, after a space; empty by default."""
        return ""

    def figures(self, findings: api.ReportFindings, found: Any) -> api.Figures:
        """Return the figure of changes by step or, without an axis, of their parts."""
        steps, axis = self.shown(found), self.control.axis
        draw = partial(change_by_step, axis=axis) if axis else parts_by_state
        yield self.name, partial(draw, steps=steps)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table: a row for each step's mean and for each seed."""
        yield f"{self.name}.csv", _rows(findings, self.differences(findings, found))

    def results(self, found: Any) -> dict[str, Any]:
        """Return the steps with their slots; the contrasts are under ``contrasts``."""
        return {
            "steps": [
                {
                    "condition": step.condition,
                    "value": step.value,
                    "slots": {str(seed): dict(of) for seed, of in step.slots.items()},
                    **({"kept": {str(s): n for s, n in step.kept.items()}} if step.kept else {}),
                }
                for step in self.shown(found)
            ]
        }


def _rows(findings: api.ReportFindings, compared: Sequence[tuple[Step, api.Contrast]]) -> api.Rows:
    yield (
        "condition", "value", "against", "seed", "slots_G", "slots_S", "slots_U", "delta",
        "ci95_low", "ci95_high", "S", "U", "G",
    )  # fmt: skip
    for step, contrast in compared:
        slots = {seed: [of[state] for state in "GSU"] for seed, of in step.slots.items()}
        name = step.condition, step.value, contrast.b
        yield from contrast_rows(findings, contrast, name, slots)


def contrast_rows(
    findings: api.ReportFindings,
    contrast: api.Contrast,
    name: tuple[object, ...],
    own: Mapping[int, Sequence[object]],
) -> api.Rows:
    """Build the CSV rows of a contrast: its mean, then the difference of each seed.

    Args:
        findings: the findings of the report.
        contrast: the contrast.
        name: the first cells of each row.
        seed_values: by seed, cells that only the row of this seed has.
    """
    ends, terms = contrast.interval, contrast.terms
    parts, width = map(float, (terms.s, terms.u, terms.g)), len(next(iter(own.values())))
    yield *name, "mean", *[""] * width, float(contrast.delta), ends.low, ends.high, *parts
    for seed, delta in by_seed(findings, contrast).items():
        yield *name, seed, *own[seed], float(delta), *[""] * 5
