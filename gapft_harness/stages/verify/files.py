"""Verification of files and splits: recipe, hashes, tables, tasks, states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.files import sha256
from gapft_harness.lm_eval_bridge.samplers.retokenizer import replace_start_ids
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
)
from gapft_harness.run_directory.manifest import Manifest, read_manifest
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.recipe_changes import list_differences
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.integrity.differences import Differences, compare_ids, compare_values
from gapft_harness.stages.integrity.inputs import SECTION, hash_problems
from gapft_harness.version import __version__

#: Sections of a manifest that every run has from its start.
_SECTIONS = ("recipe", "task", "source", "files", "budgets", "training")

#: Folders of sealed tables.
_TABLE_FOLDERS = (*SPLITS, CALIBRATION, layout.SELECTIONS, layout.BUDGETS, layout.DECISIONS)


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


def check_problems(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """Compare a split's prompts and golds with the hash that the search recorded."""
    if (recorded := manifest.get(SECTION, {}).get("data", {}).get(split)) is not None:
        table = layout.problems_path(split)
        loaded = hash_problems(problem for problem, _ in read_problems(run.path / table))
        yield from compare_values(table, loaded, recorded, "manifest.json has")


def check_tables(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """Compare a split's tables with each other, and with the manifest's task and model."""
    problems, responses, states = (
        table(split) for table in (layout.problems_path, layout.responses_path, layout.states_path)
    )
    ids = list(read_ids(run.path / problems))
    if any(a >= b for a, b in pairwise(ids)):
        yield f"{problems}: does not have each problem once, ordered by id"
    for table in (responses, states):
        if table == responses or (run.path / table).exists():
            yield from compare_ids(table, read_ids(run.path / table), problems, ids)
    facts = read_facts(run.path / responses)
    task = manifest["task"]
    where = f"manifest.json, task: {responses} was made with a different"
    # dropped problems and warnings are recorded for all splits together
    free_keys = {"dropped", "warnings"}
    if run.recipe.evidence.keep is not None:
        free_keys.add("keep")  # may have changed after the search; ``check_task`` compares it
    for key, value in facts["task"].items():
        if key not in free_keys and task.get(key) != value:
            yield f"{where} {key}: {value!r}, not {task.get(key)!r}"
    # the weights' hash is unknown for imported responses
    for key in ("start_ids",) if "imported" in facts else ("weights_sha256", "start_ids"):
        table_value, manifest_value = facts["source"].get(key), manifest["source"].get(key)
        if table_value != manifest_value:
            yield (
                f"manifest.json, source: {key} is {manifest_value}, but {responses} was generated "
                f"with {table_value}"
            )
    if start := facts["source"].get("start_ids"):
        yield from _check_start_tokens(run.path / problems, problems, start)


def _check_start_tokens(path: Path, name: str, start: Sequence[int]) -> Iterable[str]:
    """Yield prompts with other start tokens; a prompt that did not fit has no ids."""
    for problem, ids in read_problems(path):
        if ids and list(ids) != replace_start_ids(ids, start):
            yield f"{name}: problem {problem.id} does not begin with just the start tokens {start}"


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
