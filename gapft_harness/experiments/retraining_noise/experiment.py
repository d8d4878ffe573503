"""Retraining noise as an experiment: its settings, the replicates that it trains and audits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Arm
from gapft_harness.experiments.retraining_noise.job import audit_replicate, replicate_file
from gapft_harness.experiments.retraining_noise.settings import NoiseSettings, replicates_of
from gapft_harness.hooks.protocols import Job
from gapft_harness.hooks.registered import SamplerTraits, TrainerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, Split
from gapft_harness.stages.audit.check import decoded_with
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.experiment import Answered, Decodes, Experiment
from gapft_harness.stages.train.replicates import VARIED
from gapft_harness.stages.train.stage import begin, train

if TYPE_CHECKING:
    from gapft_harness.experiments.retraining_noise.report import NoisePart


class RetrainingNoise(Experiment):
    """Trains arms again on the same examples, and counts the audit decisions that change."""

    name = "retraining_noise"
    section = NoiseSettings
    stage = "retrain"
    folder = layout.REPLICATES

    def part(self) -> NoisePart:
        """Its section and table."""
        from gapft_harness.experiments.retraining_noise.report import NoisePart

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
