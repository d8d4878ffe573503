"""The scope matrix: decompose the change of fixed models at several budgets of one search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.redistribution import compute_null_rates
from gapft_harness.analysis.stability import ScopeRow, compute_scope_row
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


class ScopeSettings(api.OfAdapters):
    """The settings ``experiments.scope``; the defaults are those of the paper."""

    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4, 8), min_length=1, description="search budgets K: the first K samples of the search"
    )

    def list_windows(self) -> list[api.Window]:
        """List the windows, one for each K, ascending; all start with the first sample."""
        return [api.Window(0, k) for k in sorted({*self.k})]


class ScopeExperiment(api.Experiment):
    """Decomposes the change of every condition at several search budgets, from one search."""

    name = "scope"
    section = ScopeSettings

    def part(self) -> ScopePart:
        """Return the part of the report."""
        return ScopePart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the settings ask for scaled adapters, and the run has none, or for more
                samples than the search draws.
        """
        settings: ScopeSettings | None = super().settings(recipe, options)
        if settings is None:
            return None
        settings.require_scales(recipe, self.name)
        if max(settings.k) > recipe.search.k:
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}.k': needs {max(settings.k)} "
                f"samples of each problem, but search.k is {recipe.search.k}; lower k, or raise "
                f"search.k to {max(settings.k)} or more"
            )
        return settings

    def steps(self, view: api.View) -> Iterator[Sequence[api.Step]]:
        """Compute the states of the audit by the first K samples."""
        yield [view.states(window) for window in self.settings(view.recipe).list_windows()]

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Describe the tables of states."""
        windows = ", ".join(window.range_text for window in self.settings(recipe).list_windows())
        return api.Cost({f"states by samples {windows} of the audit": "audit/states"})


def _read_settings(recipe: Mapping[str, Any]) -> ScopeSettings:
    return ScopeSettings.model_validate(recipe["experiments"]["scope"] or {})


@dataclass(frozen=True, slots=True)
class ScopeRead:
    """The inputs of the matrix.

    Attributes:
        decisions: by arm, shape (P,), whether its response to each audit problem passed.
        answers: the answers of the source and the arms; None: they cannot be redistributed.
        reason: the reason why not; empty: they can.
    """

    decisions: Mapping[api.Arm, NDArray[np.bool_]]
    answers: api.Answers | None
    reason: str


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """A condition at one K.

    Attributes:
        condition: its name.
        row: its decomposition.
        null: by state, the rate after redistribution of answers; empty: not computed.
    """

    condition: str
    row: ScopeRow
    null: Mapping[api.State, Fraction]


@dataclass(frozen=True, slots=True)
class ScopeFindings:
    """The scope matrix.

    Attributes:
        lines: ordered by condition, then K.
        reason: the reason why there are no null rates; empty: there are.
        adapters: ``trained`` or ``scaled``.
    """

    lines: tuple[ScopeLine, ...]
    reason: str
    adapters: str


def _build_rate_column(
    key: str, title: str, state: api.State, value: Callable[[ScopeLine], object], meaning: str = ""
) -> api.Column[ScopeLine]:
    """Build the column of a rate in a state; states with few problems are marked."""
    return api.Column(key, meaning, value, title, percent, lambda line: state in line.row.unstable)


_NULL_MEANING = "κ_S and κ_U after redistribution of answers"
COLUMNS: tuple[api.Column[ScopeLine], ...] = (
    api.Column("condition", "", lambda line: line.condition, "condition", condition_name),
    api.Column("K", "", lambda line: line.row.k, "K"),
    api.Column(
        "states",
        "audit problems in each state by the first K samples",
        lambda line: dict(zip("GSU", line.row.sizes, strict=True)),
        "G / S / U",
        lambda sizes: " / ".join(map(wording.format_count, sizes.values())),
        names="GSU",
    ),
    api.Column(
        "p_S",
        "share of audit problems that the first K samples recover",
        lambda line: line.row.p_s,
        "p_S",
        percent,
    ),
    _build_rate_column("kappa_S", "κ_S", "S", lambda line: line.row.mean.kappa_s),
    _build_rate_column("kappa_U", "κ_U", "U", lambda line: line.row.mean.kappa_u),
    _build_rate_column("rho_G", "ρ_G", "G", lambda line: line.row.mean.rho_g),
    api.Column(
        "net_gain",
        "Pass@1 minus the source's",
        lambda line: line.row.net_gain,
        "net gain",
        partial(points, digits=2),
    ),
    _build_rate_column("null_S", "null S", "S", lambda line: line.null.get("S"), _NULL_MEANING),
    _build_rate_column("null_U", "null U", "U", lambda line: line.null.get("U"), _NULL_MEANING),
    api.Column("unstable", "", lambda line: tuple(line.row.unstable)),
)


class ScopePart(api.Part):
    """The part of the report on the scope matrix."""

    name = "scope"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> ScopeRead:
        """Read the verdicts of the trained models, and answers if the task has them."""
        adapters = _read_settings(manifest["recipe"]).adapters
        tables = api.decided_tables(run_path, arms, adapters)
        answers = api.answers_or_why(run_path, manifest["task"], tables)
        return ScopeRead(api.read_decided(run_path, arms, adapters), *answers)

    def compute(self, inputs: api.ReportInputs, read: ScopeRead) -> ScopeFindings:
        """Compute a line for each condition and K."""
        settings, answers, lines = _read_settings(inputs.recipe), read.answers, []
        audit = inputs.audit.verdicts
        states_by_k = {
            window.k: audit.select_samples(window.offset, window.k).states
            for window in settings.list_windows()
        }
        for name in inputs.conditions:
            passed = api.stacked(read.decisions, name)
            for k, states in states_by_k.items():
                null: dict[api.State, Fraction] = {}
                if answers is not None:
                    arm_answers = api.stacked(answers.arms, name)
                    null = compute_null_rates(arm_answers, answers.golds, answers.source, states)
                lines.append(ScopeLine(name, compute_scope_row(k, states, passed), null))
        return ScopeFindings(tuple(lines), read.reason, settings.adapters)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: ScopeFindings
    ) -> Iterator[api.Section]:
        """Return the section: result, figure and matrix."""
        matrix = api.Frame(COLUMNS, part_findings.lines).table(_write_note(part_findings))
        yield api.Section(
            "Scope matrix",
            [api.Text(_describe_result(part_findings)), _build_figure(part_findings), matrix],
        )

    def figures(self, findings: api.ReportFindings, part_findings: ScopeFindings) -> api.Figures:
        """Return the figure of states and rates at every K."""
        yield self.name, partial(_draw_figure, part_findings=part_findings)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: ScopeFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of the matrix, not rounded."""
        yield "scope.csv", api.Frame(COLUMNS, part_findings.lines).csv()

    def results(self, part_findings: ScopeFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        lines = api.Frame(COLUMNS, part_findings.lines).entries()
        return {
            "adapters": part_findings.adapters,
            "lines": lines,
            "no_null_rates": part_findings.reason or None,
        }


def _describe_result(part_findings: ScopeFindings) -> str:
    shares = {line.row.k: line.row.p_s for line in part_findings.lines}
    return (
        f"Search recovers {listed([f'{percent(share)} at K = {k}' for k, share in shares.items()])}"
        " of the audit, all from one search. A larger K moves problems from U to S. The trained "
        "models are the same at every K, and so are Pass@1 and the regression on G."
        f"{f' {api.SCALED}' if part_findings.adapters == 'scaled' else ''}"
    )


def _write_note(part_findings: ScopeFindings) -> str:
    note = (
        "K: the first K samples of the search. p_S: share of the audit that they recover. κ_S, κ_U "
        "and ρ_G: means over seeds. Net gain: Pass@1 minus the source's, in percentage points. "
        "Null S and null U: the expected rates if the answers given after training are permuted "
        "among problems with the same state and the same answer of the source."
    )
    unstable_states = sorted(
        {(line.row.k, state) for line in part_findings.lines for state in line.row.unstable}
    )
    if unstable_states:
        state_texts = listed([f"{state} at K = {k}" for k, state in unstable_states])
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems "
            f"({state_texts})."
        )
    return f"{note} No null rates: {part_findings.reason}." if part_findings.reason else note


def _build_figure(part_findings: ScopeFindings) -> api.Figure:
    sizes = {line.row.k: line.row.sizes for line in part_findings.lines}
    states = (
        f"K = {k}: {' / '.join(map(wording.format_count, counts))}" for k, counts in sizes.items()
    )
    rates = (
        f"{condition_name(line.condition)} at K = {line.row.k}: κ_S "
        f"{percent(line.row.mean.kappa_s)}, κ_U {percent(line.row.mean.kappa_u)}"
        for line in part_findings.lines
    )
    return api.Figure(
        "scope",
        f"Audit problems in G / S / U: {'; '.join(states)}. Corrected: {'; '.join(rates)}.",
        "Above: the audit's problems by state at each K. Below: the shares of S and of U that each "
        "condition corrects, mean over seeds.",
    )


#: Fill and text colours of the states, from left to right.
_STATE_COLOURS = {
    "G": (palette.RIGHT_PALE, palette.INK),
    "S": (palette.RIGHT, palette.PAPER),
    "U": (palette.WRONG_PALE, palette.INK),
}


def _draw_figure(findings: api.ReportFindings, part_findings: ScopeFindings) -> Figure:
    """Draw G, S and U at each K above; each condition's rates of correction below."""
    sizes = {line.row.k: line.row.sizes for line in part_findings.lines}
    heights = [0.34 * len(sizes) + 1.1, 0.9 * len(sizes) + 1.2]
    figure, (upper, lower) = style.panels(sum(heights), height_ratios=heights)
    _draw_sizes(upper, sizes)
    rates = {(line.condition, line.row.k): line.row.mean for line in part_findings.lines}
    style.condition_rows(
        lower,
        list(findings.conditions),
        {
            rf"$\kappa_{state}$, K = {k}": {
                name: [rates[name, k].kappa_s if state == "S" else rates[name, k].kappa_u]
                for name in findings.distinct
            }
            for state in "SU"
            for k in sizes
        },
    )
    lower.set_xlabel("rate of correction within the state, %")
    lower.set_title("Corrected of S and of U", x=0)
    style.legend_below(lower, lower.get_legend_handles_labels()[0])
    return figure


def _draw_sizes(axes: Axes, sizes: Mapping[int, tuple[int, int, int]]) -> None:
    from matplotlib.patches import Patch

    for y, counts in enumerate(sizes.values()):
        left = 0.0
        for count, (colour, ink) in zip(counts, _STATE_COLOURS.values(), strict=True):
            share = 100 * count / sum(counts)
            axes.barh(y, share, left=left, color=colour, height=0.62)
            if share > 7:
                axes.annotate(
                    wording.format_count(count), (left + share / 2, y), ha="center", va="center",
                    fontsize=8.5, color=ink,
                )  # fmt: skip
            left += share
    axes.set_yticks(range(len(sizes)), [f"K = {k}" for k in sizes])
    axes.set_ylim(len(sizes) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of the audit, %")
    axes.set_title("Audit problems by state", x=0)
    named_states = zip(_STATE_COLOURS.items(), wording.STATE_NAMES.values(), strict=True)
    style.legend_below(
        axes,
        [
            Patch(color=colours[0], label=f"{s}  {name.split()[0]}")
            for (s, colours), name in named_states
        ],
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("scope", ScopeExperiment)
