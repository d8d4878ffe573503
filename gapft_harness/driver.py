"""Opens a run for the command line: recipe, plugins, lock, executor, display, stages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.display import Display
from gapft_harness.errors import UserError, did_you_mean
from gapft_harness.pipeline import STAGES, Context, check_names, run_stages
from gapft_harness.plugin_manager import load_plugins
from gapft_harness.recipe import Recipe
from gapft_harness.recipe_file import check_recipe, parse_override, read_recipe, set_key
from gapft_harness.run_directory import SPLITS, RunDirectory
from gapft_harness.run_lock import hold


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line said of the recipe and where to look."""

    recipe: str | None = None
    task: str | None = None
    model_args: str | None = None
    overrides: Sequence[str] = ()
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    plugin_files: Sequence[str] = ()
    include_paths: Sequence[str] = ()
    splits: Sequence[str] = ()


def bundled_recipes() -> dict[str, Path]:
    """The recipes that ship, by name: the path below recipes/ without its ending."""
    folder = Path(__file__).parent / "recipes"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def resolve_recipe(choice: Choice) -> Recipe:
    """Reads the chosen recipe (a file, a bundled name, or just a task) with its overrides.

    Raises:
        UserError: no such recipe, or it does not hold.
    """
    if choice.recipe is None:
        if not choice.task:
            raise UserError("give a recipe, or --task with --model-args")
        source = "command line"
        content: dict[str, Any] = {"name": choice.task, "data": {}, "model": {"args": {}}}
    else:
        path = find_recipe(choice.recipe)
        source, content = f"recipe {path}", read_recipe(path)
    settings: list[tuple[str, Any]] = [parse_override(text) for text in choice.overrides]
    if choice.task:
        settings.append(("data.task", choice.task))
    if choice.conditions:
        settings.append(("conditions", list(choice.conditions)))
    if choice.seeds:
        settings.append(("seeds", list(choice.seeds)))
    for key, value in _model_args(choice.model_args or "").items():
        settings.append((f"model.args.{key}", value))
    for key, value in settings:
        set_key(content, key, value)
    return check_recipe(content, source)


def find_recipe(name: str) -> Path:
    """The file of a recipe given as a path or as a bundled name.

    Raises:
        UserError: there is none; the message has the nearest bundled name.
    """
    bundled = bundled_recipes()
    if name in bundled:
        return bundled[name]
    path = Path(name)
    if path.is_file():
        return path
    shown = path.with_suffix("").as_posix().removeprefix("recipes/")
    if shown in bundled and not path.is_absolute():
        return bundled[shown]
    raise UserError(
        f"no recipe {name!r}: neither a file nor bundled; {did_you_mean(name, bundled)}"
    )


@contextlib.contextmanager
def opened(run: RunDirectory, choice: Choice, display: Display) -> Iterator[Context]:
    """A context for stages: plugins checked, executor made, progress shown. Lock already held."""
    plugins = load_plugins(choice.plugin_files)
    check_names(run.recipe, plugins)
    for split in choice.splits:
        if split not in SPLITS:
            raise UserError(f"--split {split}: expected one of {', '.join(SPLITS)}")
    executor = plugins.executor(run.recipe.executor.model_dump(), choice.plugin_files)
    with display, contextlib.closing(executor):
        yield Context(
            run,
            executor,
            choice.plugin_files,
            choice.include_paths,
            tuple(choice.splits) or SPLITS,
            display.job,
            display.say,
        )


def run_recipe(choice: Choice, run_dir: Path | None) -> Path:
    """Goes through all stages of a recipe, going on where an earlier command stopped.

    Returns:
        The path of the report's page.
    """
    recipe = resolve_recipe(choice)
    check_names(recipe, load_plugins(choice.plugin_files))
    path = run_dir or Path("runs") / recipe.name
    with _creating(path), hold(path):
        run = RunDirectory.create_or_open(path, recipe)
        display = Display()
        with _discarding(run), opened(run, choice, display) as context:
            return run_stages(context, list(STAGES), display.stage)


def run_stage(name: str, run_dir: Path, choice: Choice) -> None:
    """Runs one stage on a run directory; with a recipe, makes the directory first."""
    recipe = resolve_recipe(choice) if choice.recipe or choice.task else None
    if recipe is None:
        RunDirectory.open(run_dir)
    with _creating(run_dir), hold(run_dir):
        run = RunDirectory.create_or_open(run_dir, recipe) if recipe else RunDirectory.open(run_dir)
        display = Display()
        with _discarding(run), opened(run, choice, display) as context:
            run_stages(context, [name], display.stage)


@contextlib.contextmanager
def _discarding(run: RunDirectory) -> Iterator[None]:
    """Takes a run away again if a mistake showed before anything was generated."""
    try:
        yield
    except UserError:
        run.discard_if_empty()
        raise


@contextlib.contextmanager
def _creating(path: Path) -> Iterator[None]:
    """Removes a run folder that a mistake left with nothing in it but the lock."""
    existed = path.exists()
    try:
        yield
    finally:
        if not existed and path.is_dir() and [p.name for p in path.iterdir()] == ["run.lock"]:
            (path / "run.lock").unlink()
            path.rmdir()


def _model_args(text: str) -> dict[str, Any]:
    """Parses ``a=1,b=2`` as lm-eval spells model arguments."""
    import yaml

    pairs: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"--model-args {text}: expected key=value,..., found {part!r}")
        pairs[key.strip()] = yaml.safe_load(value)
    return pairs
