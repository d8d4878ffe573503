"""Where recipes lie: those that ship, by name, and files of the user's."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean


def bundled_recipes() -> dict[str, Path]:
    """The recipes that ship, by name: the path below recipes/ without its ending."""
    folder = Path(__file__).parents[1] / "recipes"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def find_recipe(name: str) -> Path:
    """The file of a recipe given as a path or as a bundled name.

    Raises:
        UserError: there is none; the message has the nearest bundled name.
    """
    bundled = bundled_recipes()
    if name in bundled:
        return bundled[name]
    path = Path(name)
    if path.is_file():
        return path
    shown = path.with_suffix("").as_posix().removeprefix("recipes/")
    if shown in bundled and not path.is_absolute():
        return bundled[shown]
    raise UserError(
        f"no recipe {name!r}: neither a file nor bundled; {did_you_mean(name, bundled)}"
    )
