"""Find lm-eval tasks by name and open them for the stages."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError, describe_error, did_you_mean
from gapft_harness.lm_eval_bridge.code_eval import install_code_eval
from gapft_harness.lm_eval_bridge.task_file.code_files import find_task_paths, tasks_path

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

    from gapft_harness.lm_eval_bridge.loaded_task import ChatLayout, LoadedTask

#: Values of ``dataset_path`` that are file formats of ``datasets``, not datasets of the hub.
_FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow", "xml", "pandas")


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """An entry of ``gapft list tasks``.

    Attributes:
        split: ``audit``, ``pool``, or ``group``.
    """

    name: str
    split: str
    description: str


class TaskNotFound(UserError):
    """No such task or folder of tasks: a mistake of the user, not missing data."""


def load_task(
    name: str, include_paths: Sequence[Path] = (), chat: ChatLayout | None = None
) -> LoadedTask:
    """Find a task and open it for the stages.

    Args:
        name: the task's name, or the path of its YAML file.
        include_paths: folders with task YAML.
        chat: how prompts become chats; None: prompts are plain text.

    Raises:
        UserError: as in ``load_lm_eval_task``.
    """
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask

    return LoadedTask(*load_lm_eval_task(name, include_paths), chat)


def load_lm_eval_task(name: str, include_paths: Sequence[Path] = ()) -> tuple[Any, Path | None]:
    """Find a task and have lm-eval open it.

    Searches the bundled tasks, those of installed packages and ``include_paths`` first (takes
    milliseconds), and only then lm-eval's own tasks (takes seconds).

    Args:
        name: the task's name, or the path of its YAML file.
        include_paths: folders with task YAML.

    Returns:
        lm-eval's task, and the task folder (bundled, installed or in ``include_paths``) that
        contains its YAML; None for lm-eval's own tasks.

    Raises:
        TaskNotFound: the name is unknown, or is the name of a group or a tag, or a folder of
            ``include_paths`` does not exist.
        UserError: the YAML is malformed, or the data are missing or malformed.
    """
    for path in include_paths:
        if not Path(path).is_dir():
            raise TaskNotFound(f"--include-path {path}: folder not found")
    paths = [*find_task_paths(), *(Path(path).resolve() for path in include_paths)]
    manager = _build_task_manager(name, paths)
    if name in manager.all_tasks and name not in manager.all_subtasks:
        raise TaskNotFound(
            f"{name!r} is a group or a tag; expected one of its tasks: "
            f"{_list_members(manager, name)}"
        )
    return _build_task(manager, name, paths)


def _build_task_manager(name: str, paths: Sequence[Path]) -> TaskManager:
    """Return a ``TaskManager`` that has the task; without lm-eval's own tasks if possible."""
    from lm_eval.tasks import TaskManager

    install_code_eval()
    manager = TaskManager(include_defaults=False, include_path=list(paths))
    if not _has_task(manager, name):
        indexed_names = manager.all_tasks
        manager = _index_stock_tasks()
        if not _has_task(manager, name):
            unreadable = "; ".join(line for path in paths for line in _list_unreadable_files(path))
            note = f"; unreadable files: {unreadable}" if unreadable else ""
            near = difflib.get_close_matches(name, manager.all_tasks, n=1, cutoff=0.6)
            hint = (
                f"did you mean lm-eval's {near[0]!r}? "
                if near and near[0] not in indexed_names
                else ""
            )
            hint += f"{did_you_mean(name, indexed_names)} (and lm-eval's own tasks)"
            raise TaskNotFound(
                f"unknown task {name!r}; a task of yours: give --include-path FOLDER; {hint}{note}"
            )
    return manager


@cache
def _index_stock_tasks() -> TaskManager:
    """Index lm-eval's own tasks; this takes seconds, and they stay the same within a process."""
    from lm_eval.tasks import TaskManager

    return TaskManager()


def list_tasks() -> list[TaskInfo]:
    """List the bundled tasks and groups by name."""
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    tasks = []
    manager = TaskManager(include_defaults=False, include_path=[tasks_path()])
    for name in manager.all_tasks:
        entry = manager.task_index[name]
        if entry.yaml_path is None:
            continue
        config = load_yaml(entry.yaml_path, resolve_func=False)
        metadata = config.get("metadata") or {}
        if name in manager.all_groups:
            tasks.append(TaskInfo(name, "group", _list_members(manager, name)))
            continue
        repeats = config.get("repeats", 1)
        generation = "one greedy decode" if repeats == 1 else f"{repeats} samples, unbiased Pass@k"
        summary = metadata.get("gapft", {}).get("summary", "")
        tasks.append(TaskInfo(name, str(config.get("test_split")), f"{summary}; {generation}"))
    return tasks


def _has_task(manager: TaskManager, name: str) -> bool:
    return name in manager.all_tasks or (name.endswith(".yaml") and Path(name).is_file())


def _list_members(manager: TaskManager, group: str) -> str:
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = manager.task_index[group]
    if entry.yaml_path is None:  # a tag
        return ", ".join(sorted(entry.tags))
    config = load_yaml(entry.yaml_path, resolve_func=False)
    members = config["task"] if isinstance(config.get("task"), list) else []
    return ", ".join(str(member) for member in members)


def _list_unreadable_files(folder: Path) -> list[str]:
    """List task files that lm-eval skips silently, each with the reason."""
    from lm_eval.tasks._yaml_loader import load_yaml

    problems = []
    for file in sorted(folder.glob("**/*.yaml")):
        try:
            load_yaml(file, resolve_func=False)
        except Exception as error:
            problems.append(f"{file}: {describe_error(error)}")
    return problems


def _build_task(manager: TaskManager, name: str, paths: Sequence[Path]) -> tuple[Any, Path | None]:
    entry = manager.task_index.get(name)
    file = entry.yaml_path if entry is not None and entry.yaml_path else name
    where = f"task {name} ({file})"
    config = _load_config(file, where)
    _check_keys(config, where)
    try:
        task = next(iter(manager.load([name])["tasks"].values()))
    except GapftError:
        raise
    except Exception as error:
        # The library ``datasets`` puts its reason into the cause.
        cause = f" ({describe_error(error.__cause__)})" if error.__cause__ else ""
        raise UserError(f"{where}: lm_eval refuses it: {describe_error(error)}{cause}") from error
    folders = [path for path in paths if path in Path(file).resolve().parents]
    return task, folders[0] if folders else None


def _load_config(file: Path | str, where: str) -> dict[str, Any]:
    """Load a task file with the keys that it includes; functions stay names."""
    from lm_eval.tasks._yaml_loader import load_yaml

    try:
        config: dict[str, Any] = load_yaml(file, resolve_func=False)
    except Exception as error:
        raise UserError(f"{where}: {describe_error(error)}") from error
    return config


def _check_keys(config: Mapping[str, Any], where: str) -> None:
    """Check keys of any task, lm-eval's own tasks included.

    Raises:
        UserError: a count is not a whole number, or the data files are not named: ``datasets``
            would read all files of the current directory.
    """
    for key, minimum in (("num_fewshot", 0), ("repeats", 1)):
        value = config.get(key)
        if value is not None and (type(value) is not int or value < minimum):
            raise UserError(
                f"{where}: {key}: found {value!r:.60}, expected a whole number from {minimum}"
            )
    named = {"data_files", "data_dir"} & set(config.get("dataset_kwargs") or {})
    if config.get("dataset_path") in _FILE_FORMATS and not named:
        raise UserError(
            f"{where}: dataset_kwargs: the key 'data_files' is missing; expected e.g. "
            "{data_files: {train: pool.jsonl, test: audit.jsonl}}"
        )
