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
from gapft_harness.core.files import PARTIAL, SETTLED_NS, sha256
from gapft_harness.run_directory.lock import JOBS_LOCK, RUN_LOCK
from gapft_harness.store.store import PLACE
from gapft_harness.version import __version__

#: Increased when the meaning of a record changes, so that older records are ignored.
_FORMAT = 1

#: File names that no outcome depends on: compiled Python, and the locks of a run.
_IGNORED = ("__pycache__", RUN_LOCK, JOBS_LOCK)

#: Environment variables that a shell sets for itself.
_OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")

#: The most files that are watched, and the most bytes that are hashed.
_MOST_FILES, _MOST_BYTES = 20_000, 64 << 20

#: The status that shows a change of a file: mode, device, inode, size, last write and last status
#: change in nanoseconds.
Look = list[int]


class TooMuchError(Exception):
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

    def look(self) -> dict[str, Look | None]:
        """Read the status of all paths, and of Python's packages; None for a missing path.

        Raises:
            TooManyFiles: the folders contain too many files.
        """
        looks: dict[str, Look | None] = {}
        for path in _walk({*self.folders, os.path.dirname(gapft_harness.__file__)}):
            looks[path] = _look(path)
            if len(looks) > _MOST_FILES:
                raise TooMuchError
        looks |= {path: _look(path) for path in (*self.files, *_packages())}
        return looks


@dataclass(frozen=True)
class Asked:
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
    def record(self) -> Path:
        """The path of its record."""
        given = os.environ.get(PLACE)
        store = Path(given) if given else self.place.resolve().parent / ".store"
        name = _digest([self.command, self.options, os.getcwd()])
        return store / "finished" / f"{name}.json"

    def recall(self) -> str | None:
        """Return the stored output of the command if nothing changed since; else None."""
        try:
            record = json.loads(self.record.read_bytes())
            watched = Watched(set(record["files"]), set(record["folders"]))
            if record["circumstances"] != self._circumstances():
                return None
            if record["looks"] != watched.look():
                return None
            if any(sha256(Path(path)) != digest for path, digest in record["hashed"].items()):
                return None
            return str(record["output"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, TooMuchError):
            return None

    def keep(self, watched: Watched, looks: Mapping[str, Look | None], output: str) -> None:
        """Write the record, unless too much changed too recently to be sure of it.

        Args:
            watched: the paths that the outcome depends on.
            status_by_path: the status of each path, read before the outcome was checked.
            output: the text that the command printed.
        """
        now = time.time_ns()
        recent = [path for path, look in looks.items() if look and look[-1] >= now - SETTLED_NS]
        with contextlib.suppress(OSError, TooMuchError):
            if any(not os.path.isfile(path) for path in recent):
                return
            if sum(os.path.getsize(path) for path in recent) > _MOST_BYTES:
                return
            record = {
                "circumstances": self._circumstances(),
                "files": sorted(watched.files),
                "folders": sorted(watched.folders),
                "looks": looks,
                "hashed": {path: sha256(Path(path)) for path in recent},
                "output": output,
            }
            if watched.look() != looks:
                return
            path = self.record
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
            beside.write_text(json.dumps(record), encoding="utf-8")
            beside.replace(path)

    def _circumstances(self) -> dict[str, Any]:
        """Collect everything except files that the outcome or its last lines may depend on."""
        environment = {key: of for key, of in os.environ.items() if key not in _OF_SHELL}
        return {
            "format": _FORMAT,
            "version": __version__,
            "asked": [self.command, _digest(self.options), os.getcwd()],
            "environment": _digest(environment),
            "python": [sys.executable, sys.version, *sys.path],
            "machine": [*os.uname()],
            "terminal": [sys.stdout.isatty(), *shutil.get_terminal_size(), sys.stdout.encoding],
        }


@contextlib.contextmanager
def copied_output() -> Iterator[list[str]]:
    """Copy the text that the block prints to standard output.

    Yields:
        The list to which each printed text is added.
    """
    copy = _Copy(sys.stdout)
    with contextlib.redirect_stdout(copy):
        yield copy.pieces


class _Copy:
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


def run_asked(command: str, options: Any, recipe: str | None, run_dir: Path | None) -> Asked:
    """Describe a command that writes the folder of a run or a study.

    Args:
        command: its name.
        options: its options, a dataclass of JSON values.
        recipe: a recipe, or the folder of a run.
        run_dir: the option ``--run-dir``.
    """
    place = run_dir
    if place is None:
        given = recipe is not None and os.path.isfile(os.path.join(recipe, "manifest.json"))
        place = Path(recipe or "") if given else Path("runs", "any")
    return Asked(command, {**asdict(options), "run_dir": str(run_dir)}, place)


def _walk(folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths in folders; follow links, but enter each folder once."""
    seen = set()
    left = sorted(folders)
    while left:
        folder = left.pop()
        try:
            about = os.stat(folder)
            entries = list(os.scandir(folder))
        except OSError:
            yield folder
            continue
        if (about.st_dev, about.st_ino) in seen:
            yield folder
            continue
        seen.add((about.st_dev, about.st_ino))
        for entry in entries:
            if entry.name in _IGNORED:
                continue
            if entry.is_dir():
                left.append(entry.path)
            else:
                yield entry.path


def _packages() -> Iterator[str]:
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


def _look(path: str) -> Look | None:
    try:
        of = os.stat(path)
    except (OSError, ValueError):
        return None
    return [of.st_mode, of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
