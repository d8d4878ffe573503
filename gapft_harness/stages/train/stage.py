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
from gapft_harness.executors.local import list_gpus
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.hooks.registration import ExecutorTraits, TrainerTraits
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings, resolve_model_args
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import record_warnings
from gapft_harness.run_directory.recording import record_entry
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.integrity.inputs import record_trainers
from gapft_harness.stages.selection.stage import list_arms
from gapft_harness.stages.train.job import (
    check_packages,
    count_trainings_at_once,
    read_finished_facts,
    read_searched_pool,
    train_arms,
)
from gapft_harness.stages.train.online import list_reward_warnings
from gapft_harness.stages.train.stored import (
    MANIFEST_ONLY_KEYS,
    STORED,
    TRAINED_AS,
    compute_groups,
    copy_from_store,
    find_original,
    find_stale,
    has_copies,
    is_stored,
    record_made_from,
    remove_stale,
    store_adapter,
)
from gapft_harness.store.explain import explain_missing, summarize_reasons
from gapft_harness.store.store import StoreGroup

if TYPE_CHECKING:
    from gapft_harness.training.model import EndToken


def run_train_stage(context: Context) -> None:
    """Train one LoRA adapter per condition and seed, unless the store has it.

    Raises:
        UserError: nothing is selected yet, or a required package is missing.
    """
    run, arms = context.run, context.list_trainable_arms()
    require_selected(run)
    check_packages(run.recipe, context.plugins)
    warnings = list_reward_warnings(run.recipe, run.manifest()["task"], context.plugins)
    run.update_manifest(partial(record_warnings, warnings=warnings))
    context.warn(warnings)
    run.update_manifest(partial(record_trainers, plugins=context.plugins, run=run))
    pool = partial(read_searched_pool, run, context.plugins, context.plugin_files)
    groups = compute_groups(run, arms, context.plugins, pool)
    remove_stale(run, find_stale(run, groups), context.report_line)
    train_or_reuse(context, groups)


def train_or_reuse(context: Context, groups: Mapping[Arm, StoreGroup]) -> None:
    """Train arms or copy their adapters from the store, and seal them.

    Args:
        context: the run.
        groups: the store's group of each arm's adapter, stored or not.
    """
    run, manifest = context.run, context.run.manifest()
    trained = read_finished_facts(run, groups)
    if trained:
        steps = sum(manifest["budgets"][name]["steps"] for name in trained)
        context.progress(_format_label(list(trained)), steps, steps)  # shown as already finished
    unfinished = [arm for arm in groups if arm.name not in trained]
    for arm in groups.keys() - unfinished:
        if trained[arm.name].get(STORED) == groups[arm].name:
            store_adapter(groups[arm], run.path / layout.adapter_path(arm), run)
    arm_by_key = {
        groups[arm].key: arm for arm in reversed(unfinished) if not is_stored(groups[arm])
    }
    jobs = [
        Job.of(
            _format_label([arm.name for arm in group]),
            train_arms,
            run_path=str(run.path),
            arms=[[arm.condition, arm.seed] for arm in group],
            plugin_files=list(context.plugin_files),
        )
        for group in _divide_arms(
            context, [arm for arm in unfinished if arm in arm_by_key.values()]
        )
    ]
    reasons = summarize_reasons(
        [explain_missing(groups[arm]) for arm in arm_by_key.values()]
    )  # before they are stored
    new_count = len(arm_by_key)
    for job_facts in context.executor.run(jobs, context.progress):
        trained |= job_facts
    reused_counts = Counter[str]()
    for arm in sorted(groups, key=lambda arm: arm.name not in trained):
        facts = trained.get(arm.name) or copy_from_store(run, arm, groups[arm])
        if layout.adapter_path(arm) in manifest["files"]:
            recorded = manifest["training"].get(arm.name, {})
            facts.pop("reused", None)
            facts |= {key: recorded[key] for key in MANIFEST_ONLY_KEYS if key in recorded}
        else:
            if original := find_original(run.manifest(), arm, facts.get(STORED), context.plugins):
                facts[TRAINED_AS] = original
            elif "reused" in facts:
                reused_counts[facts["reused"]] += 1
        of_manifest = {key: facts.pop(key) for key in MANIFEST_ONLY_KEYS if key in facts}
        facts = of_manifest | facts  # in one order, however the arm came to be here
        record_made_from(run.path / layout.adapter_path(arm), groups[arm])
        run.seal(layout.adapter_path(arm))
        run.update_manifest(record_entry("training", arm.name, facts))
    parts = [f"{count} reused from {Path(folder).name}" for folder, count in reused_counts.items()]
    parts += [f"{new_count} new" + (f": {reasons}" if reasons else "")] if new_count else []
    if parts:
        context.report_line(f"train: {', '.join(parts)}")
    if any(has_copies(groups[arm]) for arm in unfinished):
        context.report_line(
            f"train: adapters are copied, not linked: hard links between {run.path} and the store "
            "are not possible"
        )


def _format_label(names: Sequence[str]) -> str:
    return f"train {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "")


def _divide_arms(context: Context, unsorted_arms: Sequence[Arm]) -> list[list[Arm]]:
    """Divide arms into one group for each worker, with about equal numbers of tokens.

    The arms of a group share a base that is loaded once. Fewer workers are used if memory is too
    small for all. An executor that ignores ``workers`` gets one group for each arm.
    """
    run = context.run
    budgets = run.manifest()["budgets"]
    tokens = {arm: budgets[arm.name]["tokens"] for arm in unsorted_arms}
    arms = sorted(unsorted_arms, key=lambda arm: (-tokens[arm], arm.name))
    executor = run.recipe.executor
    entry = context.plugins.get("executor", executor.name)
    follows_workers = entry.require_traits(ExecutorTraits).by_workers
    count = _count_workers(context, arms) if follows_workers else len(arms)
    groups: list[list[Arm]] = [[] for _ in range(count)]
    loads = [0] * len(groups)
    for arm in arms:
        lightest = loads.index(min(loads))
        groups[lightest].append(arm)
        loads[lightest] += tokens[arm]
    return [group for group in groups if group]


def _count_workers(context: Context, arms: Sequence[Arm]) -> int:
    """Return how many workers can train in parallel; warn if memory allows fewer than requested."""
    requested = min(context.run.recipe.executor.workers, len(arms))
    if requested < 2:
        return requested
    job = Job.of(
        "memory",
        count_trainings_at_once,
        run_path=str(context.run.path),
        arms=[[arm.condition, arm.seed] for arm in arms],
        plugin_files=list(context.plugin_files),
    )
    (memory,) = context.executor.run([job], context.progress)
    if memory["count"] is None:
        return requested
    gpus = len(list_gpus()) if memory["on_gpu"] else 1
    count = max(1, int(memory["count"]) * gpus)  # a training that does not fit fails at its start
    if count >= requested:
        return requested
    context.report_line(
        f"warning: training with {count} of {requested} workers, since memory is too small for "
        f"all: each worker needs {memory['why']}"
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

    arguments, chat = resolve_model_args(recipe), build_sampler_settings(recipe).chat_template
    tokens: dict[str, EndToken | None] = {}
    token_by_settings: dict[Training, EndToken | None] = {}
    for condition in recipe.conditions:
        settings = recipe.resolve_training(condition)
        trainer = plugins.get("trainer", settings.trainer)
        if trainer.require_traits(TrainerTraits).as_documented:
            if settings not in token_by_settings:
                token_by_settings[settings] = check_trainable(arguments, settings, chat)
            tokens[condition] = token_by_settings[settings]
    return tokens


def explain_refused_kernels(recipe: Recipe, plugins: Plugins) -> str:
    """Explain why this machine cannot train with the recipe's kernels; empty if it can.

    Nothing is checked for an executor that chooses the machines itself.
    """
    entry = plugins.get("executor", recipe.executor.name)
    kernel_settings = [
        condition_settings
        for condition_settings in map(recipe.resolve_training, recipe.conditions)
        if condition_settings.kernels != "plain"
    ]
    if not kernel_settings or not entry.require_traits(ExecutorTraits).by_workers:
        return ""
    from gapft_harness.training.devices import resolve_device
    from gapft_harness.training.kernels import check_kernels

    try:
        device = resolve_device(resolve_model_args(recipe).get("device"))
        for settings in kernel_settings:
            check_kernels(settings, None, device)
    except UserError as error:
        return str(error)
    return ""


def require_trainable_run(context: Context) -> None:
    """Refuse a run with untrained adapters if this machine cannot train them.

    Raises:
        UserError: it cannot.
    """
    run = context.run
    if all(run.is_sealed(layout.adapter_path(arm)) for arm in list_arms(run.recipe)):
        return
    if reason := explain_refused_kernels(run.recipe, context.plugins):
        raise UserError(reason)
    if run.is_sealed(layout.responses_path("pool")):
        return  # training follows soon and checks this itself
    job = Job.of(
        "check",
        check_trainings,
        run_path=str(run.path),
        plugin_files=list(context.plugin_files),
    )
    context.executor.run([replace(job, own_process=context.has_own_process)], context.progress)
