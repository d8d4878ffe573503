"""A run's manifest: as it begins, as it is read, what it forgets of a file that is made anew."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, cast

from gapft_harness.core.errors import UnknownPluginError, UserError
from gapft_harness.core.files import PARTIAL
from gapft_harness.core.records import Arm
from gapft_harness.recipe.conditions import Condition, named
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.facts import Manifest, TaskFacts
from gapft_harness.run_directory.lock import JOBS_LOCK, RUN_LOCK
from gapft_harness.version import __version__

_PACKAGES = (
    "lm_eval", "torch", "transformers", "peft", "accelerate", "datasets", "numpy", "scipy",
    "math-verify", "sympy", "pyarrow",
)  # fmt: skip

#: What a run directory holds and how. It grows with every change after which a run made before
#: could be misread; CHANGELOG.md says what a change means for runs that exist.
FORMAT: Final = 3

#: The sections with an entry for each file of a folder.
_SAID_OF = {
    layout.ADAPTERS: ("training",),
    layout.REPLICATES: ("training",),
    "scaled": ("scaling",),
    layout.DECISIONS: ("verdict_counts", "finish_reasons", "drawn", "judged_by", "executions"),
}


def new_manifest(recipe: Recipe) -> Manifest:
    """The manifest of a run in which nothing was made yet."""
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
        "versions": _versions(),
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
        },
    }


def task_of(manifest: Manifest, split: str) -> TaskFacts:
    """The facts of the task that a split's problems are of.

    Raises:
        UserError: the split is a further audit that is not searched yet.
    """
    name = layout.further(split)
    if name and name not in manifest.get("audits", {}):
        raise UserError(f"the audit {name!r} is not searched yet; search it first (--only search)")
    return manifest["audits"][name]["task"] if name else manifest["task"]


def verifier_of(manifest: Manifest, name: str) -> str | None:
    """The name of the verifier that judges a table, which the manifest calls by a name."""
    audit = manifest.get("audits", {}).get(layout.audited(name))
    return (audit["task"] if audit else manifest["task"]).get("verifier")


def forget(manifest: Manifest, relative: str) -> None:
    """Takes what a manifest says of an adapter, its scale or its decisions out of it."""
    place = layout.read(relative)
    if place is None or place.kind not in _SAID_OF:
        return
    sections = cast(dict[str, Any], manifest)
    for section in _SAID_OF[place.kind]:
        sections.get(section, {}).pop(place.name, None)
    said = f"{place.name}: "
    manifest["warnings"] = [line for line in manifest["warnings"] if not line.startswith(said)]


def condition_of(manifest: Manifest, arm: Arm) -> Condition:
    """By what an arm's training set was chosen."""
    return named(arm.condition, manifest["budgets"].get(arm.name, {}).get("condition", {}))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "gapft-harness": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def read_manifest(run_path: Path) -> Manifest:
    """A run's manifest.

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
            f"{path}: format {content.get('format')!r}; this version ({__version__}) reads format "
            f"{FORMAT}: use the version that made the run, or start a new run directory"
        )
    return cast(Manifest, content)


@contextlib.contextmanager
def naming_plugins(run_path: Path) -> Iterator[None]:
    """Says of a plugin that is not loaded which file or package the run was made with.

    Raises:
        UserError: it is not loaded, and the run says where it came from.
    """
    try:
        yield
    except UnknownPluginError as error:
        there = (run_path / layout.MANIFEST).is_file()
        known = read_manifest(run_path).get("plugins", {}) if there else {}
        if (origin := known.get(f"{error.kind} {error.name}")) is None:
            raise
        place, digest = origin["from"], origin.get("sha256")
        what = f"the {error.kind} {error.name!r}, and {run_path} was made with it"
        if digest is None:
            raise UserError(f"{place}: is not installed here; it has {what}") from error
        gone = "" if Path(place).is_file() else ", which is not there any more"
        raise UserError(
            f"give --plugin {place}{gone} (sha256 {digest[:12]}): it has {what}"
        ) from error


def given_plugins(manifest: Manifest) -> dict[str, str]:
    """The plugin files that a run was made with, each with its hash."""
    origins = manifest.get("plugins", {}).values()
    return {of["from"]: of["sha256"] for of in origins if "sha256" in of}


def says_nothing(path: Path, run_path: Path) -> bool:
    """Whether a file of a run is there before anything is generated, or was never finished.

    A folder of anybody else's is no run, though it may hold files of such names.
    """
    if path.name in (RUN_LOCK, JOBS_LOCK):
        return True
    if path.name == layout.MANIFEST and path.parent == run_path:
        with contextlib.suppress(UserError):
            manifest = read_manifest(run_path)
            return "gapft_harness" in manifest and not manifest.get("files")
        return False
    if path.name.startswith(".") and path.name.endswith(PARTIAL):
        return True
    journal = path.suffix == ".jsonl" and path.parent != run_path
    return journal and path.is_file() and not path.stat().st_size
