"""Holds a command to what its run rests on, before anything else (``rests_on.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.integrity.rests_on import (
    bound,
    changed,
    codes,
    compare_files,
    differing,
    elsewhere,
    has_adapters,
    model_changes,
    searched_in,
)
from gapft_harness.stages.integrity.subsets import changed_subsets

#: Reads the task and its data and gives all of ``rests_on``; takes folders with task YAML.
Read = Callable[[Sequence[str]], dict[str, Any]]

#: Files that a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Held:
    """What holding a command to its run came to.

    Attributes:
        again: what to record of the places of task and data, where they were read again.
        compared: names of what is as it was, all of it.
        unchecked: sentences on what could not be checked here.
    """

    again: dict[str, Any] | None
    compared: list[str]
    unchecked: list[str]


def hold(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    include_paths: Sequence[str],
    read: Read,
) -> Held:
    """Compares what a run rests on with what is there now.

    Args:
        include_paths: folders with task YAML that the command was given; none: those of the search.
        read: called if a file of the task or its data changed, or if they are looked for elsewhere.

    Raises:
        UserError: something was changed; the message names it.
    """
    recorded = bound(run, manifest)
    subsets, alike, without = changed_subsets(run, manifest["files"])
    if subsets:
        raise changed(run.path, subsets)
    if not recorded:
        return Held(None, alike, without)
    lines, given, unchecked = _plugins(run, recorded, plugins)
    files, absent = compare_files(recorded.get("files", {}))
    moved = elsewhere(recorded, include_paths)
    now: dict[str, Any] | None = None
    if files or moved:
        try:
            now = read(include_paths or searched_in(run.path))
            lines += differing(recorded, {**now, "plugins": None})  # those are compared above
        except UserError as error:
            if files:
                lines.append(f"{_list(files)}: changed, and now: {error}")
            elif include_paths or not absent:
                raise
    if absent and now is None:
        unchecked.append(f"not checked, for it is not here: {_list(absent)}")
    compared = ["task and data"] if now else []
    if recorded.get("files") and not absent and now is None:
        compared.append("the files of task and data")
    compared += [f"plugins ({', '.join(given)})"] if given else []
    compared += alike
    unchecked += without
    if model := recorded.get("model"):
        other, unsure = model_changes(run.recipe, model, manifest["source"])
        lines, unchecked = lines + other, unchecked + unsure
        compared += [] if unsure else ["model"]
    if lines:
        raise changed(run.path, lines)
    return Held(now, compared, unchecked)


def _plugins(
    run: RunDirectory, recorded: dict[str, Any], plugins: Plugins
) -> tuple[list[str], list[str], list[str]]:
    """What of the recorded plugins' parts is another, which are loaded, and which are not."""
    before = recorded.get("plugins", {})
    names = [tuple(key.rsplit(" ", 1)) for key in before]
    used = [(kind, name) for kind, name in names if _matters(run, kind, name)]
    now = codes(plugins, used)
    missing = [f"{kind} {name}" for kind, name in used if plugins.code(kind, name) is None]
    unchecked = [f"not checked, for its plugin was not given (--plugin): {key}" for key in missing]
    return differing({"plugins": before}, {"plugins": now}), [*now], unchecked


def _matters(run: RunDirectory, kind: str, name: str) -> bool:
    """Whether anything that the run has or will have rests on a recorded part."""
    if kind == "selector":
        return name in run.recipe.selectors()
    if kind == "trainer":  # where the adapters were taken away, others may be trained
        return name in run.recipe.trainers() and has_adapters(run, name)
    return True


def _list(files: Sequence[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(str(Path(file)) for file in files[:_NAMED]) + more
