"""What ``gapft verify`` checks of a run's files: recipe, manifest, hashes, what is not sealed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.files import sha256
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
)
from gapft_harness.run_directory.manifest import Manifest, read_manifest
from gapft_harness.run_directory.shards import of_merged_shard
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.version import __version__

#: Sections of a manifest that every run has from its beginning.
_SECTIONS = ("recipe", "task", "source", "files", "budgets", "training")

#: Where sealed tables lie.
_TABLES = (*SPLITS, CALIBRATION, layout.SELECTIONS, layout.DECISIONS)


def open_run(path: Path, findings: Differences) -> tuple[RunDirectory, Manifest] | None:
    """Opens what is to be verified, also where its recipe or its manifest was damaged.

    Returns:
        The run and its manifest; None where too little can be read to go on.

    Raises:
        UserError: it is no run directory.
    """
    if not any((path / name).is_file() for name in (layout.RECIPE, layout.MANIFEST)):
        RunDirectory.open(path)  # says so
    run = findings.attempt(layout.RECIPE, lambda: RunDirectory.open(path))
    manifest = findings.attempt(layout.MANIFEST, lambda: read_manifest(path))
    if manifest is None:
        return None
    sections = cast(dict[str, Any], manifest)
    for section in _SECTIONS:
        if not isinstance(sections.get(section), dict):
            findings.differences.append(f"manifest.json: has no section {section}")
            sections[section] = {}
    sealed = findings.attempt(
        "manifest.json", lambda: check_recipe(manifest["recipe"], "its section recipe")
    )
    if run is None:
        return None if sealed is None else (RunDirectory(path, sealed), manifest)
    if sealed is not None and sealed != run.recipe:
        pair = (run.recipe.model_dump(mode="json"), sealed.model_dump(mode="json"))
        # ``differences`` says "there" of the first and "here" of the second
        keys = ", ".join(line.partition(" (")[0] for line in differences(*pair))
        findings.differences.append(
            f"recipe.yaml: is not the recipe of the manifest; differing: {keys}"
        )
    return run, manifest


def other_version(manifest: Manifest) -> str:
    """A sentence if another version of this package made the run; else nothing."""
    made_by = manifest.get("gapft_harness")
    if made_by in (None, __version__):
        return ""
    return (
        f"the run was made by version {made_by} of gapft-harness, and this is {__version__}: the "
        "versions may differ in what they write; verify the run with the one that made it"
    )


def check_files(
    run: RunDirectory, manifest: Manifest, folders: Sequence[str], findings: Differences
) -> Iterable[str]:
    """Sealed files have the hashes that the manifest recorded, and nothing lies there unsealed.

    Args:
        folders: where sealed folders lie.
    """
    checked = 0
    for relative, recorded in manifest["files"].items():
        path = run.path / relative
        if not path.exists() and of_merged_shard(relative, manifest):
            continue
        checked += 1
        if not path.exists():
            yield f"{relative}: is sealed in the manifest and not there"
        elif sha256(path) != recorded:
            yield f"{relative}: was changed after it was sealed"
    for relative in _lying_there(run.path, folders):
        if relative not in manifest["files"]:
            yield (
                f"{relative}: lies there and is not sealed in the manifest; if a command was "
                "interrupted, the same command seals it"
            )
    if checked:
        findings.checked.append(f"{checked} sealed files have their hashes")


def _lying_there(path: Path, folders: Sequence[str]) -> list[str]:
    """What stages seal, as the manifest names it; no journals, no kept states of a training."""
    tables = [f for folder in _TABLES for f in (path / folder).rglob("*") if f.is_file()]
    sealed = [f for folder in folders for f in (path / folder).glob("*")]
    return sorted(
        file.relative_to(path).as_posix()
        for file in (*(f for f in tables if f.suffix != ".jsonl"), *sealed)
        if not file.name.startswith(".")
    )
