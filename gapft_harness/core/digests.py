"""Hashes of models' weights and other large inputs, cached until a file may have changed.

Outputs of runs are hashed whenever they are read, so they have no cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from pathlib import Path

from gapft_harness.core.files import PARTIAL, sha256

#: Smaller files are always hashed.
_ALWAYS_HASHED_BYTES = 1 << 20

#: The hash of a file that was changed less than this before hashing is not cached: a second change
#: in the same tick of the file system's clock would leave its times unchanged.
RECENT_CHANGE_NS = 2 * 10**9


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; all processes of a machine share the cache.

    The hash is not cached if the file changed so recently that the file system's clock could not
    show another change. Processes that need it at the same time each compute it.
    """
    path = file.resolve()
    if path.stat().st_size < _ALWAYS_HASHED_BYTES:
        return sha256(path)
    stat = _read_stat(path)
    entry = _read_cache().get(str(path))
    if entry and entry[:-1] == stat:
        return str(entry[-1])
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
