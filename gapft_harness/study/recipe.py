"""The recipe of a study: one YAML file that names its cells and what is compared in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file
from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.bundled import bundled_recipes, find_study
from gapft_harness.recipe.faults import explain
from gapft_harness.recipe.reading import read_recipe
from gapft_harness.recipe.section import RecipeSection
from gapft_harness.run_directory.mirror import is_url

#: The resolved recipe in a study's folder, the folder of its cells' runs, and its report.
STUDY, CELLS, REPORT = "study.yaml", "cells", "report"


class CellChoice(RecipeSection):
    """One cell: a model on a task. It names a recipe, which is run, or a run that is there."""

    recipe: str | None = Field(
        None, description="its recipe, a file or a bundled name; run inside the study's folder"
    )
    run: str | None = Field(None, description="instead: a run directory, a folder or a URL")
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of its recipe and their values, over those of the study's `set`",
    )

    @model_validator(mode="after")
    def _one(self) -> CellChoice:
        if (self.recipe is None) == (self.run is None):
            raise ValueError("expected one of 'recipe' and 'run'")
        if self.run is not None and self.set:
            raise ValueError("'set' changes a recipe; a run that is there stays as it is")
        return self


class StudyRecipe(RecipeSection):
    """A study."""

    name: str = Field(description="names the study")
    description: str = Field("", description="one paragraph for people")
    conditions: tuple[str, ...] = Field(
        ("gapft", "uniform", "replay", "all_verified"),
        min_length=2,
        description="the conditions that are compared in every cell; the study is about the first",
    )
    reference: str = Field(
        "uniform", description="the condition that the first one is compared with"
    )
    seeds: tuple[int, ...] = Field(
        (13, 21, 73), min_length=1, description="the seeds that every cell must have"
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of recipes and their values, for every cell that names a recipe",
    )
    cells: Mapping[str, CellChoice] = Field(
        description="the cells by their names, in the order of the tables"
    )
    notes: tuple[str, ...] = Field((), description="remarks shown in the report")

    @field_validator("conditions", "seeds")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError(f"names one thing twice: {list(values)}")
        return values

    @field_validator("cells")
    @classmethod
    def _name_folders(cls, cells: Mapping[str, CellChoice]) -> Mapping[str, CellChoice]:
        if not cells:
            raise ValueError("expected at least one cell, e.g. {name: {recipe: demo}}")
        folders: dict[str, str] = {}
        for name in cells:
            folder = folder_of(name)
            if not folder:
                raise ValueError(f"{name!r} names no cell; expected letters or digits")
            if folder in folders:
                raise ValueError(
                    f"{folders[folder]!r} and {name!r} would share the folder {folder!r}; rename "
                    "one"
                )
            folders[folder] = name
        return cells

    @model_validator(mode="after")
    def _compares(self) -> StudyRecipe:
        if self.reference not in self.conditions[1:]:
            raise ValueError(
                f"reference {self.reference!r} is none of the conditions after the first, "
                f"{', '.join(self.conditions[1:])}"
            )
        if SOURCE in self.conditions:
            raise ValueError(f"{SOURCE!r} is no condition; every cell is compared with its source")
        return self

    @property
    def lead(self) -> str:
        """The condition that the study is about."""
        return self.conditions[0]

    def overrides(self, cell: str) -> list[str]:
        """What a cell's recipe gets, as ``--set`` takes it."""
        wanted = {**self.set, **self.cells[cell].set}
        return [f"{key}={json.dumps(value)}" for key, value in wanted.items()]

    def place(self, cell: str, folder: Path) -> str:
        """Where a cell's run lies, or will lie."""
        return self.cells[cell].run or str(folder / CELLS / folder_of(cell))

    def with_whole_paths(self) -> StudyRecipe:
        """This study, with its files and runs found from any folder."""
        bundled = bundled_recipes()

        def whole(cell: CellChoice) -> CellChoice:
            named = {}
            if cell.recipe not in (None, *bundled) and Path(str(cell.recipe)).is_file():
                named["recipe"] = str(Path(str(cell.recipe)).resolve())
            if cell.run is not None and not is_url(cell.run):
                named["run"] = str(Path(cell.run).resolve())
            return cell.model_copy(update=named)

        return self.model_copy(update={"cells": {n: whole(c) for n, c in self.cells.items()}})

    def write(self, folder: Path) -> None:
        """Keeps it in the study's folder.

        Raises:
            UserError: the folder is another study's.
        """
        stored = folder / STUDY
        if stored.exists() and (other := read_study(str(stored))).name != self.name:
            raise UserError(
                f"{folder}: holds the study {other.name!r}, and this is {self.name!r}; give "
                "another --run-dir"
            )
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        replace_file(stored, lambda beside: beside.write_text(text, "utf-8"))


def read_study(name: str) -> StudyRecipe:
    """Reads a study's recipe, a file or a bundled name.

    Raises:
        UserError: there is none, or a key or value is wrong; the message names the file, the key,
            what was found and what was expected.
    """
    place = find_study(name)
    content = read_recipe(place)
    if "data" in content or "model" in content:
        raise UserError(
            f"recipe {place}: is the recipe of a run, and a study's names cells; run it with "
            "gapft run"
        )
    try:
        text = json.dumps(content, default=str)
        return StudyRecipe.model_validate_json(text, strict=True).with_whole_paths()
    except ValidationError as error:
        raise explain(error, content, StudyRecipe, f"study {place}", {}) from error


def folder_of(cell: str) -> str:
    """A cell's name as a folder's: small letters, digits and dots, with hyphens between."""
    kept = "".join(c if c.isalnum() or c == "." else " " for c in cell.lower())
    return "-".join(kept.split()).strip(".")
