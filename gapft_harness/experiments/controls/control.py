"""Controls: compare conditions that have one budget and different training sets."""

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
class ControlStep:
    """One condition of a control.

    Attributes:
        label: its label, such as ``K = 1``.
        condition: the name of the condition.
        value: the value of the setting that differs between the steps; None: no such setting.
        slots: by seed, the number of its examples by state (``G``, ``S``, ``U``) of their problems.
        kept: only for gold-label selection: by seed, the number of slots that keep the search's
            response as target instead of the gold answer, because it has more than the answer.
    """

    label: str
    condition: str
    value: float | None = None
    slots: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    kept: Mapping[int, int] = field(default_factory=dict)


def find_steps_by_parameter(
    conditions: Mapping[str, api.Condition],
    selector: str,
    parameter: str,
    label: Callable[[Any], str],
) -> list[ControlStep]:
    """Build a step for each condition of a selector, ascending by a parameter.

    Replicates are skipped, and so are values that are not numbers, which the selector reports.

    Args:
        conditions: the conditions of a recipe.
        selector: name of the selector.
        parameter: name of its parameter.
        label: a function that formats the parameter's value as a label.
    """
    values = {
        name: condition.params.get(parameter)
        for name, condition in conditions.items()
        if condition.selector == selector and not condition.replicate
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return [
        ControlStep(label(value), name, value)
        for name, value in sorted(numbers.items(), key=lambda item: item[1])
    ]


def find_steps_with_gapft(
    conditions: Mapping[str, api.Condition], selector: str
) -> list[ControlStep]:
    """Build a step for the first GapFT condition, and one for each condition of a selector.

    Replicates are skipped. Without GapFT there are no steps.
    """
    names_by_selector = {
        wanted_selector: [
            name
            for name, condition in conditions.items()
            if condition.selector == wanted_selector and not condition.replicate
        ]
        for wanted_selector in ("gapft", selector)
    }
    names = (
        [*names_by_selector["gapft"][:1], *names_by_selector[selector]]
        if names_by_selector["gapft"]
        else []
    )
    return [ControlStep(condition_name(name), name) for name in names]


class Control(api.Experiment, ABC):
    """An experiment that compares conditions, which it finds by their selectors.

    Attributes:
        requirement: the conditions that a recipe must have; follows "needs" in a message.
        title: the title of its section in the report.
        axis: the axis label of the setting that differs between the steps; empty: the steps have no
            order, and the figure shows the parts of every difference instead.
    """

    requirement: str = ""
    title: str = ""
    axis: str = ""

    @abstractmethod
    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the steps to compare, the reference first; at least two are needed."""

    def part(self) -> ControlPart:
        """Return the part of the report."""
        return ControlPart(self)

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has fewer than two of the conditions, or their n differs.
        """
        settings = super().settings(recipe, options)
        if settings is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        names = self.conditions(recipe)
        if len(names) < 2:
            found_names = ", ".join(names) or "none"
            raise api.UserError(f"{where} needs {self.requirement}; found: {found_names}")
        slots = {name: recipe.find_slots(name) for name in names}
        if len(set(slots.values())) > 1:
            slot_texts = ", ".join(f"{name} {n}" for name, n in slots.items())
            raise api.UserError(
                f"{where} expected the same n in all compared conditions, found {slot_texts}; set "
                "n to the same value in all of them, or in none"
            )
        api.require_same_settings(recipe, self.name, names)
        return settings

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the names of the conditions of all steps."""
        return [step.condition for step in self.find_steps(recipe.conditions)]

    def faults(self, view: api.View) -> Iterator[str]:
        """Report differences in training settings, and training sets that do not match."""
        if view.arms():
            yield from self.find_mismatches(view.run, view.arms())

    def find_mismatches(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Iterable[str]:
        """Report properties that training sets must have in common but do not."""
        return ()


def count_slots(
    run_path: Path, steps: Sequence[ControlStep], arms: Sequence[api.Arm]
) -> tuple[ControlStep, ...]:
    """Return the steps with the number of examples by state in their sealed training sets."""
    counted_steps = []
    for step in steps:
        slots = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if arm.condition == step.condition:
                states = api.read_columns(run_path / layout.selection_path(arm), ("state",))[
                    "state"
                ]
                slots[arm.seed] = {state: states.count(state) for state in "GSU"}
        counted_steps.append(replace(step, slots=slots))
    return tuple(counted_steps)


def compare_with_first(
    findings: api.ReportFindings, steps: Sequence[ControlStep]
) -> list[api.Contrast]:
    """Return the contrast of each later step minus the first step, the reference."""
    return [findings.find_contrast(step.condition, steps[0].condition) for step in steps[1:]]


def compute_seed_differences(
    findings: api.ReportFindings, contrast: api.Contrast
) -> dict[int, Fraction]:
    """Compute the difference in Pass@1 for each seed of a contrast."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    return {
        seed: seed_findings.decomposition.pass_at_1 - b[seed].decomposition.pass_at_1
        for seed, seed_findings in a.items()
    }


def describe_result(findings: api.ReportFindings, steps: Sequence[ControlStep]) -> str:
    """Describe the difference between the last step and the first."""
    contrast = compare_with_first(findings, steps)[-1]
    return (
        f"{wording.capitalize_first(steps[-1].label)} minus {steps[0].label}, at the same n, N and "
        f"J, is {points(contrast.delta)} points of Pass@1 {points_interval(contrast.estimate)}; "
        f"{wording.describe_resolution(contrast.estimate)}."
    )


def build_contrast_table(
    findings: api.ReportFindings, steps: Sequence[ControlStep], with_source: bool = False
) -> api.Table:
    """Build a table with a row for each step: difference from the first, Pass@1, slots.

    Args:
        findings: the findings of the report.
        steps: the steps, the reference first.
        with_source: whether to begin with a row for the model before training, and to omit the
            slots, which another table shows.
    """
    counts = (
        []
        if with_source
        else [slot_counts for step in steps for slot_counts in step.slots.values()]
    )
    filled_states = [state for state in "SUG" if any(slot_counts[state] for slot_counts in counts)]
    rows = [StepRow(findings, "no post-training")] if with_source else []
    for step, contrast in zip(steps, [None, *compare_with_first(findings, steps)], strict=True):
        rows.append(StepRow(findings, step.label, step, contrast))
    seeds = listed([str(seed) for seed in steps[0].slots])
    state_texts = {
        "S": "failures that search recovered",
        "U": "failures that search missed",
        "G": "solved problems",
    }
    note = (
        f"Difference from {steps[0].label} in percentage points, with its 95% interval; G, S and U "
        "are its parts on these states of the audit, which sum to it. Each seed: the difference "
        f"for the seeds {seeds}, in this order."
    )
    if filled_states:
        note += (
            " Slots: number of examples of the pool's "
            f"{listed([state_texts[state] for state in filled_states])}; if seeds differ, smallest "
            "to largest."
        )
    columns = [*DIFFERENCE, *PASS_AT_1, *(build_slot_column(state) for state in filled_states)]
    return api.Frame(columns, rows).table(note)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of a control's table.

    Attributes:
        findings: the findings of the report.
        label: the label of the row.
        step: the step; None: the source model.
        contrast: its contrast with the reference; None for the reference and the source.
    """

    findings: api.ReportFindings
    label: str
    step: ControlStep | None = None
    contrast: api.Contrast | None = None

    @property
    def pass_at_1(self) -> Fraction:
        """Pass@1 of the step's condition, or of the source."""
        if self.step is None:
            return self.findings.source.pass_at_1
        return self.findings.conditions[self.step.condition].mean.pass_at_1

    @property
    def seed_differences(self) -> str:
        """The difference for each seed, as text."""
        if self.contrast is None:
            return ""
        return " ".join(
            map(points, compute_seed_differences(self.findings, self.contrast).values())
        )


def _format_difference(row: StepRow) -> str:
    if row.contrast is None:
        return "ref." if row.step else ""
    return points(row.contrast.delta)


_PART_MEANING = "parts of the difference"
#: Columns of a difference: its interval, and its parts on the source's states.
PARTS: tuple[api.Column[api.Contrast], ...] = (
    api.Column("", "", lambda contrast: contrast.estimate, "95% interval", points_interval),
    api.Column("", _PART_MEANING, lambda contrast: contrast.terms.g, "G", points),
    api.Column("", _PART_MEANING, lambda contrast: contrast.terms.s, "S", points),
    api.Column("", _PART_MEANING, lambda contrast: contrast.terms.u, "U", points),
)
DIFFERENCE: tuple[api.Column[StepRow], ...] = (
    api.Column("", "", lambda row: row.label, ""),
    api.Column("", "", _format_difference, "difference"),
    *(column.map_rows(lambda row: row.contrast, missing="") for column in PARTS),
    api.Column("", "", lambda row: row.seed_differences, "each seed"),
)
PASS_AT_1: tuple[api.Column[StepRow], ...] = (
    api.Column("", "", lambda row: row.pass_at_1, "Pass@1", percent),
)


def build_slot_column(state: str) -> api.Column[StepRow]:
    """Build the column with the number of examples in a state, as a range over seeds."""

    def format_range(row: StepRow) -> str:
        counts = [count[state] for count in row.step.slots.values()] if row.step else []
        return wording.format_range(counts) if counts else ""

    return api.Column(
        "", "examples in this state, or beyond the shared core", format_range, f"slots {state}"
    )


#: Only for the reference in docs, which lists the columns in tuples.
SLOT_COLUMNS = (build_slot_column("STATE"),)


#: Labels of the rows below a difference: its parts on the source's states.
_PART_LABELS = {
    "g": "of it on G, solved",
    "s": "of it on S, recovered",
    "u": "of it on U, missed",
}


def draw_change_by_step(
    findings: api.ReportFindings, *, steps: Sequence[ControlStep], axis: str
) -> Drawn:
    """Draw Pass@1 of each step minus that of the first.

    A marker is filled if the interval excludes zero. A line joins the steps that have a value.

    Args:
        findings: the findings of the report.
        steps: the steps, the reference first.
        axis: the label of the axis.
    """
    figure, axes = style.panel(2.9)
    contrasts = compare_with_first(findings, steps)
    deltas = [0.0, *(100 * float(contrast.delta) for contrast in contrasts)]
    axes.axhline(0, color=palette.MUTED, linewidth=0.9)
    positions = [x for x, step in enumerate(steps) if step.value is not None]
    axes.plot(positions, [deltas[x] for x in positions], color=palette.RIGHT_PALE, linewidth=1.6)
    axes.plot(0, 0, "o", color=palette.MUTED, markersize=6)
    for x, contrast in enumerate(contrasts, start=1):
        ends = [100 * contrast.estimate.low, 100 * contrast.estimate.high]
        axes.plot([x, x], ends, color=palette.RIGHT, linewidth=1.6)
        fill_colour = palette.RIGHT if contrast.estimate.excludes_zero else palette.PAPER
        axes.plot(
            x, deltas[x], "o", markersize=6, markeredgecolor=palette.RIGHT, markeredgewidth=1.4,
            markerfacecolor=fill_colour,
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


def draw_parts_by_state(findings: api.ReportFindings, *, steps: Sequence[ControlStep]) -> Drawn:
    """Draw a panel for each later step: its difference from the first step, and the parts of it.

    The marker of the difference is filled if its interval excludes zero. Bars are the parts on G, S
    and U, which sum to the difference. Each row has a tick for every seed.
    """
    contrasts = compare_with_first(findings, steps)
    height = 0.27 * (len(_PART_LABELS) + 1) + 0.45
    count = len(contrasts)
    figure, panels = style.panels(height * count + 0.35, count, sharex=True)
    for axes, step, contrast in zip(panels, steps[1:], contrasts, strict=True):
        api.forest(axes, [("difference", contrast.estimate)])
        _draw_parts(axes, findings, contrast)
        axes.set_title(f"{step.label} minus {steps[0].label}", x=0)
    panels[-1].set_xlabel("points of Pass@1")
    return figure


def _draw_parts(axes: Axes, findings: api.ReportFindings, contrast: api.Contrast) -> None:
    """Draw the parts below the difference, which is in row 0; add ticks for each seed."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    seeds = [a[seed].decomposition.terms - b[seed].decomposition.terms for seed in a]
    _draw_ticks(axes, 0, [seed_terms.total for seed_terms in seeds])
    for y, term in enumerate(_PART_LABELS, start=1):
        part = getattr(contrast.terms, term)
        axes.barh(y, 100 * float(part), color=palette.RIGHT_PALE, height=0.55)
        style.beside(axes, y, points(part))
        _draw_ticks(axes, y, [getattr(seed_terms, term) for seed_terms in seeds])
    axes.set_yticks(range(len(_PART_LABELS) + 1), ["difference", *_PART_LABELS.values()])
    axes.set_ylim(len(_PART_LABELS) + 0.5, -0.6)


def _draw_ticks(axes: Axes, y: int, values: Sequence[Fraction]) -> None:
    axes.plot(
        [100 * float(value) for value in values], [y] * len(values), "|", color=palette.INK,
        markersize=9, markeredgewidth=0.9,
    )  # fmt: skip


class ControlPart(api.Part):
    """The part of a report about a control.

    ``read`` and ``compute`` return the steps, the reference first.
    """

    after = "Contrasts"

    def __init__(self, control: Control) -> None:
        self.control, self.name = control, control.name

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> tuple[ControlStep, ...] | None:
        """Read the steps, with the number of examples by state."""
        settings_by_name = manifest["recipe"].get("experiments", {})
        if self.name not in settings_by_name or not arms:
            return None
        return count_slots(
            run_path, self.control.find_steps(api.conditions_of(manifest["recipe"])), arms
        )

    def compute(self, inputs: api.ReportInputs, read: tuple[ControlStep, ...]) -> Any:
        """Return the steps; their contrasts are part of every report."""
        return read

    def list_steps(self, part_findings: Any) -> tuple[ControlStep, ...]:
        """Return the steps in the result of ``compute``."""
        steps: tuple[ControlStep, ...] = part_findings
        return steps

    def choose_compared_steps(self, part_findings: Any) -> Sequence[ControlStep]:
        """Return the steps for the section's first sentence, which compares the first and last."""
        return self.list_steps(part_findings)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, and a table with a row for each step."""
        steps = self.list_steps(part_findings)
        text = describe_result(
            findings, self.choose_compared_steps(part_findings)
        ) + self.write_remark(findings, part_findings)
        change_texts = (
            f"{step.label} {points(contrast.delta)} points"
            for step, contrast in zip(steps[1:], compare_with_first(findings, steps), strict=True)
        )
        description = f"Change of Pass@1 against {steps[0].label}: {'; '.join(change_texts)}."
        caption = (
            f"Pass@1 minus that of {steps[0].label}, with 95% intervals. Filled: the interval "
            "excludes zero."
        )
        if not self.control.axis:
            caption += " Bars: its parts on G, S and U, which sum to it. Ticks: seeds."
        blocks: list[api.Block] = [
            api.Text(text),
            api.Figure(self.name, description, caption),
            build_contrast_table(findings, steps),
        ]
        yield api.Section(self.control.title, blocks)

    def write_remark(self, findings: api.ReportFindings, part_findings: Any) -> str:
        """Return text to append to the result, with a leading space; empty by default."""
        return ""

    def figures(self, findings: api.ReportFindings, part_findings: Any) -> api.Figures:
        """Return the figure: changes by step, or without an axis the parts of each difference."""
        steps, axis = self.list_steps(part_findings), self.control.axis
        draw = partial(draw_change_by_step, axis=axis) if axis else draw_parts_by_state
        yield self.name, partial(draw, steps=steps)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table: for each later step, a row for the mean and a row for each seed."""
        yield f"{self.name}.csv", _build_csv_rows(findings, self.list_steps(part_findings))

    def results(self, part_findings: Any) -> dict[str, Any]:
        """Return the steps for ``results.json``, whose key ``contrasts`` has their contrasts."""
        return {
            "steps": [
                {
                    "condition": step.condition,
                    "value": step.value,
                    "slots": {
                        str(seed): dict(slot_counts) for seed, slot_counts in step.slots.items()
                    },
                    **({"kept": {str(s): n for s, n in step.kept.items()}} if step.kept else {}),
                }
                for step in self.list_steps(part_findings)
            ]
        }


def _build_csv_rows(findings: api.ReportFindings, steps: Sequence[ControlStep]) -> api.Rows:
    yield (
        "condition", "value", "against", "seed", "slots_G", "slots_S", "slots_U", "delta",
        "ci95_low", "ci95_high", "S", "U", "G",
    )  # fmt: skip
    for step, contrast in zip(steps[1:], compare_with_first(findings, steps), strict=True):
        slots = {
            seed: [slot_counts[state] for state in "GSU"]
            for seed, slot_counts in step.slots.items()
        }
        name = step.condition, step.value, contrast.b
        yield from build_contrast_rows(findings, contrast, name, slots)


def build_contrast_rows(
    findings: api.ReportFindings,
    contrast: api.Contrast,
    first_cells: tuple[object, ...],
    seed_values: Mapping[int, Sequence[object]],
) -> api.Rows:
    """Build the CSV rows of a contrast: the mean difference, then the difference for each seed.

    Args:
        findings: the findings of the report.
        contrast: the contrast.
        first_cells: the first cells of each row.
        seed_values: by seed, further cells of this seed's row; the row of the mean leaves them
            empty.
    """
    terms = contrast.terms
    parts, width = map(float, (terms.s, terms.u, terms.g)), len(next(iter(seed_values.values())))
    yield (
        *first_cells,
        "mean",
        *[""] * width,
        float(contrast.delta),
        contrast.estimate.low,
        contrast.estimate.high,
        *parts,
    )
    for seed, delta in compute_seed_differences(findings, contrast).items():
        yield *first_cells, seed, *seed_values[seed], float(delta), *[""] * 5
