"""Find recipes: bundled ones by name, and the user's files."""

from __future__ import annotations

import difflib
import os.path
import re
from pathlib import Path

from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.core.text import describe_read_error

_CELLS = re.compile(r"^cells:", flags=re.MULTILINE)


def list_bundled_recipes() -> dict[str, Path]:
    """Map names of bundled recipes (path below recipes/ without suffix) to files."""
    return {name: path for name, path in _find_bundled_files().items() if not has_cells(path)}


def list_bundled_studies() -> dict[str, Path]:
    """Map the names of bundled studies to files."""
    return {name: path for name, path in _find_bundled_files().items() if has_cells(path)}


def find_recipe(name: str) -> Path:
    """Return the file of a run's recipe given as a path or a bundled name.

    Raises:
        UserError: as ``find_file``, or the recipe of a study.
    """
    path = find_file(name)
    if has_cells(path):
        raise UserError(f"recipe {path}: is a study (it has cells); expected the recipe of a run")
    return path


def _find_bundled_files() -> dict[str, Path]:
    folder = Path(__file__).parents[1] / "recipes"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def has_cells(path: Path) -> bool:
    """Return whether a recipe is a study's."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"recipe {describe_read_error(path, error)}") from error
    return _CELLS.search(text) is not None


def find_file(name: str) -> Path:
    """Return the file of a run's or a study's recipe given as a path or a bundled name.

    Raises:
        UserError: neither a file nor a bundled name; the message has the nearest bundled name.
    """
    bundled = _find_bundled_files()
    if name in bundled:
        return bundled[name]
    if not name:
        raise UserError("recipe '': expected a file or a bundled name")
    path = Path(name)
    if os.path.isfile(path):  # False also for impossible file names
        return path
    if path.name:  # "." and "/" have no name
        bundled_name = path.with_suffix("").as_posix().removeprefix("recipes/")
        if bundled_name in bundled and not path.is_absolute():
            return bundled[bundled_name]
    if os.path.isdir(path):
        raise UserError(
            f"recipe {name}: is a folder; expected a file, such as the recipe.yaml or study.yaml "
            "in it, or a bundled name"
        )
    is_file = path.suffix in (".yaml", ".yml") or path.is_absolute()
    matches = difflib.get_close_matches(path.stem if is_file else name, bundled, n=1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    if is_file:
        raise UserError(f"recipe {quote_unprintable(name)}: no such file{hint}")
    hint = hint or "; see gapft list recipes"
    raise UserError(f"unknown recipe {name!r}: neither a file nor bundled{hint}")
