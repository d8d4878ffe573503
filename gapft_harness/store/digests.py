"""Hashes of large files, read again only if the file may have changed."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from pathlib import Path

from gapft_harness.core.files import PARTIAL, SETTLED_NS, sha256

#: Files below this are always hashed.
_SMALL = 1 << 20


class Digests:
    """Remembers the hashes of files in a store's folder, by path and what shows a change.

    Args:
        root: the store's folder.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / "digests.json"

    def of(self, file: Path) -> str:
        """The SHA-256 of a file, in hexadecimal.

        A file that was changed less long ago than the file system's clock can tell is not
        remembered.
        """
        place, start = file.resolve(), time.time_ns()
        state = place.stat()
        if state.st_size < _SMALL:
            return sha256(place)
        look = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        known = self._read()
        before = known.get(str(place))
        if before is not None and before[:-1] == look:
            return str(before[-1])
        found = sha256(place)
        if state.st_ctime_ns < start - SETTLED_NS:
            content = json.dumps({**self._read(), str(place): [*look, found]}, indent=1)
            beside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}{PARTIAL}")
            with contextlib.suppress(OSError):  # then it is hashed again next time
                self._path.parent.mkdir(parents=True, exist_ok=True)
                beside.write_text(content, encoding="utf-8")
                beside.replace(self._path)
        return found

    def _read(self) -> dict[str, list[object]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
