"""Whether anything changed since a command finished, told by a record of all it depended on.

A command that went to its end may leave a record in the store: its options, the environment, and
of every file that its outcome depends on the inode, the size, and the times of its last write and
its last change. The system sets the latter, and no program can set it back. The same command then
prints its last lines again if all of it is as it was. Whatever differs, is missing, or is not
understood leads the ordinary way. What was changed less long before the record than the file
system's clock can tell is compared by its hash.

A write through a shared memory map that stays open is not seen for sure (``core.files``).
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

#: Raised when a record would be misread.
_FORMAT = 1

#: Not part of what a command depends on: what Python compiled, and the locks of a run.
_IGNORED = ("__pycache__", RUN_LOCK, JOBS_LOCK)

#: Variables that a shell sets for itself.
_OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")

#: The most files that are watched, and the most bytes of them that are hashed.
_MOST_FILES, _MOST_BYTES = 20_000, 64 << 20

#: What shows a change of a file: its mode, device, inode, size, last write, last change.
Look = list[int]


class TooMuchError(Exception):
    """More files than are worth comparing."""


@dataclass
class Watched:
    """Paths that an outcome depends on, whether they exist or not.

    Attributes:
        files: the files, and folders whose direct entries count.
        folders: folders with all that is in them.
    """

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def look(self) -> dict[str, Look | None]:
        """Look at all of them, and at Python's packages; None where there is nothing.

        Raises:
            TooMuchError: they are too many.
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
    """A command, as far as its options go.

    Attributes:
        command: its name.
        options: JSON values.
        place: the folder that it works in, or one beside it: its store keeps the record.
    """

    command: str
    options: Mapping[str, Any]
    place: Path

    @property
    def record(self) -> Path:
        """The file of its record."""
        given = os.environ.get(PLACE)
        store = Path(given) if given else self.place.resolve().parent / ".store"
        name = _digest([self.command, self.options, os.getcwd()])
        return store / "finished" / f"{name}.json"

    def recall(self) -> str | None:
        """Return what the command printed when it finished, if nothing changed since."""
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
        """Write the record, unless a file changed too recently to be sure of it.

        Args:
            watched: what the outcome depends on.
            looks: how all of it looked before the outcome was found to be of it.
            output: what the command printed.
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
        """All but files that the outcome or its last lines may depend on."""
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
    """Copy what is printed while the block runs.

    Yields:
        The pieces, as they are printed.
    """
    copy = _Copy(sys.stdout)
    with contextlib.redirect_stdout(copy):
        yield copy.pieces


class _Copy:
    """A stream that keeps what goes through it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        """Write to both."""
        written = self._stream.write(text)
        self.pieces.append(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def run_asked(command: str, options: Any, recipe: str | None, run_dir: Path | None) -> Asked:
    """Describe a command that works in a run's or a study's folder.

    Args:
        options: a dataclass of JSON values.
        recipe: a recipe, or the folder of a run.
        run_dir: the folder, if it was given.
    """
    place = run_dir
    if place is None:
        given = recipe is not None and os.path.isfile(os.path.join(recipe, "manifest.json"))
        place = Path(recipe or "") if given else Path("runs", "any")
    return Asked(command, {**asdict(options), "run_dir": str(run_dir)}, place)


def _walk(folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders' files and folders, links followed once."""
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
