"""List what a store has and the runs that use it; remove what is unused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.engine.run import Run
from gapft_harness.engine.store import MADE_FROM, Store, remove_complete

#: The file that a folder has if it is a run directory.
_RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class StoredWork:
    """An output in a store, or all parts of outputs that have their settings in common.

    Attributes:
        folder: its folder.
        size: bytes of its files.
        responses: how many responses its parts have.
        verdicts: how many verdicts its parts have.
        users: the names of runs that use it or that it was made for.
        made_from: the content of its key.
    """

    folder: Path
    size: int
    responses: int
    verdicts: int
    users: tuple[str, ...]
    made_from: dict[str, Any]

    @property
    def count_text(self) -> str:
        """The number of responses or verdicts, in words."""
        if self.verdicts:
            return f"{self.verdicts:,} verdicts"
        return f"{self.responses:,} responses" if self.responses else ""

    @property
    def description(self) -> str:
        """A short description of its files."""
        settings = self.made_from.get("settings", {})
        if self.verdicts:
            return f"verdicts of {settings['verifier']['name']}"
        if not self.responses:
            return f"output of {self.folder.parent.name}"
        if "streams" not in settings:
            return "greedy decodes"
        decoding = settings["decoding"]
        split = settings["streams"]["split"]
        kind = "deployment decodes" if decoding["samples_deployment"] else "samples"
        return f"{kind} of {split}, temperature {decoding['temperature']}"


def list_stored(store: Store, runs: Iterable[Path]) -> list[StoredWork]:
    """List what a store has, the largest first.

    Args:
        store: the store.
        runs: run directories that may use it.

    Raises:
        UserError: the records of a run cannot be read.
    """
    users_by_place: dict[str, set[str]] = {}
    names_by_path = {str(run.resolve()): run.name for run in runs}
    for path, name in names_by_path.items():
        for record in Run(Path(path)).read_records().values():
            parts = chain.from_iterable(record.facts.get("stored", {}).values())
            for place in (record.place, *parts):
                users_by_place.setdefault(place, set()).add(name)
    works = []
    for folder in store.root.glob("*/[!.]*"):
        files = [folder / MADE_FROM, *folder.glob(f"[!.]*/{MADE_FROM}")]
        records = [_read_object(file) for file in files if file.is_file()]
        if not records:
            continue
        facts = [record.get("facts", {}) for record in records]
        users = {names_by_path[r["run"]] for r in records if r.get("run") in names_by_path}
        users |= users_by_place.get(f"{folder.parent.name}/{folder.name}", set())
        works.append(
            StoredWork(
                folder,
                sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
                sum(f.get("responses", 0) for f in facts),
                sum(f["verdicts"] for f in facts if isinstance(f.get("verdicts"), int)),
                tuple(sorted(users)),
                dict(records[0].get("key", {})),
            )
        )
    return sorted(works, key=lambda work: (-work.size, work.folder))


def find_runs(folder: Path) -> list[Path]:
    """List the run directories in a folder."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECIPE}"))


def remove_stored(works: Sequence[StoredWork]) -> None:
    """Remove stored work; each piece is removed completely or not at all.

    Raises:
        GapftError: a piece cannot be removed.
    """
    for work in works:
        try:
            remove_complete(work.folder)
        except OSError as error:
            raise GapftError(f"{work.folder}: cannot be removed: {error.strerror}") from error


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
