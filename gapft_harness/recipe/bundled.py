"""Find recipes: bundled ones by name, and the user's files."""

from __future__ import annotations

import difflib
import os.path
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.core.text import describe_read_error

_CELLS = re.compile(r"^cells:", flags=re.MULTILINE)


def list_bundled_recipes() -> dict[str, Path]:
    """Map names of bundled recipes (path below recipes/ without suffix) to files."""
    return {name: path for name, path in _find_bundled_files().items() if not _is_study(path)}


def list_bundled_studies() -> dict[str, Path]:
    """Map the names of bundled studies to files."""
    return {name: path for name, path in _find_bundled_files().items() if _is_study(path)}


def find_recipe(name: str) -> Path:
    """Return the file of a run's recipe given as a path or a bundled name.

    Raises:
        UserError: neither a file nor a bundled name; the message has the nearest bundled name.
    """
    path = _find_file(name, list_bundled_recipes(), "recipe")
    if _is_study(path):
        raise UserError(f"recipe {path}: is a study (it has cells); run it with gapft study")
    return path


def find_study(name: str) -> Path:
    """Return the file of a study's recipe given as a path or a bundled name.

    Raises:
        UserError: neither a file nor a bundled name; the message has the nearest bundled name.
    """
    return _find_file(name, list_bundled_studies(), "study")


def _find_bundled_files() -> dict[str, Path]:
    folder = Path(__file__).parents[1] / "recipes"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def _is_study(path: Path) -> bool:
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"recipe {describe_read_error(path, error)}") from error
    return _CELLS.search(text) is not None


def _find_file(name: str, bundled: Mapping[str, Path], kind: str) -> Path:
    if name in bundled:
        return bundled[name]
    if not name:
        raise UserError(f"{kind} '': expected a file or a bundled name")
    path, bundled_files = Path(name), _find_bundled_files()
    if os.path.isfile(path):  # False also for impossible file names
        return path
    if path.name:  # "." and "/" have no name
        bundled_name = path.with_suffix("").as_posix().removeprefix("recipes/")
        if bundled_name in bundled_files and not path.is_absolute():
            return bundled_files[bundled_name]
    if os.path.isdir(path):
        raise UserError(f"{name}: is {_describe_folder(path, kind)}")
    is_file = path.suffix in (".yaml", ".yml") or path.is_absolute()
    matches = difflib.get_close_matches(path.stem if is_file else name, bundled, n=1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    if is_file:
        raise UserError(f"{kind} {quote_unprintable(name)}: no such file{hint}")
    hint = hint or "; see gapft list recipes"
    raise UserError(f"unknown {kind} {name!r}: neither a file nor bundled{hint}")


def _describe_folder(path: Path, kind: str) -> str:
    """Describe a folder given in place of a recipe's file, and the command to use instead."""
    for file, description, command in (
        ("recipe.yaml", "a run directory", "run"),
        ("study.yaml", "a study's folder", "study"),
    ):
        if os.path.isfile(path / file):
            return (
                f"{description}; expected a {kind}'s file; to continue it: "
                f"gapft {command} {shlex.quote(str(path / file))} --run-dir "
                f"{shlex.quote(str(path))}"
            )
    return f"a folder; expected a {kind}'s file or a bundled name"
