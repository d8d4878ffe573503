"""What a run rests on: its task, data, plugins and model, as search found them.

The manifest's section ``rests_on`` holds it from the first search on. Every command compares it
with what is there now, files first: only where a file changed is the task read again, to say what
of it is another. Jobs compare what they have loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import canonical, searched
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.facts import Manifest
from gapft_harness.run_directory.file_states import states
from gapft_harness.run_directory.manifest import read_manifest
from gapft_harness.stages.foundation.shape import require_shape

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask

#: The section of the manifest.
SECTION: Final = "rests_on"

#: Sections of it that say what the task and its data are, wherever they lie.
_CONTENT = ("task", "code", "data", "plugins")

#: Where further audits' tasks are told: by name ``task`` and ``code``.
AUDITS = "audits"

#: Characters of a value that a message shows.
_SHOWN = 60

#: What the environment says of where data are.
_PLACES = "GAPFT_DATA_DIR"


def content(
    task: LoadedTask, opened: Iterable[str], splits: Mapping[str, Sequence[Problem]]
) -> dict[str, Any]:
    """The task and the splits that were read, as values and hashes that are equal on every machine.

    Args:
        task: the task.
        opened: the files that were opened for it.
        splits: problems by split.
    """
    _, code = task.files(opened)
    return {
        "task": {"version": task.version, **task.config()},
        "code": {name: sha256(file) for name, file in code.items()},
        "data": {split: _digest(problems) for split, problems in splits.items()},
    }


def places(task: LoadedTask, opened: Iterable[str], include_paths: Sequence[str]) -> dict[str, Any]:
    """Where the task and its data were found here: the files with their states."""
    files, code = task.files(opened)
    return {
        "files": states([*files, *code.values()]),
        "include_paths": _resolved(include_paths),
        "data_dir": os.environ.get(_PLACES),
    }


def searched_in(run_path: Path) -> list[str]:
    """The folders with task YAML that a run's search was given, those that are still there."""
    if not (run_path / layout.MANIFEST).exists():
        return []
    recorded = read_manifest(run_path).get(SECTION) or {}
    return [path for path in recorded.get("include_paths", ()) if Path(path).is_dir()]


def elsewhere(recorded: Mapping[str, Any], include_paths: Sequence[str]) -> bool:
    """Whether a command looks for the task or its data in other places than those recorded."""
    given = _resolved(include_paths)
    data = os.environ.get(_PLACES)
    return bool(
        (given and given != recorded.get("include_paths"))
        or (data and data != recorded.get("data_dir"))
    )


def named(recipe: Recipe, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The plugins' parts that a search rests on, by kind and name.

    Args:
        recipe: the run's.
        task: the task's facts for the manifest.
    """
    return [
        ("verifier", task["verifier"]),
        ("response rule", task["keep"]),
        ("sampler", recipe.model.backend),
    ]


def codes(plugins: Plugins, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The hashes of the code of plugins' parts that are not bundled, by kind and name."""
    found = {f"{kind} {name}": plugins.code(kind, name) for kind, name in names}
    return {key: code for key, code in found.items() if code}


def record_plugins(manifest: Manifest, plugins: Plugins, names: Iterable[tuple[str, str]]) -> None:
    """Adds plugins' parts that a stage takes to what the run rests on; those there already stay."""
    if SECTION in manifest:
        kept = manifest[SECTION]["plugins"]
        manifest[SECTION]["plugins"] = {**codes(plugins, names), **kept}


def has_adapters(run: RunDirectory, trainer: str) -> bool:
    """Whether anything was trained in a run by a trainer, as far as the recipe tells by whom."""
    folder, recipe = run.path / layout.ADAPTERS, run.recipe
    arms = map(layout.arm_of, (path.name for path in folder.iterdir())) if folder.is_dir() else ()
    return any(
        arm is None
        or arm.condition not in recipe.conditions
        or recipe.training_of(arm.condition).trainer == trainer
        for arm in arms
    )


def record_trainers(manifest: Manifest, plugins: Plugins, run: RunDirectory) -> None:
    """Adds the trainers; each takes the place of an earlier one that no adapter is of."""
    for trainer in run.recipe.trainers():
        names = [("trainer", trainer)]
        record_plugins(manifest, plugins, names)
        if SECTION in manifest and not has_adapters(run, trainer):
            manifest[SECTION]["plugins"].update(codes(plugins, names))


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Sentences on what is recorded and is another now; what either does not say is left out."""
    lines: list[str] = []
    for section in _CONTENT:
        a, b = before.get(section), now.get(section)
        if a is None or b is None:
            continue
        if section == "task":
            lines += [f"task, {line}" for line in _values(searched(a), searched(b))]
        elif section == "code":
            lines += [
                f"task, code {key}: {_hashes(a.get(key), b.get(key))}"
                for key in sorted({*a, *b})
                if a.get(key) != b.get(key)
            ]
        elif section == "data":
            lines += [
                f"data, {split}: {_data(b[split])} now, {_data(a[split])} then"
                for split in a
                if split in b and a[split] != b[split]
            ]
        else:
            lines += [
                f"plugin, {key}: its code: {_hashes(a[key], b[key])}"
                for key in a
                if key in b and a[key] != b[key]
            ]
    for name, audit in before.get(AUDITS, {}).items():
        found = differing(audit, now.get(AUDITS, {}).get(name, {}))
        lines += [f"audits.{name}, {line}" for line in found]
    return lines


def bound(run: RunDirectory, manifest: Manifest) -> dict[str, Any]:
    """What a run rests on by now: until a response was judged, verifiers and rules may be mended.

    Args:
        run: the run.
        manifest: its manifest.

    Raises:
        UserError: the section is damaged.
    """
    if SECTION not in manifest and not manifest["files"]:
        return {}  # nothing was searched yet
    require_shape(manifest, run.path)
    recorded = dict(manifest[SECTION])
    if recorded.get("plugins") and not _judged(run, recorded):
        recorded["plugins"] = {
            key: code
            for key, code in recorded["plugins"].items()
            if not key.startswith(("verifier ", "response rule "))
        }
    return recorded


def _judged(run: RunDirectory, recorded: Mapping[str, Any]) -> bool:
    """Whether there are verdicts, or responses that were asked for because of one."""
    gap = (recorded.get("task", {}).get("metadata") or {}).get("gapft") or {}
    attempts = run.recipe.episode.attempts or (gap.get("episode") or {}).get("attempts", 1)
    early = run.recipe.search.stop != "never" or attempts > 1
    return early or any(run.path.glob(layout.responses("*/**")))


def require_same(run: RunDirectory, now: Mapping[str, Any]) -> None:
    """Stops if what is loaded is not what the run rests on.

    Args:
        run: the run.
        now: sections of ``rests_on`` as they are now; others are not compared.

    Raises:
        UserError: something is another; the message names it.
    """
    if lines := differing(bound(run, run.manifest()), now):
        raise changed(run.path, lines)


def require_common(manifests: Sequence[tuple[str, Manifest]]) -> None:
    """Stops if runs that are to be merged rest on different things.

    Args:
        manifests: each with its run's name.

    Raises:
        UserError: two differ; the message names how.
    """
    known = [(name, manifest[SECTION]) for name, manifest in manifests if manifest.get(SECTION)]
    for name, found in known[1:]:
        if lines := differing(known[0][1], found):
            raise UserError(
                f"{name} was searched on other grounds than {known[0][0]} ('now' there, 'then' "
                f"here): {'; '.join(lines)}; search all shards with the same task, data and plugins"
            )


def changed(where: str | Path, lines: Sequence[str]) -> UserError:
    """The error of a run that rests on something which is another now."""
    told = "\n".join(f"  {line}" for line in lines)
    return UserError(
        f"{where}: what the run rests on was changed since it was searched:\n{told}\n"
        "restore it, and the same command goes on; or start a new run directory"
    )


def _digest(problems: Sequence[Problem]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for problem in sorted(problems, key=lambda problem: problem.id):
        digest.update(canonical([problem.id, problem.prompt, problem.gold]).encode() + b"\n")
    return {"problems": len(problems), "sha256": digest.hexdigest()}


def _resolved(paths: Sequence[str]) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


def _values(before: Any, now: Any, key: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from _values(before.get(name), now.get(name), f"{key}.{name}".strip("."))
    elif before != now:
        a, b = canonical(before), canonical(now)
        alike = next((i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), 0)
        start = max(0, alike - _SHOWN // 3)
        yield f"{key}: {_part(b, start)} now, {_part(a, start)} then"


def _part(text: str, start: int) -> str:
    end = start + _SHOWN
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}"


def _data(digest: Mapping[str, Any]) -> str:
    return f"{digest['problems']} problems ({digest['sha256'][:12]})"


def _hashes(before: str | None, now: str | None) -> str:
    return f"{(now or 'none')[:12]} now, {(before or 'none')[:12]} then"
