"""A run directory: its recipe, sealed files, manifest and lock.

A sealed file is written to a temporary name and renamed, so that it is complete or absent. Its
hash goes into ``manifest.json``; later stages read the file only if its hash still matches.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL, replace_file, sha256, sha256_cached, write_json
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.core.text import describe_read_error
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout, recipe_changes
from gapft_harness.run_directory.history import (
    LATE_PREFIX,
    append_change,
    hash_recipe,
    list_late_warnings,
    read_history,
)
from gapft_harness.run_directory.lock import JOBS_LOCK, RUN_LOCK, SOFT_LOCK
from gapft_harness.run_directory.manifest import (
    Manifest,
    find_condition,
    has_no_work,
    has_results,
    new_manifest,
    read_manifest,
    record_warnings,
    remove_entries,
)
from gapft_harness.run_directory.recipe_changes import (
    RecipeChanges,
    depends_on_adapters,
    find_changes,
)
from gapft_harness.store.store import Store

#: ``pool``, ``audit`` or ``calibration``.
Split = str
#: The splits that every run searches.
SPLITS: tuple[Split, ...] = ("pool", "audit")
#: The split of a run that scales its adapters; it is only decoded greedily.
CALIBRATION: Split = "calibration"


#: Entries of a run directory that stay when it is reset for a changed recipe.
_KEPT_NAMES = (
    RUN_LOCK, SOFT_LOCK, JOBS_LOCK, layout.HISTORY, layout.RECIPE, layout.MANIFEST, "tracking",
)  # fmt: skip


class RunDirectory:
    """One run on disk.

    Experiments open one with ``RunDirectory.open(path)`` and read files with ``run.sealed(file)``,
    which refuses a file that was changed.

    Args:
        path: the run directory.
        recipe: its recipe.
        is_new: whether this command created it; the command may then remove it again.
        changes: settings that differ from the recipe that the run was made with.
    """

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        *,
        is_new: bool = False,
        changes: RecipeChanges | None = None,
    ) -> None:
        self.path = path
        self.recipe = recipe
        self.is_new = is_new
        self.changes = changes or RecipeChanges()

    @classmethod
    def create_or_open(
        cls, path: Path, recipe: Recipe, plugins: Plugins | None = None
    ) -> RunDirectory:
        """Create a run directory, or open one for a recipe that may require work to be repeated.

        The recipe on disk stays until ``write_execution_settings``, ``reset_for_recipe`` or
        ``write_recipe`` is called, so that a failing command does not damage the run. Conditions
        and seeds that are already trained stay.

        Args:
            path: the run directory.
            recipe: the recipe of the command.
            plugins: as for ``Recipe.build_search_identity``.

        Raises:
            UserError: the folder contains other files, or a run of another recipe.
        """
        recipe, changes = cls.compare_recipe(path, recipe, plugins)
        run = cls(path, recipe, is_new=not (path / layout.RECIPE).exists(), changes=changes)
        if run.is_new or not run._manifest_path.exists():
            write_json(run._manifest_path, new_manifest(recipe))
        if run.is_new:
            run.write_recipe()
        return run

    @classmethod
    def compare_recipe(
        cls, path: Path, recipe: Recipe, plugins: Plugins | None = None
    ) -> tuple[Recipe, RecipeChanges]:
        """Compare a recipe with the run in a folder, without writing anything.

        Returns:
            The recipe, extended with what the run has trained, and the changed settings.

        Raises:
            UserError: as ``create_or_open``.
        """
        if path.exists() and not path.is_dir():
            raise UserError(f"run directory {path}: is a file; expected a folder")
        if (path / layout.RECIPE).exists():
            earlier = cls.open(path)
            manifest, trained = earlier.read_or_new_manifest(), earlier.find_fixed_arms()
            changes = find_changes(path, earlier.recipe, recipe, trained, plugins, manifest)
            trained_conditions = {} if changes else earlier.find_trained_arms()
            return recipe_changes.extend_recipe(earlier.recipe, recipe, trained_conditions), changes
        if path.is_dir() and any(not has_no_work(p, path) for p in path.iterdir()):
            raise UserError(
                f"run directory {path}: not empty, and has no recipe.yaml; use an empty folder"
            )
        return recipe, RecipeChanges()

    def require_stored(self) -> None:
        """Refuse to change a run whose work is not in the store: it would be lost.

        Raises:
            UserError: the store does not have some of the work; the message names the first.
        """
        manifest, store, keys = self.manifest(), Store.for_run(self.path), list[str]()
        for file in manifest["files"]:
            place, is_kept = (
                layout.parse_path(file),
                not (self.changes.search_changes or depends_on_adapters(file)),
            )
            if place is None or is_kept or not (self.path / file).exists():
                continue
            if place.arm and place.kind == layout.ADAPTERS:
                keys.append(str(manifest["training"].get(place.arm.name, {}).get("stored", "")))
            elif place.name in manifest["verdict_counts"]:
                keys += manifest.get("stored", {}).get(place.name, [""])
        missing_keys = [key for key in keys if not store.has_group(key)]
        if missing_keys:
            raise UserError(
                f"run directory {self.path}: settings changed: "
                f"{'; '.join(self.changes.all_changes)}. Its work is not in the store {store.root} "
                f"({missing_keys[0] or 'no key is recorded'}) and would be lost; use another "
                "--run-dir"
            )

    def record_changes(self, other_changes: Sequence[str] = ()) -> list[str]:
        """Append changed settings to ``history.jsonl``; record a warning for late changes.

        Args:
            other_changes: changes of other inputs than the recipe, or of the model.

        Returns:
            A sentence for each change that was made after decisions existed.
        """
        earlier_recipe = RunDirectory.open(self.path).recipe
        setting_changes = recipe_changes.list_setting_changes(earlier_recipe, self.recipe)
        keys = {line.partition(" ")[0] for line in other_changes}  # may include the task's value
        lines = [
            *other_changes,
            *(line for line in setting_changes if line.partition(" ")[0] not in keys),
        ]
        if not lines:
            return []
        manifest = self.manifest()
        last = manifest.get("history")
        has_decisions = any(entry["decided"] for entry in read_history(self.path, last)) or any(
            layout.find_top_folder(name) == layout.DECISIONS for name in manifest["files"]
        )
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "changed": lines,
            "before": hash_recipe(earlier_recipe),
            "after": hash_recipe(self.recipe),
            "decided": has_decisions,
            "pass_at_1": self._read_pass_at_1(),
        }
        last, warnings = append_change(self.path, last, entry), list_late_warnings(entry)

        def apply_change(manifest: Manifest) -> None:
            manifest["history"] = last
            record_warnings(manifest, warnings)

        self.update_manifest(apply_change)
        return warnings

    def _read_pass_at_1(self) -> dict[str, float]:
        """Read each condition's Pass@1 from the report, if there is one."""
        try:
            results = json.loads((self.path / layout.REPORT / "results.json").read_text("utf-8"))
            return {
                row["condition"]: row["pass_at_1"]
                for row in results["conditions"]
                if row["condition"] != SOURCE
            }
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def reset_for_recipe(self) -> None:
        """Empty the run directory for its new recipe; the finished work is in the store.

        If the command is killed meanwhile, the old recipe remains and the next command does it
        again.
        """
        manifest, old_manifest = new_manifest(self.recipe), self.manifest()
        self._remove_paths(path for path in self.path.iterdir() if path.name not in _KEPT_NAMES)
        manifest["warnings"] = [
            line for line in old_manifest["warnings"] if line.startswith(LATE_PREFIX)
        ]
        if "history" in old_manifest:
            manifest["history"] = old_manifest["history"]
        write_json(self._manifest_path, manifest)
        self.write_recipe()

    def remove_trained(self) -> None:
        """Remove adapters and all files that depend on them; search and selections stay."""
        self.unseal(filter(depends_on_adapters, self.manifest()["files"]))
        folders = (path for path in self.path.iterdir() if path.is_dir())
        self._remove_paths(
            p for p in folders if depends_on_adapters(p.name) and p.name not in _KEPT_NAMES
        )
        self.update_manifest(lambda manifest: manifest.update({"training": {}}))

    def _remove_paths(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def write_execution_settings(self) -> None:
        """Write the settings of how jobs run and reach the model to the recipe that jobs read."""
        earlier = RunDirectory.open(self.path).recipe
        if (current := earlier.with_execution_of(self.recipe)) != earlier:
            RunDirectory(self.path, current).write_recipe()

    def write_recipe(self) -> None:
        """Write this recipe to the run directory and its manifest."""
        content = yaml.safe_dump(self.recipe.model_dump(mode="json"), sort_keys=False)
        replace_file(self.path / layout.RECIPE, lambda new: new.write_text(content, "utf-8"))
        self.update_manifest(lambda m: m.update({"recipe": self.recipe.model_dump(mode="json")}))

    def discard_if_empty(self) -> None:
        """Remove a run that this command created if nothing was generated in it.

        A run that existed before stays.
        """
        if not (self.is_new and self.is_empty()):
            return
        recipe = self.path / layout.RECIPE
        paths = [path for path in self.path.rglob("*") if path != recipe]
        for path in sorted(paths, reverse=True):  # files before their folders
            if path.is_dir():
                with contextlib.suppress(OSError):
                    path.rmdir()
            elif path.name not in (RUN_LOCK, SOFT_LOCK, JOBS_LOCK):
                path.unlink(missing_ok=True)
        recipe.unlink(missing_ok=True)  # last: until then the same command can continue

    def is_empty(self) -> bool:
        """Return whether nothing has been generated.

        A table counts even if the manifest does not name it: its job finished before the stage
        was interrupted.
        """
        paths = (path for path in self.path.rglob("*") if path.name != layout.RECIPE)
        are_ignorable = (path.is_dir() or has_no_work(path, self.path) for path in paths)
        return not has_results(self.manifest()) and all(are_ignorable)

    @classmethod
    def open(cls, path: Path | str, recipe: Mapping[str, Any] | None = None) -> RunDirectory:
        """Open an existing run.

        Args:
            path: the run directory.
            recipe: the recipe of the command that started a job, if it is not yet on disk.

        Raises:
            UserError: the folder is not a run directory.
        """
        stored = Path(path) / layout.RECIPE
        if not stored.is_file():
            raise UserError(f"{path}: not a run directory (recipe.yaml is missing)")
        try:
            content = yaml.safe_load(stored.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{stored}: is not valid YAML: {error}") from error
        except OSError as error:
            raise UserError(describe_read_error(stored, error)) from error
        if not isinstance(content, dict):
            raise UserError(f"{stored}: expected a mapping of keys")
        return cls(Path(path), check_recipe(dict(recipe or content), source=str(stored)))

    # The manifest

    @property
    def _manifest_path(self) -> Path:
        return self.path / layout.MANIFEST

    def manifest(self) -> Manifest:
        """Read the manifest."""
        return read_manifest(self.path)

    def read_or_new_manifest(self) -> Manifest:
        """Read the manifest; return a new one if the run has none yet."""
        return self.manifest() if self._manifest_path.exists() else new_manifest(self.recipe)

    def update_manifest(self, change: Callable[[Manifest], object]) -> None:
        """Read, change and write the manifest. Only the process with the lock may call this."""
        manifest = self.manifest()
        old_content = json.dumps(manifest)
        change(manifest)
        if json.dumps(manifest) != old_content:
            write_json(self._manifest_path, manifest)

    def find_trained_arms(self) -> dict[Arm, Condition]:
        """Map the arms with sealed adapters, in sealing order, to the condition of each."""
        manifest = self.read_or_new_manifest()
        places = [
            place for place in map(layout.parse_path, manifest["files"]) if place and place.arm
        ]
        arms = [place.arm for place in places if place.arm and place.kind == layout.ADAPTERS]
        existing_arms = [arm for arm in arms if (self.path / layout.adapter_path(arm)).exists()]
        return {arm: find_condition(manifest, arm) for arm in existing_arms}

    def find_fixed_arms(self) -> dict[Arm, Condition]:
        """Map the arms with files that depend on an adapter to the condition of each.

        Their conditions are fixed: a lost adapter is trained again as it was while any file that
        depends on it remains.
        """
        manifest = self.read_or_new_manifest()
        names = filter(depends_on_adapters, manifest["files"])
        places = [layout.parse_path(name) for name in names if (self.path / name).exists()]
        arms = dict.fromkeys(place.arm for place in places if place and place.arm)
        return {
            arm: find_condition(manifest, arm) for arm in arms if arm.name in manifest["budgets"]
        }

    # Sealed files

    def is_sealed(self, relative: str) -> bool:
        """Return whether a file or folder is complete; files are renamed into place."""
        return (self.path / relative).exists()

    def seal(self, relative: str) -> None:
        """Record the hash of a complete file or folder; sealing again must give the same hash."""
        digest = sha256(self.path / relative)

        def apply_change(manifest: Manifest) -> None:
            if manifest["files"].setdefault(relative, digest) != digest:
                raise UserError(self._describe_changed_file(relative))

        self.update_manifest(apply_change)

    def unseal(self, names: Iterable[str]) -> None:
        """Remove files and folders that will be made again, and their manifest entries.

        The manifest is written first: if the command is killed meanwhile, a remaining file is not
        a sealed one.

        Args:
            names: files that no remaining file was made from; they need not exist.
        """
        names = list(names)
        if not names:
            return

        def apply_change(manifest: Manifest) -> None:
            for name in names:
                manifest["files"].pop(name, None)
                remove_entries(manifest, name)

        self.update_manifest(apply_change)
        for path in [self.path / name for name in names]:
            if path.is_dir():  # renamed first, so that no partial folder remains
                hidden_path = path.with_name(f".{path.name}{PARTIAL}")
                shutil.rmtree(hidden_path, ignore_errors=True)
                path.rename(hidden_path)
                shutil.rmtree(hidden_path, ignore_errors=True)
            path.unlink(missing_ok=True)

    def sealed(self, relative: str) -> Path:
        """Return the path of a sealed file after checking its hash (``sha256_cached``).

        Raises:
            UserError: the stage that writes it has not run, or the file was changed since.
        """
        recorded = self.manifest()["files"].get(relative)
        path = self.path / relative
        if recorded is None or not path.exists():
            raise UserError(
                f"{path}: does not exist yet; run the stage that writes it first "
                f"(gapft run runs all stages)"
            )
        if sha256_cached(path) != recorded:
            raise UserError(self._describe_changed_file(relative))
        return path

    def _describe_changed_file(self, relative: str) -> str:
        return (
            f"{self.path / relative}: was changed after it was sealed (its hash differs from "
            "manifest.json); restore it, or start a new run directory"
        )

    @contextlib.contextmanager
    def record_stage_time(self, stage: str) -> Iterator[None]:
        """Add a stage's wall seconds (all its runs together) and date to the manifest.

        Also record the worker processes and threads of the last run. The date changes only if the
        stage sealed a file; a finished stage that finds nothing to do changes nothing.
        """
        start, old_files = time.monotonic(), self.manifest()["files"]

        def apply_change(manifest: Manifest, *, is_complete: bool) -> None:
            if is_complete and stage in manifest["stages"] and manifest["files"] == old_files:
                return
            day = datetime.now(UTC).date().isoformat()
            entry = manifest["stages"].setdefault(stage, {"seconds": 0.0, "day": day})
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - start, 3)
            executor = self.recipe.executor
            entry |= {"workers": executor.workers, "threads": executor.threads_per_worker}
            if manifest["files"] != old_files:
                entry["day"] = day

        try:
            yield
        except BaseException:
            with contextlib.suppress(GapftError):  # a full disk: the first error is reported
                self.update_manifest(partial(apply_change, is_complete=False))
            raise
        self.update_manifest(partial(apply_change, is_complete=True))


def list_splits(recipe: Recipe) -> tuple[Split, ...]:
    """List the splits that a recipe's search stage covers."""
    calibration = () if recipe.calibration is None else (CALIBRATION,)
    return (*SPLITS, *calibration)


def require_consistent(condition: bool, message: str) -> None:
    """Raise a ``GapftError`` where sealed files contradict each other.

    Args:
        condition: what must hold.
        message: names the files and what was found and expected.

    Raises:
        GapftError: it does not hold.
    """
    if not condition:
        raise GapftError(message)
