"""Retraining noise: arms trained again, how many decisions change, and what moves a gain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.paired import Changes, changes, mean_share
from gapft_harness.analysis.variance import (
    ITEMS,
    SELECTION,
    Component,
    components,
    prediction_interval,
    seeds_needed,
)
from gapft_harness.api import condition_name, layout, percent, points, style, wording
from gapft_harness.hooks.registered import TrainerTraits
from gapft_harness.stages.train.job import VARIED
from gapft_harness.stages.train.stage import begin, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NoiseSettings(api.RecipeSection):
    """What a recipe says under ``experiments.retraining_noise``."""

    conditions: tuple[str, ...] = Field(
        min_length=1, description="conditions whose arms are trained again"
    )
    seeds: tuple[int, ...] = Field((), description="of these seeds; none named: of all")
    vary: tuple[Literal["none", "order", "dropout", "adapter", "all"], ...] = Field(
        ("none",),
        min_length=1,
        description="a replicate of each: what is drawn anew (`none`: nothing; `order` of the "
        "examples; `dropout`; the initial `adapter`; or `all` three)",
    )


def replicates_of(arm: api.Arm, settings: NoiseSettings) -> list[api.Arm]:
    """An arm's replicates that settings ask for."""
    if arm.condition not in settings.conditions or arm.seed not in (settings.seeds or [arm.seed]):
        return []
    return [replace(arm, variant=variant) for variant in dict.fromkeys(settings.vary)]


def replicate_file(arm: api.Arm) -> str:
    """A replicate's decisions: apart from those of a further audit, whose names are free."""
    return layout.decisions(arm.original, f"replicate-{arm.variant}")


def audit_replicate(
    run_path: str,
    condition: str,
    seed: int,
    variant: str,
    plugin_files: Sequence[str] = (),
    progress: api.ReportProgress = api.report_nothing,
) -> dict[str, Any]:
    """Decodes the audit problems greedily with a replicate's adapter, and verifies the answers.

    Returns:
        Facts for the manifest, those of ``sealing.write_responses``.
    """
    run, arm = api.RunDirectory.open(run_path), api.Arm(condition, seed, variant)
    return api.decode_split(run, arm, "audit", replicate_file(arm), plugin_files, progress)


class RetrainingNoise(api.Experiment):
    """How many audit decisions change when an arm is trained again on the same examples."""

    name = "retraining_noise"
    section = NoiseSettings
    stage = "retrain"
    folder = layout.REPLICATES

    def part(self) -> NoisePart:
        """Its section and table."""
        return NoisePart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: conditions or seeds that the recipe lacks, or dropout that it does not have.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}"
        self.require_conditions(recipe, "conditions", found.conditions)
        for seed in found.seeds:
            if seed not in recipe.seeds:
                there = ", ".join(map(str, recipe.seeds))
                raise api.UserError(
                    f"{where}.seeds': {seed} is none of the recipe's seeds: {there}"
                )
        trained = map(recipe.training_of, found.conditions)
        if "dropout" in found.vary and not all(of.dropout for of in trained):
            raise api.UserError(
                f"{where}.vary': dropout is to be drawn anew, and training.dropout is 0; take it "
                "out of vary, or train with dropout"
            )
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Those that are trained again."""
        found: NoiseSettings = self.settings(recipe)
        return found.conditions

    def selected(self, context: api.Context) -> None:
        """A replicate has to be trained and decoded by itself, and drawn as it says.

        Raises:
            UserError: the sampler replays responses, or the trainer draws in ways of its own.
        """
        recipe, where = context.run.recipe, f"experiments.{self.name}"
        self.require_generates(context)
        found = self.settings(recipe)
        anew = [name for name in found.vary if VARIED[name]]
        for name in dict.fromkeys(recipe.training_of(of).trainer for of in found.conditions):
            trainer = context.plugins.get("trainer", name)
            if anew and not trainer.declared(TrainerTraits).as_documented:
                raise api.UserError(
                    f"{where}.vary: {', '.join(anew)}: the trainer {name!r} draws in ways of its "
                    "own; name none alone, or train with one that is as documented"
                )

    # The stage, and the audit

    def run(self, context: api.Context) -> None:
        """Trains and seals the replicates, after the arms that they are of."""
        arms = self._replicates(context)
        for arm in arms:
            context.run.sealed(layout.adapter(arm.original))
        self.selected(context)
        begin(context, arms)
        train(context, arms, {})

    def audits(self, context: api.Context) -> Iterator[tuple[str, api.Job]]:
        """The audit by every replicate."""
        for arm in self._replicates(context):
            job = partial(audit_replicate, variant=arm.variant)
            verb = f"audit {arm.variant} anew," if arm.variant != "none" else "audit again,"
            yield replicate_file(arm), context.arm_job(verb, job, arm.original)

    def reads(self, context: api.Context) -> Iterator[str]:
        """Their decisions, and of those that they are replicates of adapter and training set."""
        for arm in self._replicates(context):
            yield from (replicate_file(arm), layout.adapter(arm), layout.adapter(arm.original))
            yield layout.selection(arm)

    def _replicates(self, context: api.Context) -> list[api.Arm]:
        found: NoiseSettings = self.settings(context.run.recipe)
        return [again for arm in context.arms() for again in replicates_of(arm, found)]

    # gapft verify

    def answered(self, run: api.RunDirectory, arm: api.Arm) -> Iterator[api.Answered]:
        """The audit, by every replicate that there may be."""
        for variant in VARIED:
            yield api.Answered(replicate_file(replace(arm, variant=variant)), "audit")

    def check(
        self,
        run: api.RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[api.Arm],
        found: api.Differences,
    ) -> None:
        """Replicates are there and decoded by themselves; adapters are checked with all others."""
        settings: NoiseSettings = self.settings(run.recipe)
        wanted = [again for arm in trained for again in replicates_of(arm, settings)]
        found.missing += [
            f"{file} is not made"
            for arm in wanted
            for file in (layout.adapter(arm), replicate_file(arm))
            if file not in manifest["files"]
        ]
        tables = {arm: replicate_file(arm) for arm in wanted}
        audited = {arm: file for arm, file in tables.items() if file in manifest["files"]}
        found.gather(layout.DECISIONS, partial(api.decoded_with, run, audited))
        if audited:
            found.checked.append(f"{len(audited)} replicates were decoded with their own adapters")

    # gapft run --dry-run

    def plan(self, recipe: api.Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """The stage's line."""
        found: NoiseSettings = self.settings(recipe)
        named = f"{', '.join(found.conditions)}; drawn anew: {', '.join(found.vary)}"
        count = self._count(recipe)
        return [f"{self.stage} {count} adapters again ({named}) -> {run_dir}/{self.folder}/"]

    def decodes(
        self, recipe: api.Recipe, problems: Mapping[api.Split, int], adapters: int
    ) -> api.Decodes:
        """The audit once more for every replicate."""
        count, audit = self._count(recipe), problems["audit"]
        line = f"retrained: {count * audit:,} = {audit:,} x {count} replicates"
        return api.Decodes([line], count * audit, adapters=-(-count // max(1, adapters)))

    def _count(self, recipe: api.Recipe) -> int:
        found: NoiseSettings = self.settings(recipe)
        seeds = found.seeds or recipe.seeds
        return len({*found.conditions}) * len({*seeds}) * len({*found.vary})


@dataclass(frozen=True, slots=True)
class Replicate:
    """An arm that was trained again.

    Attributes:
        arm: the replicate; its variant says what was drawn anew.
        changes: of the arm's audit decisions.
        worded: responses that are worded otherwise, right or wrong.
        same: whether its weights are the arm's, to the byte.
    """

    arm: api.Arm
    changes: Changes
    worded: int
    same: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the training seeds of a condition are apart.

    Attributes:
        condition: its name.
        seeds: how many.
        share: of the decisions, those in which two seeds differ, mean over pairs; None for one.
        lowest: Pass@1 of the seed that has the lowest.
        highest: that of the highest.
        anew: by what was drawn anew, the share of decisions that changed, mean over replicates.
    """

    condition: str
    seeds: int
    share: Fraction | None
    lowest: Fraction
    highest: Fraction
    anew: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class NoiseRead:
    """What is read of a run.

    Attributes:
        replicates: by condition, what was drawn anew, seed.
        fixed: conditions whose seeds are all trained on the same examples.
    """

    replicates: tuple[Replicate, ...]
    fixed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Causes:
    """What moves one arm's gain over the source, of a condition.

    Attributes:
        condition: its name.
        components: by cause; none of fewer than two seeds.
        predicted: where a further seed's gain on this audit falls in 80 of 100 cases.
        deviation: of the seeds' gains, a fraction.
        problems: of the audit.
        fixed: its seeds are trained on the same examples.
    """

    condition: str
    components: Sequence[Component]
    predicted: Interval
    deviation: float
    problems: int
    fixed: bool


#: A condition's component.
Cause = tuple[Causes, Component]


@dataclass(frozen=True, slots=True)
class NoiseFindings:
    """All of it.

    Attributes:
        replicates: by condition, what was drawn anew, seed.
        spreads: by condition.
        causes: by condition, of those with two seeds or more.
    """

    replicates: Sequence[Replicate]
    spreads: Sequence[Spread]
    causes: Sequence[Causes] = ()

    @property
    def components(self) -> list[Cause]:
        """Every cause of every condition."""
        return [(of, component) for of in self.causes for component in of.components]


def total(group: Iterable[Replicate]) -> Changes:
    """All of their decisions taken together."""
    parts = [of.changes for of in group]
    return Changes(
        sum(of.n for of in parts), sum(of.lost for of in parts), sum(of.gained for of in parts)
    )


#: What a replicate of each name says of what was drawn anew.
_ANEW = {
    "none": "nothing",
    "order": "the order of examples",
    "dropout": "dropout",
    "adapter": "the initial adapter",
    "all": "all three",
}
_TURNED = "decisions that differ"

REPLICATES: tuple[api.Column[Replicate], ...] = (
    api.Column("condition", "", lambda of: of.arm.condition, "condition", condition_name),
    api.Column(
        "",
        "what the second training drew anew",
        lambda of: _ANEW[of.arm.variant],
        "drawn anew",
    ),
    api.Column("seed", "", lambda of: of.arm.seed, "seed"),
    api.Column("vary", "", lambda of: of.arm.variant),
    api.Column("n", "", lambda of: of.changes.n),
    api.Column("changed", "", lambda of: of.changes.changed),
    api.Column(
        "",
        "decisions that differ",
        lambda of: f"{wording.whole(of.changes.changed)} of {wording.whole(of.changes.n)}",
        "changed",
    ),
    api.Column("lost", _TURNED, lambda of: of.changes.lost, "right → wrong", wording.whole),
    api.Column("gained", _TURNED, lambda of: of.changes.gained, "wrong → right", wording.whole),
    api.Column(
        "delta",
        "of the second training minus that of the first",
        lambda of: of.changes.difference,
        "Pass@1",
        partial(points, digits=2),
    ),
    api.Column("reworded", "other texts", lambda of: of.worded, "reworded", wording.whole),
    api.Column(
        "same_weights",
        "whether adapters are equal",
        lambda of: of.same,
        "weights",
        lambda same: "the same" if same else "differ",
    ),
)


def _spread_columns(
    sources: Iterable[str], findings: api.ReportFindings | None = None
) -> Iterator[api.Column[Spread]]:
    """Of a condition; what is drawn anew in this run, or anywhere, has a column each."""
    yield api.Column("", "", lambda of: of.condition, "condition", condition_name)
    for source in sources:
        yield api.Column(
            "",
            "share of decisions changed where this was drawn anew",
            lambda of, source=source: of.anew[source],  # type: ignore[misc]
            source,
            percent,
        )
    yield api.Column("seeds", "", lambda of: of.seeds)
    yield api.Column(
        "changed_share",
        "the same between training seeds",
        lambda of: of.share,
        "between seeds",
        percent,
    )
    yield api.Column("pass_at_1", "", lambda of: (of.lowest, of.highest))
    yield api.Column(
        "",
        "lowest and highest",
        lambda of: " to ".join(map(percent, (of.lowest, of.highest)[: of.seeds])),
        "Pass@1 of seeds",
    )
    if findings is not None:
        of_condition = findings.conditions
        yield api.Column(
            "",
            "",
            lambda of: wording.percent_interval(of_condition[of.condition].interval),
            "95% interval",
        )


SPREADS = tuple(_spread_columns(_ANEW))

#: A cause as people read it.
_CAUSES = {
    "none": "engine: nothing drawn anew",
    "order": "order of examples",
    "dropout": "dropout",
    "adapter": "initial adapter",
    "all": "these three and the engine",
    SELECTION: "choice of examples",
    ITEMS: "another audit",
}


def _deviation(component: Component) -> str:
    low, high = component.points_interval.low, component.points_interval.high
    return f"{component.points:.2f} [{low:.2f}, {high:.2f}]"


CAUSES: tuple[api.Column[Cause], ...] = (
    api.Column("condition", "", lambda row: row[0].condition, "condition", condition_name),
    api.Column("cause", "what varies", lambda row: row[1].cause, "cause", _CAUSES.__getitem__),
    api.Column("variance", "of one arm's gain, a fraction squared", lambda row: row[1].variance),
    api.Column(
        "variance_ci95",
        "",
        lambda row: (row[1].interval.low, row[1].interval.high),
        names=("variance_ci95_low", "variance_ci95_high"),
    ),
    api.Column(
        "",
        "standard deviation of one arm's gain that the cause makes, in points, with its 95% "
        "interval",
        lambda row: row[1],
        "deviation (points)",
        _deviation,
    ),
    api.Column(
        "freedom",
        "of the estimate: seeds, or problems",
        lambda row: row[1].freedom,
        "degrees of freedom",
        wording.whole,
    ),
)


class NoisePart(api.Part):
    """Retraining noise: a section and a table."""

    name = "retraining_noise"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> NoiseRead | None:
        """The decisions and weights of every replicate of the report's arms, with its arm's.

        By condition and source of noise as they are asked for, then by ascending seed.
        """
        said = manifest["recipe"]["experiments"].get(self.name, {})
        settings = NoiseSettings.model_validate(said)
        wanted = [again for arm in arms for again in replicates_of(arm, settings)]
        groups = list(dict.fromkeys(arm.condition for arm in wanted))
        sources = list(dict.fromkeys(arm.variant for arm in wanted))
        wanted.sort(key=lambda arm: (groups.index(arm.condition), sources.index(arm.variant)))
        sets: dict[str, set[tuple[tuple[str, tuple[int, ...]], ...]]] = {}
        for arm in dict.fromkeys(arm.original for arm in wanted):
            examples = api.read_examples(run_path / layout.selection(arm))
            trained_on = sorted((of.problem_id, of.response_ids) for of in examples)
            sets.setdefault(arm.condition, set()).add(tuple(trained_on))
        fixed = frozenset(name for name, of in sets.items() if len(of) == 1)
        found = tuple(_replicate(run_path, arm) for arm in wanted)
        return NoiseRead(found, fixed) if found else None

    def compute(self, inputs: api.ReportInputs, read: NoiseRead) -> NoiseFindings:
        """What changed, and beside it how far the training seeds are apart, and by what."""
        conditions, sources = (
            [*dict.fromkeys(getattr(of.arm, key) for of in read.replicates)]
            for key in ("condition", "variant")
        )
        spreads, causes = [], list[Causes]()
        for name in conditions:
            passed = np.array([arm.passed for arm in inputs.of(name)])
            rates = [Fraction(int(of.sum()), of.size) for of in passed]
            own = [of for of in read.replicates if of.arm.condition == name]
            causes += _causes(inputs, name, own, name in read.fixed)
            shares = {
                source: total(of for of in own if of.arm.variant == source).share
                for source in sources
            }
            spreads.append(
                Spread(name, len(rates), mean_share(passed), min(rates), max(rates), shares)
            )
        return NoiseFindings(read.replicates, spreads, causes)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: NoiseFindings
    ) -> Iterator[api.Section]:
        """What came of it in words, what moves a gain, how far seeds are apart, every replicate."""
        replicates = api.Frame(REPLICATES, found.replicates).table(
            "Each line is an arm and its replicate, trained on the same examples. Changed: audit "
            "problems that one of the two has right and the other wrong. Pass@1: of the replicate "
            "minus that of the arm, in percentage points. Reworded: responses with another text, "
            "right or wrong. Weights: whether the two adapters are the same to the byte.",
            words=2,
            summary="Every replicate",
        )
        columns = [*_spread_columns(found.spreads[0].anew, findings)]
        spreads = api.Frame(columns, found.spreads).table(
            "Share of the audit's decisions that changed, mean over replicates, by what was drawn "
            "anew (none: nothing). Between seeds: the share in which two training seeds of the "
            "condition differ, mean over pairs; where the selector draws, seeds have other "
            "examples, too. Interval: of the condition's mean Pass@1, over seeds and problems. "
            "Conditions are compared by such intervals, and not by single trainings.",
        )
        anatomy = _anatomy(found) if found.causes else ()
        blocks = [api.Text(_result(found)), *anatomy, spreads, replicates]
        yield api.Section("Retraining noise", blocks)

    def figures(self, findings: api.ReportFindings, found: NoiseFindings) -> api.Figures:
        """The causes as bars."""
        if found.causes:
            yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: NoiseFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Every replicate and every cause, unrounded."""
        yield "retraining_noise.csv", api.Frame(REPLICATES, found.replicates).csv()
        yield "retraining_noise_causes.csv", api.Frame(CAUSES, found.components).csv()

    def results(self, found: NoiseFindings) -> dict[str, Any]:
        """For results.json."""
        spreads = api.Frame([*_spread_columns(())], found.spreads).entries()
        names = (of.condition for of in found.spreads)
        return {
            "replicates": api.Frame(REPLICATES, found.replicates).entries(),
            "between_seeds": dict(zip(names, spreads, strict=True)),
            "causes": api.Frame(CAUSES, found.components).entries(),
            "predicted": {
                of.condition: [of.predicted.low, of.predicted.high] for of in found.causes
            },
        }


def _replicate(run_path: Path, arm: api.Arm) -> Replicate:
    files = (layout.decisions(arm.original), replicate_file(arm))
    names = ("problem_id", "status", "text")
    first, second = (api.read_columns(run_path / file, names) for file in files)
    api.require(
        first["problem_id"] == second["problem_id"],
        f"{files[1]}: answers other problems than {files[0]}",
    )
    weights = {api.weights_hash(run_path / layout.adapter(of)) for of in (arm.original, arm)}
    passed = (api.codes(of["status"]) == api.PASS for of in (first, second))
    worded = sum(a != b for a, b in zip(first["text"], second["text"], strict=True))
    return Replicate(arm, changes(*passed), worded, len(weights) == 1)


def _causes(
    inputs: api.ReportInputs, name: str, replicates: Sequence[Replicate], fixed: bool
) -> Iterator[Causes]:
    """None where fewer than two seeds were trained again."""
    again: dict[str, dict[int, float]] = {}
    for of in replicates:
        again.setdefault(of.arm.variant, {})[of.arm.seed] = float(of.changes.difference)
    seeds = sorted(next(iter(again.values())))
    if len(seeds) < 2:
        return
    arms = {arm.arm.seed: arm.passed for arm in inputs.of(name)}
    source = inputs.audit.verdicts.greedy.astype(float)
    differences = np.array([arms[seed] - source for seed in seeds])
    gains = differences.mean(axis=1)
    anew = {cause: gains + np.array([of[seed] for seed in seeds]) for cause, of in again.items()}
    stream = api.Stream(0, f"retraining noise/{name}")
    found = components(gains, anew, differences, stream)
    if fixed:  # no draw: what the seeds' spread would say is noise
        nothing = Component(SELECTION, 0.0, Interval(0.0, 0.0), len(seeds) - 1)
        found = [nothing if of.cause == SELECTION else of for of in found]
    deviation = float(np.std(gains, ddof=1))
    predicted = prediction_interval(gains)
    yield Causes(name, found, predicted, deviation, differences.shape[1], fixed)


def _anatomy(found: NoiseFindings) -> Iterator[api.Block]:
    """What moves a gain, in words, as a figure and as a table."""
    for of in found.causes:
        one, two = (seeds_needed(2**0.5 * of.deviation, claim) for claim in (0.01, 0.02))
        same = (
            " Its seeds have the same examples, so their choice moves nothing." if of.fixed else ""
        )
        yield api.Text(
            f"{wording.capital(condition_name(of.condition))}: 80 of 100 further training seeds "
            f"would gain {points(of.predicted.low)} to {points(of.predicted.high)} points over the "
            "source on this audit. A true difference of 1 point between two conditions whose seeds "
            f"differ so, each by itself, takes {wording.whole(one)} seeds of each to be found in "
            f"80 of 100 studies, one of 2 points {wording.whole(two)}.{same}"
        )
    told = (
        f"{condition_name(of.condition)}, {_CAUSES[component.cause]}: {_deviation(component)}"
        for of, component in found.components
    )
    yield api.Figure(
        "retraining_noise",
        "; ".join(told),
        "How far one cause alone moves the gain of one training: standard deviations in points, "
        "with 95% intervals.",
    )
    audits = {of.problems for of in found.causes}
    yield api.Frame(CAUSES, found.components).table(
        "Standard deviation of one arm's gain over the source that each cause makes, in points. "
        "From arms that differ in it alone; the choice of examples from what the seeds' spread "
        f"holds beyond the others. Another audit: of {', '.join(map(wording.whole, audits))} "
        "problems like these. Another search of the pool is not among them: a run has one.",
        words=2,
    )


def _draw(findings: api.ReportFindings, found: NoiseFindings) -> Figure:
    rows = [len(of.components) for of in found.causes]
    figure, axes = style.panels(
        0.27 * sum(rows) + 0.75 * len(rows), len(rows), height_ratios=rows, sharex=True
    )
    for at, of in zip(axes, found.causes, strict=True):
        for y, component in enumerate(of.components):
            ends = component.points_interval
            at.barh(y, component.points, color=api.palette.RIGHT_PALE, height=0.62)
            at.plot([ends.low, ends.high], [y, y], color=api.palette.RIGHT, linewidth=1.6)
        style.name_rows(at, [_CAUSES[component.cause] for component in of.components])
        at.set_title(condition_name(of.condition), x=0)
        at.set_xlim(left=0)
    axes[-1].set_xlabel("standard deviation, points")
    return figure


def _result(found: NoiseFindings) -> str:
    sentences = []
    again = [of for of in found.replicates if of.arm.variant == "none"]
    if again:
        sentences.append(_repeated(again))
    sources = dict.fromkeys(of.arm.variant for of in found.replicates if of.arm.variant != "none")
    for source in sources:
        group = [of for of in found.replicates if of.arm.variant == source]
        sentences.append(f"With {_ANEW[source]} drawn anew, {_changed(group)}.")
    return " ".join(sentences)


def _repeated(group: Sequence[Replicate]) -> str:
    """What training again with nothing drawn anew came to."""
    together = total(group)
    same = sum(of.same for of in group)
    count = f"{wording.whole(len(group))} adapter{'s' * (len(group) > 1)}"
    if same == len(group) and not together.changed and not any(of.worded for of in group):
        return (
            f"Trained again with nothing drawn anew, {count} came out the same to the byte: "
            f"{wording.whole(0)} of {wording.whole(together.n)} decisions changed. Training and "
            "decoding repeat on this machine; another one, a GPU above all, may not."
        )
    weights = (
        f"the weights are the same to the byte in {wording.whole(same)} of {count}"
        if same
        else f"no weights of {count} are the same to the byte"
    )
    text = f"Trained again with nothing drawn anew, {_changed(group)}; {weights}."
    return text + (" So it is decoding that does not repeat here." if same == len(group) else "")


def _changed(group: Sequence[Replicate]) -> str:
    """All their decisions that changed, and the extremes of Pass@1: a sum of both would cancel."""
    of, each = total(group), [one.changes.difference for one in group]
    by = " to ".join(points(end, 2) for end in dict.fromkeys((min(each), max(each))))
    return (
        f"{wording.whole(of.changed)} of {wording.whole(of.n)} decisions changed "
        f"({percent(of.share)}), and Pass@1 by {by} points"
    )


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("retraining_noise", RetrainingNoise)
