"""A study's cells as they are on disk: whole, or what each of them lacks."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from gapft_harness.core.errors import GapftError, UserError, describe
from gapft_harness.core.records import Arm
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.reading.inputs import ReportInputs, read_inputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences, only
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.report import require_sealed
from gapft_harness.study.recipe import CELLS, StudyRecipe, folder_of

#: What readers raise where somebody changed a manifest or a table by hand, and its hash too.
DAMAGED = (AttributeError, KeyError, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Collected:
    """One cell.

    Attributes:
        name: as the study calls it.
        place: its run directory.
        lacks: what is missing or wrong, a sentence each; empty if the cell is whole.
        inputs: what its report is made of, with the study's conditions and seeds alone; None
            where it lacks something.
        files: by name the hashes of the sealed tables that this rests on.
        warnings: what the study leaves out of it.
        recipe: the run's own, whole; None where it lacks something.
        page: of its run's report, as a link from the study's; empty where there is none.
    """

    name: str
    place: str
    lacks: tuple[str, ...]
    inputs: ReportInputs | None = None
    files: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    recipe: Recipe | None = None
    page: str = ""


def collect(study: StudyRecipe, folder: Path) -> list[Collected]:
    """Reads every cell. A cell that cannot be read lacks something; the others are read."""
    return [collect_cell(study, name, folder) for name in study.cells]


def collect_cell(study: StudyRecipe, name: str, folder: Path) -> Collected:
    """Reads one cell; nothing of it if anything of it is missing or was changed."""
    place = study.place(name, folder)
    try:
        run = open_cell(place)
        if lacks := missing(study, run):
            return Collected(name, place, tuple(lacks))
        return _read(study, name, place, run)
    except GapftError as error:
        return Collected(name, place, (str(error),))
    except DAMAGED as error:
        return Collected(name, place, (f"cannot be read: {describe(error)}",))


def open_cell(place: str) -> RunDirectory:
    """Open a cell's run to read it.

    Raises:
        UserError: there is none.
    """
    if not os.path.exists(place):  # False too where nothing can have such a name
        raise UserError("not run yet")
    return RunDirectory.open(place)


def missing(study: StudyRecipe, run: RunDirectory) -> list[str]:
    """What a run lacks of the study's conditions and seeds; empty if nothing."""
    recipe, manifest = run.recipe, run.manifest()
    recorded = check_recipe(dict(manifest["recipe"]), f"{run.path / layout.MANIFEST}, recipe")
    here, there = (of.model_dump(mode="json") for of in (recipe, recorded))
    if other := differences(there, here):
        return [
            f"its {layout.RECIPE} is not the recipe that {layout.MANIFEST} has: {'; '.join(other)}"
        ]
    if manifest.get("n") == 0 and not manifest["budgets"]:
        return ["search exposed nothing to train on"]
    lacks = [
        f"{name} is no condition of it"
        for name in study.conditions
        if name not in recipe.conditions
    ]
    asked = [name for name in study.conditions if name in recipe.conditions]
    for seed in study.seeds:
        without = [
            name
            for name in asked
            if layout.decisions(Arm(name, seed)) not in manifest["files"]
            or not (run.path / layout.decisions(Arm(name, seed))).exists()
            or seed not in recipe.seeds
        ]
        if without:
            which = "every condition" if without == asked else ", ".join(without)
            lacks.append(f"no decisions of {which} under seed {seed}")
    if not any(layout.folder_of(name) == layout.DECISIONS for name in manifest["files"]):
        return ["no decisions yet"]
    return lacks


def _read(study: StudyRecipe, name: str, place: str, run: RunDirectory) -> Collected:
    recipe = run.recipe
    shown = only(recipe, study.conditions, study.seeds)
    ordered = {each: shown.conditions[each] for each in study.conditions}
    shown = shown.model_copy(update={"audits": {}, "experiments": {}, "conditions": ordered})
    run = RunDirectory(run.path, shown)
    require_sealed(run)
    arms = [Arm(condition, seed) for condition in study.conditions for seed in study.seeds]
    manifest = run.manifest()
    inputs = read_inputs(run.path, manifest | {"recipe": shown.model_dump(mode="json")})
    rests = [
        *(table("audit") for table in (layout.problems, layout.responses, layout.states)),
        layout.states("pool"),
        *(file(arm) for arm in arms for file in (layout.selection, layout.decisions)),
    ]
    more = [arm.name for arm in run.trained_arms() if arm not in arms]
    left_out = f"trained, and not compared in this study: {', '.join(more)}"
    return Collected(
        name,
        place,
        (),
        inputs,
        tuple((file, manifest["files"][file]) for file in rests),
        (left_out,) if more else (),
        recipe,
        _page(study, name, place) if "report" in manifest["stages"] else "",
    )


def _page(study: StudyRecipe, name: str, place: str) -> str:
    """Where a cell's report is: beside the study's, or in a folder of its own."""
    page = f"{layout.REPORT}/index.html"
    if study.cells[name].run is None:
        return quote(f"../{CELLS}/{folder_of(name)}/{page}")
    return Path(place, page).absolute().as_uri()


def require_different(cells: Sequence[Collected]) -> None:
    """No checkpoint stands in two cells: it would count twice in the mean.

    Raises:
        UserError: one does.
    """
    for number, cell in enumerate(cells):
        for other in cells[:number]:
            if shared := _decided(cell.files) & _decided(other.files):
                raise UserError(
                    f"cells {other.name!r} and {cell.name!r} hold the same checkpoint "
                    f"({', '.join(sorted(shared))}); give each run once"
                )


def _decided(files: Iterable[tuple[str, str]]) -> set[str]:
    """A cell's checkpoints: each arm with the hashes of its training set and of its decisions."""
    by_name, arms = dict(files), f"{layout.DECISIONS}/"
    return {
        f"{name.removeprefix(arms).removesuffix('.parquet')} {digest[:12]} "
        f"{by_name.get(name.replace(arms, f'{layout.SELECTIONS}/', 1), '')[:12]}".rstrip()
        for name, digest in by_name.items()
        if name.startswith(arms)
    }
