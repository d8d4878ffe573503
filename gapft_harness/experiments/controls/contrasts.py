"""What the steps of a control hold, and how each differs from the first (Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.reading.columns import columns
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.wording import percent, points
from gapft_harness.run_directory import layout


def count_slots(run_path: Path, steps: Sequence[Step], arms: Sequence[Arm]) -> tuple[Step, ...]:
    """The steps with what their sealed training sets hold."""
    found = []
    for step in steps:
        slots = {}
        for arm in sorted(arms, key=lambda arm: arm.seed):
            if arm.condition == step.condition:
                states = columns(run_path / layout.selection(arm), ("state",))["state"]
                slots[arm.seed] = {state: states.count(state) for state in "GSU"}
        found.append(replace(step, slots=slots))
    return tuple(found)


def against_first(findings: Findings, steps: Sequence[Step]) -> list[Contrast]:
    """Every later step minus the first, which is the reference."""
    return [findings.contrast(step.condition, steps[0].condition) for step in steps[1:]]


def by_seed(findings: Findings, contrast: Contrast) -> dict[int, Fraction]:
    """The difference of a contrast's Pass@1 under each seed."""
    a, b = (findings.conditions[name].seeds for name in (contrast.a, contrast.b))
    return {
        seed: of.decomposition.pass_at_1 - b[seed].decomposition.pass_at_1 for seed, of in a.items()
    }


def result(findings: Findings, steps: Sequence[Step]) -> str:
    """How the last step differs from the first."""
    contrast = against_first(findings, steps)[-1]
    return (
        f"{wording.capital(steps[-1].label)} minus {steps[0].label}, at the same n, N and J, is "
        f"{points(contrast.delta)} points of Pass@1 {wording.points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )


def contrast_table(findings: Findings, steps: Sequence[Step], source: bool = False) -> Table:
    """A row for each step: its difference from the first, its Pass@1, what fills its slots.

    Args:
        findings: of the report.
        steps: the conditions, the reference first.
        source: whether the model before training has a row too, the first; then another table
            says what fills the slots.
    """
    counts = [] if source else [of for step in steps for of in step.slots.values()]
    filled = [state for state in "SUG" if any(of[state] for of in counts)]
    rows = []
    if source:
        rows.append(["no post-training", *[""] * 6, percent(findings.source.pass_at_1)])
    for step, contrast in zip(steps, [None, *against_first(findings, steps)], strict=True):
        row = [step.label, *(_cells(findings, contrast) if contrast else ["ref.", *[""] * 5])]
        row.append(percent(findings.conditions[step.condition].mean.pass_at_1))
        row += [wording.span([of[state] for of in step.slots.values()]) for state in filled]
        rows.append(row)
    seeds = wording.listed([str(seed) for seed in steps[0].slots])
    said = {
        "S": "failures that search recovered",
        "U": "failures that search missed",
        "G": "solved problems",
    }
    note = (
        f"Difference from {steps[0].label} in percentage points, with its 95% interval; G, S and U "
        "are the parts that arise on these states of the audit, and sum to it. Each seed: the "
        f"difference under {seeds}, in this order."
    )
    if filled:
        note += (
            " Slots: how many examples are of the pool's "
            f"{wording.listed([said[state] for state in filled])}; where seeds differ, from the "
            "least to the most."
        )
    columns = [*_COLUMNS, "Pass@1", *(f"slots {state}" for state in filled)]
    return Table(columns, rows, note=note)


def twin_table(findings: Findings, twins: Sequence[tuple[Step, Contrast]]) -> Table:
    """A row for each selection: its difference from its random twin."""
    rows = [
        [f"{step.label} − {wording.condition_name(of.b)}", *_cells(findings, of)]
        for step, of in twins
    ]
    return Table(_COLUMNS, rows, note="Differences from the random twin; columns as above.")


_COLUMNS = ("", "difference", "95% interval", "G", "S", "U", "each seed")


def _cells(findings: Findings, contrast: Contrast) -> list[str]:
    """A contrast with its interval, its parts, and its value under each seed."""
    terms = contrast.terms
    return [
        points(contrast.delta),
        wording.points_interval(contrast.interval),
        *(points(term) for term in (terms.g, terms.s, terms.u)),
        " ".join(points(of) for of in by_seed(findings, contrast).values()),
    ]
