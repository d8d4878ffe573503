"""What training needs, checked before it: packages, kernels, end tokens, a verifier for rewards."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from gapft_harness.core.cpu import describe_slow_dtype
from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import find_version, install_command
from gapft_harness.core.pretrained import ModelNotLoaded, build_meta_model
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.hooks.registration import (
    ExecutorTraits,
    TrainerTraits,
)
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings, resolve_model_args
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import list_arms
from gapft_harness.stages.context import Context

if TYPE_CHECKING:
    from gapft_harness.training.model import EndToken


def list_missing_packages(recipe: Recipe, plugins: Plugins) -> list[str]:
    """Describe each package that the tracker or a trainer needs and this machine does not have."""
    faults = [
        f"trainer {name!r} needs {requirement}, but {f'{version} is' if version else 'it is not'} "
        f"installed; {install_command(Requirement(requirement).name)}"
        for name in recipe.list_trainers()
        for requirement in plugins.get("trainer", name).require_traits(TrainerTraits).needs
        if not (version := find_version(Requirement(requirement).name))
        or version not in Requirement(requirement).specifier
    ]
    if recipe.tracker and not find_version(recipe.tracker):
        faults.append(
            f"tracker: {recipe.tracker} is not installed; {install_command(recipe.tracker)}"
        )
    return faults


def check_packages(recipe: Recipe, plugins: Plugins) -> None:
    """Refuse a recipe whose tracker or trainers cannot work on this machine.

    Raises:
        UserError: a required package is missing.
    """
    if faults := list_missing_packages(recipe, plugins):
        raise UserError("\n".join(faults))


def list_reward_warnings(recipe: Recipe, task: Mapping[str, Any], plugins: Plugins) -> list[str]:
    """Warn of rewards by another verifier than the audit's.

    Raises:
        UserError: a permissive reward is requested, but the task's verifier declares none; or
            the trainer grpo is used for episodes of several attempts.
    """
    grpo_conditions = [
        name for name in recipe.conditions if recipe.resolve_training(name).trainer == "grpo"
    ]
    if grpo_conditions and (attempts := task["episode"]["attempts"]) > 1:
        raise UserError(
            f"the trainer grpo of {', '.join(grpo_conditions)} can reward only the first attempt, "
            f"but the task's episode.attempts is {attempts}; set it to 1, or use the trainer lora"
        )
    name = task["verifier"]
    params = task["verifier_params"]
    permissive_conditions = [
        condition
        for condition in recipe.conditions
        if recipe.resolve_training(condition).grpo.reward == "permissive"
        and _is_online(recipe, condition, plugins)
    ]
    if not permissive_conditions:
        return []
    rule = plugins.find_other_verifier(name, params)
    if rule is None or not rule.permissive:
        raise UserError(
            f"training.grpo.reward of {', '.join(permissive_conditions)} is permissive, but the "
            f"verifier {name} declares no permissive rule for {json.dumps(dict(params))}; set the "
            "reward to task"
        )
    return [
        f"the reward of {', '.join(permissive_conditions)} is {rule.name} "
        f"{json.dumps(dict(rule.params))}, but the audit's verifier is {name} "
        f"{json.dumps(dict(params))}: responses may drift to forms that the reward accepts and the "
        "audit does not"
    ]


def _is_online(recipe: Recipe, condition: str, plugins: Plugins) -> bool:
    trainer = recipe.resolve_training(condition).trainer
    return plugins.get("trainer", trainer).require_traits(TrainerTraits).needs_problems


def check_trainings(
    recipe: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Check the base's requirements for training before anything is generated, as a job.

    A model that cannot be loaded is skipped: its sampler reports that better.

    Returns:
        What ``describe_adapted_modules`` returns, as ``lines`` and ``warnings``.

    Raises:
        UserError: see ``model.check_trainable``.
    """
    lines: list[str] = []
    warnings: list[str] = []
    with contextlib.suppress(ModelNotLoaded):
        checked = check_recipe(dict(recipe), "the run's recipe")
        plugins = load_plugins(plugin_files)
        if find_end_tokens(checked, plugins):
            model = build_meta_model(resolve_model_args(checked), dtype=checked.training.dtype)
            lines, warnings = describe_adapted_modules(checked, plugins, model)
    return {"lines": lines, "warnings": warnings}


def describe_adapted_modules(
    recipe: Recipe, plugins: Plugins, model: Any
) -> tuple[list[str], list[str]]:
    """Describe which modules of the base the recipe's adapters change, and a base of a slow dtype.

    Args:
        recipe: the recipe.
        plugins: the loaded plugins.
        model: the base on the meta device (``build_meta_model``).

    Returns:
        A line for each choice of ``target_modules``, and warnings.
    """
    from gapft_harness.training.devices import resolve_device
    from gapft_harness.training.targets import find_adapted_modules

    device = resolve_device(resolve_model_args(recipe).get("device")).type
    lines: list[str] = []
    warnings: list[str] = []
    conditions_by_names: dict[tuple[str, ...], list[str]] = {}
    for condition in recipe.conditions:
        settings = recipe.resolve_training(condition)
        if plugins.get("trainer", settings.trainer).require_traits(TrainerTraits).as_documented:
            conditions_by_names.setdefault(settings.target_modules, []).append(condition)
            warnings.append(
                describe_slow_dtype(device, settings.dtype, "--set training.dtype=float32")
            )
    for names, conditions in conditions_by_names.items():
        adapted = find_adapted_modules(model, names)
        place = f" in {', '.join(conditions)}" if len(conditions_by_names) > 1 else ""
        lines.append(f"adapted modules{place}: {adapted}")
        warnings += adapted.list_warnings()
    return lines, [*dict.fromkeys(filter(None, warnings))]


def find_end_tokens(recipe: Recipe, plugins: Plugins) -> dict[str, EndToken | None]:
    """Find the end token that each condition's responses are trained with; None for no token.

    Conditions of a trainer that is not ``as_documented`` are left out.

    Raises:
        UserError: see ``model.check_trainable``.
    """
    from gapft_harness.training.model import check_trainable

    arguments = resolve_model_args(recipe)
    chat = build_sampler_settings(recipe).chat_template
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
    """Refuse a run whose adapters this machine cannot train; report which modules they adapt.

    Nothing is done for a run that has its adapters.

    Raises:
        UserError: it cannot.
    """
    run = context.run
    has_adapters = all(run.has(layout.adapter_path(arm)) for arm in list_arms(run.recipe))
    if has_adapters and not run.changes:
        return
    if reason := explain_refused_kernels(run.recipe, context.plugins):
        raise UserError(reason)
    job = Job.of(
        "check",
        check_trainings,
        recipe=run.recipe.model_dump(mode="json"),
        plugin_files=list(context.plugin_files),
    )
    job = replace(job, own_process=context.has_own_process)
    (found,) = context.executor.run([job], context.progress)
    for line in found["lines"]:
        context.report_line(line)
    context.warn(found["warnings"])
