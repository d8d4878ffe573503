"""Before an import, whether its split is free; after it, the states that came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.lock import hold
from gapft_harness.run_directory.manifest import ImportFacts
from gapft_harness.run_directory.mirror import is_url
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.stages.search.states import partition


def require_free(place: str, split: str, choice: ImportChoice) -> None:
    """Nothing answers a split yet, or this very import does.

    Raises:
        UserError: a search or another import does; a file is not there; or the run is no folder.
    """
    if is_url(place):
        raise UserError(f"{place}: expected a folder on this machine")
    given = choice.hashes()
    table = Path(place) / layout.responses(split)
    if (journal := Path(place) / layout.journal(layout.responses(split))).exists():
        raise UserError(
            f"{journal}: a search of the {split} is under way; go on with it, or "
            "import into a new run directory"
        )
    if not table.exists():
        return
    told = read_facts(table).get("imported")
    if what := "was searched" if told is None else _other(told, given, choice.arguments()):
        raise UserError(f"{table}: the {split} {what} already; import into a new run directory")


def _other(told: ImportFacts, given: dict[str, str], asked: dict[str, Any]) -> str:
    """In what an import that is there is another than the one that is asked for."""
    if {of["path"]: of["sha256"] for of in told["files"]} != given:
        return "was imported from other files"
    before = told["choice"]
    differing = [
        f"{key} {json.dumps(before.get(key))} there, {json.dumps(value)} here"
        for key, value in asked.items()
        if before.get(key) != value
    ]
    return f"was imported otherwise ({'; '.join(differing)})" if differing else ""


def state(path: Path, split: str, plugin_files: Sequence[str]) -> str:
    """Seals a split's states, and says what came of its import.

    Args:
        path: the run directory.
        split: what was imported.
        plugin_files: files given by ``--plugin``.
    """
    with hold(path):
        run = RunDirectory.open(path)
        facts = run.manifest()["imported"][split]
        said = f"{split}: {facts['responses']} responses imported"
        if split == CALIBRATION:
            return said
        if not run.is_sealed(layout.states(split)):
            partition(str(path), split, plugin_files)
        run.seal(layout.states(split))
        counts = read_facts(run.path / layout.states(split))["states"]
    return f"{said}; states: {', '.join(f'{name} {count}' for name, count in counts.items())}"
