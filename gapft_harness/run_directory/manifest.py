"""A run's manifest: its sections, how it is created and read, and how entries are removed.

Sections that a stage writes are missing before it; their readers use ``get``. A plugin's
description of itself is any JSON object: a sampler's ``source``, and a trainer's entry of
``training``, which also has ``trained_as`` if the arm reuses another arm's adapter.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict, cast

from gapft_harness.core.errors import UnknownPluginError, UserError
from gapft_harness.core.extras import find_version
from gapft_harness.core.files import PARTIAL
from gapft_harness.core.records import Arm
from gapft_harness.recipe.conditions import Condition, build_condition
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.lock import JOBS_LOCK, RUN_LOCK
from gapft_harness.version import __version__

#: The prefix of the reason of a verdict that comes from a log, not from the verifier.
IMPORTED_PREFIX: Final = "the log's verdict"


class DecodingFacts(TypedDict):
    """How a task's responses end."""

    max_gen_toks: int
    until: list[str]


class TaskFacts(TypedDict, total=False):
    """Section ``task``, written by the search; empty before it."""

    name: str
    version: str
    fingerprint: str
    dropped: list[str]
    warnings: list[str]
    verifier: str
    verifier_params: dict[str, Any]
    keep: str
    decoding: DecodingFacts
    episode: dict[str, int]  # attempts and executions


class BudgetFacts(TypedDict, total=False):
    """An entry of ``budgets``, by arm, written by the selection: ``records.Budget`` and more."""

    n: int
    repetitions: int
    exposures: int
    tokens: int
    supervised_tokens: int
    steps: int
    matched: bool
    ends_unknown: int
    unverified: int
    condition: dict[str, Any]


class ImportFacts(TypedDict):
    """An entry of ``imported``, by split: its responses come from logs (``search.responses``).

    Attributes:
        files: ``path``, ``sha256``, ``format`` and ``holds`` (greedy, samples or both) of each.
        responses: how many were imported.
        samples: how many samples of each problem the files contain; the first K are used.
        left_out: responses to problems that the split does not have.
        verdicts: ``file`` if they come from the files, ``judged`` if from the task's verifier.
        verdict_field: the field of the files that holds the verdict; empty if it was judged.
    """

    files: list[dict[str, str]]
    responses: int
    samples: int
    left_out: int
    verdicts: str
    verdict_field: str


class StageFacts(TypedDict):
    """An entry of ``stages``.

    Attributes:
        seconds: wall time of all runs of the stage.
        day: UTC date, as ``2026-11-23``, on which it last sealed a file.
        workers: worker processes of the last run of the stage.
        threads: CPU threads of each worker.
    """

    seconds: float
    day: str
    workers: NotRequired[int]
    threads: NotRequired[int]


class StepFacts(TypedDict):
    """An entry of ``steps``: the inputs of a file or folder of an experiment.

    Attributes:
        experiment: the experiment of the step.
        step: the function that made the output.
        version: the version of the function's output.
        settings: JSON values that the output depends on.
        operational: JSON values that it does not depend on.
        inputs: sealed files of the run, by argument.
        code: the hash of the plugin's file; empty for a bundled plugin.
        key: the hash of step, version, settings, code and the inputs' hashes.
    """

    experiment: str
    step: str
    version: int
    settings: dict[str, Any]
    operational: dict[str, Any]
    inputs: dict[str, list[str]]
    code: str
    key: str


class Manifest(TypedDict, total=False):
    """``manifest.json``. Sections by split and arm have the keys of ``layout.RunFile.name``."""

    format: int
    gapft_harness: str
    recipe: dict[str, Any]
    task: TaskFacts
    source: dict[str, Any]
    files: dict[str, str]
    plugins: dict[str, dict[str, str]]  # ``Plugins.origins`` of the plugins of its commands
    rests_on: dict[str, Any]  # inputs; their format: stages/integrity/inputs.py
    stored: dict[str, list[str]]
    reused: dict[str, dict[str, int]]
    imported: dict[str, ImportFacts]
    history: str  # the hash of the last line of history.jsonl
    n: int
    budgets: dict[str, BudgetFacts]
    training: dict[str, dict[str, Any]]
    steps: dict[str, StepFacts]  # of experiments, by the file that each makes
    verdict_counts: dict[str, dict[str, int]]
    finish_reasons: dict[str, dict[str, int]]
    drawn: dict[str, dict[str, int]]
    judged_by: dict[str, dict[str, Any]]
    executions: dict[str, dict[str, Any]]
    warnings: list[str]
    stages: dict[str, StageFacts]
    versions: dict[str, str]
    hardware: dict[str, Any]


_PACKAGES = (
    "lm_eval", "torch", "transformers", "peft", "accelerate", "datasets", "numpy", "scipy",
    "sympy", "pyarrow",
)  # fmt: skip

#: The format of a run directory. It increases with every change that could make an earlier run
#: be misread; CHANGELOG.md describes what a change means for existing runs.
FORMAT: Final = 6

#: The manifest's sections with an entry for each file of a folder.
_SECTIONS_BY_FOLDER = {
    layout.ADAPTERS: ("training",),
    layout.DECISIONS: (
        "verdict_counts",
        "finish_reasons",
        "drawn",
        "judged_by",
        "executions",
        "stored",
        "reused",
    ),
}


def new_manifest(recipe: Recipe) -> Manifest:
    """Build the manifest of a run without any work."""
    return {
        "format": FORMAT,
        "gapft_harness": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "task": {},
        "source": {},
        "files": {},
        "budgets": {},
        "training": {},
        "verdict_counts": {},
        "finish_reasons": {},
        "drawn": {},
        "judged_by": {},
        "executions": {},
        "warnings": [],
        "stages": {},
        "versions": {
            "python": platform.python_version(),
            "gapft-harness": __version__,
            **{name: version for name in _PACKAGES if (version := find_version(name))},
        },
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
        },
    }


def has_results(manifest: Manifest) -> bool:
    """Return whether a run has sealed files."""
    return bool(manifest.get("files"))


def remove_entries(manifest: Manifest, relative: str) -> None:
    """Remove the manifest's entries of an adapter, decisions or an experiment's step."""
    manifest.get("steps", {}).pop(relative, None)
    place = layout.parse_path(relative)
    if place is None or place.kind not in _SECTIONS_BY_FOLDER:
        return
    sections = cast(dict[str, Any], manifest)
    for section in _SECTIONS_BY_FOLDER[place.kind]:
        sections.get(section, {}).pop(place.name, None)
    prefix = f"{place.name}: "
    manifest["warnings"] = [line for line in manifest["warnings"] if not line.startswith(prefix)]


def record_warnings(manifest: Manifest, warnings: Sequence[str]) -> None:
    """Add warnings for the report, except those that are already in the manifest."""
    manifest["warnings"] += [w for w in warnings if w not in manifest["warnings"]]


def find_condition(manifest: Manifest, arm: Arm) -> Condition:
    """Return the condition that chose an arm's training set."""
    return build_condition(
        arm.condition, manifest["budgets"].get(arm.name, {}).get("condition", {})
    )


def read_manifest(run_path: Path) -> Manifest:
    """Read a run's manifest.

    Raises:
        UserError: it cannot be read, or has another format.
    """
    path = run_path / layout.MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object")
    if content.get("format") != FORMAT:
        raise UserError(
            f"{path}: format {content.get('format')!r}, but this version ({__version__}) reads "
            f"format {FORMAT}: use the version that made the run, or start a new run directory"
        )
    return cast(Manifest, content)


@contextlib.contextmanager
def name_missing_plugins(run_path: Path) -> Iterator[None]:
    """Explain for a plugin that is not loaded which file or package it came from.

    Raises:
        UserError: the plugin is not loaded, and the run records its origin.
    """
    try:
        yield
    except UnknownPluginError as error:
        has_manifest = (run_path / layout.MANIFEST).is_file()
        origins = read_manifest(run_path).get("plugins", {}) if has_manifest else {}
        if (origin := origins.get(f"{error.kind} {error.name}")) is None:
            raise
        place, digest = origin["from"], origin.get("sha256")
        description = f"the {error.kind} {error.name!r}, which {run_path} was made with"
        if digest is None:
            raise UserError(f"{place}: not installed; it provides {description}") from error
        missing_note = "" if Path(place).is_file() else ", a file that no longer exists"
        raise UserError(
            f"give --plugin {place}{missing_note} (sha256 {digest[:12]}): it provides {description}"
        ) from error


def has_no_work(path: Path, run_path: Path) -> bool:
    """Return whether a file is part of a run without work, or was never finished.

    Files with such names in a folder that is not a run do not count.
    """
    if path.name in (RUN_LOCK, JOBS_LOCK):
        return True
    if path.name == layout.MANIFEST and path.parent == run_path:
        with contextlib.suppress(UserError):
            manifest = read_manifest(run_path)
            return "gapft_harness" in manifest and not has_results(manifest)
        return False
    parts = path.relative_to(run_path).parts
    return any(part.startswith(".") and part.endswith(PARTIAL) for part in parts)
