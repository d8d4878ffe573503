"""The recipe of a study: a YAML file with its cells and the conditions to compare."""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import PARTIAL, replace_file
from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.visible import make_visible
from gapft_harness.recipe.bundled import find_file, list_bundled_recipes
from gapft_harness.recipe.messages import build_recipe_error
from gapft_harness.recipe.reading import read_recipe
from gapft_harness.recipe.recipe import check_figures
from gapft_harness.recipe.sections import Distinct, RecipeSection
from gapft_harness.report.reading.published import parse_published
from gapft_harness.run_directory.lock import RUN_LOCK
from gapft_harness.run_directory.recipe_changes import list_differences

#: The resolved recipe in a study's folder, the folder of its cells' runs, and its report.
STUDY, CELLS, REPORT = "study.yaml", "cells", "report"

#: The values of a mean over cells that a paper may print.
_MEAN_VALUES = ("delta", "ci95_low", "ci95_high")
#: Most bytes in the name of a cell's folder; most file systems allow 255.
_MAX_NAME_BYTES = 200


def _check_visible(text: str) -> str:
    """Check that a page can show a text unchanged.

    Raises:
        ValueError: the text has invisible characters, or marks that reverse its direction.
    """
    if (visible_text := make_visible(text)) != text:
        raise ValueError(f"{visible_text!r} has invisible characters; remove them")
    return text


#: A text that a page can show unchanged.
VisibleText = Annotated[str, AfterValidator(_check_visible)]


class CellChoice(RecipeSection):
    """One cell: a model on a task. It names a recipe to run, or an existing run."""

    recipe: VisibleText | None = Field(
        None, description="its recipe: a file or a bundled name; run inside the study's folder"
    )
    run: VisibleText | None = Field(
        None, description="an existing run directory, instead of a recipe"
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of its recipe and their values; they override the study's `set`",
    )

    @model_validator(mode="after")
    def _check_source(self) -> CellChoice:
        if (self.recipe is None) == (self.run is None):
            raise ValueError("expected one of 'recipe' and 'run'")
        if self.run is not None and self.set:
            raise ValueError("'set' applies to a recipe, but 'run' is an existing run; remove one")
        return self


class StudyRecipe(RecipeSection):
    """A study."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="the name of the study: letters, digits, `.`, `_` and `-`",
    )
    description: VisibleText = Field("", description="one paragraph for people")
    conditions: Annotated[tuple[VisibleText, ...], Distinct] = Field(
        ("gapft", "uniform", "replay", "all_verified"),
        min_length=2,
        description="the conditions that are compared in every cell; the first is the main one",
    )
    reference: str = Field(
        "uniform", description="the condition that the first one is compared with"
    )
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Distinct] = Field(
        (13, 21, 73), min_length=1, description="the seeds that every cell must have"
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of recipes and their values, for every cell that names a recipe",
    )
    cells: Mapping[str, CellChoice] = Field(
        description="the cells by their names, in the order of the tables"
    )
    paper: Mapping[str, Mapping[str, float]] = Field(
        default_factory=dict,
        description="means over cells that a paper prints, by its tables; see "
        "[its section](paper.md#printed-numbers)",
    )
    notes: tuple[VisibleText, ...] = Field((), description="remarks shown in the report")

    @field_validator("cells")
    @classmethod
    def _check_cell_names(cls, cells: Mapping[str, CellChoice]) -> Mapping[str, CellChoice]:
        if not cells:
            raise ValueError("expected at least one cell, e.g. {name: {recipe: demo}}")
        folders: dict[str, str] = {}
        for name in cells:
            folder = make_folder_name(_check_visible(name))
            if not 0 < len(folder.encode()) <= _MAX_NAME_BYTES:
                raise ValueError(
                    f"cell name {name[:40]!r} does not name a folder; expected 1 to "
                    f"{_MAX_NAME_BYTES} bytes of letters, digits, dots and hyphens"
                )
            if folder in folders:
                raise ValueError(
                    f"cells {folders[folder]!r} and {name!r} would share the folder {folder!r}; "
                    "rename one"
                )
            folders[folder] = name
        return cells

    @model_validator(mode="after")
    def _check_conditions(self) -> StudyRecipe:
        if self.reference not in self.conditions[1:]:
            raise ValueError(
                f"unknown reference {self.reference!r}; expected one of the conditions after the "
                f"first: {', '.join(self.conditions[1:])}"
            )
        if SOURCE in self.conditions:
            raise ValueError(
                f"{SOURCE!r} is not a condition; every cell is compared with its source, so "
                "remove it"
            )
        return self

    @model_validator(mode="after")
    def _check_means(self) -> StudyRecipe:
        for value in parse_published(check_figures(self.paper)):
            if value.conditions not in self.contrasts or value.quantity_name not in _MEAN_VALUES:
                raise ValueError(
                    f"paper: unknown mean {value.subject}.{value.quantity}; expected the first "
                    f"condition minus another, or a condition minus {SOURCE}, and one of "
                    f"{', '.join(_MEAN_VALUES)}"
                )
        return self

    @property
    def lead(self) -> str:
        """The main condition of the study."""
        return self.conditions[0]

    @property
    def contrasts(self) -> list[tuple[str, str]]:
        """The pairs that are averaged: the first and each other, each condition and the source."""
        lead, *others = self.conditions
        pairs = [(lead, other) for other in others]
        return pairs + [(name, SOURCE) for name in self.conditions]

    def list_overrides(self, cell: str) -> list[str]:
        """Return the settings for a cell's recipe, in the form of ``--set``."""
        settings = {**self.set, **self.cells[cell].set}
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]

    def find_run_path(self, cell: str, folder: Path) -> Path:
        """Return the folder of a cell's run."""
        return Path(self.cells[cell].run or folder / CELLS / make_folder_name(cell))

    def with_absolute_paths(self) -> StudyRecipe:
        """Return this study with absolute paths of its files and runs."""
        bundled = list_bundled_recipes()
        cells = {}
        for name, choice in self.cells.items():
            updates = {}
            if choice.recipe not in (None, *bundled) and os.path.isfile(str(choice.recipe)):
                updates["recipe"] = str(Path(str(choice.recipe)).resolve())
            if choice.run is not None:
                updates["run"] = str(Path(choice.run).resolve())
            cells[name] = choice.model_copy(update=updates)
        return self.model_copy(update={"cells": cells})

    def check_folder(self, folder: Path) -> None:
        """Check that a folder belongs to this study, or is empty or missing.

        Raises:
            UserError: the folder contains something else, or a different study file that was
                written by hand.
        """
        stored = folder / STUDY
        if not stored.exists():
            expected_names = {RUN_LOCK, f".{STUDY}{PARTIAL}"}
            names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
            if names - expected_names or folder.is_file():
                raise UserError(
                    f"{folder}: contains files but no {STUDY}, so it is not the folder of a study; "
                    "use an empty folder as --run-dir"
                )
            return
        other = read_study(str(stored))
        if other.name != self.name:
            raise UserError(
                f"{folder}: contains the study {other.name!r}, but this study is {self.name!r}; "
                "use another --run-dir"
            )
        if self._to_yaml() != other._to_yaml() != stored.read_text("utf-8"):
            changes = list_differences(other.model_dump(mode="json"), self.model_dump(mode="json"))
            raise UserError(
                f"{stored}: was written by hand, and a different study would overwrite it: "
                f"{'; '.join(changes)}. Use that file as the study, or another "
                "--run-dir"
            )

    def write(self, folder: Path) -> None:
        """Write the study to its folder; a file with the same content stays as it is.

        Raises:
            UserError: as in ``check_folder``.
        """
        self.check_folder(folder)
        stored = folder / STUDY
        text = self._to_yaml()
        if not (stored.exists() and read_study(str(stored))._to_yaml() == text):
            replace_file(stored, lambda partial_path: partial_path.write_text(text, "utf-8"))

    def _to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_study(name: str) -> StudyRecipe:
    """Read a study's recipe, a file or a bundled name.

    Raises:
        UserError: the file is missing, or a key or value is wrong; the message has the file, the
            key, and the values found and expected.
    """
    place = find_file(name)
    content = read_recipe(place)
    try:
        text = json.dumps(content, default=str)
        return StudyRecipe.model_validate_json(text, strict=True).with_absolute_paths()
    except ValidationError as error:
        raise build_recipe_error(error, content, StudyRecipe, f"study {place}", {}) from error


def make_folder_name(cell: str) -> str:
    """Convert a cell's name to a folder's: lower-case letters, digits, dots and hyphens."""
    words = "".join(c if c.isalnum() or c == "." else " " for c in cell.lower())
    return "-".join(words.split()).strip(".")
