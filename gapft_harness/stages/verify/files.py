"""Verification of files and splits: recipe, hashes, tables, tasks, states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.files import sha256
from gapft_harness.hooks.manager import Plugins
from gapft_harness.lm_eval_bridge.samplers.retokenizer import started
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
)
from gapft_harness.run_directory.manifest import Manifest, read_manifest, task_of
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged, read_problems, read_states
from gapft_harness.stages.generation.generation import stops
from gapft_harness.stages.integrity.differences import Differences, unequal, unequal_ids
from gapft_harness.stages.search.states import Window, state_row
from gapft_harness.version import __version__

#: Sections of a manifest that every run has from its start.
_SECTIONS = ("recipe", "task", "source", "files", "budgets", "training")

#: Folders of sealed tables.
_TABLES = (*SPLITS, CALIBRATION, layout.SELECTIONS, layout.DECISIONS)


def open_run(path: Path, findings: Differences) -> tuple[RunDirectory, Manifest] | None:
    """Open a run to verify, even if its recipe or its manifest is damaged.

    Returns:
        The run and its manifest; None if too little can be read.

    Raises:
        UserError: the folder is not a run directory.
    """
    if not any((path / name).is_file() for name in (layout.RECIPE, layout.MANIFEST)):
        RunDirectory.open(path)  # raises the error
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
        keys = ", ".join(line.partition(" ")[0] for line in differences(*pair))
        findings.differences.append(
            f"recipe.yaml: is not the recipe of the manifest; differing: {keys}"
        )
    return run, manifest


def other_version(manifest: Manifest) -> str:
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
    for relative in _lying_there(run.path, folders):
        if relative not in manifest["files"]:
            yield (
                f"{relative}: exists, but is not sealed in the manifest; if a command was "
                "interrupted, run it again to seal the file"
            )
    if checked:
        findings.checked.append(f"{checked} sealed files have their hashes")


def _lying_there(path: Path, folders: Sequence[str]) -> list[str]:
    """List the files that stages seal, as in the manifest, without checkpoints of training."""
    tables = [f for folder in _TABLES for f in (path / folder).rglob("*") if f.is_file()]
    sealed = [f for folder in folders for f in (path / folder).glob("*")]
    return sorted(
        file.relative_to(path).as_posix()
        for file in (*tables, *sealed)
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    )


def check_tables(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """Compare a split's tables with each other, and with the manifest's task and model."""
    problems, responses, states = (
        table(split) for table in (layout.problems, layout.responses, layout.states)
    )
    ids = list(read_ids(run.path / problems))
    if any(a >= b for a, b in pairwise(ids)):
        yield f"{problems}: does not have each problem once, ordered by id"
    for table in (responses, states):
        if table == responses or (run.path / table).exists():
            yield from unequal_ids(table, read_ids(run.path / table), problems, ids)
    facts = read_facts(run.path / responses)
    task = task_of(manifest, split)
    where = f"manifest.json, task{_of(split)}: {responses} was made with a different"
    # dropped problems and warnings are recorded for all splits together
    free = {"dropped", "warnings"}
    if run.recipe.evidence.keep is not None:
        free.add("keep")  # may have changed after the search; ``check_task`` compares it
    for key, value in facts["task"].items():
        if key not in free and task.get(key) != value:
            yield f"{where} {key}: {value!r}, not {task.get(key)!r}"
    if name := layout.further(split):
        said = {"said": manifest["audits"][name]["said"]}
        yield from unequal(responses, facts, said, "manifest.json, audits has")
    # the weights' hash is unknown for imported responses
    for key in ("start_ids",) if "imported" in facts else ("weights_sha256", "start_ids"):
        before, now = facts["source"].get(key), manifest["source"].get(key)
        if before != now:
            yield (
                f"manifest.json, source: {key} is {now}, but {responses} was generated with "
                f"{before}"
            )
    if start := facts["source"].get("start_ids"):
        yield from _other_starts(run.path / problems, problems, start)


def _other_starts(path: Path, name: str, start: Sequence[int]) -> Iterable[str]:
    """Yield prompts with other start tokens; a prompt that did not fit has no ids."""
    for problem, ids in read_problems(path):
        if ids and list(ids) != started(ids, start):
            yield f"{name}: problem {problem.id} does not begin with just the start tokens {start}"


def check_task(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """Compare the recipe's verifier and response rule with those of the manifest."""
    name = layout.further(split)
    task, recipe = task_of(manifest, split), run.recipe.on(name)
    where = f"manifest.json, task{_of(split)}"
    if name:
        yield from unequal(where, task, {"name": recipe.data.task}, "the recipe has")
        said, choice = manifest["audits"][name], run.recipe.audits[name]
        yield from unequal(
            f"manifest.json, {split}", said, {"said": choice.said()}, "the recipe has"
        )
    asked: dict[str, Any] = {}
    if recipe.verifier.name is not None:
        asked["verifier"] = recipe.verifier.name
    if recipe.evidence.keep is not None:
        asked["keep"] = recipe.evidence.keep
    yield from unequal(where, task, asked, "the recipe has")
    yield from unequal(
        f"{where}, verifier_params",
        task["verifier_params"],
        dict(recipe.verifier.params),
        "the recipe has",
    )


def _of(split: str) -> str:
    return f" of {split}" if layout.further(split) else ""


def check_states(
    run: RunDirectory, manifest: Manifest, plugins: Plugins, table: str
) -> Iterable[str]:
    """Check that a table's states and kept responses follow from its split's verdicts."""
    place = layout.read(table)
    assert place is not None
    split, window = place.split, Window(*place.window) if place.window else None
    keep = cast(str, manifest["task"].get("keep"))
    rule, search = plugins.get("response rule", keep), run.recipe.search
    stop = stops(search, split)
    judged = read_judged(run.path / layout.responses(split))
    for (problem_id, of_problem), stated in zip(judged, read_states(run.path / table), strict=True):
        for key, value in asdict(
            state_row(problem_id, of_problem, search.k, stop, rule, window)
        ).items():
            if (told := getattr(stated, key)) != value:
                yield (
                    f"{table}: problem {problem_id} has {key} {told!r}, but its verdicts give "
                    f"{value!r}"
                )
