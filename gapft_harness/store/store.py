"""The store of finished work: groups of files under keys, in a folder beside the run directories.

A group's key is the hash of its inputs, which ``made_from.json`` lists; a file's name tells which
part of the work it contains. A file is written under a temporary name, flushed and linked, so it is
either complete or absent. It never changes; a second file of the same name is discarded. Folders
are not flushed: after a power failure the last files may be missing, and are recomputed. A process
that computes a file holds a lock on its name, so two commands can share the work.
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
from gapft_harness.core.files import (
    PARTIAL,
    format_json,
    is_disk_full,
    not_writable_error,
)
from gapft_harness.core.identities import content_hash

#: The environment variable that names the store's folder.
STORE_VARIABLE = "GAPFT_STORE"

#: The format in ``store.json``; it increases with every change that could make files be misread.
FORMAT = 1

_MADE_FROM, _ABOUT = "made_from.json", "store.json"


def find_store_folder(run_path: Path) -> Path:
    """Find the folder of a run's store: ``GAPFT_STORE``, or ``.store`` beside the run directory.

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
    return root


class Store:
    """One store on disk.

    Args:
        root: its folder, created when something is stored.

    Raises:
        UserError: the folder is a store of another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        about = root / _ABOUT
        if about.exists():
            stored_format = read_json(about).get("format")
            if stored_format != FORMAT:
                raise UserError(
                    f"{about}: format {stored_format!r}, but this version reads format {FORMAT}: "
                    f"use the version that wrote it, or another folder ({STORE_VARIABLE})"
                )

    @classmethod
    def for_run(cls, run_path: Path) -> Store:
        """Open the store of a run; see ``find_store_folder``.

        Raises:
            UserError: ``GAPFT_STORE`` is inside the run directory, or of another format.
        """
        return cls(find_store_folder(run_path))

    def find_group(self, step: str, version: int, made_from: Mapping[str, Any]) -> StoreGroup:
        """Return the group of a step with these inputs and settings, stored or not.

        Args:
            step: the step's name.
            version: the version of the step's output; increased when its meaning changes.
            made_from: JSON values that the files' content depends on.
        """
        content = {"step": step, "version": version, **made_from}
        return StoreGroup(self, self.root / step / content_hash(content), content)


@dataclass(frozen=True)
class StoreGroup:
    """Files of one step under one key.

    Attributes:
        store: the store.
        folder: the group's folder; created with the group.
        made_from: the content whose hash is the key.
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
        """The step's name and the key, as in manifests."""
        return f"{self.folder.parent.name}/{self.key}"

    def read_facts(self) -> dict[str, Any]:
        """Read the facts that were recorded when the group was created.

        Raises:
            UserError: ``made_from.json`` cannot be read, or belongs to another key.
        """
        path = self.folder / _MADE_FROM
        content = read_json(path)
        facts: dict[str, Any] = content.get("facts", {})
        if content_hash(content.get("key")) != self.key:
            raise damaged_file_error(
                path, "its content does not match the key in the name of its folder"
            )
        if content_hash(facts) != content.get("facts_sha256"):
            raise damaged_file_error(path, "its facts do not match their recorded hash")
        return facts

    def exists(self) -> bool:
        """Return whether the group was created."""
        return (self.folder / _MADE_FROM).is_file()

    def create(self, facts: Mapping[str, Any]) -> None:
        """Create the group, unless it exists.

        Args:
            facts: how its files were made, for people to read; no key depends on it.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        if self.exists():
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_writable_error(error) from error
        content = {"key": self.made_from, "facts": facts, "facts_sha256": content_hash(facts)}
        self._write_file(self.store.root / _ABOUT, format_json({"format": FORMAT}).encode())
        self._write_file(self.folder / _MADE_FROM, format_json(content).encode())

    def store_file(self, name: str, content: bytes) -> Path:
        """Store a file, unless a file of its name exists.

        Returns:
            The file's path.

        Raises:
            UserError: the store cannot be written.
            GapftError: the disk is full.
        """
        self._write_file(self.folder / name, content)
        return self.folder / name

    def _write_file(self, path: Path, content: bytes) -> None:
        """Write a file atomically, unless it exists; of two processes, the first one wins."""
        if path.exists():
            return
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o444)
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            except OSError as error:  # a file system without hard links
                if is_disk_full(error):
                    raise
                if not path.exists():
                    temporary.replace(path)
        except OSError as error:
            raise self._not_writable_error(error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def claim_file(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold the lock on a file's name while the block runs.

        Args:
            name: the file's name.
            wait: whether to wait if another process holds the lock. If False, the block runs
                without it.

        Yields:
            Whether the lock is held.
        """
        from gapft_harness.core.locks import hold_lock  # a run without work does not load it

        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = hold_lock(self.folder / f".{name}.lock", wait=wait)
                is_held = stack.enter_context(lock)
            except OSError as error:
                raise self._not_writable_error(error) from error
            yield is_held

    def _not_writable_error(self, error: OSError) -> GapftError:
        if is_disk_full(error):
            return not_writable_error(self.folder, error)
        return UserError(
            f"store {self.store.root}: cannot be written: {error.strerror}; make it writable, or "
            f"name another folder in {STORE_VARIABLE}"
        )


def damaged_file_error(path: Path, reason: str) -> UserError:
    """Build the error for a stored file that was changed or cannot be read."""
    return UserError(
        f"{path}: was changed after it was stored ({reason}); restore it, or delete it; it is "
        "then recomputed"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from the store.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged_file_error(path, str(error)) from error
    if not isinstance(content, dict):
        raise damaged_file_error(path, "expected a JSON object")
    return content
