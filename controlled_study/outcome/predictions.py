"""The seven predictions as figures, and the rules by which each is told.

Every figure is computed for each pre-training seed; its interval is Student's over these seeds.
The rules stand here and on docs/controlled-study.md, and were committed before any arm was trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from controlled_study.outcome.readings import Flags, Run
from controlled_study.tasks import MAIN, RUNS

Outcome = Literal["supported", "refuted", "undecided"]
#: Points within which a difference counts as none.
NONE_POINTS: Final = 1.0
#: Greedy accuracy on the pool between which a cell is of middle mastery.
MIDDLE: Final = (0.2, 0.8)
#: Share of lucky responses among those kept from which luck dominates a family.
DOMINATES: Final = 0.5
#: S problems of the pool that a family must have to be among those of a slope.
_FEWEST: Final = 5


@dataclass(frozen=True)
class Figure:
    """A number with its interval over pre-training seeds.

    Attributes:
        name: what it is.
        values: by pre-training seed, in points unless the name says otherwise; NaN where a seed
            does not have it.
        mean: over seeds.
        low: the lower end of the interval of 95%; NaN for fewer than two seeds.
        high: the upper end.
    """

    name: str
    values: tuple[float, ...]
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, values: Sequence[float]) -> Figure:
        """The mean of some values with Student's interval; undefined values have no part."""
        from scipy.stats import t

        known = [value for value in values if not math.isnan(value)]
        mean = float(np.mean(known)) if known else math.nan
        half = math.nan
        if len(known) > 1:
            error = float(np.std(known, ddof=1)) / math.sqrt(len(known))
            half = float(t.ppf(0.975, len(known) - 1)) * error
        return cls(name, tuple(values), mean, mean - half, mean + half)

    @property
    def above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    @property
    def below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0

    @property
    def none(self) -> bool:
        """Whether the whole interval is within one point of 0."""
        return self.low >= -NONE_POINTS and self.high <= NONE_POINTS


@dataclass(frozen=True)
class Told:
    """A prediction with what came out.

    Attributes:
        number: 1 to 7.
        claim: the prediction.
        figures: what it is told by; the first one leads.
        outcome: by the rules.
    """

    number: int
    claim: str
    figures: tuple[Figure, ...]
    outcome: Outcome


Runs = Sequence[Mapping[str, Run]]


def more(figure: Figure) -> Outcome:
    """The rule of claims that a difference is above 0.

    Refuted: the interval is within one point of 0 (also where it excludes 0) or below it.
    Supported: it is above 0 otherwise.
    """
    if figure.none or figure.below:
        return "refuted"
    return "supported" if figure.above else "undecided"


def tell(seeds: Runs) -> list[Told]:
    """All predictions, in their order.

    Args:
        seeds: of each pre-training seed, its finished runs by name; ``main`` is among them.
    """
    mains = [runs[MAIN] for runs in seeds]

    def figure(name: str, value: Callable[[Run], float]) -> Figure:
        return Figure.of(name, [value(run) for run in mains])

    gain = figure("gapft - uniform", lambda run: run.gain("gapft", "uniform"))
    gold = figure("gapft - gold", lambda run: run.gain("gapft", "gold"))
    coverage = figure("gapft - repetition", lambda run: run.gain("gapft", "repetition"))
    return [
        Told(1, "GapFT gains more than uniform", (gain,), more(gain)),
        _mastery(figure),
        Told(3, "Gold labels for U give less than verified responses for S", (gold,), more(gold)),
        _luck(figure),
        _replay(figure),
        Told(6, "Coverage beats repetition at fixed n × R", (coverage,), more(coverage)),
        _nulls(seeds),
    ]


def _mastery(figure: Callable[[str, Callable[[Run], float]], Figure]) -> Told:
    """Supported: the gain in the middle is above 0, and above that elsewhere."""
    middle = figure(
        "gapft - uniform, cells of middle mastery",
        lambda run: run.gain("gapft", "uniform", in_middle(run)),
    )
    elsewhere = figure(
        "gapft - uniform, other cells",
        lambda run: run.gain("gapft", "uniform", ~in_middle(run)),
    )
    difference = Figure.of(
        "middle - other", [a - b for a, b in zip(middle.values, elsewhere.values, strict=True)]
    )
    outcomes = {more(middle), more(difference)}
    return Told(
        2,
        "The gain lies in cells of middle mastery",
        (difference, middle, elsewhere),
        _all_of(outcomes),
    )


def _luck(figure: Callable[[str, Callable[[Run], float]], Figure]) -> Told:
    """Supported: the slope is below 0, and so is the gain of families that luck dominates.

    Refuted: the slope or that gain is above 0.
    """
    slope = figure("slope of gapft - uniform on a family's share of luck", luck_slope)
    dominated = figure("gapft - uniform, families that luck dominates", luck_gain)
    if slope.above or dominated.above:
        outcome: Outcome = "refuted"
    else:
        outcome = "supported" if slope.below and dominated.below else "undecided"
    return Told(
        4,
        "The more luck a family has, the smaller GapFT's gain; below 0 where luck dominates",
        (slope, dominated),
        outcome,
    )


def _replay(figure: Callable[[str, Callable[[Run], float]], Figure]) -> Told:
    def saved(run: Run) -> float:
        return _weighted(run, "replay", "gapft", run.audit.state == "G")

    def cost(run: Run) -> float:
        return _weighted(run, "gapft", "replay", run.audit.state == "S")

    net = figure("cost on S - saved on G", lambda run: cost(run) - saved(run))
    return Told(
        5,
        "Replay lowers regressions on G by less than it costs on S",
        (net, figure("saved on G", saved), figure("cost on S", cost)),
        more(net),
    )


def _nulls(seeds: Runs) -> Told:
    """Refuted: an interval excludes 0. Supported: none does, and every one could be computed."""
    figures = []
    for name in (name for name in RUNS if name != MAIN):
        done = [runs[name] for runs in seeds if name in runs]
        for other in ("uniform", "replay"):
            values = [run.gain("gapft", other) if run.n else math.nan for run in done]
            figures.append(Figure.of(f"{name}: gapft - {other}", values))
    if any(figure.above or figure.below for figure in figures):
        outcome: Outcome = "refuted"
    else:
        known = not any(math.isnan(figure.low) for figure in figures)
        outcome = "supported" if known else "undecided"
    claim = "In every null the contrasts' intervals hold 0"
    return Told(7, claim, tuple(figures), outcome)


def _all_of(outcomes: set[Outcome]) -> Outcome:
    """A claim of several parts: refuted if one is, supported if all are."""
    if "refuted" in outcomes:
        return "refuted"
    return "supported" if outcomes == {"supported"} else "undecided"


def in_middle(run: Run) -> Flags:
    """Audit problems of cells whose greedy accuracy on the pool lies in ``MIDDLE``."""
    low, high = MIDDLE
    cells = [
        cell
        for cell in np.unique(run.pool.cell)
        if low <= run.pool.solved[run.pool.cell == cell].mean() <= high
    ]
    return np.isin(run.audit.cell, cells)


def luck_by_family(run: Run) -> dict[str, float]:
    """Of the responses kept for S, the share that is lucky; families with few S are left out."""
    recovered = run.pool.state == "S"
    found = {}
    for family in np.unique(run.pool.family).tolist():
        kept = run.pool.kept_lucky[recovered & (run.pool.family == family)]
        if len(kept) >= _FEWEST:
            found[family] = float(kept.mean())
    return found


def luck_slope(run: Run) -> float:
    """Points of gain that a family loses between no luck and luck alone, by least squares."""
    luck = luck_by_family(run)
    if len(set(luck.values())) < 2:
        return math.nan
    gains = [run.gain("gapft", "uniform", run.audit.family == family) for family in luck]
    return float(np.polyfit(list(luck.values()), gains, 1)[0])


def luck_gain(run: Run) -> float:
    """GapFT's gain over uniform in the families that luck dominates; NaN where there are none."""
    families = [family for family, share in luck_by_family(run).items() if share >= DOMINATES]
    return run.gain("gapft", "uniform", np.isin(run.audit.family, families))


def _weighted(run: Run, a: str, b: str, where: Flags) -> float:
    """What a and b differ by on some problems, in points of the whole audit."""
    return run.gain(a, b, where) * float(where.mean()) if where.any() else 0.0


def as_json(told: Told) -> dict[str, Any]:
    """A prediction as JSON values; what is undefined is None."""

    def number(value: float) -> float | None:
        return None if math.isnan(value) else round(value, 4)

    return {
        "number": told.number,
        "claim": told.claim,
        "outcome": told.outcome,
        "figures": [
            {
                "name": figure.name,
                "seeds": [number(value) for value in figure.values],
                "mean": number(figure.mean),
                "ci95": [number(figure.low), number(figure.high)],
            }
            for figure in told.figures
        ],
    }
