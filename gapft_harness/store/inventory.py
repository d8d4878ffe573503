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

_RECORDS, _RECIPE = "run.json", "recipe.yaml"


@dataclass(frozen=True)
class GroupSummary:
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
    def count_text(self) -> str:
        """The number of responses or verdicts, in words."""
        if self.verdicts:
            return f"{self.verdicts:,} verdicts"
        return f"{self.responses:,} responses" if self.responses else ""

    @property
    def description(self) -> str:
        """A short description of the files."""
        if "function" in self.made_from:
            return f"output of {self.folder.parent.name}"
        if "trainer" in self.made_from:
            return f"adapter of {self.made_from['trainer']['name']}, seed {self.made_from['seed']}"
        if "responses" in self.made_from:
            return f"verdicts of {self.made_from['verifier']['name']}"
        decoding = self.made_from.get("decoding", {})
        streams = self.made_from.get("streams")
        if streams is None:
            return "greedy decodes"
        split = streams.get("split", "")
        if deployment := self.made_from.get("deployment"):
            return f"deployment decodes of {split}, temperature {deployment.get('temperature')}"
        return f"samples of {split}, temperature {decoding.get('temperature')}"


def list_groups(store: Store, runs: Iterable[Path]) -> list[GroupSummary]:
    """List a store's groups, the largest first.

    Args:
        store: the store.
        runs: run directories that may use it.
    """
    users_by_group: dict[str, set[str]] = {}
    run_names = {}
    for run in runs:
        run_names[str(run.resolve())] = run.name
        records = _read_object(run / _RECORDS).get("outputs", {}).values()
        keys = [key for record in records for key in record["facts"].get("stored", ())]
        keys += [record["place"] for record in records]
        for key in keys:
            users_by_group.setdefault(key, set()).add(run.name)
    summaries = []
    folders = (path for path in store.root.glob("*/*") if path.is_dir())
    for folder in sorted(path for path in folders if not path.name.startswith(".")):
        files = [file for file in folder.iterdir() if file.is_file()]
        heads = [_read_first_line(file) for file in files if file.suffix == ".jsonl"]
        users = {run_names[head["run"]] for head in heads if head.get("run") in run_names}
        users |= users_by_group.get(f"{folder.parent.name}/{folder.name}", set())
        made_from = _read_object(folder / "made_from.json")
        if (run := made_from.get("facts", {}).get("run")) in run_names:  # not sealed yet
            users.add(run_names[run])
        summaries.append(
            GroupSummary(
                folder,
                sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
                sum(int(head.get("responses", 0)) for head in heads),
                sum(int(head.get("verdicts", 0)) for head in heads),
                tuple(sorted(users)),
                dict(made_from.get("key", {})),
            )
        )
    return sorted(summaries, key=lambda group: (-group.size, group.folder))


def find_runs(folder: Path) -> list[Path]:
    """List the run directories in a folder."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECIPE}"))


def remove_groups(groups: Sequence[GroupSummary]) -> None:
    """Remove groups; each is removed completely or not at all.

    Raises:
        GapftError: a group cannot be removed.
    """
    for group in groups:
        hidden_folder = group.folder.with_name(f".{group.folder.name}{PARTIAL}")
        try:
            group.folder.rename(hidden_folder)
            shutil.rmtree(hidden_folder)
        except OSError as error:
            raise GapftError(f"{group.folder}: cannot be removed: {error.strerror}") from error


def _read_first_line(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        line = stream.readline()
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
