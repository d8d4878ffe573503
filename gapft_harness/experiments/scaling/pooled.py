"""Adapter scaling of several runs, each an environment: ``gapft study --scaling``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED
from gapft_harness.api import layout, wording
from gapft_harness.experiments.scaling.job import FOLDER, find_settings
from gapft_harness.experiments.scaling.report import (
    ScaledRun,
    ScalingFindings,
    build_blocks,
    build_content,
    build_csv_tables,
    compute_scaling,
    format_environment_name,
    read_scaled_run,
)
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.rendering.document import Document
from gapft_harness.stages.selection.stage import list_arms


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run; each of its conditions is an environment.

    Attributes:
        place: the run directory, as the user wrote it.
        budgets: by condition, K and the example slots of its checkpoints.
        checkpoints: for each, the hashes of its training set and of its decisions.
        task: the name of the task.
        model: the name of the base model.
        rule: level and tolerance.
        replicates: the number of replicates of the recipe's intervals.
        seed: the seed of these.
        scaled_run: the decisions of its adapters.
    """

    place: str
    budgets: Mapping[str, tuple[int, int]]
    checkpoints: frozenset[tuple[str, str]]
    task: str
    model: str
    rule: tuple[float, float]
    replicates: int
    seed: int
    scaled_run: ScaledRun


@dataclass(frozen=True, slots=True)
class PooledScaling:
    """Several runs and their joint findings."""

    runs: tuple[PooledRun, ...]
    findings: ScalingFindings

    @property
    def document(self) -> Document:
        """The document with all tables."""
        count = len(self.findings.environments)
        rows = [(run, condition) for run in self.runs for condition in run.budgets]
        return Document(
            title=f"Adapter scaling, {count} environment{'s' * (count > 1)}",
            sections=[
                api.Section("", build_blocks(self.findings)),
                api.Section("Environments", [api.Frame(ENVIRONMENTS, rows).table(words=4)]),
            ],
            names=("scaling.md", "scaling.json"),
            results=build_content(self.findings),
            tables=build_csv_tables(self.findings),
        )


#: A run, and the name of the condition that is the environment.
EnvironmentRow = tuple[PooledRun, str]
_ENVIRONMENT_MEANING = "properties of each environment"
ENVIRONMENTS: tuple[api.Column[EnvironmentRow], ...] = (
    api.Column(
        "", "", lambda row: format_environment_name(row[0].scaled_run.name, row[1]), "environment"
    ),
    api.Column("", _ENVIRONMENT_MEANING, lambda row: row[0].place, "run"),
    api.Column("", _ENVIRONMENT_MEANING, lambda row: row[0].task, "task"),
    api.Column("", _ENVIRONMENT_MEANING, lambda row: row[0].model, "model"),
    api.Column("", _ENVIRONMENT_MEANING, lambda row: row[0].budgets[row[1]][0], "K"),
    api.Column(
        "", _ENVIRONMENT_MEANING, lambda row: row[0].budgets[row[1]][1], "n", wording.format_count
    ),
    api.Column(
        "",
        _ENVIRONMENT_MEANING,
        lambda row: len(row[0].scaled_run.item_ids),
        "audit problems",
        wording.format_count,
    ),
    api.Column(
        "",
        _ENVIRONMENT_MEANING,
        lambda row: int(row[0].scaled_run.source.sum()),
        "solved by the source",
        wording.format_count,
    ),
)


def pool_scaling(places: Sequence[str], conditions: Sequence[str] = ()) -> PooledScaling:
    """Average the scaled adapters of several runs over environments.

    An environment is a task, a model and a budget: a run, and one of its conditions. Intervals use
    the largest number of replicates and the smallest seed of all recipes. The order of runs does
    not matter.

    Args:
        places: directories of audited runs.
        conditions: the conditions that are environments; default: all.

    Raises:
        UserError: a run has no scaled adapters, is not audited or has no such condition; two
            conditions have the same budget; two runs share a checkpoint or chose their scales by
            different rules.
    """
    runs = [_read_run(place, conditions) for place in places]
    first = runs[0]
    for number, run in enumerate(runs):
        if run.rule != first.rule:
            raise api.UserError(
                f"{first.place} chose its scales at level {first.rule[0]:g} and tolerance "
                f"{first.rule[1]:g}, {run.place} at {run.rule[0]:g} and {run.rule[1]:g}; expected "
                "the same rule in all runs"
            )
        for other in runs[:number]:
            if run.checkpoints & other.checkpoints:
                raise api.UserError(
                    f"{other.place} and {run.place} contain the same checkpoint; name each run once"
                )
    runs = _name_environments(runs)
    findings = compute_scaling(
        [run.scaled_run for run in runs],
        max(run.replicates for run in runs),
        min(run.seed for run in runs),
        pooled=True,
    )
    return PooledScaling(tuple(sorted(runs, key=lambda run: run.scaled_run.name)), findings)


def _read_run(place: str, conditions: Sequence[str]) -> PooledRun:
    run = api.RunDirectory.open(place)
    recipe, manifest = run.recipe, run.manifest()
    files = manifest["files"]
    trained_arms = [arm for arm in list_arms(recipe) if arm.name in manifest["budgets"]]
    settings = find_settings(recipe)
    if settings is None or not trained_arms:
        reason = "the recipe has no experiments.scaling" if trained_arms else "nothing was trained"
        raise api.UserError(f"{place}: {reason}; expected a run with scaled adapters")
    budgets = {
        arm.condition: (recipe.find_k(arm.condition), int(manifest["budgets"][arm.name]["n"]))
        for arm in trained_arms
    }
    if conditions:
        budgets = {name: budget for name, budget in budgets.items() if name in conditions}
        trained_arms = [arm for arm in trained_arms if arm.condition in budgets]
    _check_budgets(place, budgets, conditions)
    for table in (layout.responses_path("audit"), layout.states_path("audit")):
        run.sealed(table)
    for arm in trained_arms:
        run.sealed(layout.arm_path(FOLDER, arm))
        chosen_scale = read_choice(run.path, arm)["scale"]
        for scale in {chosen_scale, FIXED, 1.0} - {0.0}:
            run.sealed(layout.scaled_decisions_path(arm, scale))
    scaled_run = read_scaled_run(run.path, manifest, trained_arms)
    assert scaled_run is not None
    return PooledRun(
        place=place,
        budgets=budgets,
        checkpoints=frozenset(
            (files[layout.selection_path(trained_arm)], files[layout.decisions_path(trained_arm)])
            for trained_arm in trained_arms
        ),
        task=manifest["task"]["name"],
        model=recipe.model.args["pretrained"],
        rule=(settings.level, settings.tolerance),
        replicates=recipe.statistics.replicates,
        seed=recipe.statistics.seed,
        scaled_run=scaled_run,
    )


def _check_budgets(
    place: str, budgets: Mapping[str, tuple[int, int]], conditions: Sequence[str]
) -> None:
    """Check that the conditions of a run are different environments.

    Raises:
        UserError: there are no conditions, or two have the same budget.
    """
    if not budgets:
        raise api.UserError(
            f"--condition {' '.join(conditions)}: no such trained condition in {place}"
        )
    first: dict[tuple[int, int], str] = {}
    for name, (k, n) in budgets.items():
        other = first.setdefault((k, n), name)
        if other != name:
            raise api.UserError(
                f"{place}: conditions {other} and {name} have the same budget (K = {k}, n = {n}), "
                "so they are the same environment; name the conditions to compare, such as "
                f"--condition {other}"
            )


def _name_environments(runs: Sequence[PooledRun]) -> list[PooledRun]:
    """Number runs whose recipes have the same name.

    The numbers depend on the content of the runs, so that no figure depends on their paths.
    """
    counts = Counter(run.scaled_run.name for run in runs)
    numbers: Counter[str] = Counter()
    named_runs = []
    for run in sorted(runs, key=lambda run: sorted(run.checkpoints)):
        name = run.scaled_run.name
        if counts[name] > 1:
            numbers[name] += 1
            name = f"{name} {numbers[name]}"
        named_runs.append(replace(run, scaled_run=replace(run.scaled_run, name=name)))
    return named_runs
