"""Answer redistribution: would answer frequencies alone correct as much?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.redistribution import Redistributed, redistribute
from gapft_harness.core.records import Arm, State
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.figures.style import WIDTH, legend_below, rows_alone, spread
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.adapters import SCALED, stacked, tables
from gapft_harness.report.reading.answers import Answers, answers_or_why
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import palette, wording
from gapft_harness.report.rendering.blocks import Block, Figure, Section, Table, Text
from gapft_harness.report.rendering.wording import (
    UNSTABLE,
    condition_name,
    listed,
    p_said,
    p_value,
    percent,
    points,
    whole,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Experiment
from gapft_harness.stages.experiment.adapters import OfAdapters, decided_tables, require_scales
from gapft_harness.stages.integrity.differences import Differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


class RedistributionSettings(OfAdapters):
    """What a recipe says under ``experiments.redistribution``; the default is the paper's."""

    permutations: int = Field(10_000, ge=1, description="permutations of the answers")


class RedistributionExperiment(Experiment):
    """Whether corrections are tied to their problems, or answer frequencies would do."""

    name = "redistribution"
    section = RedistributionSettings

    def part(self) -> RedistributionPart:
        """Its section and table."""
        return RedistributionPart()

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """As of every experiment; scaled adapters of a run that scales none are refused."""
        found = super().settings(recipe, options)
        require_scales(recipe, self.name, found)
        return found

    def reads(self, context: Context) -> Iterator[str]:
        """The decisions of scaled adapters; those of the others every report reads."""
        return decided_tables(context, self.settings(context.run.recipe))

    def selected(self, context: Context) -> None:
        """Answers that cannot be redistributed are refused before anything is trained."""
        from gapft_harness.report.reading.answers import read_answers

        run = context.run
        run.sealed(layout.responses("audit"))
        read_answers(run.path, run.manifest()["task"], ())

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """Every greedy answer is the gold one exactly where its verdict passes.

        Where this fails for an arm, nothing is amiss: the report has no rates and says why.
        """
        adapters = self.settings(run.recipe).adapters
        files = manifest["files"]
        if adapters == "scaled":
            trained = [arm for arm in trained if layout.of_arm(layout.SCALED, arm) in files]
        there = found.attempt(layout.SCALED, partial(tables, run.path, trained, adapters))
        if there is None:
            return
        audited = {arm: table for arm, table in there.items() if table in files}
        why = found.attempt(layout.DECISIONS, partial(_why, run, manifest, audited))
        if why is not None:
            found.checked.append(
                f"{self.name}: "
                + (
                    f"no rates, as the report says: {why}"
                    if why
                    else f"the answers of the source and of {len(audited)} arms are right exactly "
                    "where they are the gold ones"
                )
            )


def _why(run: RunDirectory, manifest: Mapping[str, Any], arms: Mapping[Arm, str]) -> str:
    """Why answers of arms cannot be redistributed, or nothing; raises where the source's cannot."""
    from gapft_harness.report.reading.answers import answers_or_why, read_answers

    read_answers(run.path, manifest["task"], ())
    return answers_or_why(run.path, manifest["task"], arms)[1]


@dataclass(frozen=True, slots=True)
class RedistributionFindings:
    """Observed and null rates.

    Attributes:
        permutations: B.
        adapters: ``trained`` or ``scaled``.
        conditions: by name, S and U where they have problems; empty where there are no rates.
        why: then the reason.
    """

    permutations: int
    adapters: str
    conditions: Mapping[str, Mapping[State, Redistributed]]
    why: str = ""


class RedistributionPart(Part):
    """Answer redistribution."""

    name = "redistribution"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> tuple[Answers | None, str] | None:
        """The answers of the source and of every arm, or why they cannot be redistributed."""
        if not arms:
            return None
        given = manifest["recipe"]["experiments"][self.name] or {}
        adapters = RedistributionSettings.model_validate(given).adapters
        return answers_or_why(run_path, manifest["task"], tables(run_path, arms, adapters))

    def compute(
        self, inputs: ReportInputs, read: tuple[Answers | None, str]
    ) -> RedistributionFindings:
        """Each condition's rates."""
        answers, why = read
        given = inputs.recipe["experiments"][self.name] or {}
        settings = RedistributionSettings.model_validate(given)
        permutations, adapters = settings.permutations, settings.adapters
        if answers is None:
            return RedistributionFindings(permutations, adapters, {}, why)
        stream = Stream(inputs.recipe["statistics"]["seed"], "report/redistribution")
        return RedistributionFindings(
            permutations,
            adapters,
            {
                name: redistribute(
                    stacked(answers.arms, name),
                    answers.golds,
                    answers.source,
                    inputs.audit.states,
                    item_ids=inputs.audit.ids,
                    permutations=permutations,
                    stream=stream,
                )
                for name in inputs.conditions
            },
        )

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: RedistributionFindings
    ) -> Iterator[Section]:
        """A sentence and the rates, or why there are none."""
        shown: list[Block] = [Text(f"No rates: {found.why}.")]
        if not found.why:
            shown = [Text(_result(findings.lead, found)), _figure(found), _rates(found)]
        yield Section("Answer redistribution", shown)

    def figures(
        self, findings: Findings, found: RedistributionFindings
    ) -> Iterator[tuple[str, Callable[[Findings], Drawn]]]:
        """Observed against null rates."""
        if not found.why:
            yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: RedistributionFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every rate, unrounded."""
        yield "redistribution.csv", _rows(found)

    def results(self, found: RedistributionFindings) -> dict[str, Any]:
        """For results.json."""
        return {
            "adapters": found.adapters,
            "permutations": found.permutations,
            "no_rates": found.why or None,
            "conditions": {
                name: {
                    state: {
                        "problems": of.items,
                        "fixed": of.fixed,
                        "observed": float(of.observed),
                        "null": float(of.null),
                        "p": float(of.p_value),
                    }
                    for state, of in states.items()
                }
                for name, states in found.conditions.items()
            },
        }


def _rows(found: RedistributionFindings) -> Iterator[Sequence[object]]:
    """A line a condition and state; the first names the columns."""
    yield "condition", "state", "problems", "fixed", "observed", "null", "p"
    for name, states in found.conditions.items():
        for state, of in states.items():
            numbers = float(of.observed), float(of.null), float(of.p_value)
            yield name, state, of.items, of.fixed, *numbers


def _result(lead: str, found: RedistributionFindings) -> str:
    states = found.conditions[lead]
    if not states:
        return "The source solves every audit problem, so there is no correction to look at."
    shown = [
        f"{percent(of.observed)} of {state}, where redistributed answers would correct "
        f"{percent(of.null)} ({p_said(float(of.p_value))})"
        for state, of in states.items()
    ]
    scaled = f" {SCALED}" if found.adapters == "scaled" else ""
    return f"{condition_name(lead)} corrects {listed(shown)}.{scaled}"


def _figure(found: RedistributionFindings) -> Figure:
    shown = (
        f"{condition_name(name)}, {state}: {percent(of.observed)} against {percent(of.null)}"
        for name, states in found.conditions.items()
        for state, of in states.items()
    )
    return Figure(
        "redistribution",
        f"Observed rates of correction against those of redistributed answers: {'; '.join(shown)}.",
        "Filled: the share that each condition corrects, mean over seeds. Hollow: what its own "
        "answers would correct if they were dealt out anew. On the right both, in this order.",
    )


def _rates(found: RedistributionFindings) -> Table:
    lines, few = [], set()
    for name, states in found.conditions.items():
        for state, of in states.items():
            mark = UNSTABLE if of.items < STABLE_ITEMS else ""
            few |= {f"{state} ({of.items})"} if mark else set()
            lines.append(
                [
                    condition_name(name),
                    state,
                    percent(of.observed) + mark,
                    percent(of.null) + mark,
                    points(of.observed - of.null),
                    p_value(float(of.p_value)),
                    f"{whole(of.fixed)} of {whole(of.items)}",
                ]
            )
    note = (
        "Observed: share of the state's problems that are right after training, κ_S or κ_U, mean "
        "over seeds. Null: the same to be expected if the answers given after training were dealt "
        "out anew among problems of the same state and the same answer of the source, which keeps "
        "how often each answer is given. Difference in percentage points. p: one-sided, of "
        f"{whole(found.permutations)} permutations, the same one for all seeds. Fixed: problems "
        "that no permutation gives another answer, as none of their stratum has another; where "
        "they are many, the null rate is near the observed one whatever the truth."
    )
    if few:
        note += f" {UNSTABLE} Unstable: fewer than {STABLE_ITEMS} problems: {listed(sorted(few))}."
    columns = ["condition", "state", "observed", "null", "difference", "p", "fixed"]
    return Table(columns, lines, note=note)


_STATES = {"S": "Of S, recovered by search, corrected", "U": "Of U, missed by search, corrected"}


def _draw(findings: Findings, found: RedistributionFindings) -> Drawn:
    """Two panels, S and U: a row for each condition, from the null rate to the observed one."""
    from matplotlib.figure import Figure as Drawn

    names = list(findings.distinct)
    figure = Drawn(figsize=(WIDTH, 0.5 * len(names) + 2.2), layout="constrained")
    spread(figure)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, (state, title) in zip(panels, _STATES.items(), strict=True):
        for y, name in enumerate(names):
            of = found.conditions[name].get(state)  # type: ignore[call-overload]
            if of is not None:
                _draw_row(axes, y, 100 * float(of.null), 100 * float(of.observed))
        axes.set_yticks(range(len(names)), [wording.condition_name(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(-2, 102)
        rows_alone(axes)
        axes.set_title(title, x=0)
    panels[-1].set_xlabel("share of the state's problems, %")
    legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0][:2])
    return figure


def _draw_row(axes: Axes, y: int, null: float, observed: float) -> None:
    axes.plot([null, observed], [y, y], color=palette.RIGHT_PALE, linewidth=2.2)
    axes.plot(
        null, y, "o", markersize=5.5, markeredgecolor=palette.MUTED, markeredgewidth=1.3,
        markerfacecolor=palette.PAPER, linestyle="", label="answers dealt out anew",
    )  # fmt: skip
    axes.plot(
        observed, y, "o", markersize=6, color=palette.RIGHT, linestyle="", label="observed"
    )  # fmt: skip
    axes.annotate(
        f"{observed:.1f} / {null:.1f}",
        (1.02, y),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
    )


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the control."""
    register("redistribution", RedistributionExperiment)
