"""A run's ``history.jsonl``: one line for each change of its recipe or inputs, in a hash chain.

Each line contains the hash of the line before it, and the manifest contains the hash of the last
line. An edited, removed or inserted line is therefore detected.
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
from gapft_harness.run_directory.recipe_changes import dump_result_settings

#: The prefix of warnings about changes made after decisions existed.
LATE_PREFIX = "chosen after results: "


def hash_recipe(recipe: Recipe) -> str:
    """Hash the recipe settings that results depend on."""
    return content_hash(dump_result_settings(recipe))


def list_late_warnings(entry: Mapping[str, Any]) -> list[str]:
    """List the warnings that a change causes; empty if it was made before any decisions existed."""
    return [f"{LATE_PREFIX}{line}" for line in entry["changed"]] if entry["decided"] else []


def read_history(run: Path, last: str | None) -> list[dict[str, Any]]:
    """Read the changes that the manifest records.

    One more line may follow them, if a command was killed before it updated the manifest; it is
    ignored.

    Args:
        run: the run directory.
        last: the hash of the last line, as the manifest records it; None for no change.

    Raises:
        UserError: a line was edited, removed or inserted.
    """
    return [json.loads(line) for line in _read_chained_lines(run, last)]


def append_change(run: Path, last: str | None, entry: Mapping[str, Any]) -> str:
    """Append a line for a change.

    Args:
        run: the run directory.
        last: the hash of the last line, as for ``read_history``.
        entry: the change.

    Returns:
        The hash of the new line, for the manifest.

    Raises:
        UserError: as ``read_history``.
        GapftError: the file cannot be written.
    """
    lines = _read_chained_lines(run, last)
    line = json.dumps({"previous": last, **entry})
    text = "".join(f"{text_line}\n" for text_line in [*lines, line])
    replace_file(run / layout.HISTORY, lambda new: new.write_text(text, encoding="utf-8"))
    return _hash_line(line)


def check_history(
    run: Path, recipe: Recipe, last: str | None, warnings: Sequence[str]
) -> Iterator[str]:
    """Yield a sentence for each fault in a run's history, for ``gapft verify``.

    Args:
        run: the run directory.
        recipe: the run's recipe.
        last: the hash of the last line, as for ``read_history``.
        warnings: the manifest's warnings.

    Raises:
        UserError: as ``read_history``.
    """
    entries = read_history(run, last)
    if (line_count := len(_read_lines(run))) > len(entries):
        yield (
            f"{layout.HISTORY}: has {line_count} lines, but the manifest records {len(entries)}; "
            "if a command was interrupted, run it again"
        )
    possible_hashes: tuple[str, ...] = ()
    for number, entry in enumerate(entries, start=1):
        if possible_hashes and entry["before"] not in possible_hashes:
            yield f"{layout.HISTORY}, line {number}: does not start from the recipe before it"
        possible_hashes = (
            entry["after"],
            entry["before"],
        )  # "before" if the change was interrupted
        for line in list_late_warnings(entry):
            if line not in warnings:
                yield f"manifest.json, warnings: a change of {layout.HISTORY} is missing: {line}"
    if possible_hashes and hash_recipe(recipe) not in possible_hashes:
        yield f"{layout.HISTORY}: its last line does not end at the run's recipe"


def _read_lines(run: Path) -> list[str]:
    path = run / layout.HISTORY
    try:
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise _damaged_error(run, str(error)) from error


def _read_chained_lines(run: Path, last: str | None) -> list[str]:
    """Read the lines up to the one that the manifest records."""
    lines = _read_lines(run)
    hashes = [None, *map(_hash_line, lines)]
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


def _hash_line(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _damaged_error(run: Path, reason: str) -> UserError:
    return UserError(f"{run / layout.HISTORY}: the file is damaged ({reason}); restore it")
