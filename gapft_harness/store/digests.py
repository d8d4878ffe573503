"""Hashes of large files, cached until a file may have changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.core.files import PARTIAL, SETTLED_NS, sha256
from gapft_harness.core.weights import hash_weights

#: Smaller files are always hashed.
_SMALL = 1 << 20

#: Seconds that a command waits for another command that hashes the same file.
_PATIENCE_S = 1800


def cache_folder() -> Path:
    """Return the user's cache folder, by the XDG specification."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gapft-harness"


class Digests:
    """Cache of file hashes by path and file status.

    All processes on a machine share one cache, for keys, samplers and training.

    Args:
        root: the folder of the cache; default: ``cache_folder()``.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._path = (root or cache_folder()) / "digests.json"

    def of(self, file: Path) -> str:
        """Return the SHA-256 of a file, in hexadecimal.

        The hash is not cached if the file changed so recently that the file system's clock could
        not show another change.
        """
        place = file.resolve()
        if place.stat().st_size < _SMALL:
            return sha256(place)
        if known := self._recall(place):
            return known
        with self._alone(place):
            return self._recall(place) or self._hash(place)

    def of_weights(self, folder: Path) -> str:
        """Hash a model's folder as ``core.weights.hash_weights``, large files at most once."""
        return hash_weights(folder, self.of)

    def _recall(self, place: Path) -> str | None:
        before = self._read().get(str(place))
        return str(before[-1]) if before and before[:-1] == _look(place) else None

    def _hash(self, place: Path) -> str:
        look, start = _look(place), time.time_ns()
        found = sha256(place)
        if place.stat().st_ctime_ns < start - SETTLED_NS and look == _look(place):
            content = json.dumps({**self._read(), str(place): [*look, found]}, indent=1)
            beside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}{PARTIAL}")
            with contextlib.suppress(OSError):  # without a cache it is hashed again next time
                self._path.parent.mkdir(parents=True, exist_ok=True)
                beside.write_text(content, encoding="utf-8")
                beside.replace(self._path)
        return found

    @contextlib.contextmanager
    def _alone(self, place: Path) -> Iterator[None]:
        """Keep other processes from hashing the same file, if the file system has locks."""
        from filelock import FileLock, Timeout

        name = hashlib.sha256(str(place).encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, NotImplementedError, Timeout):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(self._path.with_name(f".{name}.lock"))
                stack.enter_context(lock.acquire(timeout=_PATIENCE_S))
            yield

    def _read(self) -> dict[str, list[object]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _look(place: Path) -> list[int]:
    of = place.stat()
    return [of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns]
