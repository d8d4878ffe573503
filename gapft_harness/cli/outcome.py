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
from gapft_harness.cli.unchanged import FileStatus, RecordedCommand, TooManyFiles, Watched
from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import RECENT_CHANGE_NS
from gapft_harness.core.weights import find_weights_folder
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.integrity.inputs import (
    SECTION,
    compare_inputs,
    list_recorded_include_paths,
)


@dataclass(frozen=True)
class CommandScope:
    """The inputs, runs and output folder of a command.

    Attributes:
        inputs: the paths that it reads, as far as they are known.
        runs: the runs that it computes, by path, each with its options.
        output: the folder that it writes.
    """

    inputs: Watched
    runs: Mapping[Path, Options]
    output: Path


class OutcomeRecorder:
    """Watches what a command's outcome depends on, from its start to its end.

    Args:
        command: the command.
        find_scope: finds the command's scope from what is known when it is called.
    """

    def __init__(self, command: RecordedCommand, find_scope: Callable[[], CommandScope]) -> None:
        self._command, self._find_scope, self._began = command, find_scope, time.time_ns()
        self._before: dict[str, FileStatus | None] = {}
        with contextlib.suppress(
            GapftError, OSError, TooManyFiles
        ):  # the command itself will report it
            self._before = find_scope().inputs.read_status()

    def write_record(self, output: str) -> None:
        """Write the record if nothing changed while the command ran.

        Args:
            output: the text that the command printed at its end.
        """
        if not self._before:
            return
        try:
            scope = self._find_scope()
            output_path = str(scope.output)
            watched = Watched(scope.inputs.files, {*scope.inputs.folders, output_path})
            status_by_path = watched.read_status()
            verified_paths = {
                path for run, options in scope.runs.items() for path in _check_run(run, options)
            }
        except (GapftError, OSError, TooManyFiles):
            return
        for path, status in status_by_path.items():
            if path == output_path or path.startswith(output_path + os.sep):
                continue
            if path in self._before:
                if self._before[path] != status:
                    return
            elif status is not None and path not in verified_paths and not self._is_older(status):
                return
        self._command.write_record(watched, status_by_path, output)

    def _is_older(self, status: FileStatus) -> bool:
        return status[-1] < self._began - RECENT_CHANGE_NS


def find_run_inputs(choice: Options, recipe: Recipe, place: Path) -> Watched:
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
        watched.files |= {os.path.join(choice.recipe, name) for name in _RUN_FILES}
    watched.files |= set(choice.plugin_files)
    for entry in plugins.all():
        if entry.code_hash and entry.source_root:
            (watched.folders if os.path.isdir(entry.source_root) else watched.files).add(
                entry.source_root
            )
            watched.files.add(os.path.dirname(os.path.abspath(entry.source_root)))
    watched.folders |= {*choice.include_paths, *list_recorded_include_paths(place)}
    _watch_leaves(recipe.model_dump(mode="json"), watched)
    _watch_leaves(choice.overrides, watched)
    try:
        folder = find_weights_folder(resolve_model_args(recipe))
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
    return watched


#: Files by which a run's folder is recognized.
_RUN_FILES = (layout.RECIPE, layout.MANIFEST)

#: Files of a task and its data up to this size are compared by their hashes.
_MAX_HASHED_BYTES = 64 << 20


def _check_run(place: Path, choice: Options) -> Iterator[str]:
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

    def refuse_reading(folders: object) -> dict[str, Any]:
        raise GapftError(f"{place}: cannot compare inputs without reading task and data again")

    plugins = load_plugins(choice.plugin_files)
    comparison = compare_inputs(run, manifest, plugins, choice.include_paths, refuse_reading)
    if comparison.unchecked:
        raise GapftError(f"{place}: {comparison.unchecked[0]}")
    for name in manifest["files"]:
        run.sealed(name)
    files = _recorded_files(manifest)
    yield from (path for path in files if os.path.getsize(path) <= _MAX_HASHED_BYTES)
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
