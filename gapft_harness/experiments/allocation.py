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
    average_successes,
    compute_successes,
    replicate_successes,
)
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.estimate import Estimate, estimate_mean
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


class AllocationSettings(api.RecipeSection):
    """The settings ``experiments.allocation``."""

    diffuse: str = Field(description="the condition that trains on halves A and B once each")
    concentrated: str = Field(description="the condition that trains on half A twice")

    def list_arms(self, seed: int) -> tuple[api.Arm, api.Arm]:
        """Return the two arms of a seed: diffuse, concentrated."""
        return api.Arm(self.diffuse, seed), api.Arm(self.concentrated, seed)


def find_settings(recipe: api.Recipe) -> AllocationSettings | None:
    """Return the settings of a checked recipe; None if it has no such comparison."""
    settings = recipe.experiments.get("allocation")
    return None if settings is None else AllocationSettings.model_validate(settings)


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
    def problem_ids(self) -> tuple[str, ...]:
        """The ids of A and B together, ascending."""
        return tuple(sorted(self.a + self.b))


def read_halves(allocation: AllocationSettings, seed: int, file: Callable[[str], Path]) -> Halves:
    """Read the halves of one seed from its sealed selections.

    Args:
        allocation: the two conditions.
        seed: a training seed.
        file: returns the path of a sealed file of the run.

    Raises:
        UserError: the selections are not sealed, or do not form such a comparison.
    """
    diffuse, concentrated = arms = allocation.list_arms(seed)
    once, twice = (api.read_examples(file(layout.selection_path(arm))) for arm in arms)
    return find_halves(diffuse, once, concentrated, twice)


def find_halves(
    diffuse: api.Arm,
    diffuse_examples: Sequence[api.Example],
    concentrated: api.Arm,
    concentrated_examples: Sequence[api.Example],
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
    arm_names = f"arms {diffuse.name} and {concentrated.name}"
    remedy = "change the conditions, or leave out the key experiments.allocation"
    for arm, examples in ((diffuse, diffuse_examples), (concentrated, concentrated_examples)):
        missed_ids = sorted(e.problem_id for e in examples if e.state == "U")
        if missed_ids:
            raise api.UserError(
                f"arm {arm.name}: {len(missed_ids)} examples of problems that search missed "
                f"(first: {missed_ids[0]}); expected recovered and solved problems only; {remedy}"
            )
    once, twice = (
        Counter(e for e in examples if e.state == "S")
        for examples in (diffuse_examples, concentrated_examples)
    )
    a: list[str] = []
    b: list[str] = []
    for example in sorted({*once, *twice}, key=lambda e: (e.problem_id, e.response_ids)):
        counts = (once[example], twice[example])
        if counts not in ((1, 2), (1, 0)):
            raise api.UserError(
                f"{arm_names}: an example of problem {example.problem_id} was selected {counts[0]} "
                f"and {counts[1]} times; expected 1 and 2 (half A) or 1 and 0 (half B); {remedy}"
            )
        (a if counts == (1, 2) else b).append(example.problem_id)
    if len(a) != len(b) or not a:
        raise api.UserError(
            f"{arm_names}: half A has {len(a)} problems and half B {len(b)}; expected the same "
            f"number, above 0; {remedy}"
        )
    replay, other_replay = (
        Counter(e for e in examples if e.state == "G")
        for examples in (diffuse_examples, concentrated_examples)
    )
    if replay != other_replay:
        differing_ids = sorted(
            {e.problem_id for e in (*(replay - other_replay), *(other_replay - replay))}
        )
        raise api.UserError(
            f"{arm_names}: replayed examples of {len(differing_ids)} solved problems differ "
            f"(first: {differing_ids[0]}); expected the same examples in both; {remedy}"
        )
    return Halves(tuple(a), tuple(b), replay.total())


def build_exposed_path(arm: api.Arm) -> str:
    """Return the path of an arm's decisions on the halves in a run directory."""
    return layout.decisions_path(arm, "exposed")


class AllocationExperiment(api.Experiment):
    """Compares coverage with repetition on the problems that two conditions train on."""

    name = "allocation"
    section = AllocationSettings

    def part(self) -> AllocationPart:
        """Return the part of the report."""
        return AllocationPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: a condition is missing, both are the same, they differ in more than their
                training sets, or n is odd.
        """
        settings = super().settings(recipe, options)
        if settings is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.allocation"
        names = {"diffuse": settings.diffuse, "concentrated": settings.concentrated}
        for key, name in names.items():
            if name not in recipe.conditions:
                condition_names = ", ".join(recipe.conditions)
                raise api.UserError(
                    f"{where}.{key}': unknown condition {name!r}; expected one of {condition_names}"
                )
            slots = recipe.find_slots(name)
            if isinstance(slots, int) and slots % 2:
                raise api.UserError(
                    f"{where}': expected an even budget.n, which is split into halves, found "
                    f"{slots}"
                )
        if settings.diffuse == settings.concentrated:
            raise api.UserError(
                f"{where}': expected two different conditions, found {settings.diffuse!r} twice"
            )
        api.require_same_settings(recipe, self.name, [*names.values()])
        return settings

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the two compared conditions."""
        allocation = find_settings(recipe)
        return (allocation.diffuse, allocation.concentrated) if allocation else ()

    def faults(self, view: api.View) -> Iterable[str]:
        """Report selections that do not form such a comparison."""
        allocation = find_settings(view.recipe)
        if allocation is not None and view.arms():
            for seed in sorted({arm.seed for arm in view.arms()}):
                pair = [arm for arm in allocation.list_arms(seed) if arm in view.arms()]
                if len(pair) == 2:
                    read_halves(allocation, seed, view.file)
        return ()

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Decode, with both conditions, the problems that either trained on."""
        allocation = find_settings(view.recipe)
        if allocation is None:
            return
        arms = [arm for arm in view.arms() if arm.condition in self.conditions(view.recipe)]
        halves = {s: read_halves(allocation, s, view.file) for s in {arm.seed for arm in arms}}
        yield {
            build_exposed_path(arm): view.decode(
                arm, "pool", ids=halves[arm.seed].problem_ids, verb="decode trained problems,"
            )
            for arm in arms
        }

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Count the responses of the compared adapters to both halves."""
        pair = self.conditions(recipe)
        adapters, n = len(pair) * len(recipe.seeds), recipe.find_slots(pair[0])
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


def _read_seed(run_path: Path, allocation: AllocationSettings, seed: int) -> ExposedSeed:
    seed_halves = read_halves(allocation, seed, run_path.joinpath)
    diffuse, concentrated = (
        api.read_decisions(
            run_path / build_exposed_path(arm), seed_halves.problem_ids, "the two arms' selections"
        )
        for arm in allocation.list_arms(seed)
    )
    in_a = {*seed_halves.a}
    return ExposedSeed(
        seed=seed,
        ids=np.array(seed_halves.problem_ids, dtype=np.str_),
        halves=np.array(
            ["A" if i in in_a else "B" for i in seed_halves.problem_ids], dtype=np.str_
        ),
        diffuse=diffuse,
        concentrated=concentrated,
        replay=seed_halves.replay,
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
class AllocationQuantity:
    """One of ``QUANTITIES``: its mean over seeds, with equal weights, and the value of each."""

    name: str
    estimate: Estimate
    seeds: Mapping[int, Fraction]  # ascending

    def format_value(self, value: Fraction | float) -> str:
        """Format a value: a rate in percent, or a difference in points."""
        return percent(value) if self.name in RATES else points(value)

    @property
    def interval_text(self) -> str:
        """The interval, formatted in the same way."""
        write = wording.percent_interval if self.name in RATES else points_interval
        return write(self.estimate)

    @property
    def difference_text(self) -> str:
        """The mean difference in points, with its interval."""
        return f"{points(self.estimate.value)} points {self.interval_text}"


@dataclass(frozen=True, slots=True)
class AllocationSeed:
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
class AllocationFindings:
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
    quantities: Mapping[str, AllocationQuantity]
    seeds: Mapping[int, AllocationSeed]

    @property
    def contrast(self) -> AllocationQuantity:
        """The contrast, the main result."""
        return self.quantities["contrast"]


def list_quantities(half_successes: Successes[Value]) -> dict[str, Value]:
    """Return the reported quantities by name."""
    values = (
        half_successes.a_1,
        half_successes.a_2,
        half_successes.b_0,
        half_successes.b_1,
        half_successes.coverage_gain,
        half_successes.repetition_loss,
        half_successes.contrast,
    )
    return dict(zip(QUANTITIES, values, strict=True))


def _compute_quantities(
    inputs: api.ReportInputs, exposures: Exposures
) -> dict[str, AllocationQuantity]:
    """Compute the quantities, with intervals from resampling seeds and problems."""
    ids = np.unique(np.concatenate([seed_data.ids for seed_data in exposures.seeds]))
    shape = len(exposures.seeds), len(ids)
    halves = np.full(shape, "", dtype="U1")
    diffuse, concentrated = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for row, seed_data in enumerate(exposures.seeds):
        positions = np.searchsorted(ids, seed_data.ids)
        halves[row, positions] = seed_data.halves
        diffuse[row, positions] = seed_data.diffuse_passed
        concentrated[row, positions] = seed_data.concentrated_passed
    statistics = inputs.recipe["statistics"]
    replicates = replicate_successes(
        halves,
        diffuse,
        concentrated,
        item_ids=ids,
        seeds=np.array([seed_data.seed for seed_data in exposures.seeds], dtype=np.int64),
        replicates=statistics["replicates"],
        stream=api.Stream(statistics["seed"], "report/allocation"),
    )
    seeds = {
        seed_data.seed: compute_successes(
            seed_data.halves, seed_data.diffuse_passed, seed_data.concentrated_passed
        )
        for seed_data in exposures.seeds
    }
    by_seed = {seed: list_quantities(seed_data) for seed, seed_data in seeds.items()}
    mean, replicate_quantities = (
        list_quantities(average_successes([*seeds.values()])),
        list_quantities(replicates),
    )
    return {
        name: AllocationQuantity(
            name,
            estimate_mean(mean[name], replicate_quantities[name]),
            {seed: seed_data[name] for seed, seed_data in by_seed.items()},
        )
        for name in QUANTITIES
    }


def _build_quantity_columns(seeds: Iterable[object]) -> list[api.Column[AllocationQuantity]]:
    """Build the columns of the table; a single seed replaces the mean."""

    def build_column(
        title: str, meaning: str, value: Callable[[AllocationQuantity], str]
    ) -> api.Column[AllocationQuantity]:
        return api.Column("", meaning, value, title)

    name_column = build_column(
        "quantity", "a term of Equation 10", lambda quantity: _LABELS[quantity.name]
    )
    mean_column = build_column(
        "mean",
        "its mean over seeds",
        lambda quantity: quantity.format_value(quantity.estimate.value),
    )
    interval_column = build_column("95% interval", "", lambda quantity: quantity.interval_text)
    seed_columns = [
        build_column(f"seed {seed}", "the term for this seed", partial(_format_seed_value, seed))
        for seed in seeds
    ]
    return (
        [name_column, *seed_columns, interval_column]
        if len(seed_columns) == 1
        else [name_column, mean_column, interval_column, *seed_columns]
    )


def _format_seed_value(seed: Any, quantity: AllocationQuantity) -> str:
    return quantity.format_value(quantity.seeds[seed])


def _build_success_table(inputs: api.ReportInputs, coverage: AllocationFindings) -> api.Table:
    has_one_seed = len(coverage.seeds) == 1
    note = (
        "Success: share of a half's problems that one greedy decode of the trained model solves"
        f"{'' if has_one_seed else '; mean over seeds, which have different halves'}. "
        f"{condition_name(coverage.diffuse)} gives a_A(1) and a_B(1), "
        f"{condition_name(coverage.concentrated)} a_A(2) and a_B(0). Differences in percentage "
        "points. Because the halves have the same size, the contrast is the difference between the "
        "two conditions over A and B together. Intervals are percentiles of "
        f"{wording.format_count(inputs.recipe['statistics']['replicates'])} paired replicates that "
        "resample training seeds and problems, both jointly for the two conditions; a draw without "
        "problems of one half is repeated. The models were trained on these problems: the rates "
        "show what they learned, not how well it transfers."
    )
    if coverage.repetitions > 1:
        note += (
            f" Exposures count selections: training repeated each R = {coverage.repetitions} times "
            "in both conditions."
        )
    smallest = min(seed_entry.problems for seed_entry in coverage.seeds.values())
    if smallest < STABLE_ITEMS:
        note += f" Unstable: the smallest half has {smallest} problems, fewer than {STABLE_ITEMS}."
    rows = [*coverage.quantities.values()]
    return api.Frame(_build_quantity_columns(coverage.seeds), rows).table(note)


def _build_training_columns(*conditions: str) -> Iterator[api.Column[tuple[int, AllocationSeed]]]:
    meaning = "problems of each half, replayed examples of solved problems, supervised tokens"

    def build_column(title: str, value: Callable[[AllocationSeed], str]) -> Any:
        return api.Column("", meaning, lambda row: value(row[1]), title)

    yield api.Column("", "", lambda row: row[0], "seed")
    yield from (
        build_column(half, lambda seed_entry: wording.format_count(seed_entry.problems))
        for half in "AB"
    )
    yield build_column("replay", lambda seed_entry: wording.format_count(seed_entry.replay))
    for position, name in enumerate(conditions):
        yield build_column(f"tokens, {name}", partial(_format_tokens, position))
    yield api.Column("", "", lambda row: _format_difference(*row[1].tokens), "difference")


def _format_tokens(position: int, seed_entry: AllocationSeed) -> str:
    return wording.format_count(seed_entry.tokens[position])


def _format_difference(once: int, twice: int) -> str:
    share = percent(Fraction(abs(once - twice), max(once, twice, 1)), 2)
    return f"{wording.format_signed_count(once - twice)} ({share})"


def _build_training_table(coverage: AllocationFindings) -> api.Table:
    diffuse, concentrated = map(condition_name, (coverage.diffuse, coverage.concentrated))
    columns = [*_build_training_columns(diffuse, concentrated)]
    return api.Frame(columns, [*coverage.seeds.items()]).table(
        f"Checked in the training sets: {diffuse} has every problem of A and B once, "
        f"{concentrated} every problem of A twice and none of B, and both have the same replayed "
        "responses of solved problems. Tokens: supervised response tokens over all exposures; the "
        "difference also as a share of the larger number.",
    )


QUANTITY_COLUMNS = tuple(_build_quantity_columns(["NUMBER", "NUMBER"]))
TRAINING_COLUMNS = tuple(_build_training_columns("CONDITION", "CONDITION"))


def build_quantity_rows(coverage: AllocationFindings) -> api.Rows:
    """Build CSV rows: the mean of each quantity with its interval, then every seed."""
    yield "quantity", "seed", "value", "ci95_low", "ci95_high"
    for name, quantity in coverage.quantities.items():
        yield (
            name,
            "mean",
            float(quantity.estimate.value),
            quantity.estimate.low,
            quantity.estimate.high,
        )
        for seed, value in quantity.seeds.items():
            yield name, seed, float(value), "", ""


#: Columns of a compared problem: its half, and how often each condition selected it.
PROBLEM_COLUMNS: tuple[api.Column[tuple[ExposedSeed, int]], ...] = (
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
        settings = recipe["experiments"].get(self.name)
        if not settings or not arms:
            return None
        allocation, seeds = AllocationSettings.model_validate(settings), sorted(recipe["seeds"])
        exposed_seeds = tuple(_read_seed(run_path, allocation, seed) for seed in seeds)
        return Exposures(allocation.diffuse, allocation.concentrated, exposed_seeds)

    def leads(self, read: Exposures) -> Sequence[str]:
        """Return the two conditions; the diffuse one leads."""
        return read.diffuse, read.concentrated

    def compute(self, inputs: api.ReportInputs, read: Exposures) -> AllocationFindings:
        """Compute the seven quantities with their intervals."""
        once, twice = (
            {trained.arm.seed: trained.budget for trained in inputs.find_arms(name)}
            for name in (read.diffuse, read.concentrated)
        )
        return AllocationFindings(
            diffuse=read.diffuse,
            concentrated=read.concentrated,
            repetitions=next(iter(once.values())).repetitions,
            quantities=_compute_quantities(inputs, read),
            seeds={
                exposed_seed.seed: AllocationSeed(
                    len(exposed_seed.ids) // 2,
                    exposed_seed.replay,
                    (
                        once[exposed_seed.seed].supervised_tokens,
                        twice[exposed_seed.seed].supervised_tokens,
                    ),
                )
                for exposed_seed in read.seeds
            },
        )

    def opening(
        self, findings: api.ReportFindings, part_findings: AllocationFindings
    ) -> api.Opening:
        """Return the contrast as an opening; it comes first if the diffuse condition leads."""
        contrast = part_findings.contrast
        value = points(contrast.estimate.value)
        stat = api.Stat("on problems trained on", value, f"points {contrast.interval_text}")
        return api.Opening(
            _describe_result(part_findings), findings.lead == part_findings.diffuse, stat
        )

    def sections(
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: AllocationFindings,
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, quantities, and training sets."""
        text = (
            f"{_describe_result(part_findings)} {_describe_terms(part_findings)} "
            f"{_describe_transfer(findings, part_findings)}"
        )
        tables = _build_success_table(inputs, part_findings), _build_training_table(part_findings)
        content_blocks: list[api.Block] = [
            api.Text(text),
            _build_figure(findings, part_findings),
            *tables,
        ]
        yield api.Section("Coverage against repetition", content_blocks)

    def figures(
        self, findings: api.ReportFindings, part_findings: AllocationFindings
    ) -> api.Figures:
        """Return the figure of success by exposures, and of the difference on the audit."""
        yield "allocation", lambda findings: _draw_figure(findings, part_findings)

    def tables(
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: AllocationFindings,
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of all quantities by seed, and of all compared problems."""
        yield "allocation.csv", build_quantity_rows(part_findings)
        problems = [
            (exposed_seed, position)
            for exposed_seed in inputs.find_part_data(self.name).seeds
            for position in range(len(exposed_seed.ids))
        ]
        yield "exposed.csv", api.Frame(PROBLEM_COLUMNS, problems).csv()

    def results(self, part_findings: AllocationFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        return {
            "diffuse": part_findings.diffuse,
            "concentrated": part_findings.concentrated,
            "R": part_findings.repetitions,
            **{
                name: {
                    "mean": float(entry.estimate.value),
                    "ci95": [entry.estimate.low, entry.estimate.high],
                }
                for name, entry in part_findings.quantities.items()
            },
            "seeds": {
                str(seed): {
                    "problems_a_half": entry.problems,
                    "replay": entry.replay,
                    **{
                        name: float(quantity.seeds[seed])
                        for name, quantity in part_findings.quantities.items()
                    },
                    "L_supervised": dict(
                        zip(("diffuse", "concentrated"), entry.tokens, strict=True)
                    ),
                }
                for seed, entry in part_findings.seeds.items()
            },
        }

    def verdicts(self, inputs: api.ReportInputs, read: Exposures) -> dict[str, Mapping[str, int]]:
        """Count the verdicts of both conditions on the problems that they trained on."""
        return {
            f"problems trained on, {condition_name(name)}": api.count_codes(np.concatenate(codes))
            for name, codes in (
                (read.diffuse, [exposed_seed.diffuse for exposed_seed in read.seeds]),
                (read.concentrated, [exposed_seed.concentrated for exposed_seed in read.seeds]),
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


def _describe_result(coverage: AllocationFindings) -> str:
    """Describe the contrast in a sentence."""
    contrast = coverage.contrast
    return (
        f"Training once on twice as many problems ({condition_name(coverage.diffuse)}) instead of "
        f"twice on half of them ({condition_name(coverage.concentrated)}) changes success on these "
        f"problems by {contrast.difference_text}; {wording.describe_resolution(contrast.estimate)}."
    )


def _describe_terms(coverage: AllocationFindings) -> str:
    gain, loss = (
        coverage.quantities[name].difference_text for name in ("coverage_gain", "repetition_loss")
    )
    return (
        f"This is half of the gain from a first exposure on the new half B, {gain}, minus half of "
        f"the gain from a second exposure on the shared half A, {loss}."
    )


def _describe_transfer(findings: api.ReportFindings, coverage: AllocationFindings) -> str:
    contrast = findings.find_contrast(coverage.diffuse, coverage.concentrated)
    return (
        "On the audit, whose problems are not in the training sets, the difference is "
        f"{points(contrast.delta)} points {points_interval(contrast.estimate)}."
    )


def _build_figure(findings: api.ReportFindings, coverage: AllocationFindings) -> api.Figure:
    contrast = findings.find_contrast(coverage.diffuse, coverage.concentrated)
    terms = contrast.terms
    seed_note = "; pale, each seed" if len(coverage.seeds) > 1 else ""
    difference_text = (
        f"{condition_name(coverage.diffuse)} − {condition_name(coverage.concentrated)}"
    )
    return api.Figure(
        "allocation",
        "Success on the problems trained on: "
        + ", ".join(
            f"{_LABELS[name]} {percent(coverage.quantities[name].estimate.value)}" for name in RATES
        )
        + ". Audit difference by source state: "
        + ", ".join(
            f"{s} {points(t)}" for s, t in zip("SUG", (terms.s, terms.u, terms.g), strict=True)
        )
        + " points.",
        "Left: success on the shared half A and the new half B by exposures, with 95% intervals"
        f"{seed_note}. Right: the difference on the audit, {difference_text}, as the sum of its "
        "parts by source state.",
    )


#: For each half: its rates by exposures, its colour and marker.
_HALVES = (
    ("A", ((1, "a_A_1"), (2, "a_A_2")), palette.series(4)),
    ("B", ((0, "a_B_0"), (1, "a_B_1")), palette.series(2)),
)


def _draw_figure(findings: api.ReportFindings, coverage: AllocationFindings) -> Figure:
    """Draw two panels: success on A and B by exposures, and the parts of the audit contrast."""
    figure, (left, right) = style.panels(3.3, 1, 2, width_ratios=[1, 1])
    _draw_exposures(left, coverage)
    _draw_transfer(right, findings.find_contrast(coverage.diffuse, coverage.concentrated))
    return figure


def _draw_exposures(axes: Axes, coverage: AllocationFindings) -> None:
    """Draw the success on both halves by exposures: mean with interval; seeds in pale colours."""
    for half, rates_by_exposure, (colour, marker) in _HALVES:
        exposures = [r for r, _ in rates_by_exposure]
        # Both halves have a point at one exposure: shift them, so that both intervals show.
        positions = [r + (0.06 if half == "A" else -0.06) for r in exposures]
        half_quantities = [coverage.quantities[name] for _, name in rates_by_exposure]
        if len(coverage.seeds) > 1:
            for seed in coverage.seeds:
                rates = [100 * float(quantity.seeds[seed]) for quantity in half_quantities]
                axes.plot(positions, rates, color=colour, linewidth=0.8, alpha=0.35)
        rates = [100 * float(quantity.estimate.value) for quantity in half_quantities]
        axes.plot(positions, rates, color=colour, marker=marker, markersize=6, linewidth=1.8)
        for position, quantity in zip(positions, half_quantities, strict=True):
            ends = [100 * quantity.estimate.low, 100 * quantity.estimate.high]
            axes.plot([position, position], ends, color=colour, linewidth=1.1)
        end = -1 if half == "A" else 0
        axes.annotate(
            half,
            (positions[end], rates[end]),
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
    _draw_titles(axes, "Solved of A and B, %", "contrast", contrast.estimate)


def _draw_transfer(axes: Axes, contrast: api.Contrast) -> None:
    """Draw the parts of diffuse minus concentrated on the audit, and their sum with interval."""
    terms = [("S", contrast.terms.s), ("U", contrast.terms.u), ("G", contrast.terms.g)]
    for y, (_, term) in enumerate(terms):
        colour = palette.RIGHT if term > 0 else palette.WRONG
        axes.barh(y, 100 * float(term), height=0.5, color=colour)
    style.interval_row(axes, len(terms), contrast.estimate)
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    value_texts = [points(value) for value in (*(term for _, term in terms), contrast.delta)]
    for y, text in enumerate(value_texts):
        style.beside(axes, y, text, 1.04)
    style.name_rows(axes, [*(name for name, _ in terms), "sum"])
    axes.set_xlabel("points of Pass@1")
    _draw_titles(axes, "Audit difference by state", "sum", contrast.estimate)


def _draw_titles(axes: Axes, title: str, name: str, estimate: Estimate) -> None:
    """Write a title, and below it a difference with its interval."""
    axes.set_title(title, x=0, pad=22)
    axes.annotate(
        f"{name} {points(estimate.value)} {points_interval(estimate)}",
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
