"""The allocation comparison in the report: decisions, findings, section, tables, figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import api
from gapft_harness.analysis.allocation import (
    Successes,
    Value,
    mean_successes,
    replicate_successes,
    successes,
)
from gapft_harness.analysis.bootstrap import Interval, percentile_interval
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.api import (
    condition_name,
    layout,
    palette,
    percent,
    points,
    points_interval,
    style,
    wording,
)
from gapft_harness.experiments.allocation.halves import exposed_file, find_halves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


@dataclass(frozen=True, slots=True)
class ExposedSeed:
    """The problems of halves A and B under one seed, by id; every array has shape (P,).

    Attributes:
        ids: distinct.
        halves: ``A`` (shared) or ``B`` (new).
        diffuse: status codes of the greedy decode by the model that saw A and B once.
        concentrated: the same of the model that saw A twice.
        replay: slots of solved problems, the same examples in both training sets.
    """

    seed: int
    ids: NDArray[np.str_]
    halves: NDArray[np.str_]
    diffuse: NDArray[np.uint8]
    concentrated: NDArray[np.uint8]
    replay: int

    @property
    def diffuse_passed(self) -> NDArray[np.bool_]:
        """V of the diffuse model."""
        passed: NDArray[np.bool_] = self.diffuse == api.PASS
        return passed

    @property
    def concentrated_passed(self) -> NDArray[np.bool_]:
        """V of the concentrated model."""
        passed: NDArray[np.bool_] = self.concentrated == api.PASS
        return passed


@dataclass(frozen=True, slots=True)
class Exposures:
    """An allocation comparison: two conditions and, by seed, what they trained on."""

    diffuse: str
    concentrated: str
    seeds: tuple[ExposedSeed, ...]  # ascending


def read_exposures(
    run_path: Path, allocation: Mapping[str, Any], seeds: Sequence[int]
) -> Exposures:
    """Reads the sealed selections and the decisions on them.

    Args:
        run_path: the run directory.
        allocation: the recipe's key of that name.
        seeds: training seeds.

    Raises:
        UserError: the selections are no such comparison.
        GapftError: the decisions are on other problems.
    """
    names = allocation["diffuse"], allocation["concentrated"]
    return Exposures(*names, tuple(_read_seed(run_path, *names, seed) for seed in seeds))


def _read_seed(run_path: Path, diffuse: str, concentrated: str, seed: int) -> ExposedSeed:
    once, twice = api.Arm(diffuse, seed), api.Arm(concentrated, seed)
    found = find_halves(
        once,
        api.read_examples(run_path / layout.selection(once)),
        twice,
        api.read_examples(run_path / layout.selection(twice)),
    )
    decisions = [
        api.read_decisions(run_path / exposed_file(arm), found.problems, "the two arms' selections")
        for arm in (once, twice)
    ]
    in_a = set(found.a)
    return ExposedSeed(
        seed=seed,
        ids=np.array(found.problems, dtype=np.str_),
        halves=np.array(["A" if i in in_a else "B" for i in found.problems], dtype=np.str_),
        diffuse=decisions[0],
        concentrated=decisions[1],
        replay=found.replay,
    )


#: What is reported, by its name in results.json, in the order of the report.
RATES = ("a_A_1", "a_A_2", "a_B_0", "a_B_1")
DIFFERENCES = ("coverage_gain", "repetition_loss", "contrast")
QUANTITIES = (*RATES, *DIFFERENCES)


@dataclass(frozen=True, slots=True)
class CoverageSeed:
    """One seed's comparison.

    Attributes:
        problems: of each half.
        replay: slots of solved problems, the same examples in both conditions.
        diffuse: that arm's budget.
        concentrated: the other's.
    """

    problems: int
    replay: int
    found: Successes[Fraction]
    diffuse: api.Budget
    concentrated: api.Budget


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage against repetition of two conditions.

    Attributes:
        repetitions: R; a problem selected r times was seen r R times in training.
        mean: over seeds, each counting the same.
        intervals: by the names of ``QUANTITIES``.
        seeds: by seed, ascending.
    """

    diffuse: str
    concentrated: str
    repetitions: int
    mean: Successes[Fraction]
    intervals: Mapping[str, Interval]
    seeds: Mapping[int, CoverageSeed]


def quantities(of: Successes[Value]) -> dict[str, Value]:
    """The reported quantities by name."""
    values = (of.a_1, of.a_2, of.b_0, of.b_1, of.coverage_gain, of.repetition_loss, of.contrast)
    return dict(zip(QUANTITIES, values, strict=True))


def _intervals(inputs: api.ReportInputs, exposures: Exposures) -> dict[str, Interval]:
    """Puts the seeds' problems into arrays over the union of all, and resamples."""
    ids = np.unique(np.concatenate([of.ids for of in exposures.seeds]))
    shape = len(exposures.seeds), len(ids)
    halves = np.full(shape, "", dtype="U1")
    diffuse, concentrated = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for row, of in enumerate(exposures.seeds):
        places = np.searchsorted(ids, of.ids)
        halves[row, places] = of.halves
        diffuse[row, places] = of.diffuse_passed
        concentrated[row, places] = of.concentrated_passed
    statistics = inputs.recipe["statistics"]
    replicates = replicate_successes(
        halves,
        diffuse,
        concentrated,
        item_ids=ids,
        seeds=np.array([of.seed for of in exposures.seeds], dtype=np.int64),
        replicates=statistics["replicates"],
        stream=api.Stream(statistics["seed"], "report/allocation"),
    )
    return {name: percentile_interval(of) for name, of in quantities(replicates).items()}


class AllocationPart(api.Part):
    """Coverage against repetition: the opening, a section, a figure and two tables."""

    name = "allocation"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> Exposures | None:
        """The problems that both conditions trained on, and how each now decides them."""
        recipe = manifest["recipe"]
        said = recipe["experiments"].get(self.name)
        return read_exposures(run_path, said, sorted(recipe["seeds"])) if said and arms else None

    def leads(self, read: Exposures) -> Sequence[str]:
        """The diffuse condition leads."""
        return read.diffuse, read.concentrated

    def compute(self, inputs: api.ReportInputs, read: Exposures) -> Coverage:
        """The seven quantities with their intervals."""
        once, twice = (
            {trained.arm.seed: trained.budget for trained in inputs.of(name)}
            for name in (read.diffuse, read.concentrated)
        )
        seeds = {
            of.seed: CoverageSeed(
                problems=len(of.ids) // 2,
                replay=of.replay,
                found=successes(of.halves, of.diffuse_passed, of.concentrated_passed),
                diffuse=once[of.seed],
                concentrated=twice[of.seed],
            )
            for of in read.seeds
        }
        return Coverage(
            diffuse=read.diffuse,
            concentrated=read.concentrated,
            repetitions=next(iter(once.values())).repetitions,
            mean=mean_successes([seed.found for seed in seeds.values()]),
            intervals=_intervals(inputs, read),
            seeds=seeds,
        )

    def opening(self, findings: api.ReportFindings, found: Coverage) -> api.Opening:
        """The contrast, first if the report is about it."""
        interval = points_interval(found.intervals["contrast"])
        value = points(found.mean.contrast)
        stat = api.Stat("on problems trained on", value, f"points {interval}")
        return api.Opening(_result(found), findings.lead == found.diffuse, stat)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[api.Section]:
        """A sentence, the figure, the seven quantities, and what the two were trained on."""
        said = f"{_result(found)} {_reasons(found)} {_transfer(findings, found)}"
        tables = _table(inputs, found), _training(found)
        shown: list[api.Block] = [api.Text(said), _figure(findings, found), *tables]
        yield api.Section("Coverage against repetition", shown)

    def figures(
        self, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[tuple[str, Callable[[api.ReportFindings], Drawn]]]:
        """Success by exposures, and what of it transfers."""
        yield "allocation", lambda findings: _draw(findings, found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[tuple[str, api.Rows]]:
        """Every quantity by seed, and every compared problem."""
        yield "allocation.csv", quantity_rows(found)
        yield "exposed.csv", problem_rows(inputs.read(self.name))

    def results(self, found: Coverage) -> dict[str, Any]:
        """For results.json."""
        mean = quantities(found.mean)
        return {
            "diffuse": found.diffuse,
            "concentrated": found.concentrated,
            "R": found.repetitions,
            **{
                name: {"mean": float(mean[name]), "ci95": [interval.low, interval.high]}
                for name, interval in found.intervals.items()
            },
            "seeds": {
                str(seed): {
                    "problems_a_half": of.problems,
                    "replay": of.replay,
                    **{name: float(value) for name, value in quantities(of.found).items()},
                    "L_supervised": {
                        "diffuse": of.diffuse.supervised_tokens,
                        "concentrated": of.concentrated.supervised_tokens,
                    },
                }
                for seed, of in found.seeds.items()
            },
        }

    def verdicts(self, inputs: api.ReportInputs, read: Exposures) -> dict[str, Mapping[str, int]]:
        """Both conditions' verdicts on the problems trained on."""
        return {
            f"problems trained on, {condition_name(name)}": api.count_codes(np.concatenate(codes))
            for name, codes in (
                (read.diffuse, [of.diffuse for of in read.seeds]),
                (read.concentrated, [of.concentrated for of in read.seeds]),
            )
        }

    def summary(self, content: Mapping[str, Any]) -> api.Summary:
        """The contrast in one line."""
        contrast = content["contrast"]
        mean, low, high = map(points, (contrast["mean"], *contrast["ci95"]))
        return api.Summary(
            f"{content['diffuse']} minus {content['concentrated']} on the problems trained on: "
            f"{mean} points [{low}, {high}]",
            min(seed["problems_a_half"] for seed in content["seeds"].values()),
        )


_LABELS = {
    "a_A_1": "a_A(1), A seen once",
    "a_A_2": "a_A(2), A seen twice",
    "a_B_0": "a_B(0), B never seen",
    "a_B_1": "a_B(1), B seen once",
    "coverage_gain": "coverage gain, a_B(1) − a_B(0)",
    "repetition_loss": "repetition loss, a_A(2) − a_A(1)",
    "contrast": "contrast, ½ gain − ½ loss",
}


def _result(coverage: Coverage) -> str:
    """The contrast in a sentence."""
    contrast, interval = coverage.mean.contrast, coverage.intervals["contrast"]
    return (
        f"Training once on twice as many problems ({condition_name(coverage.diffuse)}), not twice "
        f"on half of them ({condition_name(coverage.concentrated)}), changes success on those "
        f"problems by {points(contrast)} points {points_interval(interval)}; "
        f"{wording.resolution(interval)}."
    )


def _reasons(coverage: Coverage) -> str:
    mean, intervals = coverage.mean, coverage.intervals
    gain, loss = (
        f"{points(value)} points {points_interval(intervals[name])}"
        for name, value in (
            ("coverage_gain", mean.coverage_gain),
            ("repetition_loss", mean.repetition_loss),
        )
    )
    return (
        f"It is half of what a first exposure adds on the new half B, {gain}, minus half of what "
        f"a second exposure adds on the shared half A, {loss}."
    )


def _transfer(findings: api.ReportFindings, coverage: Coverage) -> str:
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    return (
        "On the audit, whose problems neither was trained on, the difference is "
        f"{points(contrast.delta)} points {points_interval(contrast.interval)}."
    )


def _figure(findings: api.ReportFindings, coverage: Coverage) -> api.Figure:
    rates = quantities(coverage.mean)
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    terms = contrast.terms
    pale = "; pale, each seed" if len(coverage.seeds) > 1 else ""
    names = f"{condition_name(coverage.diffuse)} − {condition_name(coverage.concentrated)}"
    return api.Figure(
        "allocation",
        "Success on the problems trained on: "
        + ", ".join(f"{_LABELS[name]} {percent(rates[name])}" for name in RATES)
        + ". Audit difference by source state: "
        + ", ".join(
            f"{s} {points(t)}" for s, t in zip("SUG", (terms.s, terms.u, terms.g), strict=True)
        )
        + " points.",
        "Left: success on the shared half A and the new half B by exposures, with 95% intervals"
        f"{pale}. Right: the difference on the audit, {names}, as the sum of its parts by source "
        "state.",
    )


def _table(inputs: api.ReportInputs, coverage: Coverage) -> api.Table:
    mean = quantities(coverage.mean)
    by_seed = [quantities(of.found) for of in coverage.seeds.values()]
    rows = []
    for name, interval in coverage.intervals.items():
        rate = name in RATES
        write = percent if rate else points
        rows.append(
            [
                _LABELS[name],
                write(mean[name]),
                wording.percent_interval(interval) if rate else points_interval(interval),
                *(write(of[name]) for of in by_seed),
            ]
        )
    one_seed = len(by_seed) == 1
    note = (
        "Success: share of a half's problems that one greedy decode of the trained model solves"
        f"{'' if one_seed else '; mean over seeds, each with halves of its own'}. "
        f"{condition_name(coverage.diffuse)} gives a_A(1) and a_B(1), "
        f"{condition_name(coverage.concentrated)} a_A(2) and a_B(0). Differences in percentage "
        "points. As the halves are of one size, the contrast is the difference of the two "
        "conditions over A and B together. Intervals are percentiles of "
        f"{wording.whole(inputs.recipe['statistics']['replicates'])} paired replicates that "
        "resample training seeds and problems, both jointly for the two conditions; a draw without "
        "any problem of some half is drawn again. These problems were trained on: the rates say "
        "what was learnt of them, not how well it transfers."
    )
    if coverage.repetitions > 1:
        note += (
            f" Exposures count selections: each was repeated R = {coverage.repetitions} times in "
            "training, in both conditions."
        )
    smallest = min(of.problems for of in coverage.seeds.values())
    if smallest < STABLE_ITEMS:
        note += f" Unstable: the smallest half has {smallest} problems, fewer than {STABLE_ITEMS}."
    columns = ["quantity", "mean", "95% interval", *(f"seed {seed}" for seed in coverage.seeds)]
    if one_seed:
        columns, rows = [columns[0], columns[3], columns[2]], [row[:3] for row in rows]
    return api.Table(columns, rows, note=note)


def _training(coverage: Coverage) -> api.Table:
    rows = []
    for seed, of in coverage.seeds.items():
        once, twice = of.diffuse.supervised_tokens, of.concentrated.supervised_tokens
        share = percent(Fraction(abs(once - twice), max(once, twice, 1)), 2)
        counts = (of.problems, of.problems, of.replay, once, twice)
        difference = f"{wording.signed_whole(once - twice)} ({share})"
        rows.append([str(seed), *(wording.whole(count) for count in counts), difference])
    diffuse, concentrated = (
        condition_name(name) for name in (coverage.diffuse, coverage.concentrated)
    )
    return api.Table(
        ["seed", "A", "B", "replay", f"tokens, {diffuse}", f"tokens, {concentrated}", "difference"],
        rows,
        note=f"Read off the training sets and checked: {diffuse} holds every problem of A and B "
        f"once, {concentrated} every problem of A twice and none of B, and both hold the same "
        "replay of solved problems, response by response. Tokens: supervised response tokens over "
        "all exposures; the difference also as a share of the larger.",
    )


def quantity_rows(coverage: Coverage) -> api.Rows:
    """Each quantity's mean with its interval, then every seed."""
    yield "quantity", "seed", "value", "ci95_low", "ci95_high"
    for name, value in quantities(coverage.mean).items():
        interval = coverage.intervals[name]
        yield name, "mean", float(value), interval.low, interval.high
        for seed, of in coverage.seeds.items():
            yield name, seed, float(quantities(of.found)[name]), "", ""


def problem_rows(exposures: Exposures) -> api.Rows:
    """Every compared problem: its half, and how often each condition selected it."""
    yield (
        "seed", "problem_id", "half", "selected_diffuse", "selected_concentrated",
        "verdict_diffuse", "verdict_concentrated",
    )  # fmt: skip
    for of in exposures.seeds:
        for row in zip(of.ids, of.halves, of.diffuse, of.concentrated, strict=True):
            problem_id, half, diffuse, concentrated = row
            yield (
                of.seed,
                problem_id,
                half,
                1,
                2 if half == "A" else 0,
                api.STATUSES[int(diffuse)],
                api.STATUSES[int(concentrated)],
            )


#: Each half: its rates by exposures, its colour and marker.
_HALVES = (
    ("A", ((1, "a_A_1"), (2, "a_A_2")), palette.series(4)),
    ("B", ((0, "a_B_0"), (1, "a_B_1")), palette.series(2)),
)


def _draw(findings: api.ReportFindings, coverage: Coverage) -> Drawn:
    """Two panels: success on A and B by exposures; the audit contrast in its S, U and G terms."""
    from matplotlib.figure import Figure as Drawn

    figure = Drawn(figsize=(style.WIDTH, 3.3), layout="constrained")
    style.spread(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1])
    _draw_exposures(left, coverage)
    _draw_transfer(right, findings.contrast(coverage.diffuse, coverage.concentrated))
    return figure


def _draw_exposures(axes: Axes, coverage: Coverage) -> None:
    """Both halves' success by exposures: the mean with its interval, every seed in pale."""
    mean = quantities(coverage.mean)
    seeds = [quantities(of.found) for of in coverage.seeds.values()]
    for half, named, (colour, marker) in _HALVES:
        exposures = [r for r, _ in named]
        # The halves meet at one exposure: moved apart, so that both intervals can be seen.
        places = [r + (0.06 if half == "A" else -0.06) for r in exposures]
        if len(seeds) > 1:
            for of in seeds:
                rates = [100 * float(of[name]) for _, name in named]
                axes.plot(places, rates, color=colour, linewidth=0.8, alpha=0.35)
        rates = [100 * float(mean[name]) for _, name in named]
        axes.plot(places, rates, color=colour, marker=marker, markersize=6, linewidth=1.8)
        for place, (_, name) in zip(places, named, strict=True):
            interval = coverage.intervals[name]
            axes.plot(
                [place, place],
                [100 * interval.low, 100 * interval.high],
                color=colour,
                linewidth=1.1,
            )
        end = -1 if half == "A" else 0
        axes.annotate(
            half,
            (places[end], rates[end]),
            xytext=(8 if half == "A" else -8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            ha="left" if half == "A" else "right",
            fontweight="bold",
        )
    axes.set_xticks([0, 1, 2])
    axes.set_xlim(-0.65, 2.65)
    axes.set_xlabel("exposures" if coverage.repetitions == 1 else "times selected")
    _titles(
        axes,
        "Solved of A and B, %",
        "contrast",
        coverage.mean.contrast,
        coverage.intervals["contrast"],
    )


def _draw_transfer(axes: Axes, contrast: api.Contrast) -> None:
    """The terms of diffuse minus concentrated on the audit, and their sum with its interval."""
    terms = [("S", contrast.terms.s), ("U", contrast.terms.u), ("G", contrast.terms.g)]
    for y, (_, term) in enumerate(terms):
        colour = palette.RIGHT if term > 0 else palette.WRONG
        axes.barh(y, 100 * float(term), height=0.5, color=colour)
    style.interval_row(axes, len(terms), contrast.delta, contrast.interval)
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    shown = [points(value) for value in (*(term for _, term in terms), contrast.delta)]
    for y, text in enumerate(shown):
        axes.annotate(
            text,
            (1.04, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(4), [*(name for name, _ in terms), "sum"])
    axes.set_ylim(3.6, -0.6)
    style.rows_alone(axes)
    axes.set_xlabel("points of Pass@1")
    _titles(axes, "Audit difference by state", "sum", contrast.delta, contrast.interval)


def _titles(axes: Axes, title: str, name: str, middle: Fraction, interval: Interval) -> None:
    """A title, and under it a difference with its interval."""
    axes.set_title(title, x=0, pad=22)
    axes.annotate(
        f"{name} {points(middle)} {points_interval(interval)}",
        (0, 1),
        xytext=(0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8.5,
        color=palette.MUTED,
    )
