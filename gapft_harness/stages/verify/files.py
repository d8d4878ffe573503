"""What ``gapft verify`` checks of files and splits: recipe, hashes, tables, tasks, states."""

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
        keys = ", ".join(line.partition(" ")[0] for line in differences(*pair))
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
    """Sealed files have the hashes that the manifest recorded, and nothing lies there unsealed."""
    checked = 0
    for relative, recorded in manifest["files"].items():
        path = run.path / relative
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
    """What stages seal, as the manifest names it; no kept states of a training."""
    tables = [f for folder in _TABLES for f in (path / folder).rglob("*") if f.is_file()]
    sealed = [f for folder in folders for f in (path / folder).glob("*")]
    return sorted(
        file.relative_to(path).as_posix()
        for file in (*tables, *sealed)
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    )


def check_tables(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """A split's tables hold the same problems, each once, of the task and model of the manifest."""
    problems, responses, states = (
        table(split) for table in (layout.problems, layout.responses, layout.states)
    )
    ids = list(read_ids(run.path / problems))
    if any(a >= b for a, b in pairwise(ids)):
        yield f"{problems}: does not hold each problem once, ordered by id"
    for table in (responses, states):
        if table == responses or (run.path / table).exists():
            yield from unequal_ids(table, read_ids(run.path / table), problems, ids)
    facts = read_facts(run.path / responses)
    task = task_of(manifest, split)
    where = f"manifest.json, task{_of(split)}: {responses} was made with another"
    # what was dropped, and warned of, is said of all splits together
    free = {"dropped", "warnings"}
    if run.recipe.evidence.keep is not None:
        free.add("keep")  # may have changed after the search; ``check_task`` compares it
    for key, value in facts["task"].items():
        if key not in free and task.get(key) != value:
            yield f"{where} {key}: {value!r}, not {task.get(key)!r}"
    if name := layout.further(split):
        said = {"said": manifest["audits"][name]["said"]}
        yield from unequal(responses, facts, said, "manifest.json, audits has")
    # who imported responses knows no weights
    for key in ("start_ids",) if "imported" in facts else ("weights_sha256", "start_ids"):
        before, now = facts["source"].get(key), manifest["source"].get(key)
        if before != now:
            yield (
                f"manifest.json, source: {key} is {now}, {responses} was generated with {before}"
            )
    if start := facts["source"].get("start_ids"):
        yield from _other_starts(run.path / problems, problems, start)


def _other_starts(path: Path, name: str, start: Sequence[int]) -> Iterable[str]:
    """The prompts that begin with other start tokens; one that did not fit has no ids."""
    for problem, ids in read_problems(path):
        if ids and list(ids) != started(ids, start):
            yield f"{name}: problem {problem.id} does not begin with the start tokens {start} alone"


def check_task(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """What the recipe says of the verifier and the response rule is what the manifest records."""
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
    """A table's states and kept responses follow from its split's verdicts, by the frozen rule."""
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
                    f"{table}: problem {problem_id} has {key} {told!r}, its verdicts give {value!r}"
                )
