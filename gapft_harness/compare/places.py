"""From what the user named to logs: files, folders, globs; models, their training seeds, tasks."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import read_text

#: ``samples_TASK_DATE.jsonl``, as lm_eval names its logs.
_LOG_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl"
)


@dataclass(frozen=True, slots=True)
class Log:
    """A file of samples.

    Attributes:
        path: the file.
        task: by its name; "" where it was renamed.
        facts: what lm_eval's results file of the same date holds, if it is beside.
    """

    path: Path
    task: str
    facts: dict[str, Any]

    @property
    def version(self) -> object:
        """The task's version, None where nobody knows."""
        return self.facts.get("versions", {}).get(self.task)


@dataclass(frozen=True, slots=True)
class Run:
    """One evaluation of one model: a log for each task."""

    logs: tuple[Log, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' names, sorted."""
        return tuple(sorted(log.task for log in self.logs))

    def __str__(self) -> str:
        first = str(self.logs[0].path)
        return first if len(self.logs) == 1 else f"{first} and {len(self.logs) - 1} more"


@dataclass(frozen=True, slots=True)
class Model:
    """A row of the table: a name, and a run for each training seed."""

    name: str
    runs: tuple[Run, ...]


def models(arguments: Sequence[str], tasks: Sequence[str], *, seeds: bool) -> list[Model]:
    """The models that AFTER names: each argument one, ``NAME=`` before it names it.

    With ``seeds`` all arguments are training seeds of one model.

    Raises:
        UserError: nothing is there, a log is named twice, or two models have one name.
    """
    found = [_model(argument, tasks) for argument in arguments]
    if seeds:
        names = {model.name for model in found}
        name = names.pop() if len(names) == 1 else "after"
        found = [Model(name, tuple(run for model in found for run in model.runs))]
    for model in found:
        _refuse_twice([log.path for run in model.runs for log in run.logs])
    _refuse_same_names([model.name for model in found])
    return found


def single(argument: str, tasks: Sequence[str], what: str) -> Run:
    """The one run that an argument names.

    Raises:
        UserError: it names several.
    """
    runs = runs_of(argument, tasks)
    if len(runs) > 1:
        raise UserError(
            f"{what} {argument}: names {len(runs)} runs ({runs[0]}, {runs[1]}, ...), expected one"
        )
    return runs[0]


def runs_of(argument: str, tasks: Sequence[str] = ()) -> list[Run]:
    """The runs that an argument names.

    A file or a folder is one run. What a glob matches is several: each folder is one, and so are
    the matched files of a folder together; but if these are all of one task, each is one.

    Raises:
        UserError: it names no log, or a run has two logs of one task.
    """
    path = Path(argument)
    if path.exists():
        return [_run(_logs_in(path), tasks)]
    if not glob.has_magic(argument):
        raise UserError(f"{argument}: no such file or folder")
    matches = [Path(match) for match in sorted(glob.glob(argument, recursive=True))]
    files = [match for match in matches if match.is_file()]
    groups = [_logs_in(match) for match in matches if match.is_dir()]
    for _, together in groupby(files, key=lambda file: file.parent):
        logs = list(together)
        one_task = len({_task_of(log) for log in logs}) == 1
        groups += [[log] for log in logs] if one_task else [logs]
    if not groups:
        raise UserError(f"{argument}: matches no file or folder")
    return [_run(logs, tasks) for logs in groups]


def _model(argument: str, tasks: Sequence[str]) -> Model:
    name, equals, place = argument.partition("=")
    if not equals or not name or not place or "/" in name or Path(argument).exists():
        name, place = argument, argument
    return Model(name, tuple(runs_of(place, tasks)))


def _logs_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.rglob("samples_*.jsonl"))
    if not found:
        raise UserError(
            f"{path}: holds no samples_*.jsonl; lm_eval writes them with "
            "--log_samples --output_path FOLDER"
        )
    return found


def _run(paths: list[Path], tasks: Sequence[str]) -> Run:
    by_task: dict[str, Path] = {}
    names = sorted({_task_of(path) for path in paths})
    for task in tasks:
        if task not in names:
            known = [name for name in names if name]
            raise UserError(f"{paths[0]}: no log of task {task!r}; {did_you_mean(task, known)}")
    for path in paths:
        task = _task_of(path)
        if tasks and task not in tasks:
            continue
        if task in by_task:
            of = f"of task {task}" if task else "whose names do not tell the task"
            raise UserError(
                f"{by_task[task]} and {path}: two logs {of} in one run; name one file, or both: "
                "training seeds of one model with --seeds, further samples by --source-samples each"
            )
        by_task[task] = path
    return Run(tuple(Log(path, task, _facts(path)) for task, path in sorted(by_task.items())))


def _task_of(path: Path) -> str:
    named = _LOG_NAME.fullmatch(path.name)
    return named["task"] if named else ""


def _facts(path: Path) -> dict[str, Any]:
    """lm_eval's results of the same date: versions, and which metrics are better when higher."""
    named = _LOG_NAME.fullmatch(path.name)
    if not named:
        return {}
    for beside in sorted(path.parent.glob(f"*_{named['date']}.json")):
        content = parse_object(read_text(beside), str(beside))
        return {
            key: value
            for key in ("versions", "higher_is_better")
            if isinstance(value := content.get(key), dict)
        }
    return {}


def _refuse_twice(paths: list[Path]) -> None:
    seen: dict[Path, Path] = {}
    for path in paths:
        if path.resolve() in seen:
            raise UserError(f"{path}: named twice among the training seeds of one model")
        seen[path.resolve()] = path


def _refuse_same_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"two models are named {name!r}; give them names: FIRST=LOGS SECOND=LOGS"
            )
