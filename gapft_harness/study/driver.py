"""``gapft study``: run or read cells one by one, then write one report."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError, describe
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report import require_replaceable
from gapft_harness.report.reading.audits import sealed_budget
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import grown
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold
from gapft_harness.stages.selection.budgets import foreseen
from gapft_harness.study.cells import (
    DAMAGED,
    Collected,
    collect_cell,
    missing,
    open_cell,
    require_different,
)
from gapft_harness.study.document import write_study
from gapft_harness.study.protocol import (
    of_task,
    require_comparable,
    require_one_protocol,
    require_settled,
)
from gapft_harness.study.recipe import REPORT, StudyRecipe

#: Returns the recipe of a cell that names one, with the study's settings.
Resolve = Callable[[str], Recipe]
#: Returns the task's protocol for a recipe, None where its task cannot be read.
Settle = Callable[[Recipe], "Mapping[str, Any] | None"]
#: Runs a cell's recipe in a folder.
RunCell = Callable[[str, Path], object]


def run_study(
    study: StudyRecipe,
    folder: Path,
    resolve: Resolve,
    run_cell: RunCell,
    say: Callable[[str], None],
    settle: Settle = lambda recipe: None,
) -> Path:
    """Run every incomplete cell, one after another, and write the study's report.

    A failed cell is reported, and the next cells are run. The same command continues an
    interrupted study.

    Args:
        study: the study's recipe.
        folder: the study's folder.
        resolve: returns the recipe of a cell.
        run_cell: runs a cell's recipe in a folder.
        report: prints a line of progress.
        resolve_task: returns the protocol of a recipe's task.

    Returns:
        The path of the report's page.

    Raises:
        UserError: the folder belongs to something else or the cells have different protocols
            (nothing is run), or the finished cells are not comparable.
        GapftError: a cell is incomplete; the report is written and lists the incomplete cells.
    """
    recipes = _agreed(study, folder, resolve, settle)
    with hold(folder):
        study.write(folder)
        collected = []
        for number, name in enumerate(study.cells):
            say(f"cell {number + 1} of {len(study.cells)}: {name}")
            collected.append(_made(study, name, folder, recipes.get(name), run_cell, say))
        found = write_study(study, collected, folder)
    page = folder / REPORT / "index.html"
    if found.lacking:
        lines = [f"  {name}: {'; '.join(lacks)}" for name, lacks in found.lacking.items()]
        raise GapftError(
            f"no mean over cells: {len(lines)} of {len(collected)} cells are incomplete:\n"
            + "\n".join(lines)
            + f"\nThe report lists them too: {page}"
        )
    return page


def study_folder(place: Path) -> Path:
    """Check that a study's folder is not a run directory.

    Raises:
        UserError: it is a run directory.
    """
    if os.path.exists(place / layout.RECIPE):
        raise UserError(f"{place}: is a run directory; use another --run-dir for the study")
    return place


def _made(
    study: StudyRecipe,
    name: str,
    folder: Path,
    recipe: Recipe | None,
    run_cell: RunCell,
    say: Callable[[str], None],
) -> Collected:
    """Run a cell if it is incomplete or outdated, and read it."""
    cell = collect_cell(study, name, folder)
    if study.cells[name].recipe is None:
        return cell
    place = Path(cell.place)
    if not cell.lacks and recipe is not None and _is_of(RunDirectory.open(place), recipe):
        return cell
    try:
        run_cell(name, place)
    except GapftError as error:
        say(f"cell {name} failed: {error}")
        found = collect_cell(study, name, folder)
        return Collected(name, found.place, found.lacks or (_first_line(error),))
    return collect_cell(study, name, folder)


def _is_of(run: RunDirectory, recipe: Recipe) -> bool:
    """Return whether a run has this recipe; it may have trained more arms."""
    return grown(run.recipe, recipe, run.trained_arms()) == run.recipe


def _first_line(error: GapftError) -> str:
    return str(error).partition("\n")[0]


def _agreed(
    study: StudyRecipe, folder: Path, resolve: Resolve, settle: Settle
) -> dict[str, Recipe]:
    """Check the study and return its cells' recipes, before anything is run or written.

    Raises:
        UserError: see ``run_study``.
    """
    study.require_own(folder)
    require_replaceable(folder / REPORT)
    recipes = recipes_of(study, folder, resolve)
    require_one_protocol(study, recipes)
    require_settled({name: _settled(study, folder, name, recipes, settle) for name in recipes})
    there = [name for name in study.cells if study.cells[name].recipe is None]
    cells = [collect_cell(study, name, folder) for name in there]
    whole = [cell for cell in cells if not cell.lacks]
    require_different(whole)
    require_comparable(study, whole)
    return recipes


def _settled(
    study: StudyRecipe, folder: Path, name: str, recipes: Mapping[str, Recipe], settle: Settle
) -> Mapping[str, Any] | None:
    """Return the protocol of a cell's task; None where it is unknown."""
    if study.cells[name].recipe is not None:
        return settle(recipes[name])
    try:
        task = open_cell(study.place(name, folder)).manifest()["task"]
        return of_task(task) if "keep" in task else None
    except (GapftError, *DAMAGED):
        return None


def recipes_of(study: StudyRecipe, folder: Path, resolve: Resolve) -> dict[str, Recipe]:
    """Read the recipes of all cells, without those of runs that cannot be opened.

    Raises:
        UserError: a cell's recipe is invalid; the message begins with the cell.
    """
    found = {}
    for name, choice in study.cells.items():
        try:
            if choice.recipe is not None:
                found[name] = resolve(name)
                _require_conditions(study, found[name])
            else:
                found[name] = open_cell(study.place(name, folder)).recipe
        except GapftError as error:
            if choice.recipe is not None:
                raise UserError(f"cell {name!r}: {error}") from error
    return found


def _require_conditions(study: StudyRecipe, recipe: Recipe) -> None:
    if lacking := [name for name in study.conditions if name not in recipe.conditions]:
        raise UserError(
            f"its recipe {recipe.name!r} has no condition {', '.join(lacking)}; found "
            f"{', '.join(recipe.conditions)}. Add it to the recipe, or with the study's key 'set'"
        )


def describe_study(
    study: StudyRecipe,
    folder: Path,
    resolve: Resolve,
    plugin_files: Sequence[str] = (),
    settle: Settle = lambda recipe: None,
) -> str:
    """Describe for ``--dry-run`` the budget of every cell, if it is known, and its missing parts.

    Raises:
        UserError: as in ``run_study``, before anything is run.
    """
    recipes = _agreed(study, folder, resolve, settle)
    lines = [f"study {study.name}: {len(study.cells)} cells -> {folder}"]
    left = 0
    for name in study.cells:
        place, lacks = study.place(name, folder), ["not run yet"]
        budget: tuple[str, ...] = foreseen(recipes[name]) if name in recipes else ()
        try:
            run = open_cell(place)
            recipe = recipes[name] if study.cells[name].recipe else run.recipe
            if changed := _changed(run, recipe, plugin_files):
                lacks = [changed]
            else:
                lacks = missing(study, run)
                budget = _known(study, run) or budget
        except GapftError as error:
            lacks = [str(error)]
        except DAMAGED as error:
            lacks = [f"cannot be read: {describe(error)}"]
        left += bool(lacks)
        lines += [
            f"{name}",
            f"  {study.cells[name].recipe or 'an existing run'} -> {place}",
            f"  {'; '.join(budget) or 'budget not known'}",
            f"  left: {'; '.join(lacks)}" if lacks else "  complete",
        ]
    arms = len(study.conditions) * len(study.seeds)
    lines.append(
        f"{left} of {len(study.cells)} cells are left; {arms} adapters each "
        f"({len(study.conditions)} conditions x {len(study.seeds)} seeds)"
    )
    return "\n".join(lines)


def _changed(run: RunDirectory, recipe: Recipe, plugin_files: Sequence[str]) -> str:
    """Describe why a run does not have this recipe; empty if it does."""
    try:
        _, changes = RunDirectory.compare(run.path, recipe, load_plugins(plugin_files))
    except UserError as error:
        return f"cannot continue: {_first_line(error)}"
    if not changes and _is_of(run, recipe):
        return ""
    told = f" ({'; '.join(changes.lines)})" if changes else ""
    return f"its recipe was changed, and the results that depend on the change are left{told}"


def _known(study: StudyRecipe, run: RunDirectory) -> tuple[str, ...]:
    """Read n, N and J that are sealed with the training set of the study's first condition."""
    arm = Arm(study.lead, study.seeds[0])
    said = run.manifest()["budgets"].get(arm.name)
    if said is None:
        return ()
    of = sealed_budget(arm, said, run.sealed(layout.selection(arm)))
    return f"n = {of.n:,}", f"N = {of.exposures:,}", f"J = {of.steps:,}"
