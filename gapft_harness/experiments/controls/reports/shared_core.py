"""What the controls with a shared core add to the report: budgets, and gold labels without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.contrasts import (
    by_seed,
    contrast_table,
)
from gapft_harness.experiments.controls.part import ControlPart
from gapft_harness.experiments.controls.steps import Step, gapft_and
from gapft_harness.recipe.conditions import conditions_of
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Section, Table
from gapft_harness.report.rendering.wording import percent, points, whole


@dataclass(frozen=True, slots=True)
class Cores:
    """The conditions with the core; without it GapFT and what is chosen by gold labels, if there.

    Attributes:
        steps: see ``SharedCore.steps``.
        without: GapFT, then gold-label selection, of one budget; None: the run lacks one.
    """

    steps: tuple[Step, ...]
    without: tuple[Step, Step] | None


class SharedCorePart(ControlPart):
    """Depths and gold labels beside the core (Table "Evidence Controls with a Shared Core")."""

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]) -> Any:
        """The steps, and GapFT and gold labels without the core."""
        steps = super().read(run_path, manifest, arms)
        if steps is None:
            return None
        there = {arm.condition for arm in arms}
        conditions = {n: of for n, of in conditions_of(manifest["recipe"]).items() if n in there}
        match gapft_and(conditions, "gold_labels"):
            case [gapft, gold, *_] if conditions[gapft.condition].n == conditions[gold.condition].n:
                return Cores(steps, (gapft, gold))
        return Cores(steps, None)

    def shown(self, found: Cores) -> tuple[Step, ...]:
        """The steps with the core."""
        return found.steps

    def sections(self, inputs: ReportInputs, findings: Findings, found: Any) -> Iterator[Section]:
        """The table with the source's row, the budgets, and gold labels without the core."""
        for section in super().sections(inputs, findings, found):
            blocks = [*section.blocks[:-1], contrast_table(findings, found.steps, source=True)]
            blocks.append(_budgets(findings, found.steps, findings.pool_states["G"]))
            if pairs := _pairs(found):
                blocks.append(_gold(findings, pairs))
            yield replace(section, blocks=blocks)

    def compared(self, found: Cores) -> Sequence[Step]:
        """The depths, where there are several."""
        depths = [step for step in found.steps if step.value is not None]
        return depths if len(depths) > 1 else found.steps

    def remark(self, findings: Findings, found: Cores) -> str:
        """Gold labels against the search whose targets they have, and what all have in common."""
        said = ""
        *_, last = found.steps
        deepest = _deepest(found.steps)
        if last.value is None and deepest is not None and deepest is not found.steps[0]:
            contrast = findings.contrast(last.condition, deepest.condition)
            said = (
                f" {last.label} minus {deepest.label} is {points(contrast.delta)} points "
                f"{wording.points_interval(contrast.interval)}."
            )
        return f"{said} Every condition holds each of the pool's solved problems once, the core."

    def results(self, found: Cores) -> dict[str, Any]:
        """The steps, and which conditions are compared without the core."""
        return {**super().results(found), "without": [of.condition for of in found.without or ()]}

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Any
    ) -> Iterator[tuple[str, Rows]]:
        """The steps, and gold labels minus GapFT without and with the core."""
        yield from super().tables(inputs, findings, found)
        if pairs := _pairs(found):
            yield f"{self.name}_gold.csv", _gold_rows(findings, pairs)


def _deepest(steps: Sequence[Step]) -> Step | None:
    return next((step for step in reversed(steps) if step.value is not None), None)


def _pairs(found: Cores) -> list[tuple[str, Step, Step]]:
    """GapFT and gold labels, without the core and with it; empty unless the run has all four."""
    gold, search = found.steps[-1], _deepest(found.steps)
    if not found.without or gold.value is not None or search is None:
        return []
    return [("without the core", *found.without), ("with the core", search, gold)]


def _each(findings: Findings, step: Step, key: str) -> list[int]:
    """A number of a condition's budget under each seed."""
    return [getattr(of.budget, key) for of in findings.conditions[step.condition].seeds.values()]


def _budgets(findings: Findings, steps: Sequence[Step], core: int) -> Table:
    """What each condition processes, and how far that is from the deepest search (Table 5).

    Args:
        findings: of the report.
        steps: with the core.
        core: how many solved problems it has.
    """
    target = _deepest(steps) or steps[0]
    of_target = _each(findings, target, "tokens")
    rows = []
    for step in steps:
        of = _each(findings, step, "tokens")
        off = max((Fraction(a - b, b) for a, b in zip(of, of_target, strict=True)), key=abs)
        beside = [
            f"{wording.span(counts)} {state}"
            for state in "SUG"
            if any(counts := [of[state] - core * (state == "G") for of in step.slots.values()])
        ]
        numbers = [_each(findings, step, key) for key in ("n", "exposures", "steps")]
        rows.append(
            [
                step.label,
                ", ".join(beside),
                *(wording.span(each) for each in numbers),
                wording.span(of),
                "target" if step is target else f"{points(off, 2)}%",
                wording.span(_each(findings, step, "supervised_tokens")),
            ]
        )
    note = (
        f"Beside the core of {whole(core)}: examples of recovered failures (S), missed ones (U) "
        "and repeated solved problems (G); where seeds differ, from the least to the most. Off: "
        f"processed tokens L against {target.label}, under the seed where they differ most. "
        "Repeats are chosen so that depths process as many; gold labels have the supervised tokens "
        "of the deepest, and prompts of their own."
    )
    columns = ["", "beside the core", "n", "N", "J", "processed L", "off", "supervised"]
    return Table(columns, rows, note=note)


def _gold(findings: Findings, pairs: Sequence[tuple[str, Step, Step]]) -> Table:
    """Gold labels minus GapFT, without and with the core (the paper's ReClor diagnostic)."""
    rows = []
    for label, search, gold in pairs:
        contrast = findings.contrast(gold.condition, search.condition)
        rates = (findings.conditions[step.condition].mean for step in (search, gold))
        terms = contrast.terms
        rows.append(
            [
                label,
                *(wording.span(_each(findings, search, key)) for key in ("n", "steps")),
                *(percent(of.pass_at_1) for of in rates),
                points(contrast.delta),
                wording.points_interval(contrast.interval),
                *(points(term) for term in (terms.g, terms.s, terms.u)),
            ]
        )
    note = (
        "Gold labels minus GapFT, each pair at its own n and J; G, S and U are the parts of the "
        "difference that arise on these states of the audit. With the core come more updates, so "
        "this does not tell the core from them."
    )
    columns = ["", "n", "J", "GapFT", "gold", "difference", "95% interval", "G", "S", "U"]
    return Table(columns, rows, note=note)


def _gold_rows(findings: Findings, pairs: Sequence[tuple[str, Step, Step]]) -> Rows:
    yield (
        "group", "search", "gold", "seed", "n", "steps", "delta", "ci95_low", "ci95_high", "S",
        "U", "G",
    )  # fmt: skip
    for label, search, gold in pairs:
        contrast = findings.contrast(gold.condition, search.condition)
        ends, terms = contrast.interval, contrast.terms
        name = label.split()[0], search.condition, gold.condition
        n, steps = (_each(findings, search, key) for key in ("n", "steps"))
        yield (
            *name, "mean", "", "", float(contrast.delta), ends.low, ends.high, float(terms.s),
            float(terms.u), float(terms.g),
        )  # fmt: skip
        for place, (seed, delta) in enumerate(by_seed(findings, contrast).items()):
            yield *name, seed, n[place], steps[place], float(delta), "", "", "", "", ""
