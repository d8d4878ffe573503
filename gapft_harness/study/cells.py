"""Read a study's cells from disk: complete, or with a list of missing parts."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from gapft_harness.analysis.scaling import FIXED
from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.report import ScaledRun, read_scaled_run
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.inputs import ReportInputs, read_inputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recipe_changes import list_differences, restrict_recipe
from gapft_harness.stages.report import require_sealed
from gapft_harness.study.recipe import CELLS, StudyRecipe, make_folder_name

#: Errors of readers where a manifest or a table, and its hash, were changed by hand.
DAMAGE_ERRORS = (AttributeError, KeyError, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class CollectedCell:
    """One cell.

    Attributes:
        name: the cell's name in the study.
        place: its run directory.
        missing: missing or wrong parts, one sentence each; empty if the cell is complete.
        inputs: the inputs of its report, with only the study's conditions and seeds; None where
            the cell is incomplete.
        files: names and hashes of the sealed tables behind ``inputs``.
        warnings: parts of the run that the study leaves out.
        recipe: the run's complete recipe; None where the cell is incomplete.
        page: the address of the run's report, relative to the study's report; may be empty.
        scaled: the scaled adapters of its environments; None: the run scales none.
    """

    name: str
    place: str
    missing: tuple[str, ...]
    inputs: ReportInputs | None = None
    files: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    recipe: Recipe | None = None
    page: str = ""
    scaled: ScaledRun | None = None


def collect_cells(study: StudyRecipe, folder: Path) -> list[CollectedCell]:
    """Read all cells; a cell that cannot be read is incomplete."""
    return [collect_cell(study, name, folder) for name in study.cells]


def collect_cell(study: StudyRecipe, name: str, folder: Path) -> CollectedCell:
    """Read one cell; an incomplete or damaged cell has no inputs."""
    place = study.find_place(name, folder)
    try:
        run = open_cell(place)
        if missing_parts := find_missing(study, run):
            return CollectedCell(name, place, tuple(missing_parts))
        return _read_cell(study, name, place, run)
    except GapftError as error:
        return CollectedCell(name, place, (str(error),))
    except DAMAGE_ERRORS as error:
        return CollectedCell(name, place, (f"cannot be read: {describe_error(error)}",))


def open_cell(place: str) -> RunDirectory:
    """Open a cell's run for reading.

    Raises:
        UserError: the run does not exist.
    """
    if not os.path.exists(place):  # also False for a name that is too long or invalid
        raise UserError("not run yet")
    return RunDirectory.open(place)


def find_missing(study: StudyRecipe, run: RunDirectory) -> list[str]:
    """List the parts that a run needs for the study's conditions and seeds, but does not have."""
    recipe, manifest = run.recipe, run.manifest()
    recorded = check_recipe(dict(manifest["recipe"]), f"{run.path / layout.MANIFEST}, recipe")
    current, stored = (value.model_dump(mode="json") for value in (recipe, recorded))
    if changes := list_differences(stored, current):
        return [
            f"its {layout.RECIPE} differs from the recipe in {layout.MANIFEST}: "
            f"{'; '.join(changes)}"
        ]
    if manifest.get("n") == 0 and not manifest["budgets"]:
        return ["the search found nothing to train on"]
    problems = [
        f"it has no condition {name}" for name in study.conditions if name not in recipe.conditions
    ]
    known_conditions = [name for name in study.conditions if name in recipe.conditions]
    for seed in study.seeds:
        without = [
            name
            for name in known_conditions
            if layout.decisions_path(Arm(name, seed)) not in manifest["files"]
            or not (run.path / layout.decisions_path(Arm(name, seed))).exists()
            or seed not in recipe.seeds
        ]
        if without:
            conditions = "every condition" if without == known_conditions else ", ".join(without)
            problems.append(f"no decisions of {conditions} under seed {seed}")
    if not any(layout.find_top_folder(name) == layout.DECISIONS for name in manifest["files"]):
        return ["no decisions yet"]
    return problems


def _read_cell(study: StudyRecipe, name: str, place: str, run: RunDirectory) -> CollectedCell:
    recipe = run.recipe
    reduced = restrict_recipe(recipe, study.conditions, study.seeds)
    ordered = {compared: reduced.conditions[compared] for compared in study.conditions}
    reduced = reduced.model_copy(update={"experiments": {}, "conditions": ordered})
    run = RunDirectory(run.path, reduced)
    require_sealed(run)
    arms = [Arm(condition, seed) for condition in study.conditions for seed in study.seeds]
    manifest = run.manifest()
    inputs = read_inputs(run.path, manifest | {"recipe": reduced.model_dump(mode="json")})
    table_files = [
        *(
            table("audit")
            for table in (layout.problems_path, layout.responses_path, layout.states_path)
        ),
        layout.states_path("pool"),
        *(file(arm) for arm in arms for file in (layout.selection_path, layout.decisions_path)),
    ]
    other_arms = [arm.name for arm in run.find_trained_arms() if arm not in arms]
    warning = f"trained, but not compared in this study: {', '.join(other_arms)}"
    return CollectedCell(
        name,
        place,
        (),
        inputs,
        tuple((file, manifest["files"][file]) for file in table_files),
        (warning,) if other_arms else (),
        recipe,
        _find_report_link(study, name, place) if "report" in manifest["stages"] else "",
        _read_scaled(study, name, run, recipe),
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
    manifest = run.manifest()
    environments: dict[tuple[int, int], str] = {}
    for condition in study.conditions:
        slots = manifest["budgets"][Arm(condition, study.seeds[0]).name]["n"]
        environments.setdefault((recipe.find_k(condition), slots), condition)
    arms = [Arm(condition, seed) for condition in environments.values() for seed in study.seeds]
    for arm in arms:
        run.sealed(layout.arm_path(layout.SCALED, arm))
        for scale in {read_choice(run.path, arm)["scale"], FIXED} - {0.0}:
            run.sealed(layout.scaled_decisions_path(arm, scale))
    scaled = read_scaled_run(run.path, manifest, arms)
    assert scaled is not None
    return replace(scaled, name=name)


def _find_report_link(study: StudyRecipe, name: str, place: str) -> str:
    """Return the address of a cell's report: in the study's folder, or in another folder."""
    page = f"{layout.REPORT}/index.html"
    if study.cells[name].run is None:
        return quote(f"../{CELLS}/{make_folder_name(name)}/{page}")
    return Path(place, page).absolute().as_uri()


def require_different(cells: Sequence[CollectedCell]) -> None:
    """Check that cells do not share a checkpoint: it would count twice in the mean.

    Raises:
        UserError: two cells contain the same checkpoint.
    """
    for number, cell in enumerate(cells):
        for other in cells[:number]:
            if shared := _list_checkpoints(cell.files) & _list_checkpoints(other.files):
                raise UserError(
                    f"cells {other.name!r} and {cell.name!r} contain the same checkpoint "
                    f"({', '.join(sorted(shared))}); use each run in one cell only"
                )


def _list_checkpoints(files: Iterable[tuple[str, str]]) -> set[str]:
    """List a cell's checkpoints: each arm with the hashes of its training set and decisions."""
    by_name, arms = dict(files), f"{layout.DECISIONS}/"
    return {
        f"{name.removeprefix(arms).removesuffix('.parquet')} {digest[:12]} "
        f"{by_name.get(name.replace(arms, f'{layout.SELECTIONS}/', 1), '')[:12]}".rstrip()
        for name, digest in by_name.items()
        if name.startswith(arms)
    }
