"""What the sealed tables of responses say of their import, whatever a manifest says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.run_directory import layout
from gapft_harness.run_directory.facts import ImportFacts, Manifest
from gapft_harness.run_directory.tables.parquet import carried_facts

#: The splits of a run's own task; further audits are the recipe's.
_OWN = ("pool", "audit", "calibration")


def sealed_imports(run_path: Path, manifest: Manifest) -> dict[str, ImportFacts]:
    """The imports of a run, by split.

    Args:
        run_path: the run directory.
        manifest: its manifest, for what is sealed and which further audits the recipe has.
    """
    return {split: facts["imported"] for split, facts in _imported(run_path, manifest)}


def import_warnings(run_path: Path, manifest: Manifest) -> list[str]:
    """The warnings of imported splits, as a manifest has them; arguments as above."""
    return [
        f"{split}: {line}"
        for split, facts in _imported(run_path, manifest)
        for line in facts.get("warnings", ())
    ]


def warnings_of(run_path: Path, manifest: Manifest) -> list[str]:
    """All warnings of a run: the manifest's, and of imports those that it lacks."""
    said = manifest["warnings"]
    return [*said, *(line for line in import_warnings(run_path, manifest) if line not in said)]


def _imported(run_path: Path, manifest: Manifest) -> Iterator[tuple[str, dict[str, Any]]]:
    audits = manifest.get("recipe", {}).get("audits", {})
    for split in (*_OWN, *map(layout.audit, audits)):
        table = run_path / layout.responses(split)
        if layout.responses(split) in manifest.get("files", ()) and table.exists():
            facts = carried_facts(table)
            if "imported" in facts:
                yield split, facts
