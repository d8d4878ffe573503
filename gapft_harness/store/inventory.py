"""List the groups of a store and the runs that use them; remove unused groups."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import PARTIAL
from gapft_harness.store.store import Store

_MANIFEST, _RECIPE = "manifest.json", "recipe.yaml"


@dataclass(frozen=True)
class StoredGroup:
    """One group of a store.

    Attributes:
        folder: its folder.
        size: bytes of its files.
        responses: how many responses it contains.
        verdicts: how many verdicts it contains, if it contains no responses.
        users: the names of runs that use it or that its files were generated for.
        made_from: the settings and inputs of its key.
    """

    folder: Path
    size: int
    responses: int
    verdicts: int
    users: tuple[str, ...]
    made_from: dict[str, Any]

    @property
    def count(self) -> str:
        """The number of responses or verdicts, in words."""
        if self.verdicts:
            return f"{self.verdicts:,} verdicts"
        return f"{self.responses:,} responses" if self.responses else ""

    @property
    def what(self) -> str:
        """A short description of the files."""
        if "trainer" in self.made_from:
            return f"adapter of {self.made_from['trainer']['name']}, seed {self.made_from['seed']}"
        if "responses" in self.made_from:
            return f"verdicts of {self.made_from['verifier']['name']}"
        decoding = self.made_from.get("decoding", {})
        streams = self.made_from.get("streams")
        if streams is None:
            return "greedy decodes"
        split = streams.get("split", "")
        return f"samples of {split}, temperature {decoding.get('temperature')}"


def list_groups(store: Store, runs: Iterable[Path]) -> list[StoredGroup]:
    """List a store's groups, the largest first.

    Args:
        store: the store.
        runs: run directories that may use it.
    """
    used: dict[str, set[str]] = {}
    there = {}
    for run in runs:
        there[str(run.resolve())] = run.name
        manifest = _read(run / _MANIFEST)
        keys = [key for keys in manifest.get("stored", {}).values() for key in keys]
        keys += [facts.get("stored", "") for facts in manifest.get("training", {}).values()]
        for key in keys:
            used.setdefault(key, set()).add(run.name)
    found = []
    for folder in sorted(path for path in store.root.glob("*/*") if path.is_dir()):
        files = [file for file in folder.iterdir() if file.is_file()]
        heads = [_head(file) for file in files if file.suffix == ".jsonl"]
        users = {there[head["run"]] for head in heads if head.get("run") in there}
        users |= used.get(f"{folder.parent.name}/{folder.name}", set())
        made_from = _read(folder / "made_from.json")
        if (run := made_from.get("facts", {}).get("run")) in there:  # not sealed yet
            users.add(there[run])
        found.append(
            StoredGroup(
                folder,
                sum(file.stat().st_size for file in files),
                sum(int(head.get("responses", 0)) for head in heads),
                sum(int(head.get("verdicts", 0)) for head in heads),
                tuple(sorted(users)),
                dict(made_from.get("key", {})),
            )
        )
    return sorted(found, key=lambda group: (-group.size, group.folder))


def runs_in(folder: Path) -> list[Path]:
    """List the run directories in a folder."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECIPE}"))


def remove(groups: Sequence[StoredGroup]) -> None:
    """Remove groups; each is removed completely or not at all.

    Raises:
        GapftError: a group cannot be removed.
    """
    for group in groups:
        aside = group.folder.with_name(f".{group.folder.name}{PARTIAL}")
        try:
            group.folder.rename(aside)
            shutil.rmtree(aside)
        except OSError as error:
            raise GapftError(f"{group.folder}: cannot be removed: {error.strerror}") from error


def _head(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        line = opened.readline()
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
