"""The scope matrix: fixed models' decomposition at several search budgets of one search."""

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
from gapft_harness.analysis.redistribution import null_rates
from gapft_harness.analysis.stability import ScopeRow, scope_row
from gapft_harness.api import (
    condition_name,
    layout,
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
    """What a recipe says under ``experiments.scope``; the defaults are the paper's."""

    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4, 8), min_length=1, description="search budgets K: the first K samples of the search"
    )

    def windows(self) -> list[api.Window]:
        """Nested windows, which begin with the first sample; each K once, ascending."""
        return [api.Window(0, k) for k in sorted({*self.k})]


class Scope(api.Experiment):
    """Every condition's decomposition at several search budgets, from one search."""

    name = "scope"
    section = ScopeSettings

    def part(self) -> ScopePart:
        """Its section, figure and table."""
        return ScopePart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: scaled adapters of a run that scales none, or more samples than are drawn.
        """
        found: ScopeSettings | None = super().settings(recipe, options)
        if found is None:
            return None
        found.require_scales(recipe, self.name)
        if max(found.k) > recipe.search.k:
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': needs {max(found.k)} "
                f"samples of each problem, and search.k is {recipe.search.k}; ask for fewer, or "
                f"raise search.k to {max(found.k)} or more"
            )
        return found

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """The audit's states by the first samples."""
        yield {
            layout.states("audit", (window.offset, window.k)): view.states(window)
            for window in self.settings(view.recipe).windows()
        }

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """The tables of states."""
        windows = ", ".join(window.shown for window in self.settings(recipe).windows())
        return api.Cost({f"states by samples {windows} of the audit": "audit/states"})


def _settings(recipe: Mapping[str, Any]) -> ScopeSettings:
    return ScopeSettings.model_validate(recipe["experiments"]["scope"] or {})


@dataclass(frozen=True, slots=True)
class ScopeRead:
    """What the matrix is made of; where the run has no answers to deal out anew, ``why``."""

    decided: Mapping[api.Arm, NDArray[np.bool_]]
    answers: api.Answers | None
    why: str


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """A condition at one K, with its redistribution null rates if any."""

    condition: str
    row: ScopeRow
    null: Mapping[api.State, Fraction]


@dataclass(frozen=True, slots=True)
class ScopeFindings:
    """The matrix; ``why`` there are no null rates is empty where there are."""

    lines: tuple[ScopeLine, ...]  # by condition, then K
    why: str
    adapters: str  # "trained" or "scaled"


def _rate(
    key: str, title: str, state: api.State, value: Callable[[ScopeLine], object], meaning: str = ""
) -> api.Column[ScopeLine]:
    """A rate within a state, which is marked where the state has few problems."""
    return api.Column(key, meaning, value, title, percent, lambda line: state in line.row.unstable)


_NULL = "κ_S and κ_U if answers were dealt out anew"
COLUMNS: tuple[api.Column[ScopeLine], ...] = (
    api.Column("condition", "", lambda line: line.condition, "condition", condition_name),
    api.Column("K", "", lambda line: line.row.k, "K"),
    api.Column(
        "states",
        "audit problems in each state by the first K samples",
        lambda line: dict(zip("GSU", line.row.sizes, strict=True)),
        "G / S / U",
        lambda sizes: " / ".join(map(wording.whole, sizes.values())),
        names="GSU",
    ),
    api.Column(
        "p_S",
        "share of audit problems that the first K samples recover",
        lambda line: line.row.p_s,
        "p_S",
        percent,
    ),
    _rate("kappa_S", "κ_S", "S", lambda line: line.row.mean.kappa_s),
    _rate("kappa_U", "κ_U", "U", lambda line: line.row.mean.kappa_u),
    _rate("rho_G", "ρ_G", "G", lambda line: line.row.mean.rho_g),
    api.Column(
        "net_gain",
        "Pass@1 minus the source's",
        lambda line: line.row.net_gain,
        "net gain",
        partial(points, digits=2),
    ),
    _rate("null_S", "null S", "S", lambda line: line.null.get("S"), _NULL),
    _rate("null_U", "null U", "U", lambda line: line.null.get("U"), _NULL),
    api.Column("unstable", "", lambda line: tuple(line.row.unstable)),
)


class ScopePart(api.Part):
    """The scope matrix."""

    name = "scope"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> ScopeRead:
        """What the trained models decided, and answers where there are any."""
        adapters = _settings(manifest["recipe"]).adapters
        given = api.decided_tables(run_path, arms, adapters)
        answers = api.answers_or_why(run_path, manifest["task"], given)
        return ScopeRead(api.read_decided(run_path, arms, adapters), *answers)

    def compute(self, inputs: api.ReportInputs, read: ScopeRead) -> ScopeFindings:
        """A line for each condition and K."""
        settings, answers, lines = _settings(inputs.recipe), read.answers, []
        audit = inputs.audit.verdicts
        by_k = {of.k: audit.window(of.offset, of.k).states for of in settings.windows()}
        for name in inputs.conditions:
            passed = api.stacked(read.decided, name)
            for k, states in by_k.items():
                null: dict[api.State, Fraction] = {}
                if answers is not None:
                    given = api.stacked(answers.arms, name)
                    null = null_rates(given, answers.golds, answers.source, states)
                lines.append(ScopeLine(name, scope_row(k, states, passed), null))
        return ScopeFindings(tuple(lines), read.why, settings.adapters)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: ScopeFindings
    ) -> Iterator[api.Section]:
        """A sentence, the figure and the matrix."""
        matrix = api.Frame(COLUMNS, found.lines).table(_note(found))
        yield api.Section("Scope matrix", [api.Text(_result(found)), _drawing(found), matrix])

    def figures(self, findings: api.ReportFindings, found: ScopeFindings) -> api.Figures:
        """The states and the rates at every K."""
        yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: ScopeFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """The matrix, unrounded."""
        yield "scope.csv", api.Frame(COLUMNS, found.lines).csv()

    def results(self, found: ScopeFindings) -> dict[str, Any]:
        """For results.json."""
        lines = api.Frame(COLUMNS, found.lines).entries()
        return {"adapters": found.adapters, "lines": lines, "no_null_rates": found.why or None}


def _result(found: ScopeFindings) -> str:
    shares = {line.row.k: line.row.p_s for line in found.lines}
    return (
        f"Search recovers {listed([f'{percent(share)} at K = {k}' for k, share in shares.items()])}"
        " of the audit, all from one search. A larger K moves problems from U to S. The trained "
        "models are the same at every K, and so are Pass@1 and the regression on G."
        f"{f' {api.SCALED}' if found.adapters == 'scaled' else ''}"
    )


def _note(found: ScopeFindings) -> str:
    note = (
        "K: the first K samples of the search. p_S: share of the audit that they recover. κ_S, κ_U "
        "and ρ_G: means over seeds. Net gain: Pass@1 minus the source's, in percentage points. "
        "Null S and null U: the rates to be expected if the answers given after training were "
        "dealt out anew among problems of the same state and the same answer of the source."
    )
    few = sorted({(line.row.k, state) for line in found.lines for state in line.row.unstable})
    if few:
        named = listed([f"{state} at K = {k}" for k, state in few])
        note += f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems ({named})."
    return f"{note} No null rates: {found.why}." if found.why else note


def _drawing(found: ScopeFindings) -> api.Figure:
    sizes = {line.row.k: line.row.sizes for line in found.lines}
    states = (f"K = {k}: {' / '.join(map(wording.whole, at))}" for k, at in sizes.items())
    rates = (
        f"{condition_name(line.condition)} at K = {line.row.k}: κ_S "
        f"{percent(line.row.mean.kappa_s)}, κ_U {percent(line.row.mean.kappa_u)}"
        for line in found.lines
    )
    return api.Figure(
        "scope",
        f"Audit problems in G / S / U: {'; '.join(states)}. Corrected: {'; '.join(rates)}.",
        "Above: the audit's problems by state at each K. Below: what each condition corrects of S "
        "and of U, mean over seeds.",
    )


#: From the left: what search adds stands between what needs no search and what it misses.
_BARS = {
    "G": (palette.RIGHT_PALE, palette.INK),
    "S": (palette.RIGHT, palette.PAPER),
    "U": (palette.WRONG_PALE, palette.INK),
}


def _draw(findings: api.ReportFindings, found: ScopeFindings) -> Figure:
    """Above, G, S and U at each K; below, every condition's rates of correction at each K."""
    sizes = {line.row.k: line.row.sizes for line in found.lines}
    heights = [0.34 * len(sizes) + 1.1, 0.9 * len(sizes) + 1.2]
    figure, (above, below) = style.panels(sum(heights), height_ratios=heights)
    _draw_sizes(above, sizes)
    rates = {(line.condition, line.row.k): line.row.mean for line in found.lines}
    style.condition_rows(
        below,
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
    below.set_xlabel("rate of correction within the state, %")
    below.set_title("Corrected of S and of U", x=0)
    style.legend_below(below, below.get_legend_handles_labels()[0])
    return figure


def _draw_sizes(axes: Axes, sizes: Mapping[int, tuple[int, int, int]]) -> None:
    from matplotlib.patches import Patch

    for y, counts in enumerate(sizes.values()):
        left = 0.0
        for count, (colour, ink) in zip(counts, _BARS.values(), strict=True):
            share = 100 * count / sum(counts)
            axes.barh(y, share, left=left, color=colour, height=0.62)
            if share > 7:
                axes.annotate(
                    wording.whole(count), (left + share / 2, y), ha="center", va="center",
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
    named = zip(_BARS.items(), wording.STATE_NAMES.values(), strict=True)
    style.legend_below(
        axes, [Patch(color=look[0], label=f"{s}  {name.split()[0]}") for (s, look), name in named]
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the matrix."""
    register("scope", Scope)
