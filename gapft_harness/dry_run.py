"""``gapft run --dry-run``: the resolved recipe, the stages, and what is missing here."""

from __future__ import annotations

from pathlib import Path

import yaml

from gapft_harness.analysis.scaling import SCALES
from gapft_harness.driver import Choice, resolve_recipe
from gapft_harness.early_stop import check_early_stop
from gapft_harness.errors import GapftError
from gapft_harness.models import model_args, sampler_settings
from gapft_harness.pipeline import check_names
from gapft_harness.plugin_manager import load_plugins
from gapft_harness.recipe import Recipe
from gapft_harness.run_directory import splits_of
from gapft_harness.sealing import closing_verifier
from gapft_harness.search import load_problems
from gapft_harness.selection import arms
from gapft_harness.trackers import missing_packages
from gapft_harness.training.plan import count_steps

#: Backends whose model is not on this machine.
SERVERS = ("local-completions", "local-chat-completions")


def describe(choice: Choice, run_dir: str | None) -> str:
    """All of it as text. Nothing is generated or written.

    Raises:
        UserError: the recipe itself does not hold, or names an unknown plugin.
    """
    recipe = resolve_recipe(choice)
    check_names(recipe, load_plugins(choice.plugin_files))
    missing = missing_here(recipe, choice)
    lines = [
        "# resolved recipe",
        yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).rstrip(),
        "",
        "# stages",
        *_stages(recipe, run_dir or f"runs/{recipe.name}"),
        "",
        "# missing here",
        *(missing or ["nothing: this recipe can run"]),
    ]
    return "\n".join(lines)


def missing_here(recipe: Recipe, choice: Choice) -> list[str]:
    """One sentence for each thing that keeps this machine from running the recipe."""
    found = []
    plugins = load_plugins(choice.plugin_files)
    for split in splits_of(recipe):
        try:
            _, task, verifier = load_problems(recipe, split, plugins, choice.include_paths)
            with closing_verifier(verifier):
                rule = plugins.get("response rule", task["keep"])
                check_early_stop(recipe.search, rule, task)
        except GapftError as error:
            found.append(f"{split}: {error}")
    found += _model_missing(recipe)
    found += missing_packages(recipe, plugins)
    return list(dict.fromkeys(found))


def _model_missing(recipe: Recipe) -> list[str]:
    """What is wrong with the model's arguments, and whether its weights are here."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    arguments = model_args(recipe)
    if recipe.model.backend == "hf":
        from gapft_harness.lm_eval_bridge.hf_arguments import check_arguments

        try:
            check_arguments(arguments)
        except GapftError as error:
            return [f"model: {error}"]
    elif recipe.model.backend in SERVERS:
        from gapft_harness.lm_eval_bridge.server_sampler import find_model

        try:
            find_model(sampler_settings(recipe))
        except GapftError as error:
            return [f"model: {error}"]
    name = arguments["pretrained"]
    if Path(name).is_dir():
        return []
    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return [f"model {name}: neither a folder nor a hub name"]
    if isinstance(cached, str):
        return []
    return [f"model {name}: neither a folder nor in the hub's cache; it would be downloaded"]


def _stages(recipe: Recipe, run_dir: str) -> list[str]:
    k = recipe.search.k
    slots, exposures, steps = _budget(recipe)
    stop = recipe.search.stop == "first_pass"
    early = "; of the pool, none after one that passes" if stop else ""
    trained = arms(recipe)
    return [
        f"search  {recipe.data.task}: pool and audit, 1 greedy + {k} samples a problem{early}",
        f"        -> {run_dir}/{{pool,audit}}/responses.parquet",
        *_calibration(recipe, run_dir),
        f"states  G, S, U -> {run_dir}/{{pool,audit}}/states.parquet",
        f"select  {', '.join(recipe.conditions)}; {slots}; {exposures}; {steps}",
        f"        -> {run_dir}/selections/",
        f"train   {len(trained)} adapters ({len(recipe.conditions)} conditions x "
        f"{len(recipe.seeds)} seeds) -> {run_dir}/adapters/",
        *_scale(recipe, run_dir, len(trained)),
        f"audit   one greedy decode per adapter and audit problem -> {run_dir}/decisions/",
        f"report  -> {run_dir}/report/index.html",
    ]


def _calibration(recipe: Recipe, run_dir: str) -> list[str]:
    if recipe.scaling is None:
        return []
    taken = recipe.scaling.calibration
    whence = (
        "the validation split"
        if taken == "validation"
        else f"{taken} problems taken out of the training split"
    )
    return [
        f"        calibration: {whence}, 1 greedy a problem",
        f"        -> {run_dir}/calibration/responses.parquet",
    ]


def _scale(recipe: Recipe, run_dir: str, adapters: int) -> list[str]:
    if recipe.scaling is None:
        return []
    scales = ", ".join(f"{scale:g}" for scale in SCALES)
    return [
        f"scale   {adapters} adapters x scales {scales}, 1 greedy a calibration problem; the "
        f"largest with bounds up to {recipe.scaling.tolerance:g}",
        f"        -> {run_dir}/scaled/",
    ]


def _budget(recipe: Recipe) -> tuple[str, str, str]:
    """The slots, exposures and steps of a matched condition, as far as they are known."""
    n, replay, training = recipe.budget.n, recipe.budget.replay, recipe.training
    more = f" + {replay} replay" if replay else ""
    if n != "recovered":
        exposures = training.repetitions * (n + replay)
        steps = count_steps(exposures, training)
        return f"n = {n}{more}", f"N = {exposures}", f"J = {steps}"
    batch = training.micro_batch * training.accumulation
    return (
        f"n = |E_S,K| of the pool{more}, known after search",
        f"N = {training.repetitions} (n + {replay})" if replay else f"N = {training.repetitions} n",
        f"J = {training.update_groups or f'ceil(N / {batch})'}",
    )
