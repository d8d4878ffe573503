"""Retraining noise: arms trained a second time, and how many of their decisions change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness.analysis.paired import Changes, changes, mean_share
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import Job, ReportProgress
from gapft_harness.hooks.registered import SamplerTraits, TrainerTraits
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Section, Table, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    percent,
    percent_interval,
    points,
    whole,
)
from gapft_harness.report.results import number
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, Split, require
from gapft_harness.stages.audit.job import decode_split
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Answered, Decodes, Experiment
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.train.job import VARIED
from gapft_harness.stages.train.stage import begin, train
from gapft_harness.stages.verify.arms import decoded_with


class NoiseSettings(RecipeSection):
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


def replicates_of(arm: Arm, settings: NoiseSettings) -> list[Arm]:
    """An arm's replicates that settings ask for."""
    if arm.condition not in settings.conditions or arm.seed not in (settings.seeds or [arm.seed]):
        return []
    return [replace(arm, variant=variant) for variant in dict.fromkeys(settings.vary)]


def replicate_file(arm: Arm) -> str:
    """A replicate's decisions: apart from those of a further audit, whose names are free."""
    return layout.decisions(arm.original, f"replicate-{arm.variant}")


def audit_replicate(
    run_path: str,
    condition: str,
    seed: int,
    variant: str,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes the audit problems greedily with a replicate's adapter, and verifies the answers.

    Returns:
        Facts for the manifest, those of ``sealing.write_responses``.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed, variant)
    file, purpose = replicate_file(arm), f"audit/{arm.original.name}"  # decoded as the arm was
    return decode_split(run, arm, "audit", file, purpose, plugin_files, progress)


class RetrainingNoise(Experiment):
    """How many audit decisions change when an arm is trained again on the same examples."""

    name = "retraining_noise"
    section = NoiseSettings
    stage = "retrain"
    folder = layout.REPLICATES

    def part(self) -> NoisePart:
        """Its section and table."""
        return NoisePart()

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: conditions or seeds that the recipe lacks, or dropout that it does not have.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}"
        for name in found.conditions:
            if name not in recipe.conditions:
                raise UserError(
                    f"{where}.conditions': {name!r} is no condition of the recipe; "
                    f"{did_you_mean(name, recipe.conditions)}"
                )
        for seed in found.seeds:
            if seed not in recipe.seeds:
                there = ", ".join(map(str, recipe.seeds))
                raise UserError(f"{where}.seeds': {seed} is none of the recipe's seeds: {there}")
        named = [name for name in found.conditions if name in recipe.conditions]
        if "dropout" in found.vary and not all(recipe.training_of(of).dropout for of in named):
            raise UserError(
                f"{where}.vary': dropout is to be drawn anew, and training.dropout is 0; take it "
                "out of vary, or train with dropout"
            )
        return found

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """Those that are trained again."""
        found: NoiseSettings = self.settings(recipe)
        return found.conditions

    def selected(self, context: Context) -> None:
        """A replicate has to be trained and decoded by itself, and drawn as it says.

        Raises:
            UserError: the sampler replays responses, or the trainer draws in ways of its own.
        """
        recipe, where = context.run.recipe, f"experiments.{self.name}"
        sampler = context.plugins.get("sampler", recipe.model.backend)
        if not sampler.declared(SamplerTraits).generates:
            raise UserError(
                f"{where}: needs a backend that generates: the responses of "
                f"{recipe.model.backend!r} are of each arm's own adapter, and of no replicate"
            )
        found = self.settings(recipe)
        anew = [name for name in found.vary if VARIED[name]]
        for name in dict.fromkeys(recipe.training_of(of).trainer for of in found.conditions):
            trainer = context.plugins.get("trainer", name)
            if anew and not trainer.declared(TrainerTraits).as_documented:
                raise UserError(
                    f"{where}.vary: {', '.join(anew)}: the trainer {name!r} draws in ways of its "
                    "own; name none alone, or train with one that is as documented"
                )

    # The stage, and the audit

    def run(self, context: Context) -> None:
        """Trains and seals the replicates, after the arms that they are of."""
        arms = self._replicates(context)
        for arm in arms:
            context.run.sealed(layout.adapter(arm.original))
        self.selected(context)
        begin(context, arms)
        train(context, arms, {})

    def audits(self, context: Context) -> Iterator[tuple[str, Job]]:
        """The audit by every replicate."""
        for arm in self._replicates(context):
            job = partial(audit_replicate, variant=arm.variant)
            verb = f"audit {arm.variant} anew," if arm.variant != "none" else "audit again,"
            yield replicate_file(arm), context.arm_job(verb, job, arm.original)

    def reads(self, context: Context) -> Iterator[str]:
        """Their decisions, and their adapters with those that they are replicates of."""
        for arm in self._replicates(context):
            yield from (replicate_file(arm), layout.adapter(arm), layout.adapter(arm.original))

    def _replicates(self, context: Context) -> list[Arm]:
        found: NoiseSettings = self.settings(context.run.recipe)
        return [again for arm in context.arms() for again in replicates_of(arm, found)]

    # gapft verify

    def answered(self, run: RunDirectory, arm: Arm) -> Iterator[Answered]:
        """The audit, by every replicate that there may be."""
        for variant in VARIED:
            yield Answered(replicate_file(replace(arm, variant=variant)), "audit")

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
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
        found.gather(layout.DECISIONS, partial(decoded_with, run, audited))
        if audited:
            found.checked.append(f"{len(audited)} replicates were decoded with their own adapters")

    # gapft run --dry-run

    def plan(self, recipe: Recipe, run_dir: str, adapters: int) -> Sequence[str]:
        """The stage's line."""
        found: NoiseSettings = self.settings(recipe)
        named = f"{', '.join(found.conditions)}; drawn anew: {', '.join(found.vary)}"
        count = self._count(recipe)
        return [f"{self.stage} {count} adapters again ({named}) -> {run_dir}/{self.folder}/"]

    def decodes(self, recipe: Recipe, problems: Mapping[Split, int], adapters: int) -> Decodes:
        """The audit once more for every replicate."""
        count, audit = self._count(recipe), problems["audit"]
        line = f"retrained: {count * audit:,} = {audit:,} x {count} replicates"
        return Decodes([line], count * audit, adapters=-(-count // max(1, adapters)))

    def _count(self, recipe: Recipe) -> int:
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

    arm: Arm
    changes: Changes
    worded: int
    same: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the training seeds of a condition are apart.

    Attributes:
        seeds: how many.
        share: of the decisions, those in which two seeds differ, mean over pairs; None for one.
        lowest: Pass@1 of the seed that has the lowest.
        highest: that of the highest.
    """

    seeds: int
    share: Fraction | None
    lowest: Fraction
    highest: Fraction


@dataclass(frozen=True, slots=True)
class NoiseFindings:
    """All of it.

    Attributes:
        replicates: by condition, what was drawn anew, seed.
        spreads: by condition.
    """

    replicates: Sequence[Replicate]
    spreads: Mapping[str, Spread]

    def groups(self) -> dict[tuple[str, str], list[Replicate]]:
        """The replicates by condition and what was drawn anew."""
        found: dict[tuple[str, str], list[Replicate]] = {}
        for of in self.replicates:
            found.setdefault((of.arm.condition, of.arm.variant), []).append(of)
        return found


def total(group: Sequence[Replicate]) -> Changes:
    """All of their decisions taken together."""
    parts = [of.changes for of in group]
    return Changes(
        sum(of.n for of in parts), sum(of.lost for of in parts), sum(of.gained for of in parts)
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """An arm and its replicate on the audit.

    Attributes:
        arm: the replicate.
        first: shape (P,), V of the arm's greedy decode.
        second: shape (P,), the same of the replicate's.
        worded: responses that are worded otherwise.
        same: whether both adapters have the same weights, to the byte.
    """

    arm: Arm
    first: NDArray[np.bool_]
    second: NDArray[np.bool_]
    worded: int
    same: bool


REPLICATES: tuple[Column[Replicate], ...] = (
    Column("condition", "", lambda of: of.arm.condition),
    Column("seed", "", lambda of: of.arm.seed),
    Column("vary", "", lambda of: of.arm.variant),
    Column("n", "", lambda of: of.changes.n),
    Column("changed", "", lambda of: of.changes.changed),
    Column("lost", "", lambda of: of.changes.lost),
    Column("gained", "", lambda of: of.changes.gained),
    Column("delta", "", lambda of: of.changes.difference),
    Column("reworded", "", lambda of: of.worded),
    Column("same_weights", "", lambda of: of.same),
)


class NoisePart(Part):
    """Retraining noise: a section and a table."""

    name = "retraining_noise"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> tuple[Pair, ...] | None:
        """The decisions and weights of every replicate of the report's arms, with its arm's.

        By condition and source of noise as they are asked for, then by ascending seed.
        """
        said = manifest["recipe"]["experiments"].get(self.name, {})
        settings = NoiseSettings.model_validate(said)
        wanted = [again for arm in arms for again in replicates_of(arm, settings)]
        groups = list(dict.fromkeys(arm.condition for arm in wanted))
        sources = list(dict.fromkeys(arm.variant for arm in wanted))
        wanted.sort(key=lambda arm: (groups.index(arm.condition), sources.index(arm.variant)))
        return tuple(_pair(run_path, arm) for arm in wanted) or None

    def compute(self, inputs: ReportInputs, read: tuple[Pair, ...]) -> NoiseFindings:
        """What changed, and beside it how far the training seeds are apart."""
        replicates = tuple(
            Replicate(pair.arm, changes(pair.first, pair.second), pair.worded, pair.same)
            for pair in read
        )
        spreads = {}
        for name in dict.fromkeys(of.arm.condition for of in replicates):
            passed = np.array([arm.passed for arm in inputs.of(name)])
            rates = [Fraction(int(of.sum()), of.size) for of in passed]
            spreads[name] = Spread(len(rates), mean_share(passed), min(rates), max(rates))
        return NoiseFindings(replicates, spreads)

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: NoiseFindings
    ) -> Iterator[Section]:
        """What came of it in words, every replicate, and how far training seeds are apart."""
        shown: list[Block] = [Text(_result(found)), _replicates(found), _spreads(findings, found)]
        yield Section("Retraining noise", shown)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: NoiseFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every replicate, unrounded."""
        yield "retraining_noise.csv", Frame(REPLICATES, found.replicates).csv()

    def results(self, found: NoiseFindings) -> dict[str, Any]:
        """For results.json."""
        return {
            "replicates": Frame(REPLICATES, found.replicates).entries(),
            "between_seeds": {
                name: {
                    "seeds": of.seeds,
                    "changed_share": number(of.share),
                    "pass_at_1": [float(of.lowest), float(of.highest)],
                }
                for name, of in found.spreads.items()
            },
        }


def _pair(run_path: Path, arm: Arm) -> Pair:
    files = (layout.decisions(arm.original), replicate_file(arm))
    first, second = (columns(run_path / file, ("problem_id", "status", "text")) for file in files)
    require(
        first["problem_id"] == second["problem_id"],
        f"{files[1]}: answers other problems than {files[0]}",
    )
    weights = {weights_hash(run_path / layout.adapter(of)) for of in (arm.original, arm)}
    return Pair(
        arm,
        codes(first["status"]) == PASS,
        codes(second["status"]) == PASS,
        sum(a != b for a, b in zip(first["text"], second["text"], strict=True)),
        len(weights) == 1,
    )


#: What a replicate of each name says of what was drawn anew.
_ANEW = {
    "none": "nothing",
    "order": "the order of examples",
    "dropout": "dropout",
    "adapter": "the initial adapter",
    "all": "all three",
}


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
    count = f"{whole(len(group))} adapter{'s' * (len(group) > 1)}"
    if same == len(group) and not together.changed and not any(of.worded for of in group):
        return (
            f"Trained again with nothing drawn anew, {count} came out the same to the byte: "
            f"{whole(0)} of {whole(together.n)} decisions changed. Training and decoding repeat on "
            "this machine; another one, a GPU above all, may not."
        )
    weights = (
        f"the weights are the same to the byte in {whole(same)} of {count}"
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
        f"{whole(of.changed)} of {whole(of.n)} decisions changed ({percent(of.share)}), and Pass@1 "
        f"by {by} points"
    )


def _replicates(found: NoiseFindings) -> Table:
    table = []
    for of in found.replicates:
        counts = of.changes
        table.append(
            [
                condition_name(of.arm.condition),
                _ANEW[of.arm.variant],
                str(of.arm.seed),
                f"{whole(counts.changed)} of {whole(counts.n)}",
                *(whole(count) for count in (counts.lost, counts.gained)),
                points(counts.difference, 2),
                whole(of.worded),
                "the same" if of.same else "differ",
            ]
        )
    return Table(
        [
            *("condition", "drawn anew", "seed", "changed", "right → wrong", "wrong → right"),
            *("Pass@1", "reworded", "weights"),
        ],
        table,
        words=2,
        note="Each line is an arm and its replicate, trained on the same examples. Changed: audit "
        "problems that one of the two has right and the other wrong. Pass@1: of the replicate "
        "minus that of the arm, in percentage points. Reworded: responses with another text, right "
        "or wrong. Weights: whether the two adapters are the same to the byte.",
    )


def _spreads(findings: Findings, found: NoiseFindings) -> Table:
    groups = found.groups()
    sources = list(dict.fromkeys(source for _, source in groups))
    table = []
    for name, spread in found.spreads.items():
        lowest, highest = percent(spread.lowest), percent(spread.highest)
        table.append(
            [
                condition_name(name),
                *(percent(total(groups[name, source]).share) for source in sources),
                percent(spread.share),
                f"{lowest} to {highest}" if spread.seeds > 1 else lowest,
                percent_interval(findings.conditions[name].interval),
            ]
        )
    return Table(
        [
            "condition",
            *sources,
            *("between seeds", "Pass@1 of seeds", "95% interval"),
        ],
        table,
        words=1,
        note="Share of the audit's decisions that changed, mean over replicates, by what was drawn "
        "anew (none: nothing). Between seeds: the share in which two training seeds of the "
        "condition differ, mean over pairs; where the selector draws, seeds have other examples, "
        "too. Interval: of the condition's mean Pass@1, over seeds and problems. Conditions are "
        "compared by such intervals, and not by single trainings.",
    )


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("retraining_noise", RetrainingNoise)
