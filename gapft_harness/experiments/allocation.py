"""Coverage against repetition: which problems the same responses are spent on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Allocation(api.RecipeSection):
    """What a recipe says of the comparison."""

    diffuse: str = Field(description="condition that sees the halves A and B once each")
    concentrated: str = Field(description="condition that sees half A twice")

    def arms(self, seed: int) -> tuple[api.Arm, api.Arm]:
        """The two of a seed."""
        return api.Arm(self.diffuse, seed), api.Arm(self.concentrated, seed)


def compared(recipe: api.Recipe) -> Allocation | None:
    """What a checked recipe says; None if it compares no allocations."""
    said = recipe.experiments.get("allocation")
    return None if said is None else Allocation.model_validate(said)


@dataclass(frozen=True, slots=True)
class Halves:
    """What two conditions of one seed trained on.

    Attributes:
        a: ids of the shared half, ascending: selected once by diffuse, twice by concentrated.
        b: ids of the new half, ascending, as many: once by diffuse, never by concentrated.
        replay: slots of solved problems, the same examples in both.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    replay: int

    @property
    def problems(self) -> tuple[str, ...]:
        """A and B together, ascending."""
        return tuple(sorted(self.a + self.b))


def read_halves(allocation: Allocation, seed: int, file: Callable[[str], Path]) -> Halves:
    """Reads one seed's halves from its sealed selections.

    Args:
        allocation: the two conditions.
        seed: a training seed.
        file: where a sealed file of the run lies.

    Raises:
        UserError: the selections are not sealed, or are no such comparison.
    """
    diffuse, concentrated = arms = allocation.arms(seed)
    once, twice = (api.read_examples(file(layout.selection(arm))) for arm in arms)
    return find_halves(diffuse, once, concentrated, twice)


def find_halves(
    diffuse: api.Arm,
    of_diffuse: Sequence[api.Example],
    concentrated: api.Arm,
    of_concentrated: Sequence[api.Example],
) -> Halves:
    """Tells A from B by how often each condition selected the same example.

    Raises:
        UserError: an example seen another number of times, halves of different size, replay that
            differs, or training on missed problems; the message names the arms.
    """
    names = f"arms {diffuse.name} and {concentrated.name}"
    fix = "the key experiments.allocation needs two conditions of that kind, or must be left out"
    for arm, examples in ((diffuse, of_diffuse), (concentrated, of_concentrated)):
        missed = sorted(e.problem_id for e in examples if e.state == "U")
        if missed:
            raise api.UserError(
                f"arm {arm.name}: {len(missed)} examples are of problems that search missed "
                f"(first: {missed[0]}), expected recovered and solved ones only; {fix}"
            )
    once, twice = (
        Counter(e for e in examples if e.state == "S") for examples in (of_diffuse, of_concentrated)
    )
    a: list[str] = []
    b: list[str] = []
    for example in sorted({*once, *twice}, key=lambda e: (e.problem_id, e.response_ids)):
        seen = (once[example], twice[example])
        if seen not in ((1, 2), (1, 0)):
            raise api.UserError(
                f"{names}: select an example of problem {example.problem_id} {seen[0]} and "
                f"{seen[1]} times, expected 1 and 2 (half A) or 1 and 0 (half B); {fix}"
            )
        (a if seen == (1, 2) else b).append(example.problem_id)
    if len(a) != len(b) or not a:
        raise api.UserError(
            f"{names}: half A has {len(a)} problems and half B {len(b)}, expected as many of "
            f"each, and some; {fix}"
        )
    replay, other = (
        Counter(e for e in examples if e.state == "G") for examples in (of_diffuse, of_concentrated)
    )
    if replay != other:
        differing = sorted({e.problem_id for e in (*(replay - other), *(other - replay))})
        raise api.UserError(
            f"{names}: replay solved problems that differ in {len(differing)} (first: "
            f"{differing[0]}), expected the same examples in both; {fix}"
        )
    return Halves(tuple(a), tuple(b), replay.total())


def exposed_file(arm: api.Arm) -> str:
    """Where an arm's decisions on the halves stand in a run directory."""
    return layout.decisions(arm, "exposed")


class AllocationExperiment(api.Experiment):
    """Coverage against repetition on the problems that two conditions train on."""

    name = "allocation"
    section = Allocation

    def part(self) -> AllocationPart:
        """Its section, figure and tables."""
        return AllocationPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """As of every experiment.

        Raises:
            UserError: conditions that are not there, are one, differ in more than their sets, or
                have an odd n.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.allocation"
        names = {"diffuse": found.diffuse, "concentrated": found.concentrated}
        for key, name in names.items():
            if name not in recipe.conditions:
                known = ", ".join(recipe.conditions)
                raise api.UserError(f"{where}.{key}': {name!r} is none of the conditions {known}")
            n = recipe.slots(name)
            if isinstance(n, int) and n % 2:
                raise api.UserError(f"{where}': splits budget.n into two halves, and {n} is odd")
        if found.diffuse == found.concentrated:
            raise api.UserError(f"{where}': compares {found.diffuse!r} with itself")
        api.require_same_settings(recipe, self.name, [*names.values()])
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """The two that are compared."""
        allocation = compared(recipe)
        return (allocation.diffuse, allocation.concentrated) if allocation else ()

    def faults(self, view: api.View) -> Iterator[str]:
        """Selections that are not such a comparison."""
        allocation = compared(view.recipe)
        if allocation is not None and view.arms():
            yield from api.find_own_settings(view, self.name, self.conditions(view.recipe))
            for seed in sorted({arm.seed for arm in view.arms()}):
                pair = [arm for arm in allocation.arms(seed) if arm in view.arms()]
                if len(pair) == 2:
                    read_halves(allocation, seed, view.file)

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Both conditions decode what either trained on."""
        allocation = compared(view.recipe)
        if allocation is None:
            return
        arms = [arm for arm in view.arms() if arm.condition in self.conditions(view.recipe)]
        halves = {s: read_halves(allocation, s, view.file) for s in {arm.seed for arm in arms}}
        yield {
            exposed_file(arm): view.decode(
                arm, "pool", ids=halves[arm.seed].problems, verb="decode trained problems,"
            )
            for arm in arms
        }

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Each of the compared adapters decodes both halves."""
        pair = self.conditions(recipe)
        adapters, n = len(pair) * len(recipe.seeds), recipe.slots(pair[0])
        if not isinstance(n, int):
            line = f"halves: of up to n problems x {adapters} adapters"
            return api.Cost(decodes=[line], responses=counts["pool"] * adapters)
        line = f"halves: {n * adapters:,} = {n:,} x {adapters} adapters"
        return api.Cost(decodes=[line], responses=n * adapters)


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


def _read_seed(run_path: Path, allocation: Allocation, seed: int) -> ExposedSeed:
    found = read_halves(allocation, seed, run_path.joinpath)
    diffuse, concentrated = (
        api.read_decisions(run_path / exposed_file(arm), found.problems, "the two arms' selections")
        for arm in allocation.arms(seed)
    )
    in_a = {*found.a}
    return ExposedSeed(
        seed=seed,
        ids=np.array(found.problems, dtype=np.str_),
        halves=np.array(["A" if i in in_a else "B" for i in found.problems], dtype=np.str_),
        diffuse=diffuse,
        concentrated=concentrated,
        replay=found.replay,
    )


#: What is reported, by its name in results.json, in the order of the report.
RATES = ("a_A_1", "a_A_2", "a_B_0", "a_B_1")
DIFFERENCES = ("coverage_gain", "repetition_loss", "contrast")
QUANTITIES = (*RATES, *DIFFERENCES)


_LABELS = {
    "a_A_1": "a_A(1), A seen once",
    "a_A_2": "a_A(2), A seen twice",
    "a_B_0": "a_B(0), B never seen",
    "a_B_1": "a_B(1), B seen once",
    "coverage_gain": "coverage gain, a_B(1) − a_B(0)",
    "repetition_loss": "repetition loss, a_A(2) − a_A(1)",
    "contrast": "contrast, ½ gain − ½ loss",
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One of ``QUANTITIES``: its mean over seeds, each counting the same, and every seed's."""

    name: str
    mean: Fraction
    interval: Interval
    seeds: Mapping[int, Fraction]  # ascending

    def shown(self, value: Fraction) -> str:
        """A rate, or a difference in points."""
        return percent(value) if self.name in RATES else points(value)

    @property
    def ends(self) -> str:
        """The interval in the same way."""
        write = wording.percent_interval if self.name in RATES else points_interval
        return write(self.interval)

    @property
    def said(self) -> str:
        """A difference with its interval."""
        return f"{points(self.mean)} points {self.ends}"


@dataclass(frozen=True, slots=True)
class CoverageSeed:
    """What two conditions of one seed were trained on.

    Attributes:
        problems: of each half.
        replay: slots of solved problems, the same examples in both conditions.
        tokens: supervised ones, of the diffuse arm and of the concentrated one.
    """

    problems: int
    replay: int
    tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage against repetition of two conditions.

    Attributes:
        repetitions: R; a problem selected r times was seen r R times in training.
        quantities: by their names, in the order of ``QUANTITIES``.
        seeds: by seed, ascending.
    """

    diffuse: str
    concentrated: str
    repetitions: int
    quantities: Mapping[str, Quantity]
    seeds: Mapping[int, CoverageSeed]

    @property
    def contrast(self) -> Quantity:
        """What the comparison comes to."""
        return self.quantities["contrast"]


def quantities(of: Successes[Value]) -> dict[str, Value]:
    """The reported quantities by name."""
    values = (of.a_1, of.a_2, of.b_0, of.b_1, of.coverage_gain, of.repetition_loss, of.contrast)
    return dict(zip(QUANTITIES, values, strict=True))


def _quantities(inputs: api.ReportInputs, exposures: Exposures) -> dict[str, Quantity]:
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
    seeds = {
        of.seed: successes(of.halves, of.diffuse_passed, of.concentrated_passed)
        for of in exposures.seeds
    }
    by_seed = {seed: quantities(of) for seed, of in seeds.items()}
    mean, drawn = quantities(mean_successes([*seeds.values()])), quantities(replicates)
    return {
        name: Quantity(
            name,
            mean[name],
            percentile_interval(drawn[name]),
            {seed: of[name] for seed, of in by_seed.items()},
        )
        for name in QUANTITIES
    }


def _quantity_columns(seeds: Iterable[object]) -> list[api.Column[Quantity]]:
    """Of a single seed, it stands for the mean."""

    def column(title: str, meaning: str, value: Callable[[Quantity], str]) -> api.Column[Quantity]:
        return api.Column("", meaning, value, title)

    name = column("quantity", "a term of Equation 10", lambda of: _LABELS[of.name])
    mean = column("mean", "its mean over seeds", lambda of: of.shown(of.mean))
    ends = column("95% interval", "", lambda of: of.ends)
    each = [
        column(f"seed {seed}", "the term under this seed", partial(_of_seed, seed))
        for seed in seeds
    ]
    return [name, *each, ends] if len(each) == 1 else [name, mean, ends, *each]


def _of_seed(seed: Any, of: Quantity) -> str:
    return of.shown(of.seeds[seed])


def _successes(inputs: api.ReportInputs, coverage: Coverage) -> api.Table:
    one_seed = len(coverage.seeds) == 1
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
    rows = [*coverage.quantities.values()]
    return api.Frame(_quantity_columns(coverage.seeds), rows).table(note)


def _training_columns(*conditions: str) -> Iterator[api.Column[tuple[int, CoverageSeed]]]:
    meaning = "problems, solved ones beside, supervised tokens"

    def column(title: str, value: Callable[[CoverageSeed], str]) -> Any:
        return api.Column("", meaning, lambda row: value(row[1]), title)

    yield api.Column("", "", lambda row: row[0], "seed")
    yield from (column(half, lambda of: wording.whole(of.problems)) for half in "AB")
    yield column("replay", lambda of: wording.whole(of.replay))
    for place, name in enumerate(conditions):
        yield column(f"tokens, {name}", partial(_tokens, place))
    yield api.Column("", "", lambda row: _difference(*row[1].tokens), "difference")


def _tokens(place: int, of: CoverageSeed) -> str:
    return wording.whole(of.tokens[place])


def _difference(once: int, twice: int) -> str:
    share = percent(Fraction(abs(once - twice), max(once, twice, 1)), 2)
    return f"{wording.signed_whole(once - twice)} ({share})"


def _training(coverage: Coverage) -> api.Table:
    diffuse, concentrated = map(condition_name, (coverage.diffuse, coverage.concentrated))
    columns = [*_training_columns(diffuse, concentrated)]
    return api.Frame(columns, [*coverage.seeds.items()]).table(
        f"Read off the training sets and checked: {diffuse} holds every problem of A and B "
        f"once, {concentrated} every problem of A twice and none of B, and both hold the same "
        "replay of solved problems, response by response. Tokens: supervised response tokens over "
        "all exposures; the difference also as a share of the larger.",
    )


QUANTITY_COLUMNS = tuple(_quantity_columns(["NUMBER", "NUMBER"]))
TRAINING_COLUMNS = tuple(_training_columns("CONDITION", "CONDITION"))


def quantity_rows(coverage: Coverage) -> api.Rows:
    """Each quantity's mean with its interval, then every seed."""
    yield "quantity", "seed", "value", "ci95_low", "ci95_high"
    for name, of in coverage.quantities.items():
        yield name, "mean", float(of.mean), of.interval.low, of.interval.high
        for seed, value in of.seeds.items():
            yield name, seed, float(value), "", ""


#: Of every compared problem: its half, and how often each condition selected it.
PROBLEMS: tuple[api.Column[tuple[ExposedSeed, int]], ...] = (
    api.Column("seed", "", lambda row: row[0].seed),
    api.Column("problem_id", "", lambda row: row[0].ids[row[1]]),
    api.Column("half", "", lambda row: row[0].halves[row[1]]),
    api.Column("selected_diffuse", "", lambda row: 1),
    api.Column("selected_concentrated", "", lambda row: 2 * (row[0].halves[row[1]] == "A")),
    api.Column("verdict_diffuse", "", lambda row: api.STATUSES[row[0].diffuse[row[1]]]),
    api.Column("verdict_concentrated", "", lambda row: api.STATUSES[row[0].concentrated[row[1]]]),
)


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
        if not said or not arms:
            return None
        of, seeds = Allocation.model_validate(said), sorted(recipe["seeds"])
        found = tuple(_read_seed(run_path, of, seed) for seed in seeds)
        return Exposures(of.diffuse, of.concentrated, found)

    def leads(self, read: Exposures) -> Sequence[str]:
        """The diffuse condition leads."""
        return read.diffuse, read.concentrated

    def compute(self, inputs: api.ReportInputs, read: Exposures) -> Coverage:
        """The seven quantities with their intervals."""
        once, twice = (
            {trained.arm.seed: trained.budget for trained in inputs.of(name)}
            for name in (read.diffuse, read.concentrated)
        )
        return Coverage(
            diffuse=read.diffuse,
            concentrated=read.concentrated,
            repetitions=next(iter(once.values())).repetitions,
            quantities=_quantities(inputs, read),
            seeds={
                of.seed: CoverageSeed(
                    len(of.ids) // 2,
                    of.replay,
                    (once[of.seed].supervised_tokens, twice[of.seed].supervised_tokens),
                )
                for of in read.seeds
            },
        )

    def opening(self, findings: api.ReportFindings, found: Coverage) -> api.Opening:
        """The contrast, first if the report is about it."""
        contrast = found.contrast
        value = points(contrast.mean)
        stat = api.Stat("on problems trained on", value, f"points {contrast.ends}")
        return api.Opening(_result(found), findings.lead == found.diffuse, stat)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[api.Section]:
        """A sentence, the figure, the seven quantities, and what the two were trained on."""
        said = f"{_result(found)} {_reasons(found)} {_transfer(findings, found)}"
        tables = _successes(inputs, found), _training(found)
        shown: list[api.Block] = [api.Text(said), _figure(findings, found), *tables]
        yield api.Section("Coverage against repetition", shown)

    def figures(self, findings: api.ReportFindings, found: Coverage) -> api.Figures:
        """Success by exposures, and what of it transfers."""
        yield "allocation", lambda findings: _draw(findings, found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[tuple[str, api.Rows]]:
        """Every quantity by seed, and every compared problem."""
        yield "allocation.csv", quantity_rows(found)
        problems = [
            (of, place) for of in inputs.read(self.name).seeds for place in range(len(of.ids))
        ]
        yield "exposed.csv", api.Frame(PROBLEMS, problems).csv()

    def results(self, found: Coverage) -> dict[str, Any]:
        """For results.json."""
        return {
            "diffuse": found.diffuse,
            "concentrated": found.concentrated,
            "R": found.repetitions,
            **{
                name: {"mean": float(of.mean), "ci95": [of.interval.low, of.interval.high]}
                for name, of in found.quantities.items()
            },
            "seeds": {
                str(seed): {
                    "problems_a_half": of.problems,
                    "replay": of.replay,
                    **{name: float(each.seeds[seed]) for name, each in found.quantities.items()},
                    "L_supervised": dict(zip(("diffuse", "concentrated"), of.tokens, strict=True)),
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


def _result(coverage: Coverage) -> str:
    """The contrast in a sentence."""
    contrast = coverage.contrast
    return (
        f"Training once on twice as many problems ({condition_name(coverage.diffuse)}), not twice "
        f"on half of them ({condition_name(coverage.concentrated)}), changes success on those "
        f"problems by {contrast.said}; {wording.resolution(contrast.interval)}."
    )


def _reasons(coverage: Coverage) -> str:
    gain, loss = (coverage.quantities[name].said for name in ("coverage_gain", "repetition_loss"))
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
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    terms = contrast.terms
    pale = "; pale, each seed" if len(coverage.seeds) > 1 else ""
    names = f"{condition_name(coverage.diffuse)} − {condition_name(coverage.concentrated)}"
    return api.Figure(
        "allocation",
        "Success on the problems trained on: "
        + ", ".join(f"{_LABELS[name]} {percent(coverage.quantities[name].mean)}" for name in RATES)
        + ". Audit difference by source state: "
        + ", ".join(
            f"{s} {points(t)}" for s, t in zip("SUG", (terms.s, terms.u, terms.g), strict=True)
        )
        + " points.",
        "Left: success on the shared half A and the new half B by exposures, with 95% intervals"
        f"{pale}. Right: the difference on the audit, {names}, as the sum of its parts by source "
        "state.",
    )


#: Each half: its rates by exposures, its colour and marker.
_HALVES = (
    ("A", ((1, "a_A_1"), (2, "a_A_2")), palette.series(4)),
    ("B", ((0, "a_B_0"), (1, "a_B_1")), palette.series(2)),
)


def _draw(findings: api.ReportFindings, coverage: Coverage) -> Figure:
    """Two panels: success on A and B by exposures; the audit contrast in its S, U and G terms."""
    figure, (left, right) = style.panels(3.3, 1, 2, width_ratios=[1, 1])
    _draw_exposures(left, coverage)
    _draw_transfer(right, findings.contrast(coverage.diffuse, coverage.concentrated))
    return figure


def _draw_exposures(axes: Axes, coverage: Coverage) -> None:
    """Both halves' success by exposures: the mean with its interval, every seed in pale."""
    for half, named, (colour, marker) in _HALVES:
        exposures = [r for r, _ in named]
        # The halves meet at one exposure: moved apart, so that both intervals can be seen.
        places = [r + (0.06 if half == "A" else -0.06) for r in exposures]
        of_half = [coverage.quantities[name] for _, name in named]
        if len(coverage.seeds) > 1:
            for seed in coverage.seeds:
                rates = [100 * float(of.seeds[seed]) for of in of_half]
                axes.plot(places, rates, color=colour, linewidth=0.8, alpha=0.35)
        rates = [100 * float(of.mean) for of in of_half]
        axes.plot(places, rates, color=colour, marker=marker, markersize=6, linewidth=1.8)
        for place, of in zip(places, of_half, strict=True):
            ends = [100 * of.interval.low, 100 * of.interval.high]
            axes.plot([place, place], ends, color=colour, linewidth=1.1)
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
    contrast = coverage.contrast
    _titles(axes, "Solved of A and B, %", "contrast", contrast.mean, contrast.interval)


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
        style.beside(axes, y, text, 1.04)
    style.name_rows(axes, [*(name for name, _ in terms), "sum"])
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


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the comparison."""
    register("allocation", AllocationExperiment)
