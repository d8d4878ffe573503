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
from gapft_harness.analysis.redistribution import Redistribution, redistribute
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
        settings: RedistributionSettings | None = super().settings(recipe, options)
        if settings is not None:
            settings.require_scales(recipe, self.name)
        return settings

    def faults(self, view: api.View) -> Iterator[str]:
        """Report why answers cannot be redistributed."""
        if view.has(audit := api.layout.responses_path("audit")):
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
    conditions: Mapping[str, Mapping[api.State, Redistribution]]
    reason: str = ""

    @property
    def rate_frame(self) -> api.Frame[Rate]:
        """The table of rates, one row for each condition and state."""
        states = self.conditions.items()
        return api.Frame(
            RATES,
            [(name, *row) for name, rates_by_state in states for row in rates_by_state.items()],
        )


#: A condition's name, a state, and the rates in it.
Rate = tuple[str, "api.State", Redistribution]


def _is_small(row: Rate) -> bool:
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
        _is_small,
    ),
    api.Column(
        "null",
        "the same share after the answers are redistributed",
        lambda row: row[2].null,
        "null",
        percent,
        _is_small,
    ),
    api.Column("", "", lambda row: row[2].observed - row[2].null, "difference", points),
    api.Column(
        "p", "", lambda row: row[2].p_value, "p", lambda p: wording.format_p_value(float(p))
    ),
    api.Column(
        "",
        "problems whose answer is the same in every permutation",
        lambda row: f"{wording.format_count(row[2].fixed)} of {wording.format_count(row[2].items)}",
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
        tables = api.decided_tables(
            run_path, arms, self._read_settings(manifest["recipe"]).adapters
        )
        return api.answers_or_why(run_path, manifest["task"], tables)

    def compute(
        self, inputs: api.ReportInputs, read: tuple[api.Answers | None, str]
    ) -> RedistributionFindings:
        """Compute the rates of each condition."""
        answers, reason = read
        settings = self._read_settings(inputs.recipe)
        permutations, adapters = settings.permutations, settings.adapters
        if answers is None:
            return RedistributionFindings(permutations, adapters, {}, reason)
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
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: RedistributionFindings,
    ) -> Iterator[api.Section]:
        """Return the section: result, figure and rates, or why there are no rates."""
        if part_findings.reason:
            yield api.Section(
                "Answer redistribution", [api.Text(f"No rates: {part_findings.reason}.")]
            )
            return
        text, table = (
            _describe_result(findings.lead, part_findings),
            part_findings.rate_frame.table(_write_note(part_findings)),
        )
        yield api.Section(
            "Answer redistribution", [api.Text(text), _build_figure(part_findings), table]
        )

    def figures(
        self, findings: api.ReportFindings, part_findings: RedistributionFindings
    ) -> api.Figures:
        """Return the figure of observed and null rates."""
        if not part_findings.reason:
            yield self.name, partial(_draw_figure, part_findings=part_findings)

    def tables(
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: RedistributionFindings,
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of all rates, not rounded."""
        yield "redistribution.csv", part_findings.rate_frame.csv()

    def results(self, part_findings: RedistributionFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        conditions: dict[str, dict[str, Any]] = {name: {} for name in part_findings.conditions}
        for rate in part_findings.rate_frame.entries():
            conditions[rate.pop("condition")][rate.pop("state")] = rate
        return {
            "adapters": part_findings.adapters,
            "permutations": part_findings.permutations,
            "no_rates": part_findings.reason or None,
            "conditions": conditions,
        }

    def _read_settings(self, recipe: Mapping[str, Any]) -> RedistributionSettings:
        return RedistributionSettings.model_validate(recipe["experiments"][self.name] or {})


def _describe_result(lead: str, part_findings: RedistributionFindings) -> str:
    states = part_findings.conditions[lead]
    if not states:
        return "The source solves every audit problem, so there are no corrections."
    rate_texts = [
        f"{percent(rate.observed)} of {state}, where redistributed answers would correct "
        f"{percent(rate.null)} ({wording.describe_p_value(float(rate.p_value))})"
        for state, rate in states.items()
    ]
    scaled = f" {api.SCALED}" if part_findings.adapters == "scaled" else ""
    return f"{condition_name(lead)} corrects {listed(rate_texts)}.{scaled}"


def _build_figure(part_findings: RedistributionFindings) -> api.Figure:
    rate_texts = (
        f"{condition_name(name)}, {state}: {percent(rate.observed)} against {percent(rate.null)}"
        for name, state, rate in part_findings.rate_frame.rows
    )
    return api.Figure(
        "redistribution",
        "Observed rates of correction against those of redistributed answers: "
        f"{'; '.join(rate_texts)}.",
        "Filled: the share that each condition corrects, mean over seeds. Hollow: the share that "
        "its own answers correct after redistribution. Numbers on the right: both, in this order.",
    )


def _write_note(part_findings: RedistributionFindings) -> str:
    note = (
        "Observed: share of the state's problems that are right after training, κ_S or κ_U, mean "
        "over seeds. Null: the expected share if the answers given after training are permuted "
        "among problems with the same state and the same answer of the source, which keeps the "
        "frequency of each answer. Difference in percentage points. p: one-sided, from "
        f"{wording.format_count(part_findings.permutations)} permutations, each applied to all "
        "seeds. Fixed: problems whose answer is the same in every permutation, because all answers "
        "in their stratum are equal; with many of them, the null rate is close to the observed one "
        "in any case."
    )
    small_states = sorted(
        {f"{row[1]} ({row[2].items})" for row in part_findings.rate_frame.rows if _is_small(row)}
    )
    if small_states:
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} problems: "
            f"{listed(small_states)}."
        )
    return note


_STATES = {"S": "Of S, recovered by search, corrected", "U": "Of U, missed by search, corrected"}


def _draw_figure(findings: api.ReportFindings, part_findings: RedistributionFindings) -> Figure:
    """Draw a panel for S and one for U; a row for each condition joins both rates."""
    names = list(findings.distinct)
    figure, panels = style.panels(0.5 * len(names) + 2.2, sharex=True)
    for axes, (state, title) in zip(panels, _STATES.items(), strict=True):
        for y, name in enumerate(names):
            rate = part_findings.conditions[name].get(state)  # type: ignore[call-overload]
            if rate is not None:
                _draw_row(axes, y, 100 * float(rate.null), 100 * float(rate.observed))
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
