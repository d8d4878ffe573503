"""The seven predictions as figures, and the rules by which each is told.

Every figure is computed for each of the pre-training seeds ``SEEDS``; its interval is Student's
over them. Nothing is supported or refuted unless all seeds have the figure. The rules stand here
and on docs/controlled-study.md, and were committed before any arm was trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from controlled_study.outcome.figures import Figure
from controlled_study.outcome.readings import Flags, Run
from controlled_study.sizes import SEEDS
from controlled_study.tasks import MAIN, RUNS

#: ``unfinished``: not all seeds have the runs; ``undecided`` is said of finished studies.
Outcome = Literal["supported", "refuted", "undecided", "unfinished"]
#: Greedy accuracy on the pool between which a cell is of middle mastery.
MIDDLE: Final = (0.2, 0.8)
#: Share of lucky responses among those kept from which luck dominates a family.
DOMINATES: Final = 0.5
#: Problems in S that a family must have in the pool to say how large its share of luck is.
FEWEST: Final = 5
#: Of all intervals of the nulls together.
NULLS_ALPHA: Final = 0.05


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


#: Of every pre-training seed, the finished runs by name.
Runs = Mapping[int, Mapping[str, Run]]


def more(figure: Figure) -> Outcome:
    """The rule of claims that a difference is above 0.

    Refuted: the interval is within one point of 0 (also where it excludes 0) or below it.
    Supported: it is above 0 otherwise.
    """
    if figure.none or figure.below():
        return "refuted"
    return "supported" if figure.above() else "undecided"


def tell(seeds: Runs) -> list[Told]:
    """All predictions, in their order."""
    gain = _of(seeds, "gapft - uniform", lambda run: run.gain("gapft", "uniform"))
    gold = _of(seeds, "gapft - gold", lambda run: run.gain("gapft", "gold"))
    coverage = _of(seeds, "gapft - repetition", lambda run: run.gain("gapft", "repetition"))
    return [
        _told(1, "GapFT gains more than uniform", [gain], more(gain)),
        _mastery(seeds),
        _told(3, "Gold labels for U give less than verified responses for S", [gold], more(gold)),
        _luck(seeds),
        _replay(seeds),
        _told(6, "Coverage beats repetition at fixed n × R", [coverage], more(coverage)),
        _nulls(seeds),
    ]


def _of(
    seeds: Runs, name: str, value: Callable[[Run], float], run: str = MAIN, lacks: str = ""
) -> Figure:
    """A figure of one run of every seed; ``lacks`` says why the value may be NaN."""
    values, missing, finished = list[float](), dict[int, str](), True
    for seed in SEEDS:
        found = seeds.get(seed, {}).get(run)
        if found is None:
            finished, why, number = False, f"the run {run} is not finished", math.nan
        elif not found.n:
            why, number = f"the run {run} had nothing to train on (n = 0)", math.nan
        else:
            why, number = f"the run {run} has {lacks}", value(found)
        values.append(number)
        if math.isnan(number):
            missing[seed] = why
    return Figure(name, tuple(values), missing, finished)


def _told(number: int, claim: str, figures: Sequence[Figure], outcome: Outcome) -> Told:
    """Holds the outcome back where a seed lacks a figure."""
    if not all(figure.finished for figure in figures):
        outcome = "unfinished"
    elif any(figure.missing for figure in figures):
        outcome = "undecided"
    return Told(number, claim, tuple(figures), outcome)


def _mastery(seeds: Runs) -> Told:
    """Supported: the gain in the middle is above 0, and above that elsewhere."""

    def inside(run: Run) -> float:
        return run.gain("gapft", "uniform", in_middle(run))

    def outside(run: Run) -> float:
        return run.gain("gapft", "uniform", ~in_middle(run))

    lacks = "no cells of middle mastery, or no others"
    middle = _of(seeds, "gapft - uniform, cells of middle mastery", inside, lacks=lacks)
    elsewhere = _of(seeds, "gapft - uniform, other cells", outside, lacks=lacks)
    difference = _of(seeds, "middle - other", lambda run: inside(run) - outside(run), lacks=lacks)
    claim = "The gain lies in cells of middle mastery"
    outcome = _all_of({more(middle), more(difference)})
    return _told(2, claim, [difference, middle, elsewhere], outcome)


def _luck(seeds: Runs) -> Told:
    """Supported: the slope is below 0, and so is the gain of families that luck dominates.

    Refuted: the slope or that gain is above 0.
    """
    slope = _of(
        seeds, "slope of gapft - uniform on a family's share of luck", luck_slope,
        lacks="no two families with different shares of luck",
    )  # fmt: skip
    dominated = _of(
        seeds, "gapft - uniform, families that luck dominates", luck_gain,
        lacks="no family that luck dominates",
    )  # fmt: skip
    if slope.above() or dominated.above():
        outcome: Outcome = "refuted"
    else:
        outcome = "supported" if slope.below() and dominated.below() else "undecided"
    claim = "The more luck a family has, the smaller GapFT's gain; below 0 where luck dominates"
    return _told(4, claim, [slope, dominated], outcome)


def _replay(seeds: Runs) -> Told:
    def saved(run: Run) -> float:
        return _weighted(run, "replay", "gapft", run.audit.state == "G")

    def cost(run: Run) -> float:
        return _weighted(run, "gapft", "replay", run.audit.state == "S")

    net = _of(seeds, "cost on S - saved on G", lambda run: cost(run) - saved(run))
    figures = [net, _of(seeds, "saved on G", saved), _of(seeds, "cost on S", cost)]
    return _told(5, "Replay lowers regressions on G by less than it costs on S", figures, more(net))


def _nulls(seeds: Runs) -> Told:
    """Supported: every interval holds 0 and is within one point of it.

    Refuted: an interval excludes 0 at a level that makes up for their number (Bonferroni).
    """
    figures = [
        _of(seeds, f"{name}: gapft - {other}", _gain_over(other), run=name)
        for name in RUNS
        if name != MAIN
        for other in ("uniform", "replay")
    ]
    strict = 1 - NULLS_ALPHA / len(figures)
    if any(figure.above(strict) or figure.below(strict) for figure in figures):
        outcome: Outcome = "refuted"
    else:
        held = [each.none and not each.above() and not each.below() for each in figures]
        outcome = "supported" if all(held) else "undecided"
    return _told(7, "In every null the contrasts' intervals hold 0", figures, outcome)


def _gain_over(other: str) -> Callable[[Run], float]:
    return lambda run: run.gain("gapft", other)


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
        if len(kept) >= FEWEST:
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
                "ci95": list(map(number, figure.interval())),
                "missing": {str(seed): why for seed, why in figure.missing.items()},
            }
            for figure in told.figures
        ],
    }
