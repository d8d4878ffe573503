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

from gapft_harness.core.files import PARTIAL, RECENT_CHANGE_NS, sha256
from gapft_harness.core.weights import hash_weights

#: Smaller files are always hashed.
_ALWAYS_HASHED_BYTES = 1 << 20

#: Seconds that a command waits for another command that hashes the same file.
_LOCK_TIMEOUT_S = 1800


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

    def hash_file(self, file: Path) -> str:
        """Return the SHA-256 of a file, in hexadecimal.

        The hash is not cached if the file changed so recently that the file system's clock could
        not show another change.
        """
        path = file.resolve()
        if path.stat().st_size < _ALWAYS_HASHED_BYTES:
            return sha256(path)
        if digest := self._look_up(path):
            return digest
        with self._hold_file_lock(path):
            return self._look_up(path) or self._hash_and_store(path)

    def hash_weights(self, folder: Path) -> str:
        """Hash a model's folder as ``core.weights.hash_weights``, large files at most once."""
        return hash_weights(folder, self.hash_file)

    def _look_up(self, path: Path) -> str | None:
        entry = self._read_cache().get(str(path))
        return str(entry[-1]) if entry and entry[:-1] == _read_stat(path) else None

    def _hash_and_store(self, path: Path) -> str:
        stat, start = _read_stat(path), time.time_ns()
        digest = sha256(path)
        if path.stat().st_ctime_ns < start - RECENT_CHANGE_NS and stat == _read_stat(path):
            content = json.dumps({**self._read_cache(), str(path): [*stat, digest]}, indent=1)
            temporary = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}{PARTIAL}")
            with contextlib.suppress(OSError):  # without a cache it is hashed again next time
                self._path.parent.mkdir(parents=True, exist_ok=True)
                temporary.write_text(content, encoding="utf-8")
                temporary.replace(self._path)
        return digest

    @contextlib.contextmanager
    def _hold_file_lock(self, path: Path) -> Iterator[None]:
        """Keep other processes from hashing the same file, if the file system has locks."""
        from filelock import FileLock, Timeout

        name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, NotImplementedError, Timeout):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(self._path.with_name(f".{name}.lock"))
                stack.enter_context(lock.acquire(timeout=_LOCK_TIMEOUT_S))
            yield

    def _read_cache(self) -> dict[str, list[object]]:
        try:
            cache = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return cache if isinstance(cache, dict) else {}


def _read_stat(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
