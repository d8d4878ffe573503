"""What a run rests on: its task, data, plugins and model, as search found them (``rests_on``).

The manifest's section ``rests_on`` holds it from the first search on. Every command compares it
with what is there now, files first: only where a file changed is the task read again, to say what
of it is another. Jobs compare what they have loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, StringConstraints, ValidationError

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import canonical, searched
from gapft_harness.core.json_values import changes, describe_change
from gapft_harness.core.records import Problem
from gapft_harness.core.weights import hub_commit, model_files, weights_folder
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe, model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, read_manifest
from gapft_harness.stages.integrity.subsets import changed_subsets
from gapft_harness.store.digests import Digests

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


#: The section of the manifest.
SECTION: Final = "rests_on"

#: Sections of it that say what the task and its data are, wherever they lie.
_CONTENT = ("task", "code", "data", "plugins")

#: Where further audits' tasks are told: by name ``task`` and ``code``.
AUDITS = "audits"

#: What the environment says of where data are.
_PLACES = "GAPFT_DATA_DIR"


def content(
    task: LoadedTask, opened: Iterable[str], splits: Mapping[str, Sequence[Problem]]
) -> dict[str, Any]:
    """The task and the splits that were read, as values and hashes, equal on every machine."""
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
        "files": file_states([*files, *code.values()]),
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
    """The plugins' parts that a search rests on, by kind and name."""
    return [
        ("verifier", task["verifier"]),
        ("response rule", task["keep"]),
        ("sampler", recipe.model.backend),
    ]


def codes(plugins: Plugins, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The hashes of the files of plugins' parts that are not bundled, by kind and name."""
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
            lines += [
                f"task, {describe_change(*change)}" for change in changes(searched(a), searched(b))
            ]
        elif section == "code":
            lines += [
                f"task, code {key}: {_hashes(a.get(key), b.get(key))}"
                for key in sorted({*a, *b})
                if a.get(key) != b.get(key)
            ]
        elif section == "data":
            lines += [
                f"data, {split}: {_data(a[split])} → {_data(b[split])}"
                for split in a
                if split in b and a[split] != b[split]
            ]
        else:
            lines += [
                f"plugin, {key}: its file: {_hashes(a[key], b[key])}"
                for key in a
                if key in b and a[key] != b[key]
            ]
    for name, audit in before.get(AUDITS, {}).items():
        found = differing(audit, now.get(AUDITS, {}).get(name, {}))
        lines += [f"audits.{name}, {line}" for line in found]
    return lines


def bound(run: RunDirectory, manifest: Manifest) -> dict[str, Any]:
    """What a run rests on by now: until a response was judged, verifiers and rules may be mended.

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
        now: sections of ``rests_on`` as they are now; others are not compared.

    Raises:
        UserError: something is another; the message names it.
    """
    if lines := differing(bound(run, run.manifest()), now):
        raise changed(run.path, lines)


class Changed(UserError):
    """A run rests on something which is another now.

    Attributes:
        lines: what, a sentence each.
    """

    lines: tuple[str, ...] = ()


def changed(where: str | Path, lines: Sequence[str]) -> Changed:
    """The error of a run that rests on something which is another now."""
    told = "\n".join(f"  {line}" for line in lines)
    error = Changed(
        f"{where}: what the run rests on was changed since it was searched:\n{told}\n"
        "restore it, and the same command goes on; or start a new run directory"
    )
    error.lines = tuple(lines)
    return error


def _digest(problems: Sequence[Problem]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for problem in sorted(problems, key=lambda problem: problem.id):
        fields = [problem.id, problem.prompt, problem.turns, problem.gold]
        digest.update(canonical(fields).encode() + b"\n")
    return {"problems": len(problems), "sha256": digest.hexdigest()}


def _resolved(paths: Sequence[str]) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


def _data(digest: Mapping[str, Any]) -> str:
    return f"{digest['problems']} problems ({digest['sha256'][:12]})"


def _hashes(before: str | None, now: str | None) -> str:
    return f"{(before or 'none')[:12]} → {(now or 'none')[:12]}"


_Part = Annotated[str, StringConstraints(pattern=r". .")]


class _Split(BaseModel):
    problems: int
    sha256: str


class _Model(BaseModel):
    files: dict[str, str]
    weights: dict[str, tuple[int, int]]


class _Audit(BaseModel):
    task: dict[str, Any]
    code: dict[str, str]


class _RestsOn(BaseModel):
    task: dict[str, Any]
    code: dict[str, str]
    data: dict[str, _Split]
    plugins: dict[_Part, str]
    files: dict[str, tuple[int, int, str]]
    include_paths: list[str]
    data_dir: str | None
    model: _Model | None
    audits: dict[str, _Audit] = {}


class _Sections(BaseModel):
    source: dict[str, Any]
    rests_on: _RestsOn


def require_shape(manifest: Manifest, where: Path) -> None:
    """Holds a manifest's section to its shape.

    Raises:
        UserError: it has another; the message names the key.
    """
    try:
        _Sections.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where / 'manifest.json'}: key {key!r}: {first['msg'][0].lower()}{first['msg'][1:]}; "
            f"found {first['input']!r:.60}; restore manifest.json, or start a new run directory"
        ) from error


def together(rests: Mapping[str, Any], more: Mapping[str, Any], audit: str) -> dict[str, Any]:
    """What a run rests on, with what one of its further audits rests on."""
    joined = {
        key: {**rests.get(key, {}), **more[key]}
        for key in ("data", "plugins", "files")
        if key in more
    }
    of_task = {key: more[key] for key in ("task", "code")}
    return {**rests, **joined, AUDITS: {**rests.get(AUDITS, {}), audit: of_task}}


def with_audits(
    recorded: Mapping[str, Any], now: Mapping[str, Any], splits: Iterable[str]
) -> dict[str, Any]:
    """What is recorded, and what of further audits and other splits came to the run since."""
    new = {split for split in splits if split not in recorded.get("data", {})}
    audits = {name for name in map(layout.further, new) if name}
    joined: dict[str, dict[str, Any]] = {
        "data": {split: now["data"][split] for split in sorted(new)},
        AUDITS: {name: now[AUDITS][name] for name in sorted(audits)},
        "files": now["files"] if new else {},
    }
    more = {key: {**of, **recorded.get(key, {})} for key, of in joined.items() if of}
    return {**recorded, **more}


#: Bytes up to which a file is always hashed: a tenth of a second.
_ALWAYS_HASHED = 64 << 20


def file_states(files: Iterable[Path]) -> dict[str, list[Any]]:
    """The states of files by their paths; those that are gone are left out."""
    return {str(file): _state(file) for file in sorted(set(files)) if file.is_file()}


def compare_files(recorded: Mapping[str, list[Any]]) -> tuple[list[str], list[str]]:
    """Compares files with their recorded states.

    Returns:
        The paths of those that changed, and of those that are not here.
    """
    changed, absent = [], []
    for name, state in recorded.items():
        if not Path(name).is_file():
            absent.append(name)
        elif not _holds(Path(name), state):
            changed.append(name)
    return changed, absent


def _state(file: Path) -> list[Any]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, sha256(file)]


def _holds(file: Path, state: list[Any]) -> bool:
    size, time, digest = state
    found = file.stat()
    if found.st_size > _ALWAYS_HASHED and [found.st_size, found.st_mtime_ns] == [size, time]:
        return True
    return bool(found.st_size == size and sha256(file) == digest)


def model_state(recipe: Recipe) -> dict[str, Any] | None:
    """The states of a model's files; None where it is neither a folder nor in the hub's cache."""
    folder = _folder(recipe)
    if folder is None:
        return None
    small, weights = model_files(folder)
    return {
        "files": {Path(name).name: state[2] for name, state in file_states(small).items()},
        "weights": {
            file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(weights)
        },
    }


def model_changes(
    recipe: Recipe, recorded: Mapping[str, Any], source: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Compares a model with what it was.

    Args:
        recorded: what ``model_state`` gave at search.
        source: what the manifest says of the model that generated.

    Returns:
        Sentences on what is another now, and on what could not be checked.
    """
    now, folder = model_state(recipe), _folder(recipe)
    if now is None or folder is None:
        name = recipe.model.args["pretrained"]
        return [], [f"not checked, for it is not here: the model {name}"]
    before, after = recorded["files"], now["files"]
    commits = source.get("revision"), hub_commit(model_args(recipe))
    lines = []
    if all(commits) and commits[0] != commits[1]:
        name = recipe.model.args["pretrained"]
        lines.append(describe_change(f"model, {name} on the hub: commit", *commits))
    lines += [
        f"model, {folder / name}: {_hashes(before.get(name), after.get(name))}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    known = source.get("weights_sha256")
    if recorded["weights"] == now["weights"]:
        return lines, []
    if known is None:  # a server's, or one that nothing was generated with yet
        then, here = (
            {name: size for name, (size, _) in of["weights"].items()} for of in (recorded, now)
        )
        if then != here:
            return [*lines, f"model, {folder}: other weight files"], []
        return lines, [
            f"not checked: the weights in {folder}; they were written again since, their sizes are "
            "the same, and no hash of them was recorded"
        ]
    found = Digests().of_weights(folder)
    if found != known:
        lines.append(f"model, weights in {folder}: {_hashes(known, found)}")
    return lines, []


def _folder(recipe: Recipe) -> Path | None:
    arguments = model_args(recipe)
    try:
        folder = weights_folder(arguments)
    except (OSError, ValueError):  # the hub's client: not in its cache, or no name of the hub
        return None
    return folder if folder.is_dir() else None


#: Reads the task and its data and gives all of ``rests_on``; takes folders with task YAML.
Read = Callable[[Sequence[str]], dict[str, Any]]

#: Files that a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Held:
    """What holding a command to its run came to.

    Attributes:
        again: what to record of the places of task and data, where they were read again.
        compared: names of what is as it was, all of it.
        unchecked: sentences on what could not be checked here.
    """

    again: dict[str, Any] | None
    compared: list[str]
    unchecked: list[str]


def hold(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    include_paths: Sequence[str],
    read: Read,
) -> Held:
    """Compares what a run rests on with what is there now.

    Args:
        include_paths: folders with task YAML that the command was given; none: those of the search.
        read: called if a file of the task or its data changed, or if they are looked for elsewhere.

    Raises:
        UserError: something was changed; the message names it.
    """
    recorded = bound(run, manifest)
    subsets, alike, without = changed_subsets(run, manifest["files"])
    if subsets:
        raise changed(run.path, subsets)
    if not recorded:
        return Held(None, alike, without)
    lines, given, unchecked = _plugins(run, recorded, plugins)
    files, absent = compare_files(recorded.get("files", {}))
    moved = elsewhere(recorded, include_paths)
    now: dict[str, Any] | None = None
    if files or moved:
        try:
            now = read(include_paths or searched_in(run.path))
            lines += differing(recorded, {**now, "plugins": None})  # those are compared above
        except UserError as error:
            if files:
                lines.append(f"{_list(files)}: changed, and now: {error}")
            elif include_paths or not absent:
                raise
    if absent and now is None:
        unchecked.append(f"not checked, for it is not here: {_list(absent)}")
    compared = ["task and data"] if now else []
    if recorded.get("files") and not absent and now is None:
        compared.append("the files of task and data")
    compared += [f"plugins ({', '.join(given)})"] if given else []
    compared += alike
    unchecked += without
    if model := recorded.get("model"):
        other, unsure = model_changes(run.recipe, model, manifest["source"])
        lines, unchecked = lines + other, unchecked + unsure
        compared += [] if unsure else ["model"]
    if lines:
        raise changed(run.path, lines)
    return Held(now, compared, unchecked)


def _plugins(
    run: RunDirectory, recorded: dict[str, Any], plugins: Plugins
) -> tuple[list[str], list[str], list[str]]:
    """What of the recorded plugins' parts is another, which are loaded, and which are not."""
    before = recorded.get("plugins", {})
    names = [tuple(key.rsplit(" ", 1)) for key in before]
    used = [(kind, name) for kind, name in names if _matters(run, kind, name)]
    now = codes(plugins, used)
    missing = [f"{kind} {name}" for kind, name in used if plugins.code(kind, name) is None]
    unchecked = [f"not checked, for its plugin was not given (--plugin): {key}" for key in missing]
    return differing({"plugins": before}, {"plugins": now}), [*now], unchecked


def _matters(run: RunDirectory, kind: str, name: str) -> bool:
    """Whether anything that the run has or will have rests on a recorded part."""
    if kind == "selector":
        return name in run.recipe.selectors()
    if kind == "trainer":  # where the adapters were taken away, others may be trained
        return name in run.recipe.trainers() and has_adapters(run, name)
    return True


def _list(files: Sequence[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(str(Path(file)) for file in files[:_NAMED]) + more
