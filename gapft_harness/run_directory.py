"""A run's folder: the recipe it is bound to, sealed files, the manifest, the lock.

A sealed file is written beside and renamed, so it is whole or absent. Its hash goes into
``manifest.json``, and a later stage reads it only if the hash still holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import yaml

from gapft_harness.errors import GapftError, UserError
from gapft_harness.files import PARTIAL, replace_file, sha256, write_json
from gapft_harness.recipe import Recipe
from gapft_harness.recipe_file import check_recipe
from gapft_harness.run_lock import JOBS_LOCK, RUN_LOCK, hold
from gapft_harness.version import __version__

Split = Literal["pool", "audit", "calibration"]
#: The splits of every run; each is searched.
SPLITS: tuple[Split, ...] = ("pool", "audit")
#: The split of a run that scales its adapters; it is decoded greedily and no more.
CALIBRATION: Split = "calibration"

_PACKAGES = (
    "lm_eval", "torch", "transformers", "peft", "accelerate", "datasets", "numpy", "scipy",
    "math-verify", "sympy", "pyarrow",
)  # fmt: skip


class RunDirectory:
    """One run on disk. Open with ``create_or_open`` (the driver) or ``open`` (stages)."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe

    @classmethod
    def create_or_open(cls, path: Path, recipe: Recipe) -> RunDirectory:
        """Makes the folder, or checks that it belongs to this recipe.

        What is no part of a recipe's identity may differ from an earlier command. The recipe on
        disk stays as it was until ``tell_jobs`` and ``commit``, so that a command that fails harms
        no good run.

        Raises:
            UserError: the folder holds something else, or a run of another recipe; the message
                names the keys that differ.
        """
        if path.exists() and not path.is_dir():
            raise UserError(f"run directory {path}: is a file")
        stored = path / "recipe.yaml"
        if stored.exists():
            earlier = cls.open(path).recipe
            if differing := differences(earlier.identity(), recipe.identity()):
                raise UserError(
                    f"run directory {path} was made by another recipe; differing: "
                    f"{'; '.join(differing)}. Give another --run-dir, or the recipe it was made by"
                )
        elif path.is_dir() and any(not _says_nothing(p, path) for p in path.iterdir()):
            raise UserError(
                f"run directory {path}: holds files, but no recipe.yaml; give an empty folder"
            )
        run = cls(path, recipe)
        if not (run._manifest_path.exists() and stored.exists()):
            write_json(run._manifest_path, _new_manifest(recipe))
        if not stored.exists():
            run.commit()
        return run

    def tell_jobs(self) -> None:
        """Writes how jobs run and how the model is asked to the recipe on disk, which jobs read."""
        earlier = RunDirectory.open(self.path).recipe
        if (now := earlier.run_as(self.recipe)) != earlier:
            RunDirectory(self.path, now).commit()

    def commit(self) -> None:
        """Makes this recipe the one on disk: its conditions, seeds and budget hold."""
        content = yaml.safe_dump(self.recipe.model_dump(mode="json"), sort_keys=False)
        replace_file(
            self.path / "recipe.yaml", lambda beside: beside.write_text(content, encoding="utf-8")
        )
        self.update_manifest(lambda m: m.update(recipe=self.recipe.model_dump(mode="json")))

    def discard_if_empty(self) -> None:
        """Removes a run in which nothing was generated: a mistake leaves no trace.

        A table counts although no manifest names it: its job ended, and the stage did not.
        """
        recipe = self.path / "recipe.yaml"
        within = [path for path in self.path.rglob("*") if path != recipe]
        if self.manifest()["files"]:
            return
        if not all(p.is_dir() or _says_nothing(p, self.path) for p in within):
            return
        for path in sorted(within, reverse=True):  # what is in a folder before the folder
            if path.is_dir():
                with contextlib.suppress(OSError):
                    path.rmdir()
            elif path.name not in (RUN_LOCK, JOBS_LOCK):
                path.unlink(missing_ok=True)
        recipe.unlink(missing_ok=True)  # last: until then the same command goes on

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """Opens an existing run.

        Raises:
            UserError: there is none.
        """
        stored = Path(path) / "recipe.yaml"
        if not stored.is_file():
            raise UserError(f"{path}: is no run directory (it has no recipe.yaml)")
        try:
            content = yaml.safe_load(stored.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{stored}: is not valid YAML: {error}") from error
        if not isinstance(content, dict):
            raise UserError(f"{stored}: expected a mapping of keys")
        return cls(Path(path), check_recipe(content, source=str(stored)))

    # The manifest

    @property
    def _manifest_path(self) -> Path:
        return self.path / "manifest.json"

    def manifest(self) -> dict[str, Any]:
        """The manifest as it stands."""
        return read_manifest(self.path)

    def update_manifest(self, change: Any) -> None:
        """Reads, changes and replaces the manifest. Only the process with the lock calls this."""
        manifest = self.manifest()
        before = json.dumps(manifest)
        change(manifest)
        if json.dumps(manifest) != before:
            write_json(self._manifest_path, manifest)

    # Sealed files

    def is_sealed(self, relative: str) -> bool:
        """Whether the file or folder is there whole (and, if the manifest knows it, recorded)."""
        return (self.path / relative).exists()

    def seal(self, relative: str) -> None:
        """Records the hash of a file or folder that is complete. Sealing again must agree."""
        found = sha256(self.path / relative)

        def change(manifest: dict[str, Any]) -> None:
            recorded = manifest["files"].setdefault(relative, found)
            if recorded != found:
                raise UserError(self._changed(relative))

        self.update_manifest(change)

    def sealed(self, relative: str) -> Path:
        """The path of a sealed file, after checking that it is as it was sealed.

        Raises:
            UserError: the stage that writes it has not run, or the file was changed since.
        """
        recorded = self.manifest()["files"].get(relative)
        path = self.path / relative
        if recorded is None or not path.exists():
            raise UserError(
                f"{path}: is not there yet; run the stage that writes it first "
                f"(gapft run goes through all of them)"
            )
        if sha256(path) != recorded:
            raise UserError(self._changed(relative))
        return path

    def _changed(self, relative: str) -> str:
        return (
            f"{self.path / relative}: was changed after it was sealed (its hash differs from "
            f"manifest.json); restore it, or start a new run directory"
        )

    # The lock

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run against other processes; it is released even by a kill.

        Raises:
            UserError: another process holds it; the message names it.
        """
        with hold(self.path):
            yield

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds a stage's wall seconds to the manifest (several sittings add up)."""
        start = time.monotonic()

        def change(manifest: dict[str, Any]) -> None:
            entry = manifest["stages"].setdefault(stage, {"seconds": 0.0})
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - start, 3)

        try:
            yield
        except BaseException:
            with contextlib.suppress(GapftError):  # on a full disk: the first error is the one
                self.update_manifest(change)
            raise
        self.update_manifest(change)


def _says_nothing(path: Path, run_path: Path) -> bool:
    """Whether a file of a run is there before anything is generated, or was never finished.

    A folder of anybody else's is no run, though it may hold files of such names.
    """
    if path.name in (RUN_LOCK, JOBS_LOCK):
        return True
    if path.name == "manifest.json" and path.parent == run_path:
        with contextlib.suppress(UserError):
            manifest = read_manifest(run_path)
            return "gapft_harness" in manifest and not manifest.get("files")
        return False
    if path.name.startswith(".") and path.name.endswith(PARTIAL):
        return True
    journal = path.suffix == ".jsonl" and path.parent != run_path
    return journal and path.is_file() and not path.stat().st_size


def read_manifest(run_path: Path) -> dict[str, Any]:
    """A run's manifest.

    Raises:
        UserError: it cannot be read.
    """
    path = run_path / "manifest.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object")
    return content


def splits_of(recipe: Recipe) -> tuple[Split, ...]:
    """The splits that a recipe's search stage sees to."""
    return (*SPLITS, CALIBRATION) if recipe.scaling else SPLITS


def _new_manifest(recipe: Recipe) -> dict[str, Any]:
    return {
        "schema": 1,
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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "gapft-harness": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def differences(before: Any, after: Any, key: str = "") -> list[str]:
    """Keys at which two resolved recipes differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in sorted({*before, *after})
            for line in differences(before.get(name), after.get(name), f"{key}.{name}".strip("."))
        ]
    return [] if before == after else [f"{key} ({before!r} there, {after!r} here)"]


def require(condition: bool, message: str) -> None:
    """Raises a ``GapftError`` for an invariant of the harness itself that does not hold."""
    if not condition:
        raise GapftError(message)
