"""The frontier of corrected failures against regressions: what a mixture buys, and its price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapft_harness import api
from gapft_harness.analysis.bootstrap import Interval, replicate
from gapft_harness.api import condition_name, listed, percent, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Frontier(api.Experiment):
    """Corrected failures against regressions, a point for each condition."""

    name = "frontier"

    def part(self) -> FrontierPart:
        """Its section, table and figure."""
        return FrontierPart()


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A condition, as shares of all audit problems.

    Attributes:
        name: the condition.
        lost: p_G ρ_G, solved problems that it loses, mean over seeds.
        corrected: p_S κ_S + p_U κ_U, failures that it corrects.
        lost_interval: over seeds and problems, in joint replicates.
        corrected_interval: the same.
        best: whether no other corrects as many and loses as few, and one of the two better.
    """

    name: str
    lost: Fraction
    corrected: Fraction
    lost_interval: Interval
    corrected_interval: Interval
    best: bool = False

    @property
    def gain(self) -> Fraction:
        """Pass@1 minus the source's (Equation 9)."""
        return self.corrected - self.lost


#: Every condition's point.
Points = tuple[FrontierPoint, ...]


def _share(key: str, meaning: str) -> Iterator[api.Column[FrontierPoint]]:
    """A share of all problems: exact, its interval, and both as people read them."""

    def ends(row: FrontierPoint) -> tuple[float, float]:
        interval: Interval = getattr(row, f"{key}_interval")
        return interval.low, interval.high

    def shown(row: FrontierPoint) -> str:
        low, high = (f"{100 * end:.1f}" for end in ends(row))
        return f"{percent(getattr(row, key))} [{low}, {high}]"

    yield api.Column(key, "", lambda row: getattr(row, key))
    yield api.Column(f"{key}_ci95", "", ends, names=(f"{key}_ci95_low", f"{key}_ci95_high"))
    yield api.Column(
        "", f"{meaning}, of all audit problems (Equation 9), with the 95% interval", shown, key
    )


COLUMNS: tuple[api.Column[FrontierPoint], ...] = (
    api.Column("condition", "", lambda row: row.name, "condition", condition_name),
    *_share("corrected", "failures that come right"),
    *_share("lost", "solved problems that go wrong"),
    api.Column("gain", "corrected minus lost", lambda row: row.gain, "gain", api.points),
    api.Column(
        "best",
        "whether no other condition corrects as many and loses as few, and one of the two better",
        lambda row: row.best,
        "on the frontier",
        lambda best: "yes" if best else "",
    ),
)


class FrontierPart(api.Part):
    """The section of it."""

    name = "frontier"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> bool | None:
        """Nothing but what every report reads."""
        asked = self.name in manifest["recipe"].get("experiments", {})
        return True if asked and arms else None

    def compute(self, inputs: api.ReportInputs, read: bool) -> Points:
        """Every condition's point, with intervals of the report's own replicates."""
        solved = inputs.audit.states == "G"
        passed = np.array([[arm.passed for arm in inputs.of(name)] for name in inputs.conditions])
        outcomes = np.concatenate([solved & ~passed, ~solved & passed])
        statistics = inputs.recipe["statistics"]
        replicates = replicate(
            outcomes,
            solved,
            item_ids=inputs.audit.ids,
            seeds=np.array(inputs.seeds),
            replicates=statistics["replicates"],
            stream=api.Stream(statistics["seed"], "report/bootstrap"),
        )
        rates = [Fraction(int(of.sum()), of.size) for of in outcomes]
        count = len(inputs.conditions)
        found = [
            FrontierPoint(
                name, rates[place], rates[count + place],
                replicates.pass_at_1(place), replicates.pass_at_1(count + place),
            )
            for place, name in enumerate(inputs.conditions)
        ]  # fmt: skip
        return tuple(_judged(found))

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Points
    ) -> Iterator[api.Section]:
        """Who is on the frontier, the figure and the table."""
        best = [condition_name(of.name) for of in sorted(found, key=lambda of: of.lost) if of.best]
        told = (
            f"On the frontier, from fewest regressions on: {listed(best)}. No other condition "
            "corrects as many failures and loses as few solved problems, by the means over seeds."
        )
        note = (
            "Of all audit problems: failures corrected, p_S κ_S + p_U κ_U; solved problems lost, "
            "p_G ρ_G; gain: their difference, in points. 95% intervals over seeds and problems; "
            "where they overlap, other seeds may order the conditions otherwise."
        )
        drawing = api.Figure(
            self.name,
            "; ".join(
                f"{condition_name(of.name)}: {percent(of.corrected)} corrected, {percent(of.lost)} "
                "lost"
                for of in found
            ),
            "Failures corrected against solved problems lost, in shares of the audit, with 95% "
            "intervals. Joined: the frontier. Dashed: equal gain.",
        )
        blocks: list[api.Block] = [api.Text(told), drawing, api.Frame(COLUMNS, found).table(note)]
        yield api.Section("Corrected against lost", blocks)

    def figures(self, findings: api.ReportFindings, found: Points) -> api.Figures:
        """The points."""
        yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Points
    ) -> Iterator[tuple[str, api.Rows]]:
        """Every point, unrounded."""
        yield "frontier.csv", api.Frame(COLUMNS, found).csv()

    def results(self, found: Points) -> dict[str, Any]:
        """For results.json."""
        return {"points": api.Frame(COLUMNS, found).entries()}


def _judged(found: Sequence[FrontierPoint]) -> Iterator[FrontierPoint]:
    for of in found:
        beaten = any(
            other.lost <= of.lost
            and other.corrected >= of.corrected
            and (other.lost, other.corrected) != (of.lost, of.corrected)
            for other in found
        )
        yield replace(of, best=not beaten)


def _draw(findings: api.ReportFindings, found: Points) -> Figure:
    figure, axes = style.panel(3.6)
    for place, of in enumerate(found):
        colour, marker = api.series(place)
        x, y = 100 * float(of.lost), 100 * float(of.corrected)
        across, up = (
            [100 * of.low, 100 * of.high] for of in (of.lost_interval, of.corrected_interval)
        )
        axes.plot(across, [y, y], color=colour, linewidth=1, alpha=0.6)
        axes.plot([x, x], up, color=colour, linewidth=1, alpha=0.6)
        axes.plot([x], [y], color=colour, marker=marker, markersize=6.5, linewidth=0, zorder=3)
        axes.annotate(
            condition_name(of.name), (x, y), xytext=(6, 5), textcoords="offset points",
            fontsize=8.5, color=colour,
        )  # fmt: skip
    best = sorted((of for of in found if of.best), key=lambda of: of.lost)
    axes.plot(
        [100 * float(of.lost) for of in best],
        [100 * float(of.corrected) for of in best],
        color=api.MUTED, linewidth=1.2, zorder=1,
    )  # fmt: skip
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    right += 0.25 * (right - left)  # room for names
    for gain in axes.get_yticks():
        axes.plot(
            [left, right], [gain + left, gain + right],
            color=api.palette.RULE, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0,
        )  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_xlabel("solved problems lost, % of the audit")
    axes.set_title("Failures corrected, % of the audit", x=0)
    return figure


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("frontier", Frontier)
