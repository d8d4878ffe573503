"""Record what the outcome of a command depends on, if nothing changed while it ran.

The record is described in ``unchanged.py``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.cli.options import Options
from gapft_harness.cli.unchanged import Asked, Look, TooMuchError, Watched
from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import SETTLED_NS
from gapft_harness.core.weights import weights_folder
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.recipe import Recipe, model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.integrity.rests_on import SECTION, hold, searched_in


@dataclass(frozen=True)
class Scope:
    """The inputs, runs and output folder of a command.

    Attributes:
        inputs: the paths that it reads, as far as they are known.
        runs: the runs that it computes, by path, each with its options.
        output: the folder that it writes.
    """

    inputs: Watched
    runs: Mapping[Path, Options]
    output: Path


class Outcome:
    """Watches what a command's outcome depends on, from its start to its end.

    Args:
        command: the command.
        find_scope: finds the command's scope from what is known when it is called.
    """

    def __init__(self, asked: Asked, find_scope: Callable[[], Scope]) -> None:
        self._asked, self._find_scope, self._began = asked, find_scope, time.time_ns()
        self._before: dict[str, Look | None] = {}
        with contextlib.suppress(
            GapftError, OSError, TooMuchError
        ):  # the command itself will report it
            self._before = find_scope().inputs.look()

    def keep(self, output: str) -> None:
        """Write the record if nothing changed while the command ran.

        Args:
            output: the text that the command printed at its end.
        """
        if not self._before:
            return
        try:
            scope = self._find_scope()
            own = str(scope.output)
            every = Watched(scope.inputs.files, {*scope.inputs.folders, own})
            looks = every.look()
            verified = {path for run, of in scope.runs.items() for path in _hold(run, of)}
        except (GapftError, OSError, TooMuchError):
            return
        for path, look in looks.items():
            if path == own or path.startswith(own + os.sep):
                continue
            if path in self._before:
                if self._before[path] != look:
                    return
            elif look is not None and path not in verified and not self._is_older(look):
                return
        self._asked.keep(every, looks, output)

    def _is_older(self, look: Look) -> bool:
        return look[-1] < self._began - SETTLED_NS


def inputs_of_run(choice: Options, recipe: Recipe, place: Path) -> Watched:
    """Return the paths that a run depends on, without its own files.

    Args:
        choice: the command's options.
        recipe: the recipe, with the options' settings.
        place: the run's folder, which need not exist.
    """
    watched = Watched()
    plugins = load_plugins(choice.plugin_files)
    if choice.recipe is not None:
        watched.files |= {choice.recipe, str(find_recipe(choice.recipe))}
        watched.files |= {os.path.join(choice.recipe, name) for name in _OF_RUN}
    watched.files |= set(choice.plugin_files)
    for entry in plugins.all():
        if entry.code and entry.home:
            (watched.folders if os.path.isdir(entry.home) else watched.files).add(entry.home)
            watched.files.add(os.path.dirname(os.path.abspath(entry.home)))
    watched.folders |= {*choice.include_paths, *searched_in(place)}
    _watch_leaves(recipe.model_dump(mode="json"), watched)
    _watch_leaves(choice.overrides, watched)
    try:
        folder = weights_folder(model_args(recipe))
    except (OSError, ValueError):  # neither a folder nor in the hub's cache
        folder = None
    if folder is not None:
        watched.folders.add(str(folder))
        if folder.parent.name == "snapshots":
            watched.folders.add(str(folder.parents[1] / "refs"))
    if (place / layout.MANIFEST).is_file():
        manifest = RunDirectory.open(place).manifest()
        files = _recorded_files(manifest)
        watched.files |= {*files, *map(os.path.dirname, files)}
        _watch_leaves(manifest.get("task", {}), watched)
        _watch_leaves(manifest.get("audits", {}), watched)
    return watched


#: Files by which a run's folder is recognized.
_OF_RUN = (layout.RECIPE, layout.MANIFEST)

#: Files of a task and its data up to this size are compared by their hashes.
_HASHED = 64 << 20


def _hold(place: Path, choice: Options) -> Iterator[str]:
    """Compare a finished run's inputs with its record, and its files with their hashes.

    Args:
        place: the run's folder.
        choice: the command's options.

    Yields:
        The paths of inputs that were compared by content.

    Raises:
        GapftError: something changed or could not be compared.
    """
    run = RunDirectory.open(place)
    manifest = run.manifest()

    def refuse(folders: object) -> dict[str, Any]:
        raise GapftError(f"{place}: cannot compare inputs without reading task and data again")

    plugins = load_plugins(choice.plugin_files)
    held = hold(run, manifest, plugins, choice.include_paths, refuse)
    if held.unchecked:
        raise GapftError(f"{place}: {held.unchecked[0]}")
    for name in manifest["files"]:
        run.sealed(name)
    files = _recorded_files(manifest)
    yield from (path for path in files if os.path.getsize(path) <= _HASHED)
    yield from map(os.path.dirname, files)


def _recorded_files(manifest: Manifest) -> list[str]:
    return list(manifest.get(SECTION, {}).get("files", {}))


def _watch_leaves(content: Any, watched: Watched) -> None:
    """Watch each text in settings as a file, or as a folder if it is the path of one."""
    if isinstance(content, Mapping):
        for value in content.values():
            _watch_leaves(value, watched)
    elif isinstance(content, list | tuple):
        for value in content:
            _watch_leaves(value, watched)
    elif isinstance(content, str) and content:
        text = content.partition("=")[2] or content  # the value of an option KEY=VALUE
        if os.sep in text and os.path.isdir(text):
            watched.folders.add(text)
        else:
            watched.files.add(text)
