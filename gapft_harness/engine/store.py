"""The store: outputs of steps under their keys, in a folder that several runs share.

``FUNCTION/KEY/`` has the output and ``made_from.json``, with the content of the key, the facts and
the output's hash; ``FUNCTION/KEY/KEY/`` has those of a part. The folder is written under another
name and renamed: it is complete or absent, and the first commit stays. Whoever makes an output
holds a lock, which ends with its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import (
    PARTIAL,
    is_disk_full,
    not_writable_error,
    sha256,
    sync_folder,
    sync_tree,
)
from gapft_harness.core.identities import content_hash
from gapft_harness.engine.outputs import Facts, Json, Output
from gapft_harness.engine.step import Part, Step

if TYPE_CHECKING:
    from filelock import BaseFileLock

T = TypeVar("T")

#: The environment variable that names the store's folder.
STORE_VARIABLE: Final = "GAPFT_STORE"

MADE_FROM, OUTPUT = "made_from.json", "output"


def open_store(run_path: Path) -> Store:
    """Open the store of a run: the folder ``GAPFT_STORE``, or ``.store`` beside the run directory.

    Raises:
        UserError: ``GAPFT_STORE`` is inside the run directory.
    """
    run = run_path.resolve()
    variable = os.environ.get(STORE_VARIABLE)
    root = Path(variable).resolve() if variable else run.parent / ".store"
    if root == run or run in root.parents:
        raise UserError(
            f"{STORE_VARIABLE}={variable}: is inside the run directory {run_path}; "
            "set a folder outside it, which several runs can share"
        )
    return Store(root)


class Store:
    """The outputs of steps below one folder.

    Args:
        root: the folder; it is created when something is committed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def has(self, place: str) -> bool:
        """Return whether a complete output is there, without checking its content."""
        folder = self.root / place
        return (folder / MADE_FROM).is_file() and any(folder.glob(f"{OUTPUT}*"))

    def find(self, step: Step | Part) -> Output | None:
        """Return the output of a step, or a part, after checking its content; None without one.

        Raises:
            UserError: it was changed after it was stored.
            NotKnownYet: an input of the step does not exist yet.
        """
        return self.find_place(step.place)

    def find_place(self, place: str) -> Output | None:
        """Return the output of a place (``FUNCTION/KEY``, or that of a part); see ``find``."""
        folder = self.root / place
        if not self.has(place):
            return None
        record = read_json(folder / MADE_FROM)
        path = next(folder.glob(f"{OUTPUT}*"))
        if content_hash(record.get("key")) != folder.name:
            raise _damaged_error(folder, f"the key in its {MADE_FROM}")
        facts = record.get("facts")
        if content_hash([facts, record.get("digest")]) != record.get("sha256"):
            raise _damaged_error(folder, f"the facts in its {MADE_FROM}")
        if sha256(path) != record["digest"]:
            raise _damaged_error(folder, path.name)
        return Output(path, record["facts"])

    @contextlib.contextmanager
    def claim(self, place: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the right to make an output while the block runs.

        Args:
            place: ``FUNCTION/KEY``.
            wait: whether to wait for whoever makes it now; if not, the block runs without it.

        Yields:
            Whether it is held.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        from filelock import FileLock, Timeout

        path = self.root / place
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        new_folders = [folder for folder in (path.parent, self.root) if not folder.exists()]
        with contextlib.ExitStack() as stack:
            stack.callback(_remove_empty, new_folders)  # after a mistake, nothing is left
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=-1 if wait else 0)
                stack.callback(_release, lock)
            except Timeout:
                pass
            except OSError as error:
                raise self._not_writable_error(path, error) from error
            yield lock.is_locked

    def is_claimed(self, place: str) -> bool:
        """Return whether another process makes an output now."""
        with self.claim(place, wait=False) as is_held:
            return not is_held

    def claim_each(self, items: Iterable[T], find_place: Callable[[T], str]) -> Generator[T]:
        """Yield each item while its place is claimed; those that others make now come last.

        Close the iterator (``contextlib.closing``), so that an error does not leave a claim held.
        """
        for wait in (False, True):
            postponed = []
            for item in items:
                with self.claim(find_place(item), wait=wait) as is_held:
                    if is_held:
                        yield item
                    else:
                        postponed.append(item)
            items = postponed

    @contextlib.contextmanager
    def write(self, place: str, suffix: str = "") -> Iterator[Path]:
        """Yield the path to write an output to; what is not committed is removed at the end.

        Hidden files beside it, such as checkpoints, stay until an output is committed.

        Args:
            place: ``FUNCTION/KEY``; its claim must be held.
            suffix: the end of the output's name.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        final = self.root / place
        folder = final.with_name(f".{final.name}{PARTIAL}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _clear_folder(folder)  # of a killed process
            yield folder / f"{OUTPUT}{suffix}"
        except OSError as error:
            raise self._not_writable_error(final, error) from error
        finally:
            with contextlib.suppress(OSError):
                _clear_folder(folder)
                folder.rmdir()  # unless it has hidden files

    def commit(
        self, path: Path, place: str, made_from: Mapping[str, Json], facts: Facts, run: str
    ) -> None:
        """Store a written output; its claim must be held. If there is one already, it stays.

        Args:
            path: the path that ``write`` yielded.
            place: ``FUNCTION/KEY``.
            made_from: the content of the key.
            facts: the facts of the output.
            run: the run directory that it was made for.
        """
        folder = path.parent
        final = self.root / place
        digest = sha256(path)
        record = {
            "key": made_from,
            "facts": facts,
            "digest": digest,
            "sha256": content_hash([facts, digest]),
            "run": run,
        }
        (folder / MADE_FROM).write_text(json.dumps(record, indent=1), encoding="utf-8")
        sync_tree(folder)
        for file in filter(Path.is_file, folder.rglob("*")):
            file.chmod(0o444)
        if not self.has(place):
            remove_path(final)  # what is left after a part of it was deleted
            for hidden in folder.glob(".*"):
                remove_path(hidden)
            folder.rename(final)
            sync_folder(final.parent)

    def _not_writable_error(self, path: Path, error: OSError) -> GapftError:
        if is_disk_full(error):
            return not_writable_error(path, error)
        return UserError(
            f"store {self.root}: cannot be written: {error.strerror}; make it writable, or name "
            f"another folder in {STORE_VARIABLE}"
        )


def place_link(source: Path, target: Path) -> None:
    """Put a stored output in a run: as read-only hard links, or as copies without links.

    An output in its place stays if it has the same content; otherwise it is replaced, and its files
    are not written to.

    Args:
        source: the file or folder in the store.
        target: its place in the run.
    """
    new, old = (target.with_name(f".{target.name}.{word}{PARTIAL}") for word in ("new", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in (new, old):  # of a killed process
            remove_path(left)
        if target.exists() and sha256(target) == sha256(source):
            return
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file in filter(Path.is_file, files):
            copy = new / file.relative_to(source) if source.is_dir() else new
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, copy)
            except OSError as error:
                if is_disk_full(error):
                    raise
                shutil.copyfile(file, copy)
                copy.chmod(0o444)
        if target.is_dir():
            target.rename(old)
        new.replace(target)
        remove_path(old)
        sync_folder(target.parent)
    except OSError as error:
        remove_path(new)
        raise not_writable_error(target, error) from error


def remove_complete(path: Path) -> None:
    """Remove a file or folder so that it is complete or absent, also if this is interrupted."""
    hidden = path.with_name(f".{path.name}{PARTIAL}")
    remove_path(hidden)  # of a killed process
    if path.exists():
        path.rename(hidden)
        remove_path(hidden)


def remove_path(path: Path) -> None:
    """Remove a file or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _clear_folder(folder: Path) -> None:
    """Remove what a folder contains, except hidden files that are complete."""
    for path in folder.iterdir():
        if not path.name.startswith(".") or path.name.endswith(PARTIAL):
            remove_path(path)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _release(lock: BaseFileLock) -> None:
    """Release a lock; its file is removed before that, so that it is not another holder's."""
    with contextlib.suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a stored output.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged_error(path.parent, f"{path.name} ({error})") from error
    if not isinstance(content, dict):
        raise _damaged_error(path.parent, path.name)
    return content


def _damaged_error(folder: Path, what: str) -> UserError:
    return UserError(
        f"{folder}: {what} was changed after it was stored; restore it, or delete this folder: it "
        "is then made again"
    )
