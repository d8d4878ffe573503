"""Coverage and repetition: spend the same exposures on more or on fewer problems."""

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
    """The settings ``experiments.allocation``."""

    diffuse: str = Field(description="the condition that trains on halves A and B once each")
    concentrated: str = Field(description="the condition that trains on half A twice")

    def arms(self, seed: int) -> tuple[api.Arm, api.Arm]:
        """Return the two arms of a seed: diffuse, concentrated."""
        return api.Arm(self.diffuse, seed), api.Arm(self.concentrated, seed)


def compared(recipe: api.Recipe) -> Allocation | None:
    """Return the settings of a checked recipe; None if it has no such comparison."""
    said = recipe.experiments.get("allocation")
    return None if said is None else Allocation.model_validate(said)


@dataclass(frozen=True, slots=True)
class Halves:
    """The problems that the two conditions trained on, for one seed.

    Attributes:
        a: ids of the shared half, ascending: selected once by diffuse, twice by concentrated.
        b: ids of the new half, ascending, equally many: selected once by diffuse only.
        replay: the number of replayed examples of solved problems, the same in both.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    replay: int

    @property
    def problems(self) -> tuple[str, ...]:
        """The ids of A and B together, ascending."""
        return tuple(sorted(self.a + self.b))


def read_halves(allocation: Allocation, seed: int, file: Callable[[str], Path]) -> Halves:
    """Read the halves of one seed from its sealed selections.

    Args:
        allocation: the two conditions.
        seed: a training seed.
        file: returns the path of a sealed file of the run.

    Raises:
        UserError: the selections are not sealed, or do not form such a comparison.
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
    """Split the problems into halves A and B by how often each condition selected an example.

    Args:
        diffuse: the diffuse arm.
        diffuse_examples: its examples.
        concentrated: the concentrated arm.
        concentrated_examples: its examples.

    Raises:
        UserError: an example was selected a different number of times, the halves differ in size,
            the replay differs, or an arm trains on missed problems; the message names the arms.
    """
    names = f"arms {diffuse.name} and {concentrated.name}"
    fix = "change the conditions, or leave out the key experiments.allocation"
    for arm, examples in ((diffuse, of_diffuse), (concentrated, of_concentrated)):
        missed = sorted(e.problem_id for e in examples if e.state == "U")
        if missed:
            raise api.UserError(
                f"arm {arm.name}: {len(missed)} examples of problems that search missed "
                f"(first: {missed[0]}); expected recovered and solved problems only; {fix}"
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
                f"{names}: an example of problem {example.problem_id} was selected {seen[0]} and "
                f"{seen[1]} times; expected 1 and 2 (half A) or 1 and 0 (half B); {fix}"
            )
        (a if seen == (1, 2) else b).append(example.problem_id)
    if len(a) != len(b) or not a:
        raise api.UserError(
            f"{names}: half A has {len(a)} problems and half B {len(b)}; expected the same "
            f"number, above 0; {fix}"
        )
    replay, other = (
        Counter(e for e in examples if e.state == "G") for examples in (of_diffuse, of_concentrated)
    )
    if replay != other:
        differing = sorted({e.problem_id for e in (*(replay - other), *(other - replay))})
        raise api.UserError(
            f"{names}: replayed examples of {len(differing)} solved problems differ (first: "
            f"{differing[0]}); expected the same examples in both; {fix}"
        )
    return Halves(tuple(a), tuple(b), replay.total())


def exposed_file(arm: api.Arm) -> str:
    """Return the path of an arm's decisions on the halves in a run directory."""
    return layout.decisions(arm, "exposed")


class AllocationExperiment(api.Experiment):
    """Compares coverage with repetition on the problems that two conditions train on."""

    name = "allocation"
    section = Allocation

    def part(self) -> AllocationPart:
        """Return the part of the report."""
        return AllocationPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: a condition is missing, both are the same, they differ in more than their
                training sets, or n is odd.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.allocation"
        names = {"diffuse": found.diffuse, "concentrated": found.concentrated}
        for key, name in names.items():
            if name not in recipe.conditions:
                known = ", ".join(recipe.conditions)
                raise api.UserError(
                    f"{where}.{key}': unknown condition {name!r}; expected one of {known}"
                )
            n = recipe.slots(name)
            if isinstance(n, int) and n % 2:
                raise api.UserError(
                    f"{where}': expected an even budget.n, which is split into halves, found {n}"
                )
        if found.diffuse == found.concentrated:
            raise api.UserError(
                f"{where}': expected two different conditions, found {found.diffuse!r} twice"
            )
        api.require_same_settings(recipe, self.name, [*names.values()])
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the two compared conditions."""
        allocation = compared(recipe)
        return (allocation.diffuse, allocation.concentrated) if allocation else ()

    def faults(self, view: api.View) -> Iterator[str]:
        """Report selections that do not form such a comparison."""
        allocation = compared(view.recipe)
        if allocation is not None and view.arms():
            yield from api.find_own_settings(view, self.name, self.conditions(view.recipe))
            for seed in sorted({arm.seed for arm in view.arms()}):
                pair = [arm for arm in allocation.arms(seed) if arm in view.arms()]
                if len(pair) == 2:
                    read_halves(allocation, seed, view.file)

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Decode, with both conditions, the problems that either trained on."""
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
        """Count the responses of the compared adapters to both halves."""
        pair = self.conditions(recipe)
        adapters, n = len(pair) * len(recipe.seeds), recipe.slots(pair[0])
        if not isinstance(n, int):
            line = f"halves: up to n problems x {adapters} adapters"
            return api.Cost(decodes=[line], responses=counts["pool"] * adapters)
        line = f"halves: {n * adapters:,} = {n:,} x {adapters} adapters"
        return api.Cost(decodes=[line], responses=n * adapters)


@dataclass(frozen=True, slots=True)
class ExposedSeed:
    """The problems of halves A and B for one seed, ordered by id; every array has shape (P,).

    Attributes:
        seed: the training seed.
        ids: distinct problem ids.
        halves: ``A`` (shared) or ``B`` (new).
        diffuse: status codes of the greedy decode by the model trained on A and B once.
        concentrated: the same for the model trained on A twice.
        replay: the number of replayed examples of solved problems, the same in both sets.
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
    """The inputs of the comparison: two conditions, and the problems of each seed."""

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


#: Names of the reported quantities in results.json, in the order of the report.
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
    """One of ``QUANTITIES``: its mean over seeds, with equal weights, and the value of each."""

    name: str
    mean: Fraction
    interval: Interval
    seeds: Mapping[int, Fraction]  # ascending

    def shown(self, value: Fraction) -> str:
        """Format a value: a rate in percent, or a difference in points."""
        return percent(value) if self.name in RATES else points(value)

    @property
    def ends(self) -> str:
        """The interval, formatted in the same way."""
        write = wording.percent_interval if self.name in RATES else points_interval
        return write(self.interval)

    @property
    def said(self) -> str:
        """The mean difference in points, with its interval."""
        return f"{points(self.mean)} points {self.ends}"


@dataclass(frozen=True, slots=True)
class CoverageSeed:
    """The training sets of the two conditions for one seed.

    Attributes:
        problems: the number of problems in each half.
        replay: the number of replayed examples of solved problems, the same in both.
        tokens: the supervised tokens of the diffuse arm and of the concentrated arm.
    """

    problems: int
    replay: int
    tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The findings on coverage and repetition.

    Attributes:
        diffuse: the name of the diffuse condition.
        concentrated: the name of the concentrated condition.
        repetitions: R; an example selected r times was seen r R times in training.
        quantities: by name, in the order of ``QUANTITIES``.
        seeds: the training sets by seed, ascending.
    """

    diffuse: str
    concentrated: str
    repetitions: int
    quantities: Mapping[str, Quantity]
    seeds: Mapping[int, CoverageSeed]

    @property
    def contrast(self) -> Quantity:
        """The contrast, the main result."""
        return self.quantities["contrast"]


def quantities(of: Successes[Value]) -> dict[str, Value]:
    """Return the reported quantities by name."""
    values = (of.a_1, of.a_2, of.b_0, of.b_1, of.coverage_gain, of.repetition_loss, of.contrast)
    return dict(zip(QUANTITIES, values, strict=True))


def _quantities(inputs: api.ReportInputs, exposures: Exposures) -> dict[str, Quantity]:
    """Compute the quantities, with intervals from resampling seeds and problems."""
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
    """Build the columns of the table; a single seed replaces the mean."""

    def column(title: str, meaning: str, value: Callable[[Quantity], str]) -> api.Column[Quantity]:
        return api.Column("", meaning, value, title)

    name = column("quantity", "a term of Equation 10", lambda of: _LABELS[of.name])
    mean = column("mean", "its mean over seeds", lambda of: of.shown(of.mean))
    ends = column("95% interval", "", lambda of: of.ends)
    each = [
        column(f"seed {seed}", "the term for this seed", partial(_of_seed, seed)) for seed in seeds
    ]
    return [name, *each, ends] if len(each) == 1 else [name, mean, ends, *each]


def _of_seed(seed: Any, of: Quantity) -> str:
    return of.shown(of.seeds[seed])


def _successes(inputs: api.ReportInputs, coverage: Coverage) -> api.Table:
    one_seed = len(coverage.seeds) == 1
    note = (
        "Success: share of a half's problems that one greedy decode of the trained model solves"
        f"{'' if one_seed else '; mean over seeds, which have different halves'}. "
        f"{condition_name(coverage.diffuse)} gives a_A(1) and a_B(1), "
        f"{condition_name(coverage.concentrated)} a_A(2) and a_B(0). Differences in percentage "
        "points. Because the halves have the same size, the contrast is the difference between the "
        "two conditions over A and B together. Intervals are percentiles of "
        f"{wording.whole(inputs.recipe['statistics']['replicates'])} paired replicates that "
        "resample training seeds and problems, both jointly for the two conditions; a draw without "
        "problems of one half is repeated. The models were trained on these problems: the rates "
        "show what they learned, not how well it transfers."
    )
    if coverage.repetitions > 1:
        note += (
            f" Exposures count selections: training repeated each R = {coverage.repetitions} times "
            "in both conditions."
        )
    smallest = min(of.problems for of in coverage.seeds.values())
    if smallest < STABLE_ITEMS:
        note += f" Unstable: the smallest half has {smallest} problems, fewer than {STABLE_ITEMS}."
    rows = [*coverage.quantities.values()]
    return api.Frame(_quantity_columns(coverage.seeds), rows).table(note)


def _training_columns(*conditions: str) -> Iterator[api.Column[tuple[int, CoverageSeed]]]:
    meaning = "problems of each half, replayed examples of solved problems, supervised tokens"

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
        f"Checked in the training sets: {diffuse} has every problem of A and B once, "
        f"{concentrated} every problem of A twice and none of B, and both have the same replayed "
        "responses of solved problems. Tokens: supervised response tokens over all exposures; the "
        "difference also as a share of the larger number.",
    )


QUANTITY_COLUMNS = tuple(_quantity_columns(["NUMBER", "NUMBER"]))
TRAINING_COLUMNS = tuple(_training_columns("CONDITION", "CONDITION"))


def quantity_rows(coverage: Coverage) -> api.Rows:
    """Build CSV rows: the mean of each quantity with its interval, then every seed."""
    yield "quantity", "seed", "value", "ci95_low", "ci95_high"
    for name, of in coverage.quantities.items():
        yield name, "mean", float(of.mean), of.interval.low, of.interval.high
        for seed, value in of.seeds.items():
            yield name, seed, float(value), "", ""


#: Columns of a compared problem: its half, and how often each condition selected it.
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
    """The part of the report on coverage and repetition."""

    name = "allocation"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> Exposures | None:
        """Read the problems that the conditions trained on, and their verdicts on these."""
        recipe = manifest["recipe"]
        said = recipe["experiments"].get(self.name)
        if not said or not arms:
            return None
        of, seeds = Allocation.model_validate(said), sorted(recipe["seeds"])
        found = tuple(_read_seed(run_path, of, seed) for seed in seeds)
        return Exposures(of.diffuse, of.concentrated, found)

    def leads(self, read: Exposures) -> Sequence[str]:
        """Return the two conditions; the diffuse one leads."""
        return read.diffuse, read.concentrated

    def compute(self, inputs: api.ReportInputs, read: Exposures) -> Coverage:
        """Compute the seven quantities with their intervals."""
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
        """Return the contrast as an opening; it comes first if the diffuse condition leads."""
        contrast = found.contrast
        value = points(contrast.mean)
        stat = api.Stat("on problems trained on", value, f"points {contrast.ends}")
        return api.Opening(_result(found), findings.lead == found.diffuse, stat)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, quantities, and training sets."""
        said = f"{_result(found)} {_reasons(found)} {_transfer(findings, found)}"
        tables = _successes(inputs, found), _training(found)
        shown: list[api.Block] = [api.Text(said), _figure(findings, found), *tables]
        yield api.Section("Coverage against repetition", shown)

    def figures(self, findings: api.ReportFindings, found: Coverage) -> api.Figures:
        """Return the figure of success by exposures, and of the difference on the audit."""
        yield "allocation", lambda findings: _draw(findings, found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Coverage
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of all quantities by seed, and of all compared problems."""
        yield "allocation.csv", quantity_rows(found)
        problems = [
            (of, place) for of in inputs.read(self.name).seeds for place in range(len(of.ids))
        ]
        yield "exposed.csv", api.Frame(PROBLEMS, problems).csv()

    def results(self, found: Coverage) -> dict[str, Any]:
        """Return the entry of results.json."""
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
        """Count the verdicts of both conditions on the problems that they trained on."""
        return {
            f"problems trained on, {condition_name(name)}": api.count_codes(np.concatenate(codes))
            for name, codes in (
                (read.diffuse, [of.diffuse for of in read.seeds]),
                (read.concentrated, [of.concentrated for of in read.seeds]),
            )
        }

    def summary(self, content: Mapping[str, Any]) -> api.Summary:
        """Return a line on the contrast."""
        contrast = content["contrast"]
        mean, low, high = map(points, (contrast["mean"], *contrast["ci95"]))
        return api.Summary(
            f"{content['diffuse']} minus {content['concentrated']} on training problems: "
            f"{mean} points [{low}, {high}]",
            min(seed["problems_a_half"] for seed in content["seeds"].values()),
        )


def _result(coverage: Coverage) -> str:
    """Describe the contrast in a sentence."""
    contrast = coverage.contrast
    return (
        f"Training once on twice as many problems ({condition_name(coverage.diffuse)}) instead of "
        f"twice on half of them ({condition_name(coverage.concentrated)}) changes success on these "
        f"problems by {contrast.said}; {wording.resolution(contrast.interval)}."
    )


def _reasons(coverage: Coverage) -> str:
    gain, loss = (coverage.quantities[name].said for name in ("coverage_gain", "repetition_loss"))
    return (
        f"This is half of the gain from a first exposure on the new half B, {gain}, minus half of "
        f"the gain from a second exposure on the shared half A, {loss}."
    )


def _transfer(findings: api.ReportFindings, coverage: Coverage) -> str:
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    return (
        "On the audit, whose problems are not in the training sets, the difference is "
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


#: For each half: its rates by exposures, its colour and marker.
_HALVES = (
    ("A", ((1, "a_A_1"), (2, "a_A_2")), palette.series(4)),
    ("B", ((0, "a_B_0"), (1, "a_B_1")), palette.series(2)),
)


def _draw(findings: api.ReportFindings, coverage: Coverage) -> Figure:
    """Draw two panels: success on A and B by exposures, and the parts of the audit contrast."""
    figure, (left, right) = style.panels(3.3, 1, 2, width_ratios=[1, 1])
    _draw_exposures(left, coverage)
    _draw_transfer(right, findings.contrast(coverage.diffuse, coverage.concentrated))
    return figure


def _draw_exposures(axes: Axes, coverage: Coverage) -> None:
    """Draw the success on both halves by exposures: mean with interval; seeds in pale colours."""
    for half, named, (colour, marker) in _HALVES:
        exposures = [r for r, _ in named]
        # Both halves have a point at one exposure: shift them, so that both intervals show.
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
    """Draw the parts of diffuse minus concentrated on the audit, and their sum with interval."""
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
    """Write a title, and below it a difference with its interval."""
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
    """Register the experiment."""
    register("allocation", AllocationExperiment)
