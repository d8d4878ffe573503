"""Detect that nothing changed since a command finished, so that its output can be printed again.

A command that finished may write a record to the store: its options, the environment, and for every
file that its outcome depends on, the inode, the size, and the times of the last write and of the
last status change. The operating system sets the last one, and a program cannot set it back. If all
of these are equal, the same command prints its last lines again. If something differs, is missing,
or cannot be read, the command runs as usual. Files that changed so shortly before the record that
the resolution of the file system's clock cannot show a later change are compared by hash.

A write through a shared memory map that stays open may not be detected (``core.files``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import gapft_harness
from gapft_harness.core.files import PARTIAL, RECENT_CHANGE_NS, sha256
from gapft_harness.run_directory.lock import JOBS_LOCK, RUN_LOCK
from gapft_harness.store.store import STORE_VARIABLE
from gapft_harness.version import __version__

#: Increased when the meaning of a record changes, so that older records are ignored.
_RECORD_FORMAT = 1

#: File names that no outcome depends on: compiled Python, and the locks of a run.
_IGNORED_NAMES = ("__pycache__", RUN_LOCK, JOBS_LOCK)

#: Environment variables that a shell sets for itself.
_SHELL_VARIABLES = ("_", "SHLVL", "PWD", "OLDPWD")

#: The most files that are watched, and the most bytes that are hashed.
_MAX_FILES, _MAX_HASHED_BYTES = 20_000, 64 << 20

#: The status that shows a change of a file: mode, device, inode, size, last write and last status
#: change in nanoseconds.
FileStatus = list[int]


class TooManyFiles(Exception):
    """There are too many files to compare."""


@dataclass
class Watched:
    """Paths that an outcome depends on; they need not exist.

    Attributes:
        files: files, and folders whose list of entries matters.
        folders: folders whose whole content matters.
    """

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def read_status(self) -> dict[str, FileStatus | None]:
        """Read the status of all paths, and of Python's packages; None for a missing path.

        Raises:
            TooManyFiles: the folders contain too many files.
        """
        status_by_path: dict[str, FileStatus | None] = {}
        for path in _walk_folders({*self.folders, os.path.dirname(gapft_harness.__file__)}):
            status_by_path[path] = _read_status(path)
            if len(status_by_path) > _MAX_FILES:
                raise TooManyFiles
        status_by_path |= {
            path: _read_status(path) for path in (*self.files, *_list_package_paths())
        }
        return status_by_path


@dataclass(frozen=True)
class RecordedCommand:
    """A command with its options, whose outcome can be recorded.

    Attributes:
        command: its name.
        options: its options, JSON values.
        place: the folder that it writes, or one beside it, which determines the store.
    """

    command: str
    options: Mapping[str, Any]
    place: Path

    @property
    def record_path(self) -> Path:
        """The path of its record."""
        store_folder = os.environ.get(STORE_VARIABLE)
        store = Path(store_folder) if store_folder else self.place.resolve().parent / ".store"
        name = _hash_json([self.command, self.options, os.getcwd()])
        return store / "finished" / f"{name}.json"

    def recall_output(self) -> str | None:
        """Return the stored output of the command if nothing changed since; else None."""
        try:
            record = json.loads(self.record_path.read_bytes())
            watched = Watched(set(record["files"]), set(record["folders"]))
            if record["circumstances"] != self._collect_environment():
                return None
            if record["looks"] != watched.read_status():
                return None
            if any(sha256(Path(path)) != digest for path, digest in record["hashed"].items()):
                return None
            return str(record["output"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, TooManyFiles):
            return None

    def write_record(
        self, watched: Watched, status_by_path: Mapping[str, FileStatus | None], output: str
    ) -> None:
        """Write the record, unless too much changed too recently to be sure of it.

        Args:
            watched: the paths that the outcome depends on.
            status_by_path: the status of each path, read before the outcome was checked.
            output: the text that the command printed.
        """
        timestamp = time.time_ns()
        recent_paths = [
            path
            for path, look in status_by_path.items()
            if look and look[-1] >= timestamp - RECENT_CHANGE_NS
        ]
        with contextlib.suppress(OSError, TooManyFiles):
            if any(not os.path.isfile(path) for path in recent_paths):
                return
            if sum(os.path.getsize(path) for path in recent_paths) > _MAX_HASHED_BYTES:
                return
            record = {
                "circumstances": self._collect_environment(),
                "files": sorted(watched.files),
                "folders": sorted(watched.folders),
                "looks": status_by_path,
                "hashed": {path: sha256(Path(path)) for path in recent_paths},
                "output": output,
            }
            if watched.read_status() != status_by_path:
                return
            path = self.record_path
            path.parent.mkdir(parents=True, exist_ok=True)
            partial_path = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
            partial_path.write_text(json.dumps(record), encoding="utf-8")
            partial_path.replace(path)

    def _collect_environment(self) -> dict[str, Any]:
        """Collect everything except files that the outcome or its last lines may depend on."""
        environment = {
            key: value for key, value in os.environ.items() if key not in _SHELL_VARIABLES
        }
        return {
            "format": _RECORD_FORMAT,
            "version": __version__,
            "asked": [self.command, _hash_json(self.options), os.getcwd()],
            "environment": _hash_json(environment),
            "python": [sys.executable, sys.version, *sys.path],
            "machine": [*os.uname()],
            "terminal": [sys.stdout.isatty(), *shutil.get_terminal_size(), sys.stdout.encoding],
        }


@contextlib.contextmanager
def copy_output() -> Iterator[list[str]]:
    """Copy the text that the block prints to standard output.

    Yields:
        The list to which each printed text is added.
    """
    copy = _CopyingStream(sys.stdout)
    with contextlib.redirect_stdout(copy):
        yield copy.pieces


class _CopyingStream:
    """A stream that writes to another one and keeps a copy."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        """Write a text to the stream and keep it."""
        written = self._stream.write(text)
        self.pieces.append(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def describe_run_command(
    command: str, options: Any, recipe: str | None, run_dir: Path | None
) -> RecordedCommand:
    """Describe a command that writes the folder of a run or a study.

    Args:
        command: its name.
        options: its options, a dataclass of JSON values.
        recipe: a recipe, or the folder of a run.
        run_dir: the option ``--run-dir``.
    """
    place = run_dir
    if place is None:
        is_run_folder = recipe is not None and os.path.isfile(os.path.join(recipe, "manifest.json"))
        place = Path(recipe or "") if is_run_folder else Path("runs", "any")
    return RecordedCommand(command, {**asdict(options), "run_dir": str(run_dir)}, place)


def _walk_folders(folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths in folders; follow links, but enter each folder once."""
    seen_inodes = set()
    pending_folders = sorted(folders)
    while pending_folders:
        folder = pending_folders.pop()
        try:
            status = os.stat(folder)
            entries = list(os.scandir(folder))
        except OSError:
            yield folder
            continue
        if (status.st_dev, status.st_ino) in seen_inodes:
            yield folder
            continue
        seen_inodes.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name in _IGNORED_NAMES:
                continue
            if entry.is_dir():
                pending_folders.append(entry.path)
            else:
                yield entry.path


def _list_package_paths() -> Iterator[str]:
    """Yield the paths that change when a package or a plugin is installed or removed."""
    for folder in sys.path:
        yield folder or "."
        try:
            entries = list(os.scandir(folder or "."))
        except OSError:
            continue
        for entry in entries:
            if entry.name.endswith((".pth", ".egg-link")):
                yield entry.path
            elif entry.name.endswith((".dist-info", ".egg-info")):
                yield os.path.join(entry.path, "entry_points.txt")
                yield os.path.join(entry.path, "METADATA")


def _read_status(path: str) -> FileStatus | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return [
        status.st_mode,
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def _hash_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
