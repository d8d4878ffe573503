"""The coverage ledger: compare Pass@k of every trained model with the source, by source state.

Training that corrects in one decode what search reaches may lose what search reaches elsewhere. The
source is sampled again too: its search samples define S and U, so measured on them, an unchanged
model would seem to lose on S and gain on U.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, field_validator

from gapft_harness import api
from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.curves import CurveDifference, compare_curves
from gapft_harness.api import condition_name, layout, percent, points, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The model before training, as the arm under which its samples are stored.
_SOURCE_ARM = api.Arm(api.SOURCE, 0)


class LedgerSettings(api.RecipeSection):
    """The settings ``experiments.coverage_ledger``."""

    k: tuple[PositiveInt, ...] = Field(
        (1, 4, 16),
        min_length=1,
        description="the values of k for Pass@k, ascending; the last is the number of samples that "
        "are drawn from every adapter and from the source",
    )
    references: tuple[str, ...] = Field(
        (), description="conditions that the others are compared with, besides the source"
    )

    @field_validator("k")
    @classmethod
    def _check_rising(cls, k: tuple[int, ...]) -> tuple[int, ...]:
        if list(k) != sorted({*k}):
            raise ValueError("must be ascending, without repeated values")
        return k


def build_ledger_path(arm: api.Arm) -> str:
    """Return the path of an arm's samples in a run directory."""
    return layout.decisions_path(arm, "samples")


class CoverageLedger(api.Experiment):
    """Measures gain and loss of training at every k, with samples of each adapter on the audit."""

    name = "coverage_ledger"
    section = LedgerSettings

    def part(self) -> LedgerPart:
        """Return the part of the report."""
        return LedgerPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe does not have a condition that is named as a reference.
        """
        settings = super().settings(recipe, options)
        if settings is not None:
            key = f"experiments.{self.name}.references"
            api.require_conditions(recipe, key, settings.references)
        return settings

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the references; a report without one of them leaves out the ledger."""
        settings: LedgerSettings = self.settings(recipe)
        return settings.references

    def faults(self, view: api.View) -> Iterator[str]:
        """Report a backend that cannot sample from adapters."""
        yield from api.find_no_backend(view, self.name)

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Draw samples from the source and from every adapter."""
        samples = self.settings(view.recipe).k[-1]
        yield {
            build_ledger_path(arm): view.decode(arm, samples=samples, verb="sample")
            for arm in ((_SOURCE_ARM, *view.arms()) if view.arms() else ())
        }

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Count the samples of all adapters and of the source."""
        audit, adapters, k = counts["audit"], counts["adapters"], self.settings(recipe).k[-1]
        count = audit * k * (adapters + 1)
        line = f"ledger: {count:,} = {audit:,} x {k} samples x ({adapters} adapters + the source)"
        return api.Cost(decodes=[line], responses=count)


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """The number of passing samples of each audit problem.

    Attributes:
        k: the values of k for Pass@k, ascending; the last is the number of samples.
        references: conditions that the others are compared with, besides the source.
        source: shape (P,), how many new samples of the source passed.
        arms: by arm, shape (P,), how many of its samples passed.
    """

    k: tuple[int, ...]
    references: tuple[str, ...]
    source: NDArray[np.int64]
    arms: Mapping[api.Arm, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class LedgerCurve:
    """Pass@k of a condition compared with another model, on all problems or those of a state.

    Attributes:
        condition: the condition.
        against: the model that it is compared with: the source, or a reference.
        state: the source's state of the problems; empty: all problems.
        problems: the number of problems.
        curve: the comparison; None: there are no problems.
    """

    condition: str
    against: str
    state: str
    problems: int
    curve: CurveDifference | None


@dataclass(frozen=True, slots=True)
class LedgerPoint:
    """A curve at one k.

    Attributes:
        ledger_curve: the condition, and the model that it is compared with.
        curve: the comparison.
        number: the index of k.
    """

    ledger_curve: LedgerCurve
    curve: CurveDifference
    number: int

    @property
    def band_interval(self) -> Interval | None:
        """The simultaneous band of the difference; None: it is undefined."""
        low, high = self.curve.low, self.curve.high
        if low is None or high is None:
            return None
        return Interval(float(low[self.number]), float(high[self.number]))

    @property
    def difference_text(self) -> str:
        """The difference in points, with the band."""
        text = points(float(self.curve.difference[self.number]))
        return (
            text
            if self.band_interval is None
            else f"{text} {api.points_interval(self.band_interval)}"
        )


@dataclass(frozen=True, slots=True)
class LedgerFindings:
    """All curves.

    Attributes:
        curves: ordered by reference, condition, and state; all problems come first.
    """

    curves: tuple[LedgerCurve, ...]

    def list_overall(self, against: str) -> list[tuple[LedgerCurve, CurveDifference]]:
        """List the curves on all problems that are compared with one model."""
        return [
            (ledger_curve, ledger_curve.curve)
            for ledger_curve in self.curves
            if ledger_curve.curve is not None
            and ledger_curve.against == against
            and not ledger_curve.state
        ]

    @property
    def references(self) -> list[str]:
        """The models that conditions are compared with, the source first."""
        return list(dict.fromkeys(ledger_curve.against for ledger_curve in self.curves))


def _build_value_getter(values: str) -> Any:
    return lambda point: float(getattr(point.curve, values)[point.number])


LEDGER_COLUMNS: tuple[api.Column[LedgerPoint], ...] = (
    api.Column(
        "condition", "", lambda point: point.ledger_curve.condition, "condition", condition_name
    ),
    api.Column("against", "the source, or a reference", lambda point: point.ledger_curve.against),
    api.Column(
        "state", "the source's state; empty: all problems", lambda point: point.ledger_curve.state
    ),
    api.Column(
        "problems", "audit problems in this state", lambda point: point.ledger_curve.problems
    ),
    api.Column("k", "", lambda point: point.curve.k[point.number], "k"),
    api.Column(
        "before",
        "Pass@k of the source or reference",
        _build_value_getter("before"),
        "AGAINST",
        percent,
    ),
    api.Column("after", "Pass@k, mean over seeds", _build_value_getter("after"), "Pass@k", percent),
    api.Column(
        "",
        "in points, with a simultaneous band for all k",
        lambda point: point.difference_text,
        "difference",
    ),
    api.Column("difference", "", _build_value_getter("difference")),
    api.Column(
        "band95",
        "simultaneous band of the difference for all k",
        lambda point: point.band_interval,
        names=("band95_low", "band95_high"),
    ),
)
BEHIND_COLUMNS: tuple[api.Column[tuple[LedgerCurve, CurveDifference]], ...] = (
    api.Column("condition", "", lambda row: row[0].condition, "condition", condition_name),
    api.Column("against", "", lambda row: row[0].against),
    api.Column("seeds", "training seeds", lambda row: row[1].seeds),
    api.Column(
        "behind",
        "the first k at which Pass@k is below that of the source or reference; a dash: none",
        lambda row: row[1].behind,
        "falls behind at k",
    ),
    api.Column(
        "behind_set",
        "every such k that is possible by the band; null: none",
        lambda row: row[1].behind_set,
        "possible (95%)",
        lambda ks: ", ".join("none" if k is None else str(k) for k in ks),
    ),
)


class LedgerPart(api.Part):
    """The part of the report on gain and loss at every k."""

    name = "coverage_ledger"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> LedgerRead | None:
        """Count the passing samples of each audit problem."""
        settings_json = manifest["recipe"].get("experiments", {}).get(self.name)
        if settings_json is None or not arms:
            return None
        settings = LedgerSettings.model_validate(settings_json)
        ids = api.read_columns(run_path / layout.problems_path("audit"), ("problem_id",))[
            "problem_id"
        ]

        def count_passing(file: str) -> NDArray[np.int64]:
            passed = api.read_samples(run_path / file, ids, settings.k[-1])
            passing: NDArray[np.int64] = passed.sum(axis=1, dtype=np.int64)
            return passing

        by_arm = {arm: count_passing(build_ledger_path(arm)) for arm in arms}
        return LedgerRead(
            settings.k, settings.references, count_passing(build_ledger_path(_SOURCE_ARM)), by_arm
        )

    def compute(self, inputs: api.ReportInputs, read: LedgerRead) -> LedgerFindings:
        """Compare every condition with the source and with every reference."""
        counts_by_condition = {name: api.stacked(read.arms, name) for name in inputs.conditions}
        states, curves = inputs.audit.states, []
        against = {
            api.SOURCE: read.source,
            **{reference: counts_by_condition[reference] for reference in read.references},
        }
        for other, before_counts in against.items():
            for name, after_counts in counts_by_condition.items():
                for state in ("", *"GSU") if name != other else ():
                    members = np.isin(states, [state] if state else [*"GSU"])
                    stream = api.Stream(0, f"coverage/{name}/{other}/{state}")
                    curve = _compare_curve(
                        before_counts[..., members], after_counts[:, members], read.k, stream
                    )
                    curves.append(LedgerCurve(name, other, state, int(members.sum()), curve))
        return LedgerFindings(tuple(curves))

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: LedgerFindings
    ) -> Iterator[api.Section]:
        """Return the section: where each falls behind, figure, every k, and states."""
        blocks: list[api.Block] = [
            api.Text(
                "Pass@k of the trained models, from new samples of each and of the source. It "
                "shows whether training that corrects problems in one decode loses problems that "
                "search reaches."
            ),
            api.Frame(BEHIND_COLUMNS, part_findings.list_overall(api.SOURCE)).table(
                "The first k at which Pass@k is below the source's, and every such k that is "
                "possible by the band, with 95% confidence."
            ),
            _build_figure(part_findings),
        ]
        for other in part_findings.references:
            rows = [
                point
                for ledger_curve, _ in part_findings.list_overall(other)
                for point in _list_points(ledger_curve)
            ]
            if other != api.SOURCE:
                rows = [point for point in rows if point.number in (0, len(point.curve.k) - 1)]
            name = condition_name(other)
            table = api.Frame(LEDGER_COLUMNS, rows).table(
                _write_note(part_findings, name), fill={"AGAINST": name}
            )
            blocks.append(table)
        state_frame = api.Frame(_STATE_COLUMNS, [*_group_by_state(part_findings)])
        blocks.append(
            state_frame.table(
                "Differences from the source by its states, at the smallest and the largest k, in "
                "percentage points of the state's problems, with simultaneous bands for all k. The "
                "new samples do not define the states, so 0 is expected in every column for an "
                "unchanged model."
            )
        )
        yield api.Section("Coverage ledger", blocks)

    def figures(self, findings: api.ReportFindings, part_findings: LedgerFindings) -> api.Figures:
        """Return the figure of differences from the source by k."""
        yield self.name, partial(_draw_figure, part_findings=part_findings)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: LedgerFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of all curves at every k, not rounded."""
        rows = [
            point for ledger_curve in part_findings.curves for point in _list_points(ledger_curve)
        ]
        yield "coverage_ledger.csv", api.Frame(LEDGER_COLUMNS, rows).csv()

    def results(self, part_findings: LedgerFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        rows = [
            point for ledger_curve in part_findings.curves for point in _list_points(ledger_curve)
        ]
        behind_rows = [
            pair for other in part_findings.references for pair in part_findings.list_overall(other)
        ]
        return {
            "curves": api.Frame(LEDGER_COLUMNS, rows).entries(),
            "behind": api.Frame(BEHIND_COLUMNS, behind_rows).entries(),
        }


def _compare_curve(
    before_counts: NDArray[np.int64],
    after_counts: NDArray[np.int64],
    ks: Sequence[int],
    stream: api.Stream,
) -> CurveDifference | None:
    """Compare two curves; None without problems.

    Args:
        before_counts: shape (P,) or (seeds, P), passing samples of the reference.
        after_counts: shape (seeds, P), passing samples of the condition.
        ks: the values of k, ascending; the last is the number of samples.
        stream: the randomness of the band.
    """
    if not after_counts.shape[1]:
        return None
    return compare_curves(before_counts, ks[-1], after_counts, ks[-1], ks, stream=stream)


def _list_points(ledger_curve: LedgerCurve) -> Iterator[LedgerPoint]:
    if ledger_curve.curve is not None:
        yield from (
            LedgerPoint(ledger_curve, ledger_curve.curve, number)
            for number in range(len(ledger_curve.curve.k))
        )


#: A condition at one k: its point on all problems, and its points by non-empty state.
_StateRow = tuple[LedgerPoint, Mapping[str, LedgerPoint]]


def _group_by_state(part_findings: LedgerFindings) -> Iterator[_StateRow]:
    """Yield the first and the last point of each condition against the source, with states."""
    points_by_key = {
        (ledger_curve.condition, ledger_curve.state): [*_list_points(ledger_curve)]
        for ledger_curve in part_findings.curves
        if ledger_curve.against == api.SOURCE
    }
    for ledger_curve, _ in part_findings.list_overall(api.SOURCE):
        points_by_state = {
            state: points_by_key[ledger_curve.condition, state] for state in ("", *"GSU")
        }
        for position in dict.fromkeys((0, len(points_by_state[""]) - 1)):
            yield (
                points_by_state[""][position],
                {
                    state: state_points[position]
                    for state, state_points in points_by_state.items()
                    if state_points
                },
            )


def _build_state_column(state: str) -> api.Column[_StateRow]:
    meaning = "difference on problems in this state, in points, with its band"
    point: api.Column[LedgerPoint] = api.Column(
        "", meaning, lambda state_point: state_point.difference_text, state
    )
    return point.map_rows(lambda row: row[1].get(state))


_STATE_COLUMNS: tuple[api.Column[_StateRow], ...] = (
    api.Column("", "", lambda row: row[0].ledger_curve.condition, "condition", condition_name),
    api.Column("", "", lambda row: row[0].curve.k[row[0].number], "k"),
    *map(_build_state_column, "GSU"),
)


def _write_note(part_findings: LedgerFindings, name: str) -> str:
    seeds = {
        curve.seeds
        for reference in part_findings.references
        for _, curve in part_findings.list_overall(reference)
    }
    resampled = "problems" if seeds == {1} else "problems and training seeds"
    notes_by_count = {
        1: " With one training seed it does not cover others.",
        2: " With two seeds it is wide.",
    }
    seed_note = notes_by_count.get(min(seeds), "")
    return (
        f"Pass@k: at least one of k samples is right; unbiased, mean over seeds. Difference from "
        f"{name} in percentage points, with a simultaneous 95% band for all k, over "
        f"{resampled}.{seed_note}"
    )


def _build_figure(part_findings: LedgerFindings) -> api.Figure:
    difference_texts = [
        f"{condition_name(ledger_curve.condition)} {points(float(curve.difference[-1]))}"
        for ledger_curve, curve in part_findings.list_overall(api.SOURCE)
    ]
    k = part_findings.list_overall(api.SOURCE)[0][1].k[-1]
    return api.Figure(
        "coverage_ledger",
        f"Pass@k minus the source's by k, a panel for each condition; at k = {k}: "
        f"{', '.join(difference_texts)} points.",
        "Pass@k of each condition minus the source's, mean over seeds, with a simultaneous 95% "
        "band for all k.",
    )


def _draw_figure(findings: api.ReportFindings, part_findings: LedgerFindings) -> Figure:
    rows = part_findings.list_overall(api.SOURCE)
    lines = -(-len(rows) // 2)
    figure, axes = style.panels(1.25 * lines + 0.75, lines, 2, sharex=True, sharey=True)
    for panel, (ledger_curve, curve) in zip(axes, rows, strict=False):
        _draw_panel(panel, curve)
        panel.set_title(condition_name(ledger_curve.condition), x=0)
    for panel in axes[len(rows) :]:
        panel.set_visible(False)
    figure.supxlabel("k, samples", fontsize=9.5, color=api.palette.MUTED)
    figure.supylabel("Pass@k minus the source's, points", fontsize=9.5, color=api.palette.MUTED)
    return figure


def _draw_panel(axes: Axes, curve: CurveDifference) -> None:
    from matplotlib.ticker import NullLocator

    colour, marker = api.palette.series(0)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(
            curve.k, 100 * curve.low, 100 * curve.high, color=api.palette.RIGHT_PALE, linewidth=0
        )
    axes.axhline(0, color=api.palette.MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot(curve.k, 100 * curve.difference, color=colour, marker=marker, markersize=4.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(curve.k, [str(k) for k in curve.k])
    axes.xaxis.set_minor_locator(NullLocator())


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("coverage_ledger", CoverageLedger)
