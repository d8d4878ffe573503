"""The train stage: train the adapters of the run's arms on the executor, and seal them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.hooks.registered import ExecutorTraits, TrainerTraits
from gapft_harness.recipe.recipe import Recipe, model_args, sampler_settings
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import record_warnings
from gapft_harness.run_directory.recording import recorder
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.integrity.rests_on import record_trainers
from gapft_harness.stages.selection.stage import arms
from gapft_harness.stages.train.job import (
    TRACKING_WARNINGS,
    check_trackers,
    count_trainings_at_once,
    finished,
    searched_pool,
    train_arms,
)
from gapft_harness.stages.train.online import reward_warnings
from gapft_harness.stages.train.stored import (
    OF_THE_MANIFEST,
    STORED,
    TRAINED_AS,
    as_trained,
    find_original,
    groups_of,
    has_copies,
    is_stored,
    list_stale,
    put_into_store,
    record_made_from,
    remove,
    take_from_store,
)
from gapft_harness.store.explain import describe_toolchain, explain, summarize
from gapft_harness.store.store import Group

if TYPE_CHECKING:
    from gapft_harness.training.model import EndToken


def train_stage(context: Context) -> None:
    """Train one LoRA adapter per condition and seed, unless the store has it.

    Raises:
        UserError: nothing is selected yet, or a tracker cannot work on this machine.
    """
    run, arms = context.run, context.arms()
    require_selected(run)
    check_trackers(run.recipe, context.plugins)
    warnings = reward_warnings(run.recipe, run.manifest()["task"], context.plugins)
    run.update_manifest(partial(record_warnings, warnings=warnings))
    context.warn(warnings)
    run.update_manifest(partial(record_trainers, plugins=context.plugins, run=run))
    pool = partial(searched_pool, run, context.plugins, context.plugin_files)
    groups = groups_of(run, arms, context.plugins, pool)
    remove(run, list_stale(run, groups), context.say)
    train(context, groups)


def train(context: Context, groups: Mapping[Arm, Group]) -> None:
    """Train arms or copy their adapters from the store, and seal them.

    Args:
        context: the run.
        groups: the store's group of each arm's adapter, stored or not.
    """
    run, manifest = context.run, context.run.manifest()
    trained = finished(run, groups)
    if trained:
        steps = sum(manifest["budgets"][name]["steps"] for name in trained)
        context.progress(_label(list(trained)), steps, steps)  # shown as already finished
    places, left = dict(groups), [arm for arm in groups if arm.name not in trained]
    for arm in groups.keys() - left:
        # the launcher may have chosen another number of processes than the recipe
        there = as_trained(groups[arm], trained[arm.name])
        if trained[arm.name].get(STORED) == there.name:
            put_into_store(there, run.path / layout.adapter(arm), run, arm)
            places |= {a: there for a in left if groups[a].key == groups[arm].key}
    once = {places[arm].key: arm for arm in reversed(left) if not is_stored(places[arm])}
    jobs = [
        Job.of(
            _label([arm.name for arm in group]),
            train_arms,
            run_path=str(run.path),
            arms=[[arm.condition, arm.seed] for arm in group],
            plugin_files=list(context.plugin_files),
        )
        for group in _even_groups(context, [arm for arm in left if arm in once.values()])
    ]
    why = summarize([explain(groups[arm]) for arm in once.values()])  # before they are stored
    new = len(once)
    for found in context.executor.run(jobs, context.progress):
        trained |= found
    reused = Counter[str]()
    for arm in sorted(groups, key=lambda arm: arm.name not in trained):
        facts = trained.get(arm.name) or take_from_store(run, arm, places[arm])
        warnings = [f"{arm.name}: {line}" for line in facts.pop(TRACKING_WARNINGS, [])]
        if layout.adapter(arm) in manifest["files"]:
            said = manifest["training"].get(arm.name, {})
            facts.pop("reused", None)
            facts |= {key: said[key] for key in OF_THE_MANIFEST if key in said}
        else:
            facts["made_with"] = describe_toolchain(places[arm].made_from)
            if other := find_original(run.manifest(), arm, facts.get(STORED), context.plugins):
                facts[TRAINED_AS] = other
            elif "reused" in facts:
                reused[facts["reused"]] += 1
        of_manifest = {key: facts.pop(key) for key in OF_THE_MANIFEST if key in facts}
        facts = of_manifest | facts  # in one order, however the arm came to be here
        record_made_from(run.path / layout.adapter(arm), as_trained(places[arm], facts))
        run.seal(layout.adapter(arm))
        run.update_manifest(recorder("training", arm.name, facts))
        run.update_manifest(partial(record_warnings, warnings=warnings))
        context.warn(warnings)
    parts = [f"{count} reused from {Path(folder).name}" for folder, count in reused.items()]
    parts += [f"{new} new" + (f": {why}" if why else "")] if new else []
    if parts:
        context.say(f"train: {', '.join(parts)}")
    if any(has_copies(places[arm]) for arm in left):
        context.say(
            f"train: adapters are copied, not linked: hard links between {run.path} and the store "
            "are not possible"
        )


def _label(names: Sequence[str]) -> str:
    return f"train {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "")


def _even_groups(context: Context, wanted: Sequence[Arm]) -> list[list[Arm]]:
    """Divide arms into one group for each worker, with about equal numbers of tokens.

    The arms of a group share a base that is loaded once. Fewer workers are used if memory is too
    small for all. An executor that ignores ``workers`` gets one group for each arm.
    """
    run = context.run
    budgets = run.manifest()["budgets"]
    tokens = {arm: budgets[arm.name]["tokens"] for arm in wanted}
    arms = sorted(wanted, key=lambda arm: (-tokens[arm], arm.name))
    executor = run.recipe.executor
    entry = context.plugins.get("executor", executor.name)
    by_workers = entry.declared(ExecutorTraits).by_workers
    count = _workers_that_fit(context, arms) if by_workers else len(arms)
    groups: list[list[Arm]] = [[] for _ in range(count)]
    loads = [0] * len(groups)
    for arm in arms:
        lightest = loads.index(min(loads))
        groups[lightest].append(arm)
        loads[lightest] += tokens[arm]
    return [group for group in groups if group]


def _workers_that_fit(context: Context, arms: Sequence[Arm]) -> int:
    """Return how many workers can train in parallel; warn if memory allows fewer than requested."""
    wanted = min(context.run.recipe.executor.workers, len(arms))
    if wanted < 2:
        return wanted
    job = Job.of(
        "memory",
        count_trainings_at_once,
        run_path=str(context.run.path),
        arms=[[arm.condition, arm.seed, arm.variant] for arm in arms],
        plugin_files=list(context.plugin_files),
    )
    (found,) = context.executor.run([job], context.progress)
    if found["count"] is None or found["count"] >= wanted:
        return wanted
    count = max(1, int(found["count"]))  # a training that does not fit fails at its start
    context.say(
        f"warning: training with {count} of {wanted} workers, since memory is too small for all: "
        f"each worker needs {found['why']}"
    )
    return count


def check_trainings(
    run_path: str,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Check the base's requirements for training before anything is generated, as a job.

    A model that cannot be loaded is skipped: its sampler reports that better.

    Raises:
        UserError: see ``model.check_trainable``.
    """
    from gapft_harness.training.model import ModelNotLoaded

    with contextlib.suppress(ModelNotLoaded):
        find_end_tokens(RunDirectory.open(run_path).recipe, load_plugins(plugin_files))
    return {}


def find_end_tokens(recipe: Recipe, plugins: Plugins) -> dict[str, EndToken | None]:
    """Find the end token that each condition's responses are trained with; None for no token.

    Conditions of a trainer that is not ``as_documented`` are left out.

    Raises:
        UserError: see ``model.check_trainable``.
    """
    from gapft_harness.training.model import check_trainable

    arguments, chat = model_args(recipe), sampler_settings(recipe).chat_template
    found: dict[str, EndToken | None] = {}
    known: dict[Training, EndToken | None] = {}
    for condition in recipe.conditions:
        settings = recipe.training_of(condition)
        trainer = plugins.get("trainer", settings.trainer)
        if trainer.declared(TrainerTraits).as_documented:
            if settings not in known:
                known[settings] = check_trainable(arguments, settings, chat)
            found[condition] = known[settings]
    return found


def refused_kernels(recipe: Recipe, plugins: Plugins) -> str:
    """Explain why this machine cannot train with the recipe's kernels; empty if it can.

    Nothing is checked for an executor that chooses the machines itself.
    """
    entry = plugins.get("executor", recipe.executor.name)
    asked = [of for of in map(recipe.training_of, recipe.conditions) if of.kernels != "plain"]
    if not asked or not entry.declared(ExecutorTraits).by_workers:
        return ""
    from gapft_harness.training.devices import asked_device
    from gapft_harness.training.kernels import check_kernels

    try:
        device = asked_device(model_args(recipe).get("device"))
        for settings in asked:
            check_kernels(settings, None, device, recipe.executor.fsdp)
    except UserError as error:
        return str(error)
    return ""


def require_trainable(context: Context) -> None:
    """Refuse a run with untrained adapters if this machine cannot train them.

    Raises:
        UserError: it cannot.
    """
    run = context.run
    if all(run.is_sealed(layout.adapter(arm)) for arm in arms(run.recipe)):
        return
    if why := refused_kernels(run.recipe, context.plugins):
        raise UserError(why)
    if run.is_sealed(layout.responses("pool")):
        return  # training follows soon and checks this itself
    job = Job.of(
        "check",
        check_trainings,
        run_path=str(run.path),
        plugin_files=list(context.plugin_files),
    )
    context.executor.run([replace(job, own_process=context.own_process)], context.progress)
