"""Run or read the cells of a study one by one, then write one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report import require_replaceable
from gapft_harness.report.reading.audits import read_sealed_budget
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold_run_lock
from gapft_harness.run_directory.recipe_changes import extend_recipe
from gapft_harness.stages.selection.budgets import describe_planned_budget
from gapft_harness.study.cells import (
    DAMAGE_ERRORS,
    CollectedCell,
    collect_cell,
    find_missing,
    open_cell,
    require_different,
)
from gapft_harness.study.document import write_study
from gapft_harness.study.protocol import (
    require_comparable,
    require_equal,
    require_one_protocol,
    select_task_protocol,
)
from gapft_harness.study.recipe import REPORT, StudyRecipe

#: Returns the recipe of a cell that names one, with the study's settings.
ResolveRecipe = Callable[[str], Recipe]
#: Returns the task's protocol for a recipe, None where its task cannot be read.
ResolveTask = Callable[[Recipe], "Mapping[str, Any] | None"]
#: Runs a cell's recipe in a folder.
RunCell = Callable[[str, Path], object]


def run_study(
    study: StudyRecipe,
    folder: Path,
    resolve: ResolveRecipe,
    run_cell: RunCell,
    report: Callable[[str], None],
    resolve_task: ResolveTask = lambda recipe: None,
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
    recipes = _check_study(study, folder, resolve, resolve_task)
    with hold_run_lock(folder):
        study.write(folder)
        collected = []
        for number, name in enumerate(study.cells):
            report(f"cell {number + 1} of {len(study.cells)}: {name}")
            collected.append(_run_cell(study, name, folder, recipes.get(name), run_cell, report))
        findings = write_study(study, collected, folder)
    page = folder / REPORT / "index.html"
    if findings.incomplete:
        lines = [
            f"  {name}: {'; '.join(missing_parts)}"
            for name, missing_parts in findings.incomplete.items()
        ]
        raise GapftError(
            f"no mean over cells: {len(lines)} of {len(collected)} cells are incomplete:\n"
            + "\n".join(lines)
            + f"\nThe report lists them too: {page}"
        )
    return page


def _run_cell(
    study: StudyRecipe,
    name: str,
    folder: Path,
    recipe: Recipe | None,
    run_cell: RunCell,
    report: Callable[[str], None],
) -> CollectedCell:
    """Run a cell if it is incomplete or outdated, and read it."""
    cell = collect_cell(study, name, folder)
    if study.cells[name].recipe is None:
        return cell
    place = Path(cell.place)
    if not cell.missing and recipe is not None and _is_up_to_date(RunDirectory.open(place), recipe):
        return cell
    try:
        run_cell(name, place)
    except GapftError as error:
        report(f"cell {name} failed: {error}")
        failed_cell = collect_cell(study, name, folder)
        return CollectedCell(name, failed_cell.place, failed_cell.missing or (_first_line(error),))
    return collect_cell(study, name, folder)


def _is_up_to_date(run: RunDirectory, recipe: Recipe) -> bool:
    """Return whether a run has this recipe; it may have trained more arms."""
    return extend_recipe(run.recipe, recipe, run.find_trained_arms()) == run.recipe


def _first_line(error: GapftError) -> str:
    return str(error).partition("\n")[0]


def _check_study(
    study: StudyRecipe, folder: Path, resolve: ResolveRecipe, resolve_task: ResolveTask
) -> dict[str, Recipe]:
    """Check the study and return its cells' recipes, before anything is run or written.

    Raises:
        UserError: see ``run_study``.
    """
    study.check_folder(folder)
    require_replaceable(folder / REPORT)
    recipes = read_recipes(study, folder, resolve)
    require_one_protocol(study, recipes)
    require_equal(
        {name: _find_task_protocol(study, folder, name, recipes, resolve_task) for name in recipes}
    )
    existing = [name for name in study.cells if study.cells[name].recipe is None]
    cells = [collect_cell(study, name, folder) for name in existing]
    complete_cells = [cell for cell in cells if not cell.missing]
    require_different(complete_cells)
    require_comparable(study, complete_cells)
    return recipes


def _find_task_protocol(
    study: StudyRecipe,
    folder: Path,
    name: str,
    recipes: Mapping[str, Recipe],
    resolve_task: ResolveTask,
) -> Mapping[str, Any] | None:
    """Return the protocol of a cell's task; None where it is unknown."""
    if study.cells[name].recipe is not None:
        return resolve_task(recipes[name])
    try:
        task = open_cell(study.find_place(name, folder)).manifest()["task"]
        return select_task_protocol(task) if "keep" in task else None
    except (GapftError, *DAMAGE_ERRORS):
        return None


def read_recipes(study: StudyRecipe, folder: Path, resolve: ResolveRecipe) -> dict[str, Recipe]:
    """Read the recipes of all cells, without those of runs that cannot be opened.

    Raises:
        UserError: a cell's recipe is invalid; the message begins with the cell.
    """
    recipes = {}
    for name, choice in study.cells.items():
        try:
            if choice.recipe is not None:
                recipes[name] = resolve(name)
                _require_conditions(study, recipes[name])
            else:
                recipes[name] = open_cell(study.find_place(name, folder)).recipe
        except GapftError as error:
            if choice.recipe is not None:
                raise UserError(f"cell {name!r}: {error}") from error
    return recipes


def _require_conditions(study: StudyRecipe, recipe: Recipe) -> None:
    if missing_conditions := [name for name in study.conditions if name not in recipe.conditions]:
        raise UserError(
            f"its recipe {recipe.name!r} has no condition {', '.join(missing_conditions)}; found "
            f"{', '.join(recipe.conditions)}. Add it to the recipe, or with the study's key 'set'"
        )


def describe_study(
    study: StudyRecipe,
    folder: Path,
    resolve: ResolveRecipe,
    plugin_files: Sequence[str] = (),
    resolve_task: ResolveTask = lambda recipe: None,
) -> str:
    """Describe for ``--dry-run`` the budget of every cell, if it is known, and its missing parts.

    Raises:
        UserError: as in ``run_study``, before anything is run.
    """
    recipes = _check_study(study, folder, resolve, resolve_task)
    lines = [f"study {study.name}: {len(study.cells)} cells -> {folder}"]
    left_count = 0
    for name in study.cells:
        place, missing_parts = study.find_place(name, folder), ["not run yet"]
        budget: tuple[str, ...] = describe_planned_budget(recipes[name]) if name in recipes else ()
        try:
            run = open_cell(place)
            recipe = recipes[name] if study.cells[name].recipe else run.recipe
            if change := _describe_change(run, recipe, plugin_files):
                missing_parts = [change]
            else:
                missing_parts = find_missing(study, run)
                budget = _read_budget(study, run) or budget
        except GapftError as error:
            missing_parts = [str(error)]
        except DAMAGE_ERRORS as error:
            missing_parts = [f"cannot be read: {describe_error(error)}"]
        left_count += bool(missing_parts)
        lines += [
            f"{name}",
            f"  {study.cells[name].recipe or 'an existing run'} -> {place}",
            f"  {'; '.join(budget) or 'budget not known'}",
            f"  left: {'; '.join(missing_parts)}" if missing_parts else "  complete",
        ]
    arms = len(study.conditions) * len(study.seeds)
    lines.append(
        f"{left_count} of {len(study.cells)} cells are left; {arms} adapters each "
        f"({len(study.conditions)} conditions x {len(study.seeds)} seeds)"
    )
    return "\n".join(lines)


def _describe_change(run: RunDirectory, recipe: Recipe, plugin_files: Sequence[str]) -> str:
    """Describe why a run does not have this recipe; empty if it does."""
    try:
        _, changes = RunDirectory.compare_recipe(run.path, recipe, load_plugins(plugin_files))
    except UserError as error:
        return f"cannot continue: {_first_line(error)}"
    if not changes and _is_up_to_date(run, recipe):
        return ""
    details = f" ({'; '.join(changes.all_changes)})" if changes else ""
    return f"its recipe was changed, and the results that depend on the change are left{details}"


def _read_budget(study: StudyRecipe, run: RunDirectory) -> tuple[str, ...]:
    """Read n, N and J that are sealed with the training set of the study's first condition."""
    arm = Arm(study.lead, study.seeds[0])
    recorded = run.manifest()["budgets"].get(arm.name)
    if recorded is None:
        return ()
    budget = read_sealed_budget(arm, recorded, run.sealed(layout.selection_path(arm)))
    return f"n = {budget.n:,}", f"N = {budget.exposures:,}", f"J = {budget.steps:,}"
