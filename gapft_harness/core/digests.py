"""Hashes of models' weights and other large inputs, cached until a file may have changed.

Outputs of runs are hashed whenever they are read, so they have no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.core.files import PARTIAL, sha256

#: Smaller files are always hashed.
_ALWAYS_HASHED_BYTES = 1 << 20

#: The hash of a file that was changed less than this before hashing is not cached: a second change
#: in the same tick of the file system's clock would leave its times unchanged.
RECENT_CHANGE_NS = 2 * 10**9

#: Seconds that a command waits for another command that hashes the same file.
_LOCK_TIMEOUT_S = 1800


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; all processes of a machine share the cache.

    The hash is not cached if the file changed so recently that the file system's clock could not
    show another change.
    """
    path = file.resolve()
    if path.stat().st_size < _ALWAYS_HASHED_BYTES:
        return sha256(path)
    if digest := _look_up(path):
        return digest
    with _hold_file_lock(path):
        return _look_up(path) or _hash_and_store(path)


def _look_up(path: Path) -> str | None:
    entry = _read_cache().get(str(path))
    return str(entry[-1]) if entry and entry[:-1] == _read_stat(path) else None


def _hash_and_store(path: Path) -> str:
    stat = _read_stat(path)
    start = time.time_ns()
    digest = sha256(path)
    if path.stat().st_ctime_ns < start - RECENT_CHANGE_NS and stat == _read_stat(path):
        cache = _find_cache()
        content = json.dumps({**_read_cache(), str(path): [*stat, digest]}, indent=1)
        temporary = cache.with_name(f".{cache.name}.{uuid.uuid4().hex}{PARTIAL}")
        with contextlib.suppress(OSError):  # without a cache it is hashed again next time
            cache.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(cache)
    return digest


@contextlib.contextmanager
def _hold_file_lock(path: Path) -> Iterator[None]:
    """Keep other processes from hashing the same file, if the file system has locks."""
    from filelock import FileLock, Timeout

    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    cache = _find_cache()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError, Timeout):
            cache.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(cache.with_name(f".{name}.lock"))
            stack.enter_context(lock.acquire(timeout=_LOCK_TIMEOUT_S))
        yield


def _find_cache() -> Path:
    """Return the cache's file in the user's cache folder, by the XDG specification."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "gapft-harness/digests.json"


def _read_cache() -> dict[str, list[object]]:
    try:
        cache = json.loads(_find_cache().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cache if isinstance(cache, dict) else {}


def _read_stat(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
