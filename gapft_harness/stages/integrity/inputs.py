"""Record the inputs of a run at its search (task, data, plugins, model), and compare them later.

The first search writes the manifest's section ``rests_on``. Every command compares it with the
present inputs. It compares files first, and reads the task again only if a file changed or moved.
Jobs compare the inputs that they loaded.
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
from gapft_harness.core.identities import canonical_json, drop_unused_split
from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.core.records import Problem
from gapft_harness.core.weights import find_hub_commit, find_model_files, find_weights_folder
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, has_results, read_manifest
from gapft_harness.store.digests import Digests

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


#: The section of the manifest with the inputs.
SECTION: Final = "rests_on"

#: Keys of ``rests_on`` whose values do not depend on where the files are.
_CONTENT_SECTIONS = ("task", "code", "data", "plugins")

#: The environment variable that names the folder of benchmark data.
_DATA_DIR_VARIABLE = "GAPFT_DATA_DIR"


def find_named_files(parameters: Any, key: str = "verifier.params") -> dict[str, Path]:
    """Find the files that a verifier's parameters name, by the key of the parameter."""
    if isinstance(parameters, Mapping):
        entries = parameters.items()
    elif isinstance(parameters, list | tuple):
        entries = dict(enumerate(parameters)).items()
    else:
        is_file = isinstance(parameters, str) and os.path.isfile(parameters)
        return {key: Path(parameters).resolve()} if is_file else {}
    return {
        name: file
        for inner_key, value in entries
        for name, file in find_named_files(value, f"{key}.{inner_key}").items()
    }


def hash_task_content(
    task: LoadedTask,
    opened: Iterable[str],
    splits: Mapping[str, Sequence[Problem]],
    named_files: Mapping[str, Path],
) -> dict[str, Any]:
    """Describe a task and its data by values and hashes that are the same on all machines.

    Args:
        task: the task.
        opened: paths opened while task and data were read.
        splits: the problems of each split that was read.
        named_files: the files that the verifier's parameters name (``find_named_files``).
    """
    code = {**task.list_files(opened)[1], **named_files}
    return {
        "task": {"version": task.version, **task.resolve_config()},
        "code": {name: sha256(file) for name, file in code.items()},
        "data": {
            split: hash_problems(sorted(problems, key=lambda problem: problem.id))
            for split, problems in splits.items()
        },
    }


def locate_task_files(
    task: LoadedTask,
    opened: Iterable[str],
    include_paths: Sequence[str],
    named_files: Mapping[str, Path],
) -> dict[str, Any]:
    """Describe where a task and its data are on this machine: files, folders, ``GAPFT_DATA_DIR``.

    Args:
        task: the task.
        opened: paths opened while task and data were read.
        include_paths: folders with task YAML.
        named_files: the files that the verifier's parameters name (``find_named_files``).
    """
    files, code = task.list_files(opened)
    return {
        "files": read_file_states([*files, *code.values(), *named_files.values()]),
        "include_paths": _resolve_paths(include_paths),
        "data_dir": os.environ.get(_DATA_DIR_VARIABLE),
    }


def list_recorded_include_paths(run_path: Path) -> list[str]:
    """List the folders with task YAML that a run's search was given; omit missing folders."""
    if not (run_path / layout.MANIFEST).exists():
        return []
    recorded = read_manifest(run_path).get(SECTION) or {}
    return [path for path in recorded.get("include_paths", ()) if Path(path).is_dir()]


def has_moved_inputs(recorded: Mapping[str, Any], include_paths: Sequence[str]) -> bool:
    """Return whether a command reads the task or data from other folders than recorded."""
    given_paths = _resolve_paths(include_paths)
    data = os.environ.get(_DATA_DIR_VARIABLE)
    return bool(
        (given_paths and given_paths != recorded.get("include_paths"))
        or (data and data != recorded.get("data_dir"))
    )


def list_search_components(recipe: Recipe, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the plugin components that a search depends on, by kind and name."""
    return [
        ("verifier", task["verifier"]),
        ("response rule", task["keep"]),
        ("sampler", recipe.model.backend),
    ]


def hash_components(plugins: Plugins, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Hash the files of plugin components that are not bundled; the keys are "KIND NAME"."""
    hashes = {f"{kind} {name}": plugins.find_code_hash(kind, name) for kind, name in names}
    return {key: code for key, code in hashes.items() if code}


def record_plugins(manifest: Manifest, plugins: Plugins, names: Iterable[tuple[str, str]]) -> None:
    """Add a stage's plugin components to the recorded inputs; keep those already recorded."""
    if SECTION in manifest:
        recorded = manifest[SECTION]["plugins"]
        manifest[SECTION]["plugins"] = {**hash_components(plugins, names), **recorded}


def has_adapters(run: RunDirectory, trainer: str) -> bool:
    """Return whether a run has adapters that a trainer trained, or may have trained.

    The recipe names the trainer of an arm. An adapter of an arm that it does not have counts.
    """
    folder, recipe = run.path / layout.ADAPTERS, run.recipe
    arms = (
        map(layout.parse_arm, (path.name for path in folder.iterdir())) if folder.is_dir() else ()
    )
    return any(
        arm is None
        or arm.condition not in recipe.conditions
        or recipe.resolve_training(arm.condition).trainer == trainer
        for arm in arms
    )


def record_trainers(manifest: Manifest, plugins: Plugins, run: RunDirectory) -> None:
    """Record the trainers; replace the recorded code of a trainer that has no adapters."""
    for trainer in run.recipe.list_trainers():
        names = [("trainer", trainer)]
        record_plugins(manifest, plugins, names)
        if SECTION in manifest and not has_adapters(run, trainer):
            manifest[SECTION]["plugins"].update(hash_components(plugins, names))


def describe_changed_inputs(recorded: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Describe inputs whose value changed; ignore keys that are missing on either side."""
    lines: list[str] = []
    for section in _CONTENT_SECTIONS:
        a, b = recorded.get(section), inputs.get(section)
        if a is None or b is None:
            continue
        if section == "task":
            lines += [
                f"task, {describe_change(*change)}"
                for change in diff_values(drop_unused_split(a), drop_unused_split(b))
            ]
        elif section == "code":
            lines += [
                f"task, code {key}: {_format_hash_change(a.get(key), b.get(key))}"
                for key in sorted({*a, *b})
                if a.get(key) != b.get(key)
            ]
        elif section == "data":
            lines += [
                f"data, {split}: {_format_data_digest(a[split])} → {_format_data_digest(b[split])}"
                for split in a
                if split in b and a[split] != b[split]
            ]
        else:
            lines += [
                f"plugin, {key}: its file: {_format_hash_change(a[key], b[key])}"
                for key in a
                if key in b and a[key] != b[key]
            ]
    return lines


def read_fixed_inputs(run: RunDirectory, manifest: Manifest) -> dict[str, Any]:
    """Return the recorded inputs that must not change any more.

    Verifiers and response rules may change until a response is judged, so they are omitted before.

    Raises:
        UserError: the section ``rests_on`` is damaged.
    """
    if SECTION not in manifest and not has_results(manifest):
        return {}  # nothing was searched yet
    check_structure(manifest, run.path)
    recorded = dict(manifest[SECTION])
    if recorded.get("plugins") and not _has_verdicts(run, recorded):
        recorded["plugins"] = {
            key: code
            for key, code in recorded["plugins"].items()
            if not key.startswith(("verifier ", "response rule "))
        }
    return recorded


def _has_verdicts(run: RunDirectory, recorded: Mapping[str, Any]) -> bool:
    """Return whether the run has verdicts, or a search that uses them while it samples."""
    task_settings = (recorded.get("task", {}).get("metadata") or {}).get("gapft") or {}
    attempts = run.recipe.episode.attempts or (task_settings.get("episode") or {}).get(
        "attempts", 1
    )
    return attempts > 1 or any(run.path.glob(layout.responses_path("*")))


def require_same_inputs(run: RunDirectory, inputs: Mapping[str, Any]) -> None:
    """Require that the loaded inputs are those of the run.

    Args:
        run: the run.
        inputs: the loaded inputs, by the keys of ``rests_on``; missing keys are not compared.

    Raises:
        InputsChanged: an input changed; the message names it.
    """
    if lines := describe_changed_inputs(read_fixed_inputs(run, run.manifest()), inputs):
        raise inputs_changed_error(run.path, lines)


class InputsChanged(UserError):
    """Inputs of a run changed since its search.

    Attributes:
        changes: a line for each change.
    """

    changes: tuple[str, ...] = ()


def inputs_changed_error(place: str | Path, lines: Sequence[str]) -> InputsChanged:
    """Build the error for a run whose inputs changed.

    Args:
        place: the run directory.
        lines: a line for each change.
    """
    change_list = "\n".join(f"  {line}" for line in lines)
    error = InputsChanged(
        f"{place}: inputs of the run changed since its search:\n{change_list}\n"
        "restore them and run the same command again, or start a new run directory"
    )
    error.changes = tuple(lines)
    return error


def hash_problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """Count and hash a split's problems, which are ordered by id."""
    digest, count = hashlib.sha256(), 0
    for problem in problems:
        fields = [problem.id, problem.prompt, problem.turns, problem.gold]
        digest.update(canonical_json(fields).encode() + b"\n")
        count += 1
    return {"problems": count, "sha256": digest.hexdigest()}


def _resolve_paths(paths: Sequence[str]) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


def _format_data_digest(digest: Mapping[str, Any]) -> str:
    return f"{digest['problems']} problems ({digest['sha256'][:12]})"


def _format_hash_change(old_hash: str | None, new_hash: str | None) -> str:
    return f"{(old_hash or 'none')[:12]} → {(new_hash or 'none')[:12]}"


_ComponentKey = Annotated[str, StringConstraints(pattern=r". .")]


class _Split(BaseModel):
    problems: int
    sha256: str


class _Model(BaseModel):
    files: dict[str, str]
    weights: dict[str, tuple[int, int]]


class _RestsOn(BaseModel):
    task: dict[str, Any]
    code: dict[str, str]
    data: dict[str, _Split]
    plugins: dict[_ComponentKey, str]
    files: dict[str, tuple[int, int, str]]
    include_paths: list[str]
    data_dir: str | None
    model: _Model | None


class _Sections(BaseModel):
    source: dict[str, Any]
    rests_on: _RestsOn


def check_structure(manifest: Manifest, run_path: Path) -> None:
    """Check the structure of the manifest's section ``rests_on``.

    Raises:
        UserError: the structure is wrong; the message names the key.
    """
    try:
        _Sections.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{run_path / 'manifest.json'}: key {key!r}: "
            f"{first['msg'][0].lower()}{first['msg'][1:]}; "
            f"found {first['input']!r:.60}; restore manifest.json, or start a new run directory"
        ) from error


def merge_new_splits(
    recorded: Mapping[str, Any], inputs: Mapping[str, Any], splits: Iterable[str]
) -> dict[str, Any]:
    """Add the inputs of new splits to the recorded inputs.

    Args:
        recorded: the recorded inputs.
        inputs: the loaded inputs.
        splits: the splits of the run; only those that are not recorded are added.
    """
    new_splits = {split for split in splits if split not in recorded.get("data", {})}
    additions: dict[str, dict[str, Any]] = {
        "data": {split: inputs["data"][split] for split in sorted(new_splits)},
        "files": inputs["files"] if new_splits else {},
    }
    merged = {
        key: {**entries, **recorded.get(key, {})} for key, entries in additions.items() if entries
    }
    return {**recorded, **merged}


#: Files up to this many bytes are always hashed (about 0.1 s); larger ones if their time changed.
_ALWAYS_HASHED = 64 << 20


def read_file_states(files: Iterable[Path]) -> dict[str, list[Any]]:
    """Return size, modification time (ns) and SHA-256 of files by path; omit missing files."""
    return {str(file): _read_file_state(file) for file in sorted(set(files)) if file.is_file()}


def compare_files(recorded: Mapping[str, list[Any]]) -> tuple[list[str], list[str]]:
    """Compare files with their recorded states.

    Returns:
        The paths of changed files, and the paths of missing files.
    """
    changed, missing = [], []
    for name, state in recorded.items():
        if not Path(name).is_file():
            missing.append(name)
        elif not _has_state(Path(name), state):
            changed.append(name)
    return changed, missing


def _read_file_state(file: Path) -> list[Any]:
    status = file.stat()
    return [status.st_size, status.st_mtime_ns, sha256(file)]


def _has_state(file: Path, state: list[Any]) -> bool:
    size, time, digest = state
    status = file.stat()
    if status.st_size > _ALWAYS_HASHED and [status.st_size, status.st_mtime_ns] == [size, time]:
        return True
    return bool(status.st_size == size and sha256(file) == digest)


def read_model_state(recipe: Recipe) -> dict[str, Any] | None:
    """Return the states of a model's files; None if the model is not on this machine.

    A model is on this machine if it is a folder or in the hub's cache.
    """
    folder = _find_model_folder(recipe)
    if folder is None:
        return None
    small, weights = find_model_files(folder)
    return {
        "files": {Path(name).name: state[2] for name, state in read_file_states(small).items()},
        "weights": {
            file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(weights)
        },
    }


def compare_model(
    recipe: Recipe, recorded: Mapping[str, Any], source: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Compare a model with its recorded state.

    Args:
        recipe: the recipe.
        recorded: what ``read_model_state`` returned at the search.
        source: the manifest's description of the model that generated the responses.

    Returns:
        A line for each change, and a line for each input that could not be checked.
    """
    state, folder = read_model_state(recipe), _find_model_folder(recipe)
    if state is None or folder is None:
        name = recipe.model.args["pretrained"]
        return [], [f"not checked, because it is not on this machine: the model {name}"]
    old_files, new_files = recorded["files"], state["files"]
    commits = source.get("revision"), find_hub_commit(resolve_model_args(recipe))
    lines = []
    if all(commits) and commits[0] != commits[1]:
        name = recipe.model.args["pretrained"]
        lines.append(describe_change(f"model, {name} on the hub: commit", *commits))
    lines += [
        f"model, {folder / name}: {_format_hash_change(old_files.get(name), new_files.get(name))}"
        for name in sorted({*old_files, *new_files})
        if old_files.get(name) != new_files.get(name)
    ]
    recorded_hash = source.get("weights_sha256")
    if recorded["weights"] == state["weights"]:
        return lines, []
    if recorded_hash is None:  # a server's model, or nothing was generated yet
        old_sizes, new_sizes = (
            {name: size for name, (size, _) in model["weights"].items()}
            for model in (recorded, state)
        )
        if old_sizes != new_sizes:
            return [*lines, f"model, {folder}: different weight files"], []
        return lines, [
            f"not checked: the weights in {folder}; they were written again, with the same sizes, "
            "and no hash of them was recorded"
        ]
    weights_hash = Digests().hash_weights(folder)
    if weights_hash != recorded_hash:
        lines.append(
            f"model, weights in {folder}: {_format_hash_change(recorded_hash, weights_hash)}"
        )
    return lines, []


def _find_model_folder(recipe: Recipe) -> Path | None:
    arguments = resolve_model_args(recipe)
    try:
        folder = find_weights_folder(arguments)
    except (OSError, ValueError):  # the hub's client: not cached, or not a name on the hub
        return None
    return folder if folder.is_dir() else None


#: A function that reads task and data, given the folders with task YAML, and returns all inputs.
ReadInputs = Callable[[Sequence[str]], dict[str, Any]]

#: Maximum number of files that a message names.
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The result of comparing a run's recorded inputs with the present ones.

    Attributes:
        new_inputs: the present inputs; None if task and data were not read again.
        compared: names of the inputs that were compared and are unchanged.
        unchecked: a line for each input that could not be checked on this machine.
    """

    new_inputs: dict[str, Any] | None
    compared: list[str]
    unchecked: list[str]


def compare_inputs(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    include_paths: Sequence[str],
    read_inputs: ReadInputs,
) -> InputCheck:
    """Compare a run's recorded inputs with the present ones.

    Args:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins.
        include_paths: folders with task YAML given to the command; if empty, those of the search.
        read_inputs: called if a file of the task or its data changed, or if their places changed.

    Raises:
        InputsChanged: an input changed; the message names it.
    """
    recorded = read_fixed_inputs(run, manifest)
    if not recorded:
        return InputCheck(None, [], [])
    lines, loaded_components, unchecked = _compare_components(run, recorded, plugins)
    changed_files, missing_files = compare_files(recorded.get("files", {}))
    has_moved = has_moved_inputs(recorded, include_paths)
    new_inputs: dict[str, Any] | None = None
    if changed_files or has_moved:
        try:
            new_inputs = read_inputs(include_paths or list_recorded_include_paths(run.path))
            lines += describe_changed_inputs(
                recorded, {**new_inputs, "plugins": None}
            )  # plugins are compared above
        except UserError as error:
            if changed_files:
                lines.append(
                    f"{_format_files(changed_files)}: changed, and cannot be read now: {error}"
                )
            elif include_paths or not missing_files:
                raise
    if missing_files and new_inputs is None:
        unchecked.append(
            f"not checked, because it is not on this machine: {_format_files(missing_files)}"
        )
    compared = ["task and data"] if new_inputs else []
    if recorded.get("files") and not missing_files and new_inputs is None:
        compared.append("the files of task and data")
    compared += [f"plugins ({', '.join(loaded_components)})"] if loaded_components else []
    if model := recorded.get("model"):
        changed_model, unchecked_model = compare_model(run.recipe, model, manifest["source"])
        lines, unchecked = lines + changed_model, unchecked + unchecked_model
        compared += [] if unchecked_model else ["model"]
    if lines:
        raise inputs_changed_error(run.path, lines)
    return InputCheck(new_inputs, compared, unchecked)


def _compare_components(
    run: RunDirectory, recorded: dict[str, Any], plugins: Plugins
) -> tuple[list[str], list[str], list[str]]:
    """Compare recorded plugin components with the loaded ones.

    Returns:
        A line for each change, the components that were compared, and a line for each that is not
        loaded.
    """
    recorded_codes = recorded.get("plugins", {})
    names = [tuple(key.rsplit(" ", 1)) for key in recorded_codes]
    relevant = [(kind, name) for kind, name in names if _is_relevant(run, kind, name)]
    loaded_codes = hash_components(plugins, relevant)
    missing = [
        f"{kind} {name}" for kind, name in relevant if plugins.find_code_hash(kind, name) is None
    ]
    unchecked = [
        f"not checked, because its plugin is not loaded (--plugin): {key}" for key in missing
    ]
    return (
        describe_changed_inputs({"plugins": recorded_codes}, {"plugins": loaded_codes}),
        [*loaded_codes],
        unchecked,
    )


def _is_relevant(run: RunDirectory, kind: str, name: str) -> bool:
    """Return whether any present or future work of the run depends on a recorded component."""
    if kind == "selector":
        return name in run.recipe.selectors()
    if kind == "trainer":  # without adapters, its code may change
        return name in run.recipe.list_trainers() and has_adapters(run, name)
    return True


def _format_files(files: Sequence[str]) -> str:
    more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
    return ", ".join(str(Path(file)) for file in files[:_MAX_NAMED]) + more
