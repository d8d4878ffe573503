"""Run directories at a URL: worked on in a local folder, mirrored to any fsspec file system.

Journals are appended to and flushed, locks are held, adapters are loaded as folders: an object
store offers none of that. So a run at a URL has a working copy on a local disk. What a stage seals
is copied to the URL at its end, the manifest last, so that it never names what is not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gapft_harness.core.errors import GapftError, UserError, describe
from gapft_harness.core.files import is_full, replace_file, sha256
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.lock import RUN_LOCK, hold
from gapft_harness.run_directory.shards import of_merged_shard

#: Names the folder that holds working copies; default: the user's cache.
WORK_DIR = "GAPFT_WORK_DIR"

_SCHEME = "://"
_LAST = (layout.RECIPE, layout.MANIFEST)


def is_url(place: str) -> bool:
    """Whether a run directory is given as a URL, such as ``s3://bucket/run``."""
    return _SCHEME in place


@contextlib.contextmanager
def placed(place: str | Path, *, writes: bool = True) -> Iterator[tuple[Path, Mirror | None]]:
    """The folder to work in; for a URL a working copy that is brought up to date.

    Args:
        writes: whether anything is to be pushed; a URL that is only read need not be writable.

    Yields:
        The folder, and for a URL the mirror to push to.

    Raises:
        UserError: the place is empty, the URL cannot be written, or the working copy and it are
            different runs.
    """
    if not str(place):
        raise UserError("run directory '': expected a folder or a URL")
    if not is_url(str(place)):
        yield Path(place), None
        return
    mirror = Mirror(str(place), working_copy(str(place)))
    if writes:
        mirror.require_writable()
    existed = mirror.folder.exists()
    with hold(mirror.folder):
        mirror.pull()
    try:
        yield mirror.folder, mirror
    finally:
        if not existed:
            with contextlib.suppress(OSError):  # only if nothing came of it
                (mirror.folder / RUN_LOCK).unlink(missing_ok=True)
                mirror.folder.rmdir()


def working_copy(url: str) -> Path:
    """Where a URL's run is worked on: the same folder each time, on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    base = Path(os.environ.get(WORK_DIR) or Path(cache) / "gapft-harness" / "runs")
    name = url.rstrip("/").rpartition("/")[2] or "run"
    return base / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"


class Mirror:
    """A run at a URL and its working copy.

    Args:
        url: of any protocol that fsspec knows; its credentials are that protocol's own business.

    Raises:
        UserError: the protocol is unknown, or its package is not installed.
    """

    def __init__(self, url: str, folder: Path) -> None:
        import fsspec

        self.url = url.rstrip("/")
        self.folder = folder
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError, OSError) as error:
            raise UserError(f"run directory {url}: cannot be opened: {describe(error)}") from error

    def require_writable(self) -> None:
        """Writes a small file and takes it away again.

        Raises:
            UserError: that failed.
        """
        probe = f"{self._root}/.gapft-write-test"
        try:
            self._make_folder_of(probe)
            self._fs.pipe_file(probe, b"may this be written?\n")
            self._fs.rm_file(probe)
        except Exception as error:  # each protocol raises errors of its own
            raise UserError(
                f"run directory {self.url}: cannot be written: {describe(error)}; check the "
                "address and the credentials"
            ) from error

    def pull(self) -> None:
        """Brings the working copy up to the run at the URL, if that has got further.

        Raises:
            UserError: each has sealed files that the other lacks, or a file is damaged.
        """
        there, here = self._manifest_there(), self._manifest_here()
        if there is None or (here is not None and there.precedes(here)):
            return
        if here is not None and not here.precedes(there):
            raise self._differing(there, here)
        known = {} if here is None else here.files
        with self._failing("read"):
            for relative in known:
                if known[relative] != there.files.get(relative):
                    _remove(self.folder / relative)
            for relative, digest in there.files.items():
                if relative in there.needed and known.get(relative) != digest:
                    self._get(relative)
                    if sha256(self.folder / relative) != digest:
                        raise UserError(
                            f"{self.url}/{relative}: was changed after it was sealed (its hash "
                            "differs from manifest.json); restore it, or start a new run"
                        )
            for name in _LAST:
                self._get(name)

    def push(self) -> None:
        """Copies what is sealed here and not there, the report, and at last the manifest.

        Raises:
            UserError: another machine has sealed files there that are not here. Nothing is
                written.
            GapftError: the URL cannot be written. The working copy has everything.
        """
        there, here = self._manifest_there(), self._manifest_here()
        if here is None:
            return
        if there is not None and not there.precedes(here):
            raise self._differing(there, here)
        known = {} if there is None else there.files
        with self._failing("written"):
            for relative, digest in here.files.items():
                if relative in here.needed and known.get(relative) != digest:
                    self._put(relative)
            if (self.folder / layout.REPORT).is_dir():
                self._put(layout.REPORT)
            for name in _LAST:
                self._put(name)

    def _differing(self, there: _Sealed, here: _Sealed) -> UserError:
        names = sorted(
            name
            for name in {*here.files, *there.files}
            if here.files.get(name) != there.files.get(name)
        )
        return UserError(
            f"run directory {self.url}: differs from its working copy {self.folder} in "
            f"{', '.join(names[:3])}: another machine worked on it besides; remove the one that is "
            "not wanted, or move the working copy, which is a run directory as any other, to a "
            "place of its own"
        )

    def _manifest_here(self) -> _Sealed | None:
        path = self.folder / layout.MANIFEST
        return _sealed(path.read_bytes(), str(path)) if path.exists() else None

    def _manifest_there(self) -> _Sealed | None:
        path = f"{self._root}/{layout.MANIFEST}"
        with self._failing("read"):
            # Listings may be cached, by this process or by the store.
            self._fs.invalidate_cache()
            if not self._fs.exists(path):
                return None
            content: bytes = self._fs.cat_file(path)
        return _sealed(content, f"{self.url}/{layout.MANIFEST}")

    def _put(self, relative: str) -> None:
        """Copies a file, or a folder's files."""
        source = self.folder / relative
        files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
        for file in files:
            remote = f"{self._root}/{file.relative_to(self.folder).as_posix()}"
            self._make_folder_of(remote)
            self._fs.put_file(str(file), remote)

    def _make_folder_of(self, remote: str) -> None:
        if self._has_folders:
            self._fs.makedirs(remote.rpartition("/")[0], exist_ok=True)

    @functools.cached_property
    def _has_folders(self) -> bool:
        """Whether folders may be made there.

        A path without a slash before it names a bucket first. Making a folder in a bucket that is
        not there would make the bucket, of a name that may be a slip, in somebody's account.
        """
        bucket = self._root.partition("/")[0]
        return not bucket or bool(self._fs.exists(bucket))

    def _get(self, relative: str) -> None:
        """Copies a file, or a folder's files; each is whole or absent here."""
        remote = f"{self._root}/{relative}"
        for path in self._fs.find(remote) or [remote]:
            name = relative + path[path.rindex(remote) + len(remote) :]

            def fetch(beside: Path, path: str = path, name: str = name) -> None:
                try:
                    self._fs.get_file(path, str(beside))
                except FileNotFoundError as error:
                    raise UserError(
                        f"{self.url}/{name}: is missing there, and the run needs it; restore it, "
                        "or start a new run"
                    ) from error
                except OSError as error:
                    if is_full(error):  # of the disk here, which is the caller's to tell
                        raise
                    raise self._failure("read", error) from error

            replace_file(self.folder / name, fetch)

    @contextlib.contextmanager
    def _failing(self, verb: Literal["read", "written"]) -> Iterator[None]:
        try:
            yield
        except GapftError:
            raise
        except Exception as error:  # each protocol raises errors of its own
            raise self._failure(verb, error) from error

    def _failure(self, verb: Literal["read", "written"], error: Exception) -> GapftError:
        advice = {
            "read": "check the address, the credentials and the network, and try again",
            "written": f"the working copy {self.folder} has everything, and the same command goes "
            "on from there",
        }
        what = f"run directory {self.url}: cannot be {verb}: {describe(error)}"
        return GapftError(f"{what}; {advice[verb]}")


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What a manifest lists: hashes by relative name, and the names that are still read.

    Of a file that was made anew also the hashes it had before, oldest first.
    """

    files: dict[str, str]
    needed: frozenset[str]
    replaced: dict[str, list[str]]

    def precedes(self, other: _Sealed) -> bool:
        """Whether the other is this one, or got further from here."""
        return all(
            other._history(name)[: len(history)] == history
            for name in {*self.files, *self.replaced}
            for history in [self._history(name)]
        )

    def _history(self, name: str) -> list[str]:
        """The hashes of a file, each that was taken away followed by a mark."""
        gone = [step for digest in self.replaced.get(name, ()) for step in (digest, "taken away")]
        return [*gone, *([self.files[name]] if name in self.files else [])]


def _sealed(content: bytes, place: str) -> _Sealed:
    try:
        manifest: Any = json.loads(content)
        files: dict[str, str] = manifest["files"]
        needed = frozenset(n for n in files if not of_merged_shard(n, manifest))
        return _Sealed(files, needed, manifest.get("replaced", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{place}: cannot be read: {describe(error)}") from error


def _remove(path: Path) -> None:
    """A file or folder that was made anew elsewhere."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
