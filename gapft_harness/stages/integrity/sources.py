"""Runs that training sets are taken from: whether they may be, and whether they are as they were.

A set that is taken is sealed in the run that takes it, with the hash of the file that it was taken
from. Another base may be trained on it, from another search and by other settings. What must be
the same is what its ids and its verdicts mean: the task with its verifier, and the tokenizer. (Of
each example the problem must be the same too; see ``stages/selection/taking.py``.)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.integrity.rests_on import SECTION, differing, model_state

#: Files that say which id a text is; a fast tokenizer is read from the first alone.
_FAST, _SLOW = "tokenizer.json", ("vocab", "merges.txt", "added_tokens.json")

#: What a run's task and verdicts are known by, whatever was recorded besides.
_TASK = ("name", "fingerprint", "verifier", "verifier_params")


def taken_arm(arm: Arm, condition: Condition) -> Arm:
    """The arm of the other run whose training set an arm takes."""
    return Arm(condition.condition or arm.condition, arm.seed)


def is_taken(run: RunDirectory, manifest: Manifest, arm: Arm) -> bool:
    """Whether an arm's set was taken already, as its condition says now; then it stays."""
    said, name = manifest["budgets"].get(arm.name, {}), layout.selection(arm)
    by = run.recipe.conditions[arm.condition].said(arm.condition)
    there = name in manifest["files"] and (run.path / name).exists()
    return there and "taken" in said and said.get("condition") == by


def open_source(run: RunDirectory, condition: str) -> RunDirectory:
    """The run that a condition's sets are taken from.

    Raises:
        UserError: there is none, or it is this run itself.
    """
    place = run.recipe.conditions[condition].run or ""
    key = f"key {f'conditions.{condition}.run'!r}"
    if Path(place).resolve() == run.path.resolve():
        raise UserError(f"{key}: {place} is this run itself; name the run whose sets are wanted")
    try:
        return RunDirectory.open(place)
    except UserError as error:
        raise UserError(f"{key}: {error}; name the folder of a run that has selected") from error


def sealed_set(source: RunDirectory, arm: Arm, condition: Condition) -> Path:
    """The file that an arm's set is taken from, as it was sealed there.

    Raises:
        UserError: there is none, it was changed, or it was taken from a third run itself.
    """
    manifest, of = source.manifest(), taken_arm(arm, condition)
    key = f"key {f'conditions.{arm.condition}'!r}"
    places = map(layout.read, manifest["files"])
    known = [p.arm.name for p in places if p and p.arm and p.kind == layout.SELECTIONS]
    if of.name not in known:
        raise UserError(
            f"{key}: {source.path} has no training set {of.name}; it has: "
            f"{', '.join(known) or '(none; gapft run --only select makes them)'}"
        )
    if origin := manifest["budgets"].get(of.name, {}).get("taken"):
        raise UserError(
            f"{key}: {of.name} of {source.path} was itself taken from {origin['run']}; "
            "take it from there"
        )
    return source.sealed(layout.selection(of))


def check_sources(run: RunDirectory) -> None:
    """Stops before a search if a set that the recipe wants cannot be taken.

    Args:
        run: the run, which need not be there yet.

    Raises:
        UserError: it cannot; the message names the key.
    """
    manifest = run.manifest_or_new()
    for name, condition in run.recipe.taken().items():
        arms = [Arm(name, seed) for seed in run.recipe.seeds]
        left = [arm for arm in arms if not is_taken(run, manifest, arm)]
        if left:
            source = open_source(run, name)
            for arm in left:
                sealed_set(source, arm, condition)
            task, theirs = run.recipe.data.task, source.recipe.data.task
            lines = [] if task == theirs else [f"task: {task} here, {theirs} there"]
            require_alike(name, source, [*lines, *_tokenizers(run.recipe, source, early=True)])


def check_grounds(run: RunDirectory, now: Mapping[str, Any]) -> None:
    """Stops before a search if its task is another than that of a run that sets are taken from.

    Args:
        now: its ``rests_on``, as it is about to be searched.

    Raises:
        UserError: it is another; the message says how.
    """
    for name in run.recipe.taken():
        arms = [Arm(name, seed) for seed in run.recipe.seeds]
        if not all(is_taken(run, run.manifest(), arm) for arm in arms):
            source = open_source(run, name)
            require_alike(name, source, _grounds(source.manifest(), now))


def check_task(run: RunDirectory, condition: str, source: RunDirectory) -> None:
    """Holds a run that was searched to the task, the verifier and the tokenizer of another.

    Raises:
        UserError: one is another; the message says how.
    """
    here, there = run.manifest(), source.manifest()
    lines = _grounds(there, here[SECTION])
    for key in _TASK if not lines else ():
        ours, theirs = here["task"].get(key), there["task"].get(key)
        if ours != theirs:
            lines.append(f"task, {key}: {ours} here, {theirs} there")
    require_alike(condition, source, [*lines, *_tokenizers(run.recipe, source)])


def require_alike(condition: str, source: RunDirectory, lines: list[str]) -> None:
    """Refuses a source by what differs.

    Raises:
        UserError: something does.
    """
    if lines:
        raise UserError(
            f"key {f'conditions.{condition}.run'!r}: the training sets of {source.path} mean "
            f"something else here: {'; '.join(lines)}. Take sets of the same task, verifier and "
            "tokenizer, or leave the condition out"
        )


def origins(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """Where the sets of conditions were taken from, by condition: what ``budgets`` say of it."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, entry in manifest["budgets"].items():
        if (arm := layout.arm_of(name)) and "taken" in entry:
            found[arm.condition] = entry["taken"]
    return found


def file_of(entry: Mapping[str, Any]) -> Path | None:
    """The file that a set was taken from, by its arm's entry in ``budgets``; None: of none."""
    taken = entry.get("taken") or {}
    of = layout.arm_of(str(taken.get("arm")))
    return Path(str(taken.get("run"))) / layout.selection(of) if of else None


def _grounds(theirs: Manifest, ours: Mapping[str, Any]) -> list[str]:
    """How the task or the verifier's code differs."""

    def of(section: Mapping[str, Any]) -> dict[str, Any]:
        codes = section.get("plugins") or {}
        judges = {key: code for key, code in codes.items() if key.startswith("verifier ")}
        return {"task": section.get("task"), "plugins": judges}

    lines = differing(of(theirs[SECTION]), of(ours))
    return [f"{line} ('now' here, 'then' there)" for line in lines]


def _tokenizers(recipe: Recipe, source: RunDirectory, *, early: bool = False) -> list[str]:
    """How the tokenizers differ; ``early``: a model that is not here yet may still come."""
    ours = model_state(recipe)
    theirs = source.manifest()[SECTION].get("model")
    apart = any("tokenizer" in of.model.args for of in (recipe, source.recipe))
    if ours is None or theirs is None or apart:
        here, there = (_named(of) for of in (recipe, source.recipe))
        if here == there or (early and ours is None):
            return []
        return [
            f"tokenizer: that of {here} here, of {there} there, and not both have recorded files "
            "to be compared by"
        ]
    a, b = (_files(of["files"]) for of in (ours, theirs))
    if _FAST in a and _FAST in b:
        a, b = ({_FAST: of[_FAST]} for of in (a, b))
    return [
        f"tokenizer, {name}: {(a.get(name) or 'none')[:12]} here, "
        f"{(b.get(name) or 'none')[:12]} there"
        for name in sorted({*a, *b})
        if a.get(name) != b.get(name)
    ]


def _files(files: Mapping[str, str]) -> dict[str, str]:
    return {
        name: digest
        for name, digest in files.items()
        if name == _FAST or name.startswith(_SLOW) or name.endswith(".model")
    }


def _named(recipe: Recipe) -> str:
    return str(recipe.model.args.get("tokenizer") or recipe.model.args["pretrained"])
