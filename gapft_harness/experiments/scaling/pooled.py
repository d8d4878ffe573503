"""Adapter scaling of several runs, each an environment: ``gapft study --scaling``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED
from gapft_harness.api import layout, wording
from gapft_harness.experiments.scaling.job import FOLDER, scaled
from gapft_harness.experiments.scaling.report import (
    ScaledRun,
    ScalingFindings,
    blocks,
    compute_scaling,
    content,
    csv_tables,
    read_scaled_run,
)
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.rendering.document import Document
from gapft_harness.stages.selection.stage import arms


@dataclass(frozen=True, slots=True)
class PooledRun:
    """One run as an environment.

    Attributes:
        place: the run directory as it was given.
        checkpoints: of each, the hashes of what it was trained on and of what it decided.
        rule: level and tolerance.
        replicates: of its recipe's intervals.
        seed: of these.
        scaled: what its adapters decided.
    """

    place: str
    checkpoints: frozenset[tuple[str, str]]
    task: str
    model: str
    rule: tuple[float, float]
    replicates: int
    seed: int
    scaled: ScaledRun


@dataclass(frozen=True, slots=True)
class Pooled:
    """Several runs, and what they come to together."""

    runs: tuple[PooledRun, ...]
    found: ScalingFindings

    @property
    def document(self) -> Document:
        """All of it."""
        count = len(self.runs)
        return Document(
            title=f"Adapter scaling, {count} environment{'s' * (count > 1)}",
            sections=[
                api.Section("", blocks(self.found)),
                api.Section("Environments", [api.Frame(ENVIRONMENTS, self.runs).table(words=4)]),
            ],
            names=("scaling.md", "scaling.json"),
            results=content(self.found),
            tables=csv_tables(self.found),
        )


_WHAT = "what each environment is"
ENVIRONMENTS: tuple[api.Column[PooledRun], ...] = (
    api.Column("", "", lambda run: run.scaled.name, "environment"),
    api.Column("", _WHAT, lambda run: run.place, "run"),
    api.Column("", _WHAT, lambda run: run.task, "task"),
    api.Column("", _WHAT, lambda run: run.model, "model"),
    api.Column("", _WHAT, lambda run: len(run.scaled.item_ids), "audit problems", wording.whole),
    api.Column(
        "",
        _WHAT,
        lambda run: int(run.scaled.source.sum()),
        "solved by the source",
        wording.whole,
    ),
)


def pool_scaling(places: Sequence[str]) -> Pooled:
    """Takes the scaled adapters of several runs together.

    Every run is one environment of each of its conditions. Intervals have the most replicates that
    a run's recipe asks for, and the lowest of their seeds; the order of runs changes nothing.

    Args:
        places: run directories that have been audited.

    Raises:
        UserError: a run that scales nothing or is not audited, runs that share a checkpoint, or
            whose scales were chosen by different rules.
    """
    runs = [_read(place) for place in places]
    first = runs[0]
    for number, run in enumerate(runs):
        if run.rule != first.rule:
            raise api.UserError(
                f"{first.place} chose its scales at level {first.rule[0]:g} and tolerance "
                f"{first.rule[1]:g}, {run.place} at {run.rule[0]:g} and {run.rule[1]:g}; expected "
                "one rule"
            )
        for other in runs[:number]:
            if run.checkpoints & other.checkpoints:
                raise api.UserError(
                    f"{other.place} and {run.place} hold the same checkpoint; give each run once"
                )
    runs = _named(runs)
    found = compute_scaling(
        [run.scaled for run in runs],
        max(run.replicates for run in runs),
        min(run.seed for run in runs),
    )
    return Pooled(tuple(sorted(runs, key=lambda run: run.scaled.name)), found)


def _read(place: str) -> PooledRun:
    run = api.RunDirectory.open(place)
    recipe, manifest = run.recipe, run.manifest()
    files = manifest["files"]
    trained = [arm for arm in arms(recipe) if arm.name in manifest["budgets"]]
    settings = scaled(recipe)
    if settings is None or not trained:
        why = "its recipe has no experiments.scaling" if trained else "it has trained nothing"
        raise api.UserError(f"{place}: {why}, so it has no scaled adapters to compare")
    for table in (layout.responses("audit"), layout.states("audit")):
        run.sealed(table)
    for arm in trained:
        run.sealed(layout.of_arm(FOLDER, arm))
        chosen = read_choice(run.path, arm)["scale"]
        for scale in {chosen, FIXED, 1.0} - {0.0}:
            run.sealed(layout.decisions_at(arm, scale))
    decided = read_scaled_run(run.path, manifest, trained)
    assert decided is not None
    return PooledRun(
        place=place,
        checkpoints=frozenset(
            (files[layout.selection(of)], files[layout.decisions(of)]) for of in trained
        ),
        task=manifest["task"]["name"],
        model=recipe.model.args["pretrained"],
        rule=(settings.level, settings.tolerance),
        replicates=recipe.statistics.replicates,
        seed=recipe.statistics.seed,
        scaled=decided,
    )


def _named(runs: Sequence[PooledRun]) -> list[PooledRun]:
    """Environments are named as their recipes, and numbered where several have one name.

    The numbers follow from what the runs hold, so that no figure depends on where they lie.
    """
    counts = Counter(run.scaled.name for run in runs)
    numbers: Counter[str] = Counter()
    named = []
    for run in sorted(runs, key=lambda run: sorted(run.checkpoints)):
        name = run.scaled.name
        if counts[name] > 1:
            numbers[name] += 1
            name = f"{name} {numbers[name]}"
        named.append(replace(run, scaled=replace(run.scaled, name=name)))
    return named
