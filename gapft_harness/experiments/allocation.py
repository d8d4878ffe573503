"""Coverage and repetition: spend the same exposures on more or on fewer problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.allocation import compute_by_seed, estimate_allocation
from gapft_harness.analysis.resampling import Scores
from gapft_harness.api import layout
from gapft_harness.core.records import STATUSES
from gapft_harness.report.reading.audits import read_decisions
from gapft_harness.stages.experiment.comparable import require_conditions, require_same_settings

_NOTE = (
    "a_C_r is a_C(r), the share of half C that is solved after r exposures: the diffuse condition "
    "was trained on A and B once each, the concentrated one on A twice; each seed has its own "
    "halves. An exposure is a selection, which training repeats R times. Coverage gain: a_B(1) − "
    "a_B(0). Repetition loss: a_A(2) − a_A(1). Contrast: half of the gain minus half of the loss "
    "(Equation 10); the halves have the same size, so it is diffuse minus concentrated over both. "
    "The models were trained on these problems, so this does not show how well they transfer. "
    "Intervals resample training seeds and problems, both jointly for the two conditions; a draw "
    "without problems of one half is repeated. Rates of fewer than 30 problems are unstable."
)

#: Halves by how often the diffuse and the concentrated condition select an example.
_HALVES = {(1, 2): "A", (1, 0): "B"}


class AllocationSettings(api.RecipeSection):
    """The settings ``experiments.allocation``."""

    diffuse: str = Field(description="the condition that trains on halves A and B once each")
    concentrated: str = Field(description="the condition that trains on half A twice")

    def list_arms(self, seed: int) -> tuple[api.Arm, api.Arm]:
        """Return the two arms of a seed: diffuse, concentrated."""
        return api.Arm(self.diffuse, seed), api.Arm(self.concentrated, seed)


def read_halves(
    settings: AllocationSettings, seed: int, file: Callable[[str], Path]
) -> dict[str, str]:
    """Read the halves of one seed from its selections; see ``find_halves``.

    Args:
        settings: the two conditions.
        seed: a training seed.
        file: returns the path of a finished file of the run.

    Raises:
        UserError: the selections are not finished, or do not form such a comparison.
    """
    arms = settings.list_arms(seed)
    diffuse, concentrated = (api.read_examples(file(layout.selection_path(arm))) for arm in arms)
    return find_halves(diffuse, concentrated, f"arms {arms[0].name} and {arms[1].name}")


def find_halves(
    diffuse: Sequence[api.Example], concentrated: Sequence[api.Example], arms: str
) -> dict[str, str]:
    """Split the problems into halves A and B by how often each condition selected an example.

    Args:
        diffuse: the training set of the diffuse arm.
        concentrated: the training set of the concentrated arm.
        arms: names both arms in messages.

    Returns:
        Problem id -> ``A`` (shared) or ``B`` (new), by ascending id.

    Raises:
        UserError: an example was selected a different number of times, the halves differ in size,
            the replay differs, or an arm trains on missed problems.
    """
    remedy = "change the conditions, or leave out the key experiments.allocation"
    once = Counter(diffuse)
    twice = Counter(concentrated)
    halves: dict[str, str] = {}
    for example in sorted({*once, *twice}, key=lambda e: (e.problem_id, e.response_ids)):
        counts = once[example], twice[example]
        if example.state == "S" and counts in _HALVES:
            halves[example.problem_id] = _HALVES[counts]
        elif example.state != "G" or counts[0] != counts[1]:
            raise api.UserError(
                f"{arms}: an example of problem {example.problem_id}, in state {example.state}, "
                f"was selected {counts[0]} and {counts[1]} times; expected 1 and 2 times (half A) "
                "or 1 and 0 times (half B) in state S, equally often in G, and never in U; "
                f"{remedy}"
            )
    sizes = Counter(halves.values())
    if not sizes["A"] == sizes["B"] > 0:
        raise api.UserError(
            f"{arms}: half A has {sizes['A']} problems and half B {sizes['B']}; expected the same "
            f"number, above 0; {remedy}"
        )
    return halves


def build_exposed_path(arm: api.Arm) -> str:
    """Return the path of an arm's decisions on the halves in a run directory."""
    return layout.decisions_path(arm, "exposed")


class AllocationExperiment(api.Experiment):
    """Compares coverage with repetition on the problems that two conditions train on."""

    name = "allocation"
    title = "Coverage against repetition"
    after = "Where the change comes from"
    section = AllocationSettings

    def check(self, recipe: api.Recipe, settings: AllocationSettings) -> None:
        """Require two different conditions with an even n that differ in training sets alone."""
        names = settings.model_dump()
        for key, name in names.items():
            require_conditions(recipe, f"experiments.{self.name}.{key}", [name])
        if settings.diffuse == settings.concentrated:
            raise self.recipe_error(
                recipe, f"expected two different conditions, found {settings.diffuse!r} twice"
            )
        for slots in map(recipe.find_slots, names.values()):
            if isinstance(slots, int) and slots % 2:
                raise self.recipe_error(
                    recipe, f"expected an even budget.n, which is split into halves, found {slots}"
                )
        require_same_settings(recipe, self.name, [*names.values()])

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the two compared conditions."""
        settings = self.settings(recipe)
        return settings.diffuse, settings.concentrated

    def faults(self, view: api.View) -> Iterable[str]:
        """Refuse selections that do not form such a comparison."""
        settings = self.settings(view.recipe)
        for seed in sorted({arm.seed for arm in view.arms()}):
            if all(arm in view.arms() for arm in settings.list_arms(seed)):
                read_halves(settings, seed, view.file)
        return ()

    def steps(self, view: api.View) -> Iterator[Sequence[api.Step]]:
        """Decode, with both conditions, the problems that either trained on."""
        settings = self.settings(view.recipe)
        arms = [arm for arm in view.arms() if arm.condition in self.conditions(view.recipe)]
        halves = {s: read_halves(settings, s, view.file) for s in {arm.seed for arm in arms}}
        yield [
            view.decode(
                build_exposed_path(arm),
                arm,
                "pool",
                ids=halves[arm.seed],
                verb="decode trained problems,",
            )
            for arm in arms
        ]

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> Sequence[str]:
        """Count the responses of the compared adapters to both halves."""
        pair = self.conditions(recipe)
        adapters = len(pair) * len(recipe.seeds)
        n = recipe.find_slots(pair[0])
        if not isinstance(n, int):
            return [f"halves: up to n problems x {adapters} adapters"]
        return [f"halves: {n * adapters:,} = {n:,} x {adapters} adapters"]

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Exposures | None:
        """Read the problems that the conditions trained on, and their verdicts on these."""
        settings = self.settings(run.recipe)
        if not arms:
            return None
        problems = [
            row for seed in sorted(run.recipe.seeds) for row in _read_seed(run.path, settings, seed)
        ]
        return Exposures(settings.diffuse, settings.concentrated, problems)

    def leads(self, read: Exposures) -> Sequence[str]:
        """Return the two conditions; the diffuse one leads."""
        return read.diffuse, read.concentrated

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: Exposures
    ) -> Iterator[api.Table]:
        """Return rates and differences (means and each seed), and in a file all problems."""
        statistics = inputs.recipe["statistics"]
        scores = read.stack()
        stream = api.Stream(statistics["seed"], "report/allocation")
        means = estimate_allocation(scores, statistics["replicates"], stream)
        by_seed = compute_by_seed(scores)
        smallest = int(scores.rows["A"].sum(axis=1).min())
        rows = [
            {
                "quantity": name,
                "mean": mean,
                **{f"seed_{seed}": values[name] for seed, values in by_seed.items()},
                "problems": smallest,
            }
            for name, mean in means.items()
        ]
        columns = [
            api.Column("quantity", "quantity"),
            api.Column("mean", "mean", "share"),
            *(api.Column(f"seed_{seed}", f"seed {seed}", "share") for seed in inputs.seeds),
            api.Column("problems", "problems of a half", "count"),
        ]
        yield api.Table(self.name, columns, rows, _NOTE)
        columns = [api.Column(key) for key in read.problems[0]]
        yield api.Table(f"{self.name}_problems", columns, read.problems, csv_only=True)

    def verdicts(self, inputs: api.ReportInputs, read: Exposures) -> dict[str, Mapping[str, int]]:
        """Count the verdicts of both conditions on the problems that they trained on."""
        verdicts = {
            read.diffuse: [row["verdict_diffuse"] for row in read.problems],
            read.concentrated: [row["verdict_concentrated"] for row in read.problems],
        }
        return {
            f"problems trained on, {name}": {s: statuses.count(s) for s in STATUSES}
            for name, statuses in verdicts.items()
        }


@dataclass(frozen=True, slots=True)
class Exposures:
    """The inputs of the comparison: two conditions, and the problems of all seeds.

    Attributes:
        diffuse: the condition that trains on halves A and B once each.
        concentrated: the condition that trains on half A twice.
        problems: by seed, problems that both models decode after training, as rows of their table:
            the half, how often each condition selected the problem, and the status of its decode.
    """

    diffuse: str
    concentrated: str
    problems: Sequence[api.Row]

    def stack(self) -> Scores:
        """Stack the halves and verdicts of all seeds over the union of their problems."""
        seeds = np.unique([row["seed"] for row in self.problems])
        ids = np.unique([row["problem_id"] for row in self.problems])
        names = ("A", "B", "diffuse", "concentrated")
        rows = {name: np.zeros((len(seeds), len(ids)), dtype=np.bool_) for name in names}
        for row in self.problems:
            seed = np.searchsorted(seeds, row["seed"])
            problem = np.searchsorted(ids, row["problem_id"])
            rows[row["half"]][seed, problem] = True
            rows["diffuse"][seed, problem] = row["verdict_diffuse"] == "pass"
            rows["concentrated"][seed, problem] = row["verdict_concentrated"] == "pass"
        return Scores(rows, seeds, ids)


def _read_seed(run_path: Path, settings: AllocationSettings, seed: int) -> Iterator[api.Row]:
    halves = read_halves(settings, seed, run_path.joinpath)
    diffuse, concentrated = (
        read_decisions(run_path / build_exposed_path(arm), [*halves], "the arms' selections")
        for arm in settings.list_arms(seed)
    )
    for (problem, half), once, twice in zip(halves.items(), diffuse, concentrated, strict=True):
        yield {
            "seed": seed,
            "problem_id": problem,
            "half": half,
            "selected_diffuse": 1,
            "selected_concentrated": 2 if half == "A" else 0,
            "verdict_diffuse": STATUSES[once],
            "verdict_concentrated": STATUSES[twice],
        }


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("allocation", AllocationExperiment)
