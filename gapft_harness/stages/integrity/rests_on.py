"""The inputs of a run: its task, data, plugins and model at the time of the search.

The manifest's section ``rests_on`` records them from the first search on. Every command compares
them with the present inputs, files first: only if a file changed is the task read again, to
describe the difference. Jobs compare the inputs that they have loaded.
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


#: The section of the manifest with the inputs.
SECTION: Final = "rests_on"

#: Its sections on the content of task and data, independent of where their files are.
_CONTENT = ("task", "code", "data", "plugins")

#: The section on the tasks of further audits: ``task`` and ``code`` by name.
AUDITS = "audits"

#: The environment variable with the folder of data.
_PLACES = "GAPFT_DATA_DIR"


def content(
    task: LoadedTask, opened: Iterable[str], splits: Mapping[str, Sequence[Problem]]
) -> dict[str, Any]:
    """Return the task and the splits that were read as values and hashes, equal on all machines."""
    _, code = task.files(opened)
    return {
        "task": {"version": task.version, **task.config()},
        "code": {name: sha256(file) for name, file in code.items()},
        "data": {split: _digest(problems) for split, problems in splits.items()},
    }


def places(task: LoadedTask, opened: Iterable[str], include_paths: Sequence[str]) -> dict[str, Any]:
    """Return where the task and its data were found on this machine: files with their states."""
    files, code = task.files(opened)
    return {
        "files": file_states([*files, *code.values()]),
        "include_paths": _resolved(include_paths),
        "data_dir": os.environ.get(_PLACES),
    }


def searched_in(run_path: Path) -> list[str]:
    """List the folders with task YAML that a run's search was given, if they still exist."""
    if not (run_path / layout.MANIFEST).exists():
        return []
    recorded = read_manifest(run_path).get(SECTION) or {}
    return [path for path in recorded.get("include_paths", ()) if Path(path).is_dir()]


def elsewhere(recorded: Mapping[str, Any], include_paths: Sequence[str]) -> bool:
    """Return whether a command looks for the task or data elsewhere than recorded."""
    given = _resolved(include_paths)
    data = os.environ.get(_PLACES)
    return bool(
        (given and given != recorded.get("include_paths"))
        or (data and data != recorded.get("data_dir"))
    )


def named(recipe: Recipe, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the plugin components that a search depends on, by kind and name."""
    return [
        ("verifier", task["verifier"]),
        ("response rule", task["keep"]),
        ("sampler", recipe.model.backend),
    ]


def codes(plugins: Plugins, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the hashes of the files of components that are not bundled, by kind and name."""
    found = {f"{kind} {name}": plugins.code(kind, name) for kind, name in names}
    return {key: code for key, code in found.items() if code}


def record_plugins(manifest: Manifest, plugins: Plugins, names: Iterable[tuple[str, str]]) -> None:
    """Add a stage's plugin components to the run's inputs; recorded ones stay."""
    if SECTION in manifest:
        kept = manifest[SECTION]["plugins"]
        manifest[SECTION]["plugins"] = {**codes(plugins, names), **kept}


def has_adapters(run: RunDirectory, trainer: str) -> bool:
    """Return whether a run has adapters of a trainer, as far as the recipe tells."""
    folder, recipe = run.path / layout.ADAPTERS, run.recipe
    arms = map(layout.arm_of, (path.name for path in folder.iterdir())) if folder.is_dir() else ()
    return any(
        arm is None
        or arm.condition not in recipe.conditions
        or recipe.training_of(arm.condition).trainer == trainer
        for arm in arms
    )


def record_trainers(manifest: Manifest, plugins: Plugins, run: RunDirectory) -> None:
    """Record the trainers; replace the recorded code of a trainer that has no adapters."""
    for trainer in run.recipe.trainers():
        names = [("trainer", trainer)]
        record_plugins(manifest, plugins, names)
        if SECTION in manifest and not has_adapters(run, trainer):
            manifest[SECTION]["plugins"].update(codes(plugins, names))


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe inputs whose value changed; ignore keys that are missing on either side."""
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
    """Return the inputs that must not change any more.

    Until a response was judged, verifiers and response rules may be corrected.

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
    """Return whether there are verdicts, or responses that were requested because of one."""
    gap = (recorded.get("task", {}).get("metadata") or {}).get("gapft") or {}
    attempts = run.recipe.episode.attempts or (gap.get("episode") or {}).get("attempts", 1)
    early = run.recipe.search.stop != "never" or attempts > 1
    return early or any(run.path.glob(layout.responses("*/**")))


def require_same(run: RunDirectory, now: Mapping[str, Any]) -> None:
    """Require that the loaded inputs are those of the run.

    Args:
        run: the run.
        now: present sections of the inputs; missing ones are not compared.

    Raises:
        InputsChanged: an input changed; the message names it.
    """
    if lines := differing(bound(run, run.manifest()), now):
        raise changed(run.path, lines)


class Changed(UserError):
    """Inputs of a run changed since its search.

    Attributes:
        lines: a sentence for each change.
    """

    lines: tuple[str, ...] = ()


def changed(where: str | Path, lines: Sequence[str]) -> Changed:
    """Build the error for a run whose inputs changed."""
    told = "\n".join(f"  {line}" for line in lines)
    error = Changed(
        f"{where}: inputs of the run changed since its search:\n{told}\n"
        "restore them and run the same command again, or start a new run directory"
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
    """Check the structure of the manifest's section of inputs.

    Raises:
        UserError: the structure is wrong; the message names the key.
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
    """Merge the inputs of a further audit into the inputs of the run."""
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
    """Return the recorded inputs with those of splits that are new in the run."""
    new = {split for split in splits if split not in recorded.get("data", {})}
    audits = {name for name in map(layout.further, new) if name}
    joined: dict[str, dict[str, Any]] = {
        "data": {split: now["data"][split] for split in sorted(new)},
        AUDITS: {name: now[AUDITS][name] for name in sorted(audits)},
        "files": now["files"] if new else {},
    }
    more = {key: {**of, **recorded.get(key, {})} for key, of in joined.items() if of}
    return {**recorded, **more}


#: Files up to this many bytes are always hashed (about 0.1 s).
_ALWAYS_HASHED = 64 << 20


def file_states(files: Iterable[Path]) -> dict[str, list[Any]]:
    """Return the states of files by path; missing files are left out."""
    return {str(file): _state(file) for file in sorted(set(files)) if file.is_file()}


def compare_files(recorded: Mapping[str, list[Any]]) -> tuple[list[str], list[str]]:
    """Compare files with their recorded states.

    Returns:
        The paths of changed files, and of missing ones.
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
    """Return the states of a model's files; None if it is not a folder or in the hub's cache."""
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
    """Compare a model with its recorded state.

    Args:
        recipe: the recipe.
        recorded: the result of ``model_state`` at search.
        source: the manifest's description of the model that generated.

    Returns:
        Sentences on changes, and on what could not be checked.
    """
    now, folder = model_state(recipe), _folder(recipe)
    if now is None or folder is None:
        name = recipe.model.args["pretrained"]
        return [], [f"not checked, because it is not on this machine: the model {name}"]
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
    if known is None:  # of a server, or nothing was generated yet
        then, here = (
            {name: size for name, (size, _) in of["weights"].items()} for of in (recorded, now)
        )
        if then != here:
            return [*lines, f"model, {folder}: different weight files"], []
        return lines, [
            f"not checked: the weights in {folder}; they were written again, with the same sizes, "
            "and no hash of them was recorded"
        ]
    found = Digests().of_weights(folder)
    if found != known:
        lines.append(f"model, weights in {folder}: {_hashes(known, found)}")
    return lines, []


def _folder(recipe: Recipe) -> Path | None:
    arguments = model_args(recipe)
    try:
        folder = weights_folder(arguments)
    except (OSError, ValueError):  # the hub's client: not in its cache, or not a name on the hub
        return None
    return folder if folder.is_dir() else None


#: Reads the task and data from folders with task YAML, and returns all inputs.
Read = Callable[[Sequence[str]], dict[str, Any]]

#: Maximum number of files that a message names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Held:
    """The result of comparing a run's inputs with the present ones.

    Attributes:
        again: the new places of task and data, if they were read again.
        compared: names of the inputs that were compared and are unchanged.
        unchecked: sentences on inputs that could not be checked on this machine.
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
    """Compare a run's recorded inputs with the present ones.

    Args:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins.
        include_paths: folders with task YAML given to the command; empty for those of the search.
        read: called if a file of the task or its data changed, or if their places changed.

    Raises:
        InputsChanged: an input changed; the message names it.
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
            lines += differing(recorded, {**now, "plugins": None})  # plugins are compared above
        except UserError as error:
            if files:
                lines.append(f"{_list(files)}: changed, and cannot be read now: {error}")
            elif include_paths or not absent:
                raise
    if absent and now is None:
        unchecked.append(f"not checked, because it is not on this machine: {_list(absent)}")
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
    """Compare recorded plugin components with the loaded ones: changed, present, missing."""
    before = recorded.get("plugins", {})
    names = [tuple(key.rsplit(" ", 1)) for key in before]
    used = [(kind, name) for kind, name in names if _matters(run, kind, name)]
    now = codes(plugins, used)
    missing = [f"{kind} {name}" for kind, name in used if plugins.code(kind, name) is None]
    unchecked = [
        f"not checked, because its plugin is not loaded (--plugin): {key}" for key in missing
    ]
    return differing({"plugins": before}, {"plugins": now}), [*now], unchecked


def _matters(run: RunDirectory, kind: str, name: str) -> bool:
    """Return whether any present or future work of the run depends on a recorded component."""
    if kind == "selector":
        return name in run.recipe.selectors()
    if kind == "trainer":  # after its adapters were removed, its code may change
        return name in run.recipe.trainers() and has_adapters(run, name)
    return True


def _list(files: Sequence[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(str(Path(file)) for file in files[:_NAMED]) + more
