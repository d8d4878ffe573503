"""Run or read the cells of a study one by one, then write one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report import require_replaceable
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold_run_lock
from gapft_harness.run_directory.recipe_changes import extend_recipe, list_differences
from gapft_harness.stages.selection.budgets import describe_planned_budget
from gapft_harness.study.cells import Cell, read_cell, require_comparable
from gapft_harness.study.findings import compute_study
from gapft_harness.study.page import write_study
from gapft_harness.study.protocol import (
    require_equal,
    select_recipe_protocol,
    select_task_protocol,
)
from gapft_harness.study.recipe import REPORT, StudyRecipe

#: Takes a cell's name; returns the recipe that the cell names, with the study's settings.
ResolveRecipe = Callable[[str], Recipe]
#: Takes a recipe; returns the facts of its task that are known before its search; None: the task
#: cannot be read.
ResolveTask = Callable[[Recipe], "Mapping[str, Any] | None"]
#: Takes a cell's name and its run directory, and runs the cell's recipe there.
RunCell = Callable[[str, Path], object]


def run_study(
    study: StudyRecipe,
    folder: Path,
    resolve_recipe: ResolveRecipe,
    run_cell: RunCell,
    report_line: Callable[[str], None],
    resolve_task: ResolveTask = lambda recipe: None,
) -> Path:
    """Run every incomplete cell, one after another, and write the study's report.

    A failed cell is reported, and the next cells are run. The same command continues an
    interrupted study.

    Args:
        study: the study's recipe.
        folder: the study's folder.
        resolve_recipe: returns the recipe of a cell.
        run_cell: runs a cell's recipe in a folder.
        report_line: prints a line of progress.
        resolve_task: returns the facts of a recipe's task.

    Returns:
        The path of the report's page.

    Raises:
        UserError: before anything is run: the folder, or its report, belongs to something else, a
            cell's recipe is invalid or lacks a condition, or the cells have different protocols;
            afterwards: the finished cells are not comparable.
        GapftError: a cell is incomplete; the report is written and lists the incomplete cells.
    """
    recipes = _check_study(study, folder, resolve_recipe, resolve_task)
    with hold_run_lock(folder):
        study.write(folder)
        cells = []
        for number, name in enumerate(study.cells, 1):
            report_line(f"cell {number} of {len(study.cells)}: {name}")
            cells.append(_run_cell(study, name, folder, recipes.get(name), run_cell, report_line))
        page = write_study(compute_study(study, cells), folder)
    if faults := [f"  {cell.name}: {cell.fault}" for cell in cells if cell.fault]:
        raise GapftError(
            f"no mean over cells: {len(faults)} of {len(cells)} cells are incomplete:\n"
            + "\n".join(faults)
            + f"\nThe report lists them too: {page}"
        )
    return page


def describe_study(
    study: StudyRecipe,
    folder: Path,
    resolve_recipe: ResolveRecipe,
    resolve_task: ResolveTask = lambda recipe: None,
) -> str:
    """Describe for ``--dry-run`` the budget of every cell, and what is left to do.

    Raises:
        UserError: as in ``run_study``, before anything is run.
    """
    recipes = _check_study(study, folder, resolve_recipe, resolve_task)
    lines = [f"study {study.name}: {len(study.cells)} cells -> {folder}"]
    left_count = 0
    for name, choice in study.cells.items():
        cell = read_cell(study, name, folder)
        recipe = recipes.get(name)
        left = cell.fault or _describe_changes(cell, recipe)
        left_count += bool(left)
        lines += [
            name,
            f"  {choice.recipe or 'an existing run'} -> {cell.run_path}",
            f"  {_describe_budget(study, cell, recipe)}",
            f"  left: {left}" if left else "  complete",
        ]
    arms = len(study.conditions) * len(study.seeds)
    lines.append(
        f"{left_count} of {len(study.cells)} cells are left; {arms} adapters each "
        f"({len(study.conditions)} conditions x {len(study.seeds)} seeds)"
    )
    return "\n".join(lines)


def _check_study(
    study: StudyRecipe, folder: Path, resolve_recipe: ResolveRecipe, resolve_task: ResolveTask
) -> dict[str, Recipe]:
    """Check a study before anything is run or written.

    Returns:
        The resolved recipes of the cells that name one.

    Raises:
        UserError: see ``run_study``.
    """
    study.check_folder(folder)
    require_replaceable(folder / REPORT)
    recipes = {}
    protocols = {}
    for name, choice in study.cells.items():
        if choice.recipe is not None:
            recipes[name] = recipe = _resolve_cell(study, name, resolve_recipe)
            protocols[name] = select_recipe_protocol(recipe, study.conditions)
            if (task := resolve_task(recipe)) is not None:
                protocols[name] |= select_task_protocol(task, recipe.evidence.keep)
    existing = [read_cell(study, name, folder) for name in study.cells if name not in recipes]
    protocols |= {cell.name: cell.protocol for cell in existing}
    require_equal({name: protocols[name] for name in study.cells})
    require_comparable(existing)
    return recipes


def _resolve_cell(study: StudyRecipe, cell: str, resolve_recipe: ResolveRecipe) -> Recipe:
    """Resolve the recipe of a cell.

    Raises:
        UserError: the recipe is invalid, or lacks a condition; the message begins with the cell.
    """
    try:
        recipe = resolve_recipe(cell)
    except GapftError as error:
        raise UserError(f"cell {cell!r}: {error}") from error
    if missing := [name for name in study.conditions if name not in recipe.conditions]:
        raise UserError(
            f"cell {cell!r}: its recipe {recipe.name!r} has no condition {', '.join(missing)}; "
            f"found {', '.join(recipe.conditions)}. Add it to the recipe, or with the study's key "
            "'set'"
        )
    return recipe


def _run_cell(
    study: StudyRecipe,
    name: str,
    folder: Path,
    recipe: Recipe | None,
    run_cell: RunCell,
    report_line: Callable[[str], None],
) -> Cell:
    """Run a cell if it is incomplete or outdated, and read it."""
    cell = read_cell(study, name, folder)
    if recipe is None or not (cell.fault or _describe_changes(cell, recipe)):
        return cell
    try:
        run_cell(name, cell.run_path)
    except GapftError as error:
        report_line(f"cell {name} failed: {error}")
        # an earlier complete run stays readable, but without the recipe's changes: incomplete
        failed_cell = read_cell(study, name, folder)
        return Cell(name, cell.run_path, failed_cell.fault or str(error).partition("\n")[0])
    return read_cell(study, name, folder)


def _describe_changes(cell: Cell, recipe: Recipe | None) -> str:
    """Describe how a recipe differs from that of a cell's run, which may have more arms."""
    if recipe is None:
        return ""
    run = RunDirectory.open(cell.run_path)
    extended = extend_recipe(run.recipe, recipe, run.find_trained_arms())
    changes = list_differences(run.recipe.model_dump(mode="json"), extended.model_dump(mode="json"))
    return f"its recipe was changed: {'; '.join(changes)}" if changes else ""


def _describe_budget(study: StudyRecipe, cell: Cell, recipe: Recipe | None) -> str:
    if cell.inputs is not None:
        budget = cell.inputs.find_arms(study.lead)[0].budget
        return f"n = {budget.n:,}; N = {budget.exposures:,}; J = {budget.steps:,}"
    return "budget not known" if recipe is None else "; ".join(describe_planned_budget(recipe))
