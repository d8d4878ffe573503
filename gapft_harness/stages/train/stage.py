"""The train stage: adapters of the run's arms, trained on the executor and sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Job
from gapft_harness.hooks.registered import ExecutorTraits
from gapft_harness.recipe.recipe import Recipe, model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recording import record_warnings, recorder
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.integrity.rests_on import record_trainers
from gapft_harness.stages.selection.stage import arms
from gapft_harness.stages.train.job import TRACKING_WARNINGS, check_trackers, finished, train_arms
from gapft_harness.stages.train.online import reward_warnings
from gapft_harness.stages.train.sharing import remove, shared, stale, take_adapter


def train_stage(context: Context) -> None:
    """One LoRA adapter per condition and seed; what is the same for several is trained once.

    Raises:
        UserError: nothing is selected yet, or a tracker cannot work here.
    """
    run, arms = context.run, context.arms()
    require_selected(run)
    check_trackers(run.recipe, context.plugins)
    warnings = reward_warnings(run.recipe, run.manifest()["task"], context.plugins)
    run.update_manifest(partial(record_warnings, warnings=warnings))
    context.warn(warnings)
    run.update_manifest(partial(record_trainers, plugins=context.plugins, run=run))
    remove(run, stale(run, arms, context.plugins), context.say)
    train(context, arms, shared(run, arms, context.plugins))


def train(context: Context, arms: Sequence[Arm], taken: Mapping[Arm, Arm]) -> None:
    """Trains arms and seals their adapters.

    Args:
        taken: of arms that are not to be trained, the arm whose adapter each takes.
    """
    run, manifest = context.run, context.run.manifest()
    wanted = [arm for arm in arms if arm not in taken]
    trained = finished(run, wanted)
    if trained:
        done = [manifest["budgets"][arm.name] for arm in wanted if arm.name in trained]
        steps = sum(budget["steps"] for budget in done)
        context.progress(_label(list(trained)), steps, steps)  # is told as already there
    jobs = [
        Job.of(
            _label([arm.name for arm in group]),
            train_arms,
            run_path=str(run.path),
            arms=[[arm.condition, arm.seed] for arm in group],
            plugin_files=list(context.plugin_files),
        )
        for group in _even_groups(context, [arm for arm in wanted if arm.name not in trained])
    ]
    before = {
        arm.name: manifest["training"].get(arm.name, {})
        for arm in arms
        if layout.adapter(arm) in manifest["files"]
    }
    for found in context.executor.run(jobs, context.progress):
        trained |= found
    for arm in sorted(arms, key=lambda arm: arm in taken):
        # the other's adapter is sealed by now
        facts = take_adapter(run, arm, taken[arm]) if arm in taken else trained[arm.name]
        if "seconds" in (earlier := before.get(arm.name, {})):  # only the manifest has them
            facts.setdefault("seconds", earlier["seconds"])
        warnings = [f"{arm.name}: {line}" for line in facts.pop(TRACKING_WARNINGS, [])]
        run.seal(layout.adapter(arm))
        run.update_manifest(recorder("training", arm.name, facts))
        run.update_manifest(partial(record_warnings, warnings=warnings))
        context.warn(warnings)


def _label(names: Sequence[str]) -> str:
    return f"train {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "")


def _even_groups(context: Context, wanted: Sequence[Arm]) -> list[list[Arm]]:
    """Arms to train, in as many groups as there are workers, of about equally many tokens each.

    The arms of a group are trained on a base that is loaded once. An executor that does not go by
    ``workers`` gets a group an arm, to place as its machines allow.
    """
    run = context.run
    budgets = run.manifest()["budgets"]
    tokens = {arm: budgets[arm.name]["tokens"] for arm in wanted}
    arms = sorted(wanted, key=lambda arm: (-tokens[arm], arm.name))
    executor = run.recipe.executor
    entry = context.plugins.get("executor", executor.name)
    count = executor.workers if entry.declared(ExecutorTraits).by_workers else len(arms)
    groups: list[list[Arm]] = [[] for _ in range(count)]
    loads = [0] * len(groups)
    for arm in arms:
        lightest = loads.index(min(loads))
        groups[lightest].append(arm)
        loads[lightest] += tokens[arm]
    return [group for group in groups if group]


def refused_kernels(recipe: Recipe, plugins: Plugins) -> str:
    """Why this machine cannot train with the recipe's kernels; empty where it can.

    Nothing is said where an executor trains on machines that it chooses itself.
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


def require_kernels(run: RunDirectory, plugins: Plugins) -> None:
    """Refuses a run with an adapter still to be trained, if it cannot be trained here.

    Raises:
        UserError: it cannot.
    """
    left = any(not run.is_sealed(layout.adapter(arm)) for arm in arms(run.recipe))
    if left and (why := refused_kernels(run.recipe, plugins)):
        raise UserError(why)
