"""Whether the kernels that a recipe trains with can be had here, before anything is searched."""

from __future__ import annotations

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import ExecutorTraits
from gapft_harness.recipe.models import model_args
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.selection.stage import arms


def refused_kernels(recipe: Recipe, plugins: Plugins) -> str:
    """Why this machine cannot train with the recipe's kernels; empty where it can.

    Nothing is said where an executor trains on machines that it chooses itself.
    """
    entry = plugins.get("executor", recipe.executor.name)
    asked = [of for of in map(recipe.training_of, recipe.conditions) if of.kernels != "plain"]
    if not asked or not entry.declared(ExecutorTraits).by_workers:
        return ""
    from gapft_harness.training.base.kernels import check_kernels
    from gapft_harness.training.machine.devices import asked_device

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
