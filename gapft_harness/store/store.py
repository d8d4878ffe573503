"""Where finished work is kept: groups of files, each group under a key, beside the run folders.

A group's key is a hash of everything that its files were made from (``made_from.json`` has it in
words); a file's name says which part of that work it holds. A file is written beside, flushed and
linked into place, so that it is whole or absent; it never changes, and a second one of the same
name is dropped. Folders are not flushed: after a power failure the last files may be absent, and
are made again. Whoever works on a file holds its claim, so that two commands share the work.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL, is_full, json_text, sync_folder, unwritable
from gapft_harness.core.identities import content_hash

#: The environment variable that names the store's folder.
PLACE = "GAPFT_STORE"

#: What ``store.json`` says; it grows with every change after which stored files could be misread.
FORMAT = 1

#: Lists the files of a group that is whole or of no use; stored after all of them.
INDEX = "index.json"

_MADE_FROM, _ABOUT = "made_from.json", "store.json"


class Store:
    """One store on disk.

    Args:
        root: its folder, made when something is stored.

    Raises:
        UserError: the folder is a store of another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        about = root / _ABOUT
        if about.exists():
            found = read_json(about).get("format")
            if found != FORMAT:
                raise UserError(
                    f"{about}: format {found!r}; this version reads format {FORMAT}: use the "
                    f"version that made it, or another folder ({PLACE})"
                )

    @classmethod
    def beside(cls, run_path: Path) -> Store:
        """The store of a run folder: ``GAPFT_STORE``, or ``.store`` beside the folder.

        Raises:
            UserError: ``GAPFT_STORE`` is inside the run folder, or of another format.
        """
        run = run_path.resolve()
        given = os.environ.get(PLACE)
        root = Path(given).resolve() if given else run.parent / ".store"
        if root == run or run in root.parents:
            raise UserError(
                f"{PLACE}={given}: is inside the run folder {run_path}; expected a folder outside "
                "of it, which several runs share"
            )
        return cls(root)

    def holds(self, name: str) -> bool:
        """Whether something was stored under a group's name; of an adapter, all of it.

        Args:
            name: as ``Group.name``; empty: of nothing.
        """
        last = INDEX if name.startswith("train/") else _MADE_FROM
        return bool(name) and (self.root / name / last).is_file()

    def group(self, step: str, version: int, made_from: Mapping[str, Any]) -> Group:
        """The group of files that a step made, or will make, from these inputs and settings.

        Args:
            step: its name.
            version: raised when the step's output changes meaning.
            made_from: JSON values; all that the files' content depends on.
        """
        return self.group_of({"step": step, "version": version, **made_from})

    def group_of(self, content: Mapping[str, Any]) -> Group:
        """The group whose key is made from this content, its step and version among it."""
        return Group(self, self.root / content["step"] / content_hash(content), content)


@dataclass(frozen=True)
class Group:
    """Files of one step under one key.

    Attributes:
        store: where it is.
        folder: its folder, which exists once something is stored.
        made_from: what the key was computed from.
    """

    store: Store
    folder: Path
    made_from: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The group's key, in hexadecimal."""
        return self.folder.name

    @property
    def name(self) -> str:
        """The step's name and the key, as manifests list the groups that a run uses."""
        return f"{self.folder.parent.name}/{self.key}"

    def facts(self) -> dict[str, Any]:
        """What was recorded beside the key when the group was made.

        Raises:
            UserError: its ``made_from.json`` cannot be read, or is of another key.
        """
        path = self.folder / _MADE_FROM
        content = read_json(path)
        facts: dict[str, Any] = content.get("facts", {})
        if content_hash(content.get("key")) != self.key:
            raise damaged(path, "its content does not give the key that its folder is named after")
        if content_hash(facts) != content.get("facts_sha256"):
            raise damaged(path, "the hash of its facts is another")
        return facts

    def exists(self) -> bool:
        """Whether something was stored in it."""
        return (self.folder / _MADE_FROM).is_file()

    def open(self, facts: Mapping[str, Any]) -> None:
        """Make the folder, unless it is there.

        Args:
            facts: what people should know of how its files were made, and no key depends on.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        if self.exists():
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        content = {"key": self.made_from, "facts": facts, "facts_sha256": content_hash(facts)}
        self._write(self.store.root / _ABOUT, json_text({"format": FORMAT}).encode())
        self._write(self.folder / _MADE_FROM, json_text(content).encode())

    def commit(self, name: str, content: bytes) -> Path:
        """Store a file, unless one of its name is there.

        The index is stored once the names of the other files are on the disk.

        Returns:
            Its path.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        if name == INDEX:
            try:
                sync_folder(self.folder)
            except OSError as error:
                raise self._unwritable(error) from error
        self._write(self.folder / name, content)
        return self.folder / name

    def link(self, name: str, source: Path) -> bool:
        """Store a file by a hard link, unless one of its name is there; it is read-only then.

        Returns:
            Whether it is stored; not where the file system has no links between the two places.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        path = self.folder / name
        try:
            with source.open("rb") as file:
                os.fsync(file.fileno())
            os.link(source, path)
            path.chmod(0o444)
        except FileExistsError:
            pass
        except OSError as error:
            if is_full(error):
                raise self._unwritable(error) from error
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file that is whole or absent; of two at once the first one stays."""
        if path.exists():
            return
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.chmod(0o444)
            try:
                os.link(beside, path)
            except FileExistsError:
                pass
            except OSError as error:  # a file system without hard links
                if is_full(error):
                    raise
                if not path.exists():
                    beside.replace(path)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    @contextlib.contextmanager
    def claim(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold the right to make a file while the block runs.

        Args:
            name: the file's name.
            wait: until whoever holds it is done; otherwise the block runs without it.

        Yields:
            Whether it is held.
        """
        from gapft_harness.core.locks import hold_lock  # late: reruns without work start quickly

        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = hold_lock(self.folder / f".{name}.lock", wait=wait)
                held = stack.enter_context(lock)
            except OSError as error:
                raise self._unwritable(error) from error
            yield held

    def _unwritable(self, error: OSError) -> GapftError:
        if is_full(error):
            return unwritable(self.folder, error)
        return UserError(
            f"store {self.store.root}: cannot be written: {error.strerror}; make it writable, or "
            f"name another folder in {PLACE}"
        )


def damaged(path: Path, why: str) -> UserError:
    """The error for a stored file that is not as it was stored."""
    return UserError(
        f"{path}: was changed after it was stored ({why}); restore it, or delete it to have it "
        "made again"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of the store.

    Raises:
        UserError: it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise damaged(path, "expected a JSON object")
    return content
