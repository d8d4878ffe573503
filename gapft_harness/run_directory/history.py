"""A run's ``history.jsonl``: a line for each change of its recipe or inputs, in a chain of hashes.

Each line has the hash of the line before it, and the manifest that of the last one, so that a line
that is edited, removed or put in is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file
from gapft_harness.core.identities import content_hash
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import remarkable

#: What warnings begin with on changes that were made after decisions existed.
LATE = "chosen after results: "


def recipe_hash(recipe: Recipe) -> str:
    """Hash what of a recipe results depend on."""
    return content_hash(remarkable(recipe))


def late_warnings(entry: Mapping[str, Any]) -> list[str]:
    """The warnings that a change calls for: none before decisions existed."""
    return [f"{LATE}{line}" for line in entry["changed"]] if entry["decided"] else []


def read_history(run: Path, last: str | None) -> list[dict[str, Any]]:
    """Read the changes that the manifest knows of; a line that a kill left after them is left out.

    Args:
        run: the run's folder.
        last: the hash of the last line, as the manifest records it; None: it records no change.

    Raises:
        UserError: a line was edited, removed or put in.
    """
    return [json.loads(line) for line in _chained(run, last)]


def append_change(run: Path, last: str | None, entry: Mapping[str, Any]) -> str:
    """Add a line for a change.

    Args:
        run: the run's folder.
        last: as ``read_history`` takes it.
        entry: what changed.

    Returns:
        The hash of the new line, for the manifest.

    Raises:
        UserError: as ``read_history``.
        GapftError: the file cannot be written.
    """
    lines = _chained(run, last)
    line = json.dumps({"previous": last, **entry})
    text = "".join(f"{each}\n" for each in [*lines, line])
    replace_file(run / layout.HISTORY, lambda new: new.write_text(text, encoding="utf-8"))
    return _hash(line)


def check_history(
    run: Path, recipe: Recipe, last: str | None, warnings: Sequence[str]
) -> Iterator[str]:
    """Yield a sentence for each fault of a run's history, for ``gapft verify``.

    Args:
        run: the run's folder.
        recipe: the run's.
        last: as ``read_history`` takes it.
        warnings: those of the manifest.

    Raises:
        UserError: as ``read_history``.
    """
    entries = read_history(run, last)
    if (there := len(_lines(run))) > len(entries):
        yield (
            f"{layout.HISTORY}: has {there} lines, the manifest records {len(entries)}; if a "
            "command was interrupted, give it again"
        )
    reached: tuple[str, ...] = ()
    for number, entry in enumerate(entries, start=1):
        if reached and entry["before"] not in reached:
            yield f"{layout.HISTORY}, line {number}: does not begin with the recipe before it"
        reached = (entry["after"], entry["before"])  # the latter if the change was interrupted
        for line in late_warnings(entry):
            if line not in warnings:
                yield f"manifest.json, warnings: lacks a change of {layout.HISTORY}: {line}"
    if reached and recipe_hash(recipe) not in reached:
        yield f"{layout.HISTORY}: its last line does not lead to the run's recipe"


def _lines(run: Path) -> list[str]:
    path = run / layout.HISTORY
    try:
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise _damaged_error(run, str(error)) from error


def _chained(run: Path, last: str | None) -> list[str]:
    """The lines up to the one that the manifest records; a kill may have left one more."""
    lines = _lines(run)
    hashes = [None, *map(_hash, lines)]
    for number, line in enumerate(lines):
        try:
            previous = json.loads(line)["previous"]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged_error(run, f"line {number + 1}: {error!r}") from error
        if previous != hashes[number]:
            raise _damaged_error(run, f"line {number + 1} does not follow the line before it")
    if last not in hashes[-2:]:
        raise _damaged_error(run, "its last line is not the one that manifest.json records")
    return lines[: hashes.index(last)]


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _damaged_error(run: Path, why: str) -> UserError:
    return UserError(f"{run / layout.HISTORY}: is damaged ({why}); restore it")
