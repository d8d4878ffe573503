"""Read a study's cells from disk: complete, or with the reason why not."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gapft_harness.analysis.scaling import FIXED
from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.report import ScaledRun, read_scaled_run
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.inputs import ReportInputs, read_inputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recipe_changes import restrict_recipe
from gapft_harness.run_directory.recorded import read_budgets
from gapft_harness.stages.context import find_slots
from gapft_harness.study.protocol import (
    Protocol,
    require_equal,
    select_audit_protocol,
    select_recipe_protocol,
    select_task_protocol,
)
from gapft_harness.study.recipe import StudyRecipe

#: Errors of readers where records or a table, and its hash, were changed by hand.
_DAMAGE_ERRORS = (AttributeError, KeyError, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        name: the cell's name in the study.
        run_path: its run directory.
        fault: the reason why the study cannot use it; empty: it is complete.
        protocol: the settings that must be the same in every cell; empty where they are unknown.
        inputs: the inputs of its report, with only the study's conditions and seeds; None where
            the cell is incomplete.
        checkpoints: by arm, the hashes of its training set and of its decisions.
        scaled: the scaled adapters of its environments; None: the run scales none.
    """

    name: str
    run_path: Path
    fault: str = ""
    protocol: Protocol = field(default_factory=dict)
    inputs: ReportInputs | None = None
    checkpoints: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    scaled: ScaledRun | None = None


def read_cells(study: StudyRecipe, folder: Path) -> list[Cell]:
    """Read all cells; a cell that cannot be read is incomplete."""
    return [read_cell(study, name, folder) for name in study.cells]


def read_cell(study: StudyRecipe, name: str, folder: Path) -> Cell:
    """Read one cell; an incomplete or damaged cell has no inputs."""
    cell = Cell(name, study.find_run_path(name, folder), "not run yet")
    if not os.path.exists(cell.run_path):  # also False for a name that is too long
        return cell
    try:
        run = RunDirectory.open(cell.run_path)
        cell = replace(cell, protocol=select_recipe_protocol(run.recipe, study.conditions))
        return _read_complete(study, cell, run)
    except GapftError as error:
        return replace(cell, fault=str(error))
    except _DAMAGE_ERRORS as error:
        return replace(cell, fault=f"cannot be read: {describe_error(error)}")


def _read_complete(study: StudyRecipe, cell: Cell, run: RunDirectory) -> Cell:
    """Read a cell whose run has all decisions of the study.

    Raises:
        GapftError: a condition, seed or table is missing, or a file was changed.
    """
    recipe = run.recipe
    run.require_recorded_recipe()
    if find_slots(run) == 0:
        raise UserError("the search found nothing to train on")
    reduced = restrict_recipe(recipe, study.conditions, study.seeds)
    conditions = {name: reduced.conditions[name] for name in study.conditions}
    reduced = reduced.model_copy(update={"experiments": {}, "conditions": conditions})
    arms = [Arm(condition, seed) for condition in conditions for seed in study.seeds]
    for table in (layout.problems_path, layout.responses_path, layout.states_path):
        for split in SPLITS:
            run.file(table(split))
    checkpoints = {
        arm.name: (
            sha256(run.file(layout.selection_path(arm))),
            sha256(run.file(layout.decisions_path(arm))),
        )
        for arm in arms
    }
    scaled = _read_scaled(study, cell.name, run, recipe)
    others = [arm.name for arm in run.find_trained_arms() if arm not in arms]
    notes = [f"trained, but not compared in this study: {', '.join(others)}"] if others else []
    inputs = read_inputs(RunDirectory(run.path, reduced), notes=notes)
    protocol = select_task_protocol(inputs.task, recipe.evidence.keep)
    protocol |= select_audit_protocol(inputs)
    return replace(
        cell,
        fault="",
        protocol=cell.protocol | protocol,
        inputs=inputs,
        checkpoints=checkpoints,
        scaled=scaled,
    )


def _read_scaled(
    study: StudyRecipe, name: str, run: RunDirectory, recipe: Recipe
) -> ScaledRun | None:
    """Read the decisions of a cell's scaled adapters; None if its recipe scales none.

    Each budget of the cell is an environment. Its adapters are those of the first condition of the
    study with this budget.

    Raises:
        GapftError: a scaled adapter or its decisions are missing, or were changed.
    """
    if "scaling" not in recipe.experiments:
        return None
    budgets = read_budgets(run)
    environments: dict[tuple[int, int], str] = {}
    for condition in study.conditions:
        slots = budgets[Arm(condition, study.seeds[0]).name]["n"]
        environments.setdefault((recipe.find_k(condition), slots), condition)
    arms = [Arm(condition, seed) for condition in environments.values() for seed in study.seeds]
    for arm in arms:
        run.file(layout.arm_path(layout.SCALED, arm))
        for scale in {read_choice(run.path, arm)["scale"], FIXED} - {0.0}:
            run.file(layout.scaled_decisions_path(arm, scale))
    scaled = read_scaled_run(run, arms)
    assert scaled is not None
    return replace(scaled, name=name)


def require_comparable(cells: Sequence[Cell]) -> None:
    """Check that complete cells have one protocol, and that no two share a checkpoint.

    Raises:
        UserError: two cells differ, or contain the same checkpoint, which would count twice.
    """
    complete_cells = [cell for cell in cells if not cell.fault]
    require_equal({cell.name: cell.protocol for cell in complete_cells})
    owners: dict[tuple[str, tuple[str, str]], str] = {}
    for cell in complete_cells:
        for checkpoint in cell.checkpoints.items():
            if (owner := owners.setdefault(checkpoint, cell.name)) != cell.name:
                raise UserError(
                    f"cells {owner!r} and {cell.name!r} contain the same checkpoint "
                    f"{checkpoint[0]}; use each run in one cell only"
                )
