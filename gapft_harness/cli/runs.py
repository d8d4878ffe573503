"""Open a run for the command line: resolve its recipe, lock it, and run its stages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from gapft_harness.cli.display import Display
from gapft_harness.cli.interrupts import announce_resumable
from gapft_harness.cli.options import Options
from gapft_harness.core.errors import UserError, unknown_value_error
from gapft_harness.engine.run import RECORDS
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.recipe.bundled import find_recipe, list_bundled_recipes
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.conditions import select_conditions
from gapft_harness.recipe.reading import (
    Setting,
    check_recipe,
    parse_override,
    parse_yaml,
    read_recipe,
)
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    SPLITS,
    RunDirectory,
    Split,
    list_recorded_include_paths,
    list_splits,
    name_missing_plugins,
)
from gapft_harness.run_directory.directory import (
    read_recipe as read_run_recipe,
)
from gapft_harness.run_directory.lock import hold_run_lock
from gapft_harness.run_directory.recipe_changes import require_same_recipe
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.pipeline import STAGES, list_stages, run_stages
from gapft_harness.stages.search.stage import store_searched_recipe
from gapft_harness.stages.train.requirements import check_packages, require_trainable_run


def resolve_recipe(options: Options) -> Recipe:
    """Read the chosen recipe (a file, a bundled name, or a task) with its overrides.

    Raises:
        UserError: the recipe does not exist or is invalid.
    """
    if options.recipe is None:
        if not options.task:
            raise UserError("no recipe: expected RECIPE, or --task with --model-args")
        source = "command line"
        content: dict[str, Any] = {"name": options.task, "data": {}, "model": {"args": {}}}
    else:
        file = find_recipe(options.recipe)
        source = f"recipe {file}"
        content = read_recipe(file)
    return check_recipe(content, source, _list_settings(options, content))


def resolve_run(options: Options, run_dir: Path | None) -> tuple[Recipe, Path]:
    """Return the recipe of a command and its run directory, which need not exist.

    Args:
        options: the command's options. Without a recipe and a task, the recipe is the run's.
        run_dir: the run directory; None is ``runs/NAME``.

    Raises:
        UserError: the run or the recipe does not exist, or the recipe is invalid.
    """
    if options.recipe is None and not options.task and run_dir is not None:
        read_run_recipe(run_dir)
        options = replace(options, recipe=str(run_dir / layout.RECIPE))
    recipe = resolve_recipe(options)
    return recipe, run_dir or Path("runs", recipe.name)


def resolve_chat_template(recipe: Recipe, path: Path, plugins: Plugins) -> tuple[Recipe, str]:
    """Decide whether prompts are rendered by a chat template if the recipe does not set it.

    The model's tokenizer decides, whatever an earlier recipe of the run had set.

    Args:
        recipe: the recipe.
        path: the run directory, which need not exist.
        plugins: the loaded plugins.

    Returns:
        The recipe with ``model.chat_template`` set, and a message if a new run applies a template
        by default, else "".

    Raises:
        UserError: the tokenizer cannot be loaded.
    """
    if recipe.model.chat_template is not None or not plugins.has("sampler", recipe.model.backend):
        return recipe, ""
    uses_template = plugins.is_chat_template_default(build_sampler_settings(recipe))
    is_new = not (path / layout.RECIPE).exists()
    model = recipe.model.model_copy(update={"chat_template": uses_template})
    line = (
        f"model.chat_template: true, because {recipe.model.args['pretrained']} has a chat template "
        "and neither recipe nor command sets the key; --set model.chat_template=false turns it off"
    )
    return recipe.model_copy(update={"model": model}), line if uses_template and is_new else ""


def map_keys_to_options(options: Options) -> dict[str, str]:
    """Map each dotted key that an option ``--set`` sets to the text of that option."""
    return {setting.key: setting.option for setting in map(parse_override, options.overrides)}


def _list_settings(options: Options, content: dict[str, Any]) -> list[Setting]:
    """List the settings of the command line and the options that set them; ``--set`` comes last."""
    settings = []
    if options.task:
        settings.append(Setting("data.task", options.task, f"--task {options.task}"))
    if options.model is not None:
        settings.append(Setting("model.backend", options.model, f"--model {options.model}"))
    if options.conditions:
        option = " ".join(f"--condition {name}" for name in options.conditions)
        conditions = select_conditions(content.get("conditions"), options.conditions)
        settings.append(Setting("conditions", conditions, option))
    if options.seeds:
        option = " ".join(f"--seed {seed}" for seed in options.seeds)
        settings.append(Setting("seeds", list(options.seeds), option))
    settings += _parse_model_args(options.model_args or "")
    return settings + [parse_override(text) for text in options.overrides]


@announce_resumable()
def run_recipe(options: Options, run_dir: Path | None) -> Path:
    """Run all stages of a recipe; continue where an earlier command stopped.

    Args:
        options: the command's options.
        run_dir: the run directory; None is ``runs/NAME``.

    Returns:
        The path of the report's page.

    Raises:
        UserError: the run or the recipe does not exist.
    """
    recipe, path = resolve_run(options, run_dir)
    plugins = load_plugins(options.plugin_files)
    with name_missing_plugins(path):
        check_packages(recipe, plugins)
        stages = list_stages(load_experiments(recipe, plugins, map_keys_to_options(options)))
    options = replace(options, conditions=(), seeds=())  # the recipe has them
    return _run_locked(path, recipe, options, stages)


def is_run(text: str) -> bool:
    """Return whether a text is the path of a run directory and not a bundled recipe's name."""
    if not text or text in list_bundled_recipes():
        return False
    folder = Path(text)
    is_begun = any((folder / name).exists() for name in (RECORDS, *SPLITS))
    return is_begun and (folder / layout.RECIPE).is_file()


def resolve_arguments(recipe: str | None, run_dir: Path | None) -> tuple[str | None, Path | None]:
    """Return the recipe and the run directory for arguments of ``gapft run``.

    Args:
        recipe: a recipe, or the path of a run directory.
        run_dir: the option ``--run-dir``.

    Raises:
        UserError: the arguments name two run directories.
    """
    if recipe is None or not is_run(recipe):
        return recipe, run_dir
    if run_dir is not None:
        raise UserError(
            f"{recipe} and --run-dir {run_dir}: expected one run directory; leave one out"
        )
    return None, Path(recipe)


@announce_resumable()
def run_stages_alone(names: Sequence[str], run_dir: str | Path | None, options: Options) -> Path:
    """Run some stages in a run directory; with a recipe, create the directory first.

    Without a recipe, settings change the recipe of the existing run.

    Args:
        names: the stages.
        run_dir: the run directory; None is ``runs/NAME``.
        options: the command's options.

    Returns:
        The path of the report's page, which exists once all stages have run.

    Raises:
        UserError: an unknown stage, or the run or its recipe cannot be used.
    """
    path = Path(run_dir or Path("runs", resolve_recipe(options).name))
    recipe = resolve_recipe(options) if options.recipe else _resolve_run_recipe(path, options)
    current_recipe = recipe or RunDirectory.open(path).recipe
    plugins = load_plugins(options.plugin_files)
    with name_missing_plugins(path):
        order = list_stages(load_experiments(current_recipe, plugins, map_keys_to_options(options)))
    for name in names:
        if name not in order:
            raise unknown_value_error("--only", name, "stage", order)
    stages = [name for name in order if name in names]
    return _run_locked(path, recipe, options, stages)


def _resolve_run_recipe(path: Path, options: Options) -> Recipe | None:
    """Return the run's recipe with the settings of the options; None if they set nothing."""
    stored = path / layout.RECIPE
    if options.task and (options.alone or not stored.exists()):
        return resolve_recipe(options)
    RunDirectory.open(path)
    if options.task or options.model is not None or options.model_args or options.overrides:
        return resolve_recipe(replace(options, recipe=str(stored)))
    return None


def _run_locked(path: Path, recipe: Recipe | None, options: Options, stages: Sequence[str]) -> Path:
    """Run stages while no other command uses the run; a recipe is a new or changed one."""
    plugins = load_plugins(options.plugin_files)
    display = Display()
    note = ""
    with _clean_up_folder(path), hold_run_lock(path), name_missing_plugins(path):
        # Open or create the run, and say how it will change
        if (path / layout.RECIPE).exists() and not (path / RECORDS).exists():
            display.print_message(
                f"warning: {path / RECORDS} is missing: outputs are made and recorded again, from "
                "the store where it has them"
            )
        if recipe is None:
            run = RunDirectory.open(path)
        else:
            recipe, note = resolve_chat_template(recipe, path, plugins)
            run = RunDirectory.create_or_open(path, recipe, plugins)
            if "select" not in stages and not {*stages} <= {"search", "states"}:
                require_same_recipe(path, read_run_recipe(path), run.recipe, stages)
        if note:
            display.print_message(note)
        _announce_changes(run, display, stages)
        with _discard_on_error(run):
            # a new recipe is checked for all stages, even if those that run need less of it
            check_names(run.recipe, plugins, [*STAGES] if recipe else stages)
            load_experiments(run.recipe, plugins, map_keys_to_options(options))
            # Run the stages
            executor = plugins.create_executor(
                run.recipe.executor.build_settings(), options.plugin_files
            )
            with display, contextlib.closing(executor):
                context = Context(
                    run,
                    executor,
                    plugin_files=options.plugin_files,
                    include_paths=options.include_paths or list_recorded_include_paths(path),
                    splits=_choose_splits(options, run.recipe),
                    conditions=options.conditions,
                    seeds=options.seeds,
                    progress=display.report_progress,
                    report_line=display.print_message,
                    only_these_splits=options.alone,
                )
                return _run_stages(context, display, stages, has_recipe=recipe is not None)


def _run_stages(
    context: Context, display: Display, stages: Sequence[str], *, has_recipe: bool
) -> Path:
    run = context.run
    if has_recipe or not {"search", "train", "audit"}.isdisjoint(stages):
        display.print_message(run.recipe.executor.describe_processes())
    if origins := context.plugins.describe_origins():
        run.update_facts(lambda facts: facts["plugins"].update(origins))
    if "train" in stages:
        require_trainable_run(context)

    def store_recipe() -> None:
        run.write_execution_settings()
        if has_recipe and [*stages] == ["search"]:
            store_searched_recipe(context)

    return run_stages(context, stages, display.start_stage, store_recipe)


def _announce_changes(run: RunDirectory, display: Display, stages: Sequence[str]) -> None:
    """Report how a run will change; on a terminal, ask before a finished run changes."""
    if run.is_new or {"search", "select"}.isdisjoint(stages):
        return
    changes = [*run.changes]
    is_finished = (run.path / layout.REPORT).is_dir()
    old, new = (
        f"{', '.join(recipe.conditions)} under seeds {', '.join(map(str, recipe.seeds))}"
        for recipe in (read_run_recipe(run.path), run.recipe)
    )
    if is_finished and "select" in stages and old != new:
        changes.append(f"it reports {new} instead of {old}")
    if not changes:
        return
    line = f"results that depend on these changes are recomputed: {'; '.join(changes)}"
    if not is_finished:
        display.print_message(line)
        return
    display.print_message(
        f"warning: {run.path} is a finished run: {line}. To keep it, set another --run-dir"
    )
    is_interactive = sys.stdin.isatty() and sys.stderr.isatty()
    if is_interactive and not typer.confirm("Change this run?", default=False, err=True):
        raise UserError(f"{run.path}: not changed; set another --run-dir for the new settings")


def _choose_splits(options: Options, recipe: Recipe) -> tuple[Split, ...]:
    valid_splits = list_splits(recipe)
    for split in options.splits:
        if split not in valid_splits:
            raise unknown_value_error("--split", split, "split", valid_splits)
    return tuple(split for split in valid_splits if split in options.splits or not options.splits)


@contextlib.contextmanager
def _discard_on_error(run: RunDirectory) -> Iterator[None]:
    """Remove a new run if an error of the user shows before anything was generated."""
    try:
        yield
    except UserError:
        run.discard_if_empty()
        raise


@contextlib.contextmanager
def _clean_up_folder(path: Path) -> Iterator[None]:
    """Remove new folders if no run was created."""
    new_folders = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        if path.is_dir() and not (path / layout.RECIPE).exists():
            for folder in new_folders:
                if not any(folder.iterdir()):
                    folder.rmdir()


def _parse_model_args(text: str) -> list[Setting]:
    """Parse model arguments in the form of lm-eval, ``a=1,b=2``."""
    settings = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        option = f"--model-args {part}"  # only this part: another one may be a secret
        if not equals or not key.strip():
            raise UserError(
                f"{option}: expected key=value,..., e.g. pretrained=MODEL,dtype=float32; a value "
                "that contains a comma needs --set model.args.KEY=VALUE"
            )
        settings.append(Setting(f"model.args.{key.strip()}", parse_yaml(value, option), option))
    return settings
