"""A bank of arms whose training sets vary, and who can tell from a set what its arm decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.attribution import Agreement, HeldOut, Slope, agreement, slope
from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.api import condition_name, palette, percent, points, points_interval, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The fewest arms: half of them rank the other half.
FEWEST = 8


class BankSettings(api.RecipeSection):
    """What a recipe says under ``experiments.bank``."""

    condition: str = Field(
        "bank", description="condition whose arms it is, one for each of the recipe's seeds"
    )
    attributions: tuple[str, ...] = Field(
        ("states", "similarity", "datamodel"),
        min_length=1,
        description="[methods](bank.md) that are scored",
    )


class BankExperiment(api.Experiment):
    """A bank of arms whose training sets vary, and methods that say which example does what."""

    name = "bank"
    section = BankSettings

    def part(self) -> BankPart:
        """Its section, figure and tables."""
        return BankPart(self)

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: it has no such condition, or a method that nobody registered.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        self.require_conditions(recipe, "condition", [found.condition])
        for name in found.attributions:
            self.plugins.get("attribution", name)
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """The bank's."""
        return [self.settings(recipe).condition]

    def selected(self, context: api.Context) -> None:
        """Too few arms are refused."""
        self._require_arms(context.run.recipe)

    def _require_arms(self, recipe: api.Recipe) -> None:
        """A report may show fewer, and leaves the bank out then."""
        if len(recipe.seeds) < FEWEST:
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': has an arm for each seed, "
                f"and needs {FEWEST} or more; found {len(recipe.seeds)}: give seeds: 0-63 for 64"
            )

    def reads(self, context: api.Context) -> Iterator[str]:
        """Training sets and decisions."""
        (name,) = self.conditions(context.run.recipe)
        yield from api.bank_files(arm for arm in context.arms() if arm.condition == name)

    def plan(self, recipe: api.Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """What the bank is of."""
        self._require_arms(recipe)
        found: BankSettings = self.settings(recipe)
        return [
            f"bank    {len(recipe.seeds)} of the adapters, {found.condition}; scored on it: "
            f"{', '.join(found.attributions)}"
        ]


@dataclass(frozen=True, slots=True)
class Rise:
    """Pass@1 from no recovered failure in the training set to nothing else, on some problems.

    Attributes:
        state: of these problems; empty: all.
        problems: how many.
        slope: the difference; None where all arms have one share, or there is no problem.
    """

    state: str
    problems: int
    slope: Slope | None


@dataclass(frozen=True, slots=True)
class Scored:
    """How well a method ranks arms that it was not fitted on.

    Attributes:
        method: its name.
        by: of ``RANKED``.
        agreement: None where it is not defined: nothing tells arms apart.
    """

    method: str
    by: str
    agreement: Agreement | None


#: By what arms are ranked.
RANKED = {
    "problem": "decision on a problem",
    "given_share": "the same, given the share",
    "pass_at_1": "Pass@1",
}


@dataclass(frozen=True, slots=True)
class BankFindings:
    """All of it; ``pass_at_1`` is that of each arm, shape (A,)."""

    bank: api.Bank
    pass_at_1: NDArray[np.float64]
    rises: tuple[Rise, ...]
    scored: tuple[Scored, ...]


_CI95 = "over arms and problems"
_RISES = "of the arm's share of recovered failures among its slots, 0 to 1, least squares over arms"
RISES: tuple[api.Column[Rise], ...] = (
    api.Column("state", "of the source", lambda row: row.state or "all", "audit problems"),
    api.Column("problems", "", lambda row: row.problems, "problems", api.wording.whole),
    api.Column(
        "rise",
        _RISES,
        lambda row: row.slope and row.slope.rise,
        "all recovered − all solved",
        lambda value: "–" if value is None else points(value),
    ),
    api.Column(
        "ci95",
        _CI95,
        lambda row: row.slope and row.slope.interval,
        "95% interval",
        lambda value: "–" if value is None else points_interval(value),
        names=("ci95_low", "ci95_high"),
    ),
)


def correlation(value: float | None) -> str:
    """A rank correlation as people read it: ``+0.12``."""
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _ends(value: Interval | None) -> str:
    return "–" if value is None else f"[{correlation(value.low)}, {correlation(value.high)}]"


SCORES: tuple[api.Column[Scored], ...] = (
    api.Column("method", "", lambda row: row.method, "method"),
    api.Column("by", "", lambda row: row.by),
    api.Column(
        "",
        "what held-out arms are ranked by; a mean over audit problems (the linear datamodeling "
        "score), given the share of recovered failures (a partial correlation), or their Pass@1",
        lambda row: RANKED[row.by],
        "ranks arms by",
    ),
    api.Column(
        "correlation",
        "Spearman's, of prediction and outcome over held-out arms",
        lambda row: row.agreement and row.agreement.score,
        "correlation",
        correlation,
    ),
    api.Column(
        "ci95",
        _CI95,
        lambda row: row.agreement and row.agreement.interval,
        "95% interval",
        _ends,
        names=("ci95_low", "ci95_high"),
    ),
    api.Column(
        "permuted",
        "95% where arms exchange their training sets",
        lambda row: row.agreement and row.agreement.permuted,
        "permuted inclusion",
        _ends,
        names=("permuted_low", "permuted_high"),
    ),
    api.Column(
        "columns",
        "audit problems that arms decide differently; 1 of Pass@1",
        lambda row: row.agreement and row.agreement.columns,
    ),
)


class BankPart(api.Part):
    """What the share of recovered failures does, and how well methods predict decisions."""

    name = "bank"
    after = "Contrasts"

    def __init__(self, experiment: BankExperiment) -> None:
        self._experiment = experiment

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> api.Bank | None:
        """The bank's arms, if the report shows them."""
        said = manifest["recipe"].get("experiments", {}).get(self.name)
        if said is None:
            return None
        name = BankSettings.model_validate(said).condition
        shown = [arm for arm in arms if arm.condition == name]
        return api.read_bank(run_path, shown) if len(shown) >= FEWEST else None

    def compute(self, inputs: api.ReportInputs, read: api.Bank) -> BankFindings:
        """The rises by state, and every method's scores."""
        settings = BankSettings.model_validate(inputs.recipe["experiments"][self.name])
        said = inputs.recipe["statistics"]
        stream, replicates = api.Stream(said["seed"], "bank"), said["replicates"]
        args = inputs.recipe["model"]["args"]
        scored = (
            found
            for name in settings.attributions
            for found in score(read, name, self._method(name), args, replicates, stream)
        )
        passed = read.passed.mean(axis=1)
        return BankFindings(read, passed, (*_rises(read, replicates, stream),), (*scored,))

    def _method(self, name: str) -> Any:
        return self._experiment.plugins.get("attribution", name)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: BankFindings
    ) -> Iterator[api.Section]:
        """The figure, and both tables."""
        rises = api.Frame(RISES, found.rises).table(
            f"The arms of {condition_name(found.bank.arms[0].condition)}, of one n, by the share "
            "of recovered failures among their examples: what all of them in place of none would "
            "change, in percentage points of Pass@1 on these problems."
        )
        scores = api.Frame(SCORES, found.scored).table(
            "Each half of the arms is held out once, and a method is fitted on the other. 0: no "
            "better than chance. Given the share: what a method knows beyond how many of an arm's "
            "examples are recovered failures. One decode of one training is noisy, so no method "
            "reaches 1.",
            words=2,
        )
        alt = "; ".join(
            f"{of.method}, {RANKED[of.by]} {correlation(of.agreement.score)}"
            for of in found.scored
            if of.agreement
        )
        figure = api.Figure(
            self.name,
            f"{_result(found)} Rank correlations: {alt or 'none'}.",
            "Above: each arm's Pass@1 by what its training set holds. Below: how well methods "
            "rank held-out arms on a problem; open, beyond that share; grey, where arms exchange "
            "their training sets.",
        )
        title = f"A bank of {len(found.bank.arms)} arms"
        yield api.Section(title, [api.Text(_result(found)), figure, rises, scores])

    def figures(self, findings: api.ReportFindings, found: BankFindings) -> api.Figures:
        """Arms and methods."""
        yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: BankFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Both, unrounded."""
        yield "bank_rises.csv", api.Frame(RISES, found.rises).csv()
        yield "bank_scores.csv", api.Frame(SCORES, found.scored).csv()

    def results(self, found: BankFindings) -> dict[str, Any]:
        """For results.json."""
        return {
            "condition": found.bank.arms[0].condition,
            "arms": len(found.bank.arms),
            "examples": len(found.bank.examples),
            "rises": api.Frame(RISES, found.rises).entries(),
            "scores": api.Frame(SCORES, found.scored).entries(),
        }


def score(
    bank: api.Bank,
    name: str,
    method: Any,
    model_args: Mapping[str, Any],
    replicates: int,
    stream: api.Stream,
) -> Iterator[Scored]:
    """Fits a method on every other arm, ranks the rest by it, and the other way round.

    Args:
        bank: the arms.
        name: the method's.
        method: what is registered under it.
        model_args: the recipe's.
        replicates: of the intervals.
        stream: their randomness.

    Yields:
        A score for each of ``RANKED``.

    Raises:
        PluginError: the method failed, or gave no finite scores of shape (E, P).
    """
    included, passed, shares = bank.included, bank.passed, bank.shares
    shape = len(bank.examples), len(bank.problems)
    folds: dict[str, list[HeldOut]] = {by: [] for by in RANKED}
    for first in (0, 1):
        fitted, held = slice(first, None, 2), slice(1 - first, None, 2)
        task = api.AttributionTask(
            bank.examples, bank.problems, included[fitted], passed[fitted], model_args
        )
        with method.blamed():
            scores = np.asarray(method.value(task), dtype=np.float64)
        if scores.shape != shape or not np.isfinite(scores).all():
            raise method.broke(
                f"gave scores of shape {scores.shape}, expected finite ones of shape {shape}: a "
                "row an example, a column an audit problem"
            )
        pair = included[held] @ scores, passed[held].astype(np.float64)
        folds["problem"].append(HeldOut(*pair))
        folds["given_share"].append(HeldOut(*pair, shares[held]))
        folds["pass_at_1"].append(HeldOut(*(of.mean(axis=1, keepdims=True) for of in pair)))
    for by, of in folds.items():
        yield Scored(name, by, agreement(of, replicates=replicates, stream=stream.child(by)))


def _rises(bank: api.Bank, replicates: int, stream: api.Stream) -> Iterator[Rise]:
    """On all audit problems, and on those of each state."""
    states, shares = np.array([problem.state for problem in bank.problems]), bank.shares
    for state in ("", "S", "U", "G"):
        of = np.flatnonzero(states == state) if state else np.arange(len(states))
        found = None
        if len(of) and np.ptp(shares):
            passed = bank.passed[:, of]
            found = slope(shares, passed, replicates=replicates, stream=stream.child(f"on {state}"))
        yield Rise(state, len(of), found)


def _result(found: BankFindings) -> str:
    low, high = (percent(end(found.pass_at_1)) for end in (min, max))
    whole = found.rises[0].slope
    said = f"The {len(found.bank.arms)} arms reach from {low} to {high}."
    if whole is None:
        return f"{said} All have one share of recovered failures."
    return (
        f"{said} Recovered failures in all slots, in place of none, change Pass@1 by "
        f"{points(whole.rise)} points {points_interval(whole.interval)}."
    )


def _draw(findings: api.ReportFindings, found: BankFindings) -> Figure:
    """Above, arms by their share; below, the methods' scores."""
    methods = list(dict.fromkeys(of.method for of in found.scored))
    heights = [2.6, 0.5 * len(methods) + 1.0]
    figure, (above, below) = style.panels(sum(heights), height_ratios=heights)
    _draw_arms(above, found)
    _draw_scores(below, methods, found.scored)
    return figure


def _draw_arms(axes: Axes, found: BankFindings) -> None:
    shares = 100 * found.bank.shares
    axes.plot(shares, 100 * found.pass_at_1, "o", color=palette.RIGHT, markersize=4, alpha=0.6)
    whole = found.rises[0].slope
    if whole is not None:
        middle = float(found.pass_at_1.mean())
        ends = np.array([0.0, 1.0])
        line = middle + whole.rise * (ends - float(found.bank.shares.mean()))
        axes.plot(100 * ends, 100 * line, color=palette.INK, linewidth=1.2)
    axes.set_xlabel("recovered failures in the training set, %")
    axes.set_title(f"Pass@1 of {len(found.bank.arms)} arms, %", x=0)


def _draw_scores(axes: Axes, methods: Sequence[str], scored: Sequence[Scored]) -> None:
    """A row a method: on all that arms differ in, and, open, on what their share leaves."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    fills = {"problem": palette.RIGHT, "given_share": palette.PAPER}
    look: Any = {"marker": "o", "markersize": 6, "color": palette.RIGHT, "markeredgewidth": 1.4}
    for of in scored:
        if of.agreement is None or of.by not in fills:
            continue
        y = methods.index(of.method) + (-0.16 if of.by == "problem" else 0.16)
        chance, ends = of.agreement.permuted, of.agreement.interval
        axes.barh(y, chance.high - chance.low, 0.28, chance.low, color=palette.WRONG_PALE)
        axes.plot([ends.low, ends.high], [y, y], color=palette.RIGHT, linewidth=1.6)
        axes.plot(of.agreement.score, y, markerfacecolor=fills[of.by], **look)
        style.beside(axes, y, correlation(of.agreement.score))
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    style.name_rows(axes, methods)
    axes.set_xlabel("rank correlation with decisions of held-out arms")
    axes.set_title("What tells which arms solve a problem", x=0)
    labels = ("all", "beyond that share")
    handles = [
        Line2D([], [], linewidth=1.6, markerfacecolor=fill, label=label, **look)
        for fill, label in zip(fills.values(), labels, strict=True)
    ]
    style.legend_below(axes, [*handles, Patch(color=palette.WRONG_PALE, label="chance")])


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the bank."""
    register("bank", BankExperiment)
