"""Answer redistribution: test whether answer frequencies alone would correct as much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.redistribution import Redistributed, redistribute
from gapft_harness.api import (
    condition_name,
    listed,
    palette,
    percent,
    points,
    style,
    wording,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class RedistributionSettings(api.OfAdapters):
    """The settings ``experiments.redistribution``; the default is that of the paper."""

    permutations: int = Field(10_000, ge=1, description="permutations of the answers")


class RedistributionExperiment(api.Experiment):
    """Tests whether corrections depend on their problems or only on answer frequencies."""

    name = "redistribution"
    section = RedistributionSettings

    def part(self) -> RedistributionPart:
        """Return the part of the report."""
        return RedistributionPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the settings ask for scaled adapters, and the run has none.
        """
        found: RedistributionSettings | None = super().settings(recipe, options)
        if found is not None:
            found.require_scales(recipe, self.name)
        return found

    def faults(self, view: api.View) -> Iterator[str]:
        """Report why answers cannot be redistributed."""
        if view.has(audit := api.layout.responses("audit")):
            view.file(audit)
            yield from filter(
                None, [api.answers_or_why(view.run.path, view.manifest()["task"], ())[1]]
            )


@dataclass(frozen=True, slots=True)
class RedistributionFindings:
    """Observed rates of correction, and the rates after redistribution (null rates).

    Attributes:
        permutations: B, the number of permutations.
        adapters: ``trained`` or ``scaled``.
        conditions: by name, the rates in S and U, without empty states; empty: there are no rates.
        reason: the reason why there are no rates; empty: there are.
    """

    permutations: int
    adapters: str
    conditions: Mapping[str, Mapping[api.State, Redistributed]]
    why: str = ""

    @property
    def rates(self) -> api.Frame[Rate]:
        """The table of rates, one row for each condition and state."""
        states = self.conditions.items()
        return api.Frame(RATES, [(name, *row) for name, of in states for row in of.items()])


#: A condition's name, a state, and the rates in it.
Rate = tuple[str, "api.State", Redistributed]


def _few(row: Rate) -> bool:
    return row[2].items < STABLE_ITEMS


RATES: tuple[api.Column[Rate], ...] = (
    api.Column("condition", "", lambda row: row[0], "condition", condition_name),
    api.Column("state", "", lambda row: row[1], "state"),
    api.Column("problems", "", lambda row: row[2].items),
    api.Column("fixed", "", lambda row: row[2].fixed),
    api.Column(
        "observed",
        "share of the state's problems that are right after training",
        lambda row: row[2].observed,
        "observed",
        percent,
        _few,
    ),
    api.Column(
        "null",
        "the same share after the answers are redistributed",
        lambda row: row[2].null,
        "null",
        percent,
        _few,
    ),
    api.Column("", "", lambda row: row[2].observed - row[2].null, "difference", points),
    api.Column("p", "", lambda row: row[2].p_value, "p", lambda p: wording.p_value(float(p))),
    api.Column(
        "",
        "problems whose answer is the same in every permutation",
        lambda row: f"{wording.whole(row[2].fixed)} of {wording.whole(row[2].items)}",
        "fixed",
    ),
)


class RedistributionPart(api.Part):
    """Answer redistribution."""

    name = "redistribution"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> tuple[api.Answers | None, str] | None:
        """Read the answers of the source and of every arm, or why they cannot be redistributed."""
        if not arms:
            return None
        tables = api.decided_tables(run_path, arms, self._settings(manifest["recipe"]).adapters)
        return api.answers_or_why(run_path, manifest["task"], tables)

    def compute(
        self, inputs: api.ReportInputs, read: tuple[api.Answers | None, str]
    ) -> RedistributionFindings:
        """Compute the rates of each condition."""
        answers, why = read
        settings = self._settings(inputs.recipe)
        permutations, adapters = settings.permutations, settings.adapters
        if answers is None:
            return RedistributionFindings(permutations, adapters, {}, why)
        stream = api.Stream(inputs.recipe["statistics"]["seed"], "report/redistribution")
        conditions = {
            name: redistribute(
                api.stacked(answers.arms, name),
                answers.golds,
                answers.source,
                inputs.audit.states,
                item_ids=inputs.audit.ids,
                permutations=permutations,
                stream=stream,
            )
            for name in inputs.conditions
        }
        return RedistributionFindings(permutations, adapters, conditions)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: RedistributionFindings
    ) -> Iterator[api.Section]:
        """Return the section: result, figure and rates, or why there are no rates."""
        if found.why:
            yield api.Section("Answer redistribution", [api.Text(f"No rates: {found.why}.")])
            return
        said, table = _result(findings.lead, found), found.rates.table(_note(found))
        yield api.Section("Answer redistribution", [api.Text(said), _figure(found), table])

    def figures(self, findings: api.ReportFindings, found: RedistributionFindings) -> api.Figures:
        """Return the figure of observed and null rates."""
        if not found.why:
            yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: RedistributionFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of all rates, not rounded."""
        yield "redistribution.csv", found.rates.csv()

    def results(self, found: RedistributionFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        conditions: dict[str, dict[str, Any]] = {name: {} for name in found.conditions}
        for rate in found.rates.entries():
            conditions[rate.pop("condition")][rate.pop("state")] = rate
        return {
            "adapters": found.adapters,
            "permutations": found.permutations,
            "no_rates": found.why or None,
            "conditions": conditions,
        }

    def _settings(self, recipe: Mapping[str, Any]) -> RedistributionSettings:
        return RedistributionSettings.model_validate(recipe["experiments"][self.name] or {})


def _result(lead: str, found: RedistributionFindings) -> str:
    states = found.conditions[lead]
    if not states:
        return "The source solves every audit problem, so there are no corrections."
    shown = [
        f"{percent(of.observed)} of {state}, where redistributed answers would correct "
        f"{percent(of.null)} ({wording.p_said(float(of.p_value))})"
        for state, of in states.items()
    ]
    scaled = f" {api.SCALED}" if found.adapters == "scaled" else ""
    return f"{condition_name(lead)} corrects {listed(shown)}.{scaled}"


def _figure(found: RedistributionFindings) -> api.Figure:
    shown = (
        f"{condition_name(name)}, {state}: {percent(of.observed)} against {percent(of.null)}"
        for name, state, of in found.rates.rows
    )
    return api.Figure(
        "redistribution",
        f"Observed rates of correction against those of redistributed answers: {'; '.join(shown)}.",
        "Filled: the share that each condition corrects, mean over seeds. Hollow: the share that "
        "its own answers correct after redistribution. Numbers on the right: both, in this order.",
    )


def _note(found: RedistributionFindings) -> str:
    note = (
        "Observed: share of the state's problems that are right after training, κ_S or κ_U, mean "
        "over seeds. Null: the expected share if the answers given after training are permuted "
        "among problems with the same state and the same answer of the source, which keeps the "
        "frequency of each answer. Difference in percentage points. p: one-sided, from "
        f"{wording.whole(found.permutations)} permutations, each applied to all seeds. Fixed: "
        "problems whose answer is the same in every permutation, because all answers in their "
        "stratum are equal; with many of them, the null rate is close to the observed one in any "
        "case."
    )
    few = sorted({f"{row[1]} ({row[2].items})" for row in found.rates.rows if _few(row)})
    if few:
        note += f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} problems: {listed(few)}."
    return note


_STATES = {"S": "Of S, recovered by search, corrected", "U": "Of U, missed by search, corrected"}


def _draw(findings: api.ReportFindings, found: RedistributionFindings) -> Figure:
    """Draw a panel for S and one for U; a row for each condition joins both rates."""
    names = list(findings.distinct)
    figure, panels = style.panels(0.5 * len(names) + 2.2, sharex=True)
    for axes, (state, title) in zip(panels, _STATES.items(), strict=True):
        for y, name in enumerate(names):
            of = found.conditions[name].get(state)  # type: ignore[call-overload]
            if of is not None:
                _draw_row(axes, y, 100 * float(of.null), 100 * float(of.observed))
        style.name_rows(axes, [condition_name(name) for name in names])
        axes.set_xlim(-2, 102)
        axes.set_title(title, x=0)
    panels[-1].set_xlabel("share of the state's problems, %")
    style.legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0][:2])
    return figure


def _draw_row(axes: Axes, y: int, null: float, observed: float) -> None:
    axes.plot([null, observed], [y, y], color=palette.RIGHT_PALE, linewidth=2.2)
    axes.plot(
        null, y, "o", markersize=5.5, markeredgecolor=palette.MUTED, markeredgewidth=1.3,
        markerfacecolor=palette.PAPER, linestyle="", label="answers redistributed",
    )  # fmt: skip
    axes.plot(
        observed, y, "o", markersize=6, color=palette.RIGHT, linestyle="", label="observed"
    )  # fmt: skip
    style.beside(axes, y, f"{observed:.1f} / {null:.1f}")


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("redistribution", RedistributionExperiment)
