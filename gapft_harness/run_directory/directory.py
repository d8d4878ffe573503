"""A run directory: its recipe, its outputs, and facts of the run itself.

``recipe.yaml`` is the recipe; ``run.json`` has the records of the outputs (``engine.run``) and the
facts of ``RunFacts``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

from gapft_harness.core.errors import GapftError, UnknownPluginError, UserError
from gapft_harness.core.files import PARTIAL, replace_file
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import NotKnownYet
from gapft_harness.engine.run import RECORDS, Run
from gapft_harness.engine.store import remove_path
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.reading import format_recipe, load_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout, recipe_changes
from gapft_harness.run_directory.facts import (
    Change,
    RunFacts,
    TaskFacts,
    build_facts,
    find_versions,
    list_late_warnings,
)
from gapft_harness.run_directory.lock import RUN_LOCK
from gapft_harness.run_directory.recipe_changes import find_changes, list_setting_changes

#: ``pool``, ``audit`` or ``calibration``.
Split = str
#: The splits that every run searches.
SPLITS: tuple[Split, ...] = ("pool", "audit")
#: The split of a run that scales its adapters; it is only decoded greedily.
CALIBRATION: Split = "calibration"


def hash_recipe(recipe: Recipe) -> str:
    """Hash the settings of a recipe, however its file is formatted."""
    return content_hash(recipe.model_dump(mode="json"))


class RunDirectory(Run):
    """One run on disk: its outputs and their records, its recipe, and typed facts.

    Experiments open one with ``RunDirectory.open(path)`` and read files with ``run.file(name)``,
    which refuses a file that was changed.

    Args:
        path: the run directory.
        recipe: its recipe.
        is_new: whether this command created it; the command may then remove it again.
        changes: a line for each setting that differs from the run's and that its work depends on.
    """

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        *,
        is_new: bool = False,
        changes: Sequence[str] = (),
    ) -> None:
        super().__init__(path)
        self.recipe = recipe
        self.is_new = is_new
        self.changes = changes

    # Opening a run

    @classmethod
    def create_or_open(
        cls, path: Path, recipe: Recipe, plugins: Plugins | None = None
    ) -> RunDirectory:
        """Create a run directory, or open one for a recipe that may require work to be repeated.

        The recipe on disk stays until ``write_execution_settings`` or ``write_recipe`` is called,
        so that a failing command does not damage the run. Conditions and seeds that are already
        trained stay.

        Args:
            path: the run directory.
            recipe: the recipe of the command.
            plugins: as for ``Recipe.build_identity``.

        Raises:
            UserError: the folder contains other files, or a run of another recipe.
        """
        recipe, changes = cls.compare_recipe(path, recipe, plugins)
        run = cls(path, recipe, is_new=not (path / layout.RECIPE).exists(), changes=changes)
        if run.is_new or not (path / RECORDS).exists():
            stored = recipe if run.is_new else read_recipe(path)
            facts = build_facts()
            facts["versions"] = find_versions()
            facts["recipe"] = hash_recipe(stored)
            run.write_facts(facts)
        if run.is_new:
            run.write_recipe()
        return run

    @classmethod
    def compare_recipe(
        cls, path: Path, recipe: Recipe, plugins: Plugins | None = None
    ) -> tuple[Recipe, list[str]]:
        """Compare a recipe with the run in a folder, without writing anything.

        Returns:
            The recipe, extended with what the run has trained, and the changed settings.

        Raises:
            UserError: as ``create_or_open``.
        """
        if path.exists() and not path.is_dir():
            raise UserError(f"run directory {path}: is a file; expected a folder")
        if (path / layout.RECIPE).exists():
            earlier = cls(path, read_recipe(path))
            task = earlier.facts()["task"]
            changes = find_changes(path, earlier.recipe, recipe, task, plugins)
            trained = () if changes else earlier.find_trained_arms()
            return recipe_changes.extend_recipe(earlier.recipe, recipe, trained), changes
        if path.is_dir() and not _has_no_work(path):
            raise UserError(
                f"run directory {path}: not empty, and has no recipe.yaml; use an empty folder"
            )
        return recipe, []

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """Open an existing run.

        Raises:
            UserError: the folder is not a run directory.
        """
        run = cls(Path(path), read_recipe(Path(path)))
        if not (run.path / RECORDS).exists():
            raise UserError(
                f"{run.path / RECORDS}: is missing, so it is not known what the files of this run "
                f"were made from; gapft run {path} (with --plugin and --include-path as before) "
                "makes it again, with the outputs that the store has"
            )
        return run

    def discard_if_empty(self) -> None:
        """Remove a run that this command created if nothing was generated in it.

        A run that existed before stays.
        """
        if not self.is_new or self.read_records():
            return
        for path in self.path.iterdir():
            if path.name != RUN_LOCK:  # this command holds it
                remove_path(path)

    # Outputs

    def find_trained_arms(self) -> list[Arm]:
        """List the arms that have an adapter."""
        places = map(layout.parse_path, self.read_records())
        arms = [place.arm for place in places if place and place.kind == layout.ADAPTERS]
        return [arm for arm in arms if arm and (self.path / layout.adapter_path(arm)).exists()]

    # Facts of the run itself

    def facts(self) -> RunFacts:
        """Read the facts of the run itself."""
        return cast(RunFacts, {**build_facts(), **self.read_facts()})

    def update_facts(self, change: Callable[[RunFacts], object]) -> None:
        """Read, change and write the facts of the run itself; the run's lock must be held."""
        facts = self.facts()
        change(facts)
        self.write_facts(facts)

    @property
    def task(self) -> TaskFacts:
        """The task of the search.

        Raises:
            NotKnownYet: nothing is searched yet.
        """
        if not (task := self.facts()["task"]):
            raise NotKnownYet(
                f"{self.path}: nothing is searched yet; run gapft run --only search first"
            )
        return task

    def record_changes(self, lines: Sequence[str]) -> list[str]:
        """Add changes of settings or inputs to the history.

        Returns:
            A sentence for each change, if decisions existed by then.
        """
        if not lines:
            return []
        change = self._describe_changes(lines)
        self.update_facts(lambda facts: facts["history"].append(change))
        return list_late_warnings([change])

    def _describe_changes(self, lines: Sequence[str]) -> Change:
        had_results = any(change["had_results"] for change in self.facts()["history"]) or any(
            layout.find_top_folder(name) == layout.DECISIONS for name in self.read_records()
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"time": now, "changed": [*lines], "had_results": had_results}

    @contextlib.contextmanager
    def record_stage_time(self, stage: str) -> Iterator[None]:
        """Add a stage's wall seconds (all its runs together) and date to the facts.

        The date changes only if the stage made an output. A finished stage that finds nothing to do
        changes nothing, nor does a mistake of the user.
        """
        start = time.monotonic()
        old_records = self.read_records()

        def apply_change(facts: RunFacts, *, is_complete: bool) -> None:
            is_same = self.read_records() == old_records
            if is_complete and stage in facts["stages"] and is_same:
                return
            day = datetime.now(UTC).date().isoformat()
            entry = facts["stages"].setdefault(stage, {"seconds": 0.0, "day": day})
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - start, 3)
            if not is_same:
                entry["day"] = day

        try:
            yield
        except UserError:
            raise
        except BaseException:
            with contextlib.suppress(GapftError):  # a full disk: the first error is reported
                self.update_facts(partial(apply_change, is_complete=False))
            raise
        self.update_facts(partial(apply_change, is_complete=True))

    # The recipe

    def record_recipe(self, other_changes: Sequence[str] = ()) -> list[str]:
        """Record the hash of this recipe, and in the history which settings it changes.

        ``write_recipe`` follows. If a command is killed before it, the next one does not record the
        changes again.

        Args:
            other_changes: changes of inputs, recorded if no setting changes.

        Returns:
            As ``record_changes``.
        """
        lines = [*other_changes]
        if setting_changes := list_setting_changes(read_recipe(self.path), self.recipe):
            is_recorded = self.facts()["recipe"] == hash_recipe(self.recipe)
            lines = [] if is_recorded else setting_changes
        history = [self._describe_changes(lines)] if lines else []

        def apply_change(facts: RunFacts) -> None:
            facts["history"] += history
            facts["recipe"] = hash_recipe(self.recipe)

        self.update_facts(apply_change)
        return list_late_warnings(history)

    def write_execution_settings(self) -> None:
        """Write the settings of how jobs run and reach the model to the recipe on disk."""
        earlier = read_recipe(self.path)
        if (current := earlier.with_execution_of(self.recipe)) != earlier:
            written = RunDirectory(self.path, current)
            written.record_recipe()
            written.write_recipe()

    def write_recipe(self) -> None:
        """Write this recipe to the run; see ``record_recipe``."""
        content = format_recipe(self.recipe)
        replace_file(self.path / layout.RECIPE, lambda new: new.write_text(content, "utf-8"))

    def require_recorded_recipe(self) -> None:
        """Require that the run's recipe is the one that its last command wrote.

        Raises:
            UserError: ``recipe.yaml`` was edited, or a command was interrupted.
        """
        if hash_recipe(read_recipe(self.path)) != self.facts()["recipe"]:
            raise UserError(
                f"{self.path / layout.RECIPE}: was changed after it was written (its hash differs "
                f"from {RECORDS}). Restore it; to change a run, give your own recipe to gapft run. "
                "If a command was interrupted, run it again"
            )


def read_recipe(path: Path) -> Recipe:
    """Read the recipe of a run directory.

    Raises:
        UserError: the folder is not a run directory, or its recipe is damaged.
    """
    stored = path / layout.RECIPE
    if not stored.is_file():
        raise UserError(f"{path}: not a run directory (recipe.yaml is missing)")
    return load_recipe(stored)


def _has_no_work(path: Path) -> bool:
    """Return whether a folder has at most what a killed command leaves before its first output."""
    names = {file.name for file in path.iterdir()}
    unfinished = {name for name in names if name.startswith(".") and name.endswith(PARTIAL)}
    if names - unfinished - {RUN_LOCK, RECORDS}:
        return False
    with contextlib.suppress(UserError):
        return not Run(path).read_records()
    return False  # another program's file of this name


@contextlib.contextmanager
def name_missing_plugins(run_path: Path) -> Iterator[None]:
    """Explain for a plugin that is not loaded which file or package it came from.

    Raises:
        UserError: the plugin is not loaded, and the run records its origin.
    """
    try:
        yield
    except UnknownPluginError as error:
        origins = Run(run_path).read_facts().get("plugins", {})
        if (origin := origins.get(f"{error.kind} {error.name}")) is None:
            raise
        place = origin["from"]
        digest = origin.get("sha256")
        description = f"the {error.kind} {error.name!r}, which {run_path} was made with"
        if digest is None:
            raise UserError(f"{place}: not installed; it provides {description}") from error
        missing_note = "" if Path(place).is_file() else ", a file that no longer exists"
        raise UserError(
            f"give --plugin {place}{missing_note} (sha256 {digest[:12]}): it provides {description}"
        ) from error


def list_recorded_include_paths(run_path: Path) -> list[str]:
    """List the folders with task YAML that a run's search was given; omit missing folders."""
    paths = Run(run_path).read_facts().get("include_paths", [])
    return [path for path in paths if Path(path).is_dir()]


def list_splits(recipe: Recipe) -> tuple[Split, ...]:
    """List the splits that a recipe's search stage covers."""
    calibration = () if recipe.calibration is None else (CALIBRATION,)
    return (*SPLITS, *calibration)


def list_arms(recipe: Recipe) -> list[Arm]:
    """List every (condition, seed) of a recipe, in the recipe's order."""
    return [Arm(condition, seed) for condition in recipe.conditions for seed in recipe.seeds]


def require_consistent(condition: bool, message: str) -> None:
    """Raise a ``GapftError`` where finished files contradict each other.

    Args:
        condition: what must hold.
        message: names the files and what was found and expected.

    Raises:
        GapftError: it does not hold.
    """
    if not condition:
        raise GapftError(message)
