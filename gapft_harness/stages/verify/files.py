"""Verification of files and splits: recipe, hashes, tables, tasks, states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.files import sha256
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
)
from gapft_harness.run_directory.manifest import Manifest, read_manifest
from gapft_harness.run_directory.recipe_changes import list_differences
from gapft_harness.stages.integrity.differences import Differences, compare_values
from gapft_harness.version import __version__

#: Sections of a manifest that every run has from its start.
_SECTIONS = ("recipe", "task", "source", "files", "budgets", "training")

#: Folders of sealed tables.
_TABLE_FOLDERS = (
    *SPLITS,
    CALIBRATION,
    layout.STATES,
    layout.SELECTIONS,
    layout.BUDGETS,
    layout.DECISIONS,
)


def open_run(path: Path, findings: Differences) -> tuple[RunDirectory, Manifest] | None:
    """Open a run to verify, even if its recipe or its manifest is damaged.

    Returns:
        The run and its manifest; None if too little can be read.

    Raises:
        UserError: the folder is not a run directory.
    """
    if not any((path / name).is_file() for name in (layout.RECIPE, layout.MANIFEST)):
        RunDirectory.open(path)  # raises the error
    run = findings.try_reading(layout.RECIPE, lambda: RunDirectory.open(path))
    manifest = findings.try_reading(layout.MANIFEST, lambda: read_manifest(path))
    if manifest is None:
        return None
    sections = cast(dict[str, Any], manifest)
    for section in _SECTIONS:
        if not isinstance(sections.get(section), dict):
            findings.differences.append(f"manifest.json: has no section {section}")
            sections[section] = {}
    sealed = findings.try_reading(
        "manifest.json", lambda: check_recipe(manifest["recipe"], "its section recipe")
    )
    if run is None:
        return None if sealed is None else (RunDirectory(path, sealed), manifest)
    if sealed is not None and sealed != run.recipe:
        pair = (run.recipe.model_dump(mode="json"), sealed.model_dump(mode="json"))
        keys = ", ".join(line.partition(" ")[0] for line in list_differences(*pair))
        findings.differences.append(
            f"recipe.yaml: is not the recipe of the manifest; differing: {keys}"
        )
    return run, manifest


def describe_other_version(manifest: Manifest) -> str:
    """Describe that another version of this package made the run; else return an empty text."""
    made_by = manifest.get("gapft_harness")
    if made_by in (None, __version__):
        return ""
    return (
        f"the run was made by version {made_by} of gapft-harness, but this is {__version__}, which "
        "may write other contents; verify the run with the version that made it"
    )


def check_files(
    run: RunDirectory, manifest: Manifest, folders: Sequence[str], findings: Differences
) -> Iterable[str]:
    """Check that sealed files have their recorded hashes, and that no file is unsealed."""
    checked = 0
    for relative, recorded in manifest["files"].items():
        path = run.path / relative
        checked += 1
        if not path.exists():
            yield f"{relative}: is sealed in the manifest, but missing"
        elif sha256(path) != recorded:
            yield f"{relative}: was changed after it was sealed"
    for relative in _list_sealable_files(run.path, folders):
        if relative not in manifest["files"]:
            yield (
                f"{relative}: exists, but is not sealed in the manifest; if a command was "
                "interrupted, run it again to seal the file"
            )
    if checked:
        findings.checked.append(f"{checked} sealed files have their hashes")


def _list_sealable_files(path: Path, folders: Sequence[str]) -> list[str]:
    """List the files that stages seal, as in the manifest, without checkpoints of training."""
    tables = [f for folder in _TABLE_FOLDERS for f in (path / folder).rglob("*") if f.is_file()]
    sealed = [f for folder in folders for f in (path / folder).glob("*")]
    return sorted(
        file.relative_to(path).as_posix()
        for file in (*tables, *sealed)
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    )


def check_task(run: RunDirectory, manifest: Manifest) -> Iterable[str]:
    """Compare the recipe's verifier and response rule with those of the manifest."""
    task, recipe, where = manifest["task"], run.recipe, "manifest.json, task"
    recipe_settings: dict[str, Any] = {}
    if recipe.verifier.name is not None:
        recipe_settings["verifier"] = recipe.verifier.name
    if recipe.evidence.keep is not None:
        recipe_settings["keep"] = recipe.evidence.keep
    yield from compare_values(where, task, recipe_settings, "the recipe has")
    yield from compare_values(
        f"{where}, verifier_params",
        task["verifier_params"],
        recipe.add_think_end_token(recipe.verifier.params),
        "the recipe has",
    )
