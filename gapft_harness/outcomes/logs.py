"""Find logs from command-line arguments: files, folders, globs; models, training seeds, tasks.

One evaluation may have several logs of a task if these are shards: parts of one data set, evaluated
with the same settings. Whether they share documents shows when they are read.
"""

from __future__ import annotations

import errno
import glob
import os
import pickle
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, zip_longest
from pathlib import Path
from reprlib import repr as shorten
from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import describe_read_error, natural_sort_key, read_text
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.registration import LogReaderTraits, Registration
from gapft_harness.outcomes.formats import LM_EVAL
from gapft_harness.outcomes.samples import VERDICT, Sample

_DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
#: The names of logs of lm_eval (``samples_TASK_DATE.jsonl``) and of lighteval.
_LOG_NAME = re.compile(
    rf"(samples_|details_)(?P<task>.+)_(?P<date>{_DATE})(\.jsonl|\.jsonl\.gz|\.parquet)"
)
#: Suffixes of other logs to look for in a folder.
_SUFFIXES = (".eval", ".parquet", ".jsonl", ".jsonl.gz", ".json")
#: Error codes of folders that vanish during the walk, such as those of processes in /proc.
_VANISHED_CODES = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.EINVAL)
#: Keys to read from lm_eval's results file.
_RESULTS_KEYS = (
    "versions", "higher_is_better", "results", "groups", "group_subtasks", "n-samples", "config",
)  # fmt: skip
#: Names of a log's entries in messages, by the kind of log; default: line.
_ENTRY_NAMES = {"inspect": "Inspect's sample", "lighteval": "row"}


@dataclass(frozen=True, slots=True)
class Log:
    """A file of samples.

    Attributes:
        path: the file.
        task: the name under which it is compared; "" if unknown.
        facts: content of lm_eval's results file of the same date, if there is one beside the log:
            ``versions``, ``results``, ``higher_is_better``, ``config``, and the groups.
        reader: its reader.
        results: path of lm_eval's results file.
        own_task: the task's name in the log, from the file's name or as its reader finds it.
    """

    path: Path
    task: str
    facts: dict[str, Any]
    reader: Registration
    results: Path | None = None
    own_task: str = ""

    @property
    def kind(self) -> str:
        """Name of the log's reader."""
        return self.reader.name

    @property
    def version(self) -> object:
        """Version of the task; None if unknown."""
        return self.facts.get("versions", {}).get(self.own_task)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the evaluation in lm_eval's results file; empty if unknown."""
        config = self.facts.get("config", {})
        arguments = config.get("model_args") or {}
        if isinstance(arguments, str):
            arguments = dict(part.partition("=")[::2] for part in arguments.split(","))
        names = {"lm_eval": self.facts.get("lm_eval_version"), "model": config.get("model")}
        return {**names, **arguments} if config else {}

    def read_samples(self) -> Iterator[Sample]:
        """Yield all samples, as the log's reader returns them.

        Raises:
            UserError: the log cannot be read.
            PluginError: its reader failed, or yielded another type.
        """
        with self.reader.wrap_errors():
            for sample in self.reader.value(self.path):
                if not isinstance(sample, Sample):
                    raise self.reader.contract_error(
                        f"yielded {shorten(sample)}; expected api.Sample"
                    )
                yield sample

    @contextmanager
    def open_lines(self, lines: Iterable[int]) -> Iterator[Callable[[int], list[Sample]]]:
        """Read the samples of some lines once more, and keep them in a temporary file.

        Yields:
            A function that returns the samples of one of these lines.
        """
        wanted = {*lines}
        places: dict[int, int] = {}
        with tempfile.TemporaryFile() as file:
            for line, group in groupby(self.read_samples(), key=lambda sample: sample.line):
                if line in wanted:
                    places[line] = file.tell()
                    pickle.dump([*group], file)

            def read_line(line: int) -> list[Sample]:
                file.seek(places[line])
                samples: list[Sample] = pickle.load(file)
                return samples

            yield read_line

    def name_entry(self, number: int) -> str:
        """Name an entry of the log for a message: file and line, or Inspect's sample."""
        return f"{self.path}, {_ENTRY_NAMES.get(self.kind, 'line')} {number}"

    def require_text(self, sample: Sample) -> str:
        """Return the text of a sample.

        Raises:
            UserError: it has none.
        """
        if sample.text is None:
            reason = sample.reason or (
                "has no text of a response (multiple-choice and perplexity tasks score "
                "likelihoods); expected a generation task"
            )
            raise UserError(f"{self.name_entry(sample.line)}: {reason}")
        return sample.text

    def higher_is_better(self, metric: str) -> bool | None:
        """Return whether a metric is better when higher, by lm_eval's results; None if unknown."""
        if metric == VERDICT:
            return True
        directions = self.facts.get("higher_is_better", {}).get(self.own_task)
        is_higher_better = directions.get(metric) if isinstance(directions, dict) else None
        return is_higher_better if isinstance(is_higher_better, bool) else None

    def find_reported(self, metric: str, filter: str) -> float | None:
        """Return a metric's value in lm_eval's results file; None if it has none."""
        numbers = self.facts.get("results", {}).get(self.own_task)
        value = numbers.get(f"{metric},{filter}") if isinstance(numbers, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) <= sys.float_info.max else None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of one model: one log per task, or several that are shards of it."""

    logs: tuple[Log, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in order."""
        return tuple(dict.fromkeys(log.task for log in self.logs))

    def __str__(self) -> str:
        first = str(self.logs[0].path)
        return first if len(self.logs) == 1 else f"{first} and {len(self.logs) - 1} more"


@dataclass(frozen=True, slots=True)
class ModelRuns:
    """A row of the table: a name, and one run per training seed."""

    name: str
    runs: tuple[Evaluation, ...]

    @property
    def seeds(self) -> list[str]:
        """Names of the seeds: the part of their logs' paths that differs; else ``1``."""
        if len(self.runs) == 1:
            return ["1"]
        paths = [run.logs[0].path for run in self.runs]
        differing = [level for level in zip_longest(*(p.parts for p in paths)) if len({*level}) > 1]
        names: list[tuple[str, ...]] = [()] * len(paths)
        for level in differing:
            if len({*names}) == len(names):
                break
            names = [(*name, part or "") for name, part in zip(names, level, strict=True)]
        return ["/".join(filter(None, map(_shorten_name, name))) for name in names]


def find_models(
    arguments: Sequence[str],
    tasks: Sequence[str],
    *,
    seeds: bool,
    latest: bool = False,
    plugin_files: Sequence[str] = (),
) -> list[ModelRuns]:
    """Find the models that AFTER names: one per argument, named by ``NAME=`` in front.

    With ``seeds``, all arguments are training seeds of one model. See ``find_runs`` for the other
    arguments.

    Raises:
        UserError: an argument names no log, a log is named twice, or two models have the same name.
    """
    models = []
    for argument in arguments:
        name, _, place = argument.partition("=")
        if not name or not place or "/" in name or _is_path(argument):
            name = place = argument
        runs = find_runs(place, tasks, latest=latest, plugin_files=plugin_files)
        models.append(ModelRuns(name, tuple(runs)))
    if seeds:
        names = {model.name for model in models}
        name = names.pop() if len(names) == 1 else "after"
        models = [ModelRuns(name, tuple(run for model in models for run in model.runs))]
    for model in models:
        paths = [str(log.path.resolve()) for run in model.runs for log in run.logs]
        if path := _find_repeated(paths):
            raise UserError(f"{path}: named twice among the training seeds of one model")
    if name := _find_repeated([model.name for model in models]):
        raise UserError(f"two models have the name {name!r}; name them: FIRST=LOGS SECOND=LOGS")
    return models


def _find_repeated(names: Sequence[str]) -> str:
    """Return the first name that occurs twice; empty if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


def find_single_run(
    argument: str,
    tasks: Sequence[str],
    description: str,
    *,
    latest: bool = False,
    plugin_files: Sequence[str] = (),
) -> Evaluation:
    """Find the only run that an argument names; see ``find_runs`` for the arguments.

    Raises:
        UserError: it names several runs.
    """
    runs = find_runs(argument, tasks, latest=latest, plugin_files=plugin_files)
    if len(runs) > 1:
        raise UserError(
            f"{description} {argument}: expected one run, found {len(runs)} "
            f"({runs[0]}, {runs[1]}, ...)"
        )
    return runs[0]


def find_runs(
    argument: str,
    tasks: Sequence[str] = (),
    *,
    latest: bool = False,
    plugin_files: Sequence[str] = (),
) -> list[Evaluation]:
    """Find the runs that an argument names.

    A file or a folder is one run. A glob may match several: each folder is a run, and so are all
    matched files of one folder together; but if all of these belong to one task, each file is a
    run. With ``latest``, the newest of a run's logs of one task is used, by the dates in their
    names. In a folder, lm_eval's logs are used; if there are none, the folder may be a log that a
    reader of ``plugin_files`` recognises, or contain logs of other kinds.

    Raises:
        UserError: the argument names no log, or a run has two logs of one task.
    """
    if not argument:
        raise UserError("'': expected a file, a folder or a glob")
    if os.path.exists(argument):  # False also for impossible file names
        groups = [_find_logs(Path(argument), plugin_files)]
    elif glob.has_magic(argument):
        matches = _match_pattern(argument)
        groups = [_find_logs(match, plugin_files) for match in matches if match.is_dir()]
        files = [match for match in matches if match.is_file()]
        files.sort(key=lambda file: natural_sort_key(str(file.parent)))
        for _, folder_files in groupby(files, key=lambda file: file.parent):
            logs = [open_log(file, plugin_files) for file in folder_files]
            groups += [[log] for log in logs] if len({log.task for log in logs}) == 1 else [logs]
    else:
        raise UserError(f"{argument}: no such file or folder")
    if not groups:
        raise UserError(f"{argument}: matches no file or folder")
    return [_build_evaluation(logs, tasks, latest) for logs in groups]


def open_log(path: Path, plugin_files: Sequence[str] = ()) -> Log:
    """Build the log of a file, with the reader that recognises it.

    Raises:
        UserError: lm_eval's results file beside the log is damaged, or the reader cannot read the
            log.
    """
    # lm_eval's reader also reports what is wrong with a file that none recognises
    reader = _find_reader(path, plugin_files) or load_plugins().get("log reader", LM_EVAL)
    match = _LOG_NAME.fullmatch(path.name)
    task = match["task"] if match else ""
    if find_task := reader.require_traits(LogReaderTraits).task:
        with reader.wrap_errors():
            task = find_task(path)
    is_lm_eval_name = match is not None and path.name.startswith("samples_")
    results = sorted(path.parent.glob(f"*_{_extract_date(path)}.json")) if is_lm_eval_name else []
    facts = _read_facts(results[0], results[0].stat().st_mtime_ns) if results else {}
    return Log(path, task, facts, reader, results[0] if results else None, task)


def _find_reader(path: Path, plugin_files: Sequence[str]) -> Registration | None:
    """Find the reader that recognises a path.

    A file with lm_eval's name for logs is always lm_eval's.
    """
    if path.name.startswith("samples_") and _LOG_NAME.fullmatch(path.name):
        return load_plugins().get("log reader", LM_EVAL)
    if path.name.endswith((".eval.gz", ".parquet.gz")):
        raise UserError(
            f"{path}: is packed, but only JSON lines can be read packed; unpack it: gunzip"
        )
    return load_plugins(plugin_files).find_log_reader(path)


def _is_path(argument: str) -> bool:
    """Return whether an argument is a path, or a pattern that matches one."""
    return os.path.exists(argument) or (glob.has_magic(argument) and bool(_match_pattern(argument)))


def _match_pattern(pattern: str) -> list[Path]:
    """Return the matches of a pattern; a folder with brackets in its name is not a pattern."""
    parts = Path(pattern).parts
    existing = ""
    while parts and os.path.exists(os.path.join(existing, parts[0])):
        existing, parts = os.path.join(existing, parts[0]), parts[1:]
    matches = glob.glob(os.path.join(glob.escape(existing), *parts), recursive=True)
    return [Path(match) for match in sorted(matches, key=natural_sort_key)]


def _find_logs(path: Path, plugin_files: Sequence[str]) -> list[Log]:
    """Find the log that a file or folder is, or those in a folder."""
    candidates = [] if path.is_file() else sorted(_walk_logs(path))
    paths = [file for file in candidates if re.fullmatch(r"samples_.*\.jsonl(\.gz)?", file.name)]
    if path.is_file() or (not paths and _find_reader(path, plugin_files)):
        paths = [path]
    paths = paths or [file for file in candidates if _find_reader(file, plugin_files)]
    if not paths:
        raise UserError(
            f"{path}: no logs found; expected samples_*.jsonl (lm_eval --log_samples --output_path "
            f"FOLDER), or a log of another kind among its {len(candidates)} files "
            f"*{', *'.join(_SUFFIXES)} (Inspect, lighteval, Every Eval Ever, or plain JSON lines)"
        )
    return [open_log(file, plugin_files) for file in paths]


def _walk_logs(folder: Path) -> Iterator[Path]:
    """Yield possible logs in a folder and its subfolders; ignore files that vanish meanwhile.

    Raises:
        UserError: a folder cannot be read, so that logs might be missed.
    """

    def raise_error(error: OSError) -> None:
        if error.errno not in _VANISHED_CODES:
            raise UserError(describe_read_error(Path(error.filename), error)) from error

    for subfolder, _, names in os.walk(folder, onerror=raise_error):
        for name in names:
            if name.endswith(_SUFFIXES):
                yield Path(subfolder, name)


def _build_evaluation(logs: list[Log], tasks: Sequence[str], latest: bool) -> Evaluation:
    """Build an evaluation of its logs, in the order of their dates.

    Raises:
        UserError: a task has no log, or several that are not shards.
    """
    by_task: dict[str, list[Log]] = {}
    names = sorted({log.task for log in logs})
    compared_names: dict[str, str] = {}
    for task in tasks:
        own_name = next((name for name in reversed(task.split("=")) if name in names), None)
        if own_name is None:
            known_tasks = [name for name in names if name]
            raise UserError(
                f"{logs[0].path}: no log of task {task!r}; {did_you_mean(task, known_tasks)}"
            )
        compared_names[own_name] = task.partition("=")[0]
    for log in sorted(logs, key=lambda log: _extract_date(log.path)):
        if tasks and log.task not in compared_names:
            continue
        log = replace(log, task=compared_names.get(log.task, log.task))
        earlier = by_task.setdefault(log.task, [])
        if earlier and latest and _extract_date(earlier[-1].path) < _extract_date(log.path):
            earlier.clear()
        if earlier and (latest or not _are_shards(earlier[-1], log)):
            raise repeated_task_error(earlier[-1], log, latest=latest)
        earlier.append(log)
    ordered = sorted(by_task, key=natural_sort_key)
    return Evaluation(tuple(log for task in ordered for log in by_task[task]))


def _are_shards(log: Log, other: Log) -> bool:
    """Return whether two logs of a task may be parts of one evaluation: their settings agree."""
    keys = ("config", "versions", "lm_eval_version")
    return "config" in log.facts and all(log.facts.get(key) == other.facts.get(key) for key in keys)


def repeated_task_error(log: Log, other: Log, *, latest: bool = False) -> UserError:
    """Build the error for two logs of one task that are not shards."""
    description = f"of task {log.task}" if log.task else "without a task in their names"
    if latest:
        description += " with the same date"
    return UserError(
        f"{log.path} and {other.path}: two logs {description} in one run, which are not parts of "
        "one evaluation; name one file, or use the newest with --latest, or name both: training "
        "seeds of one model with --seeds, additional samples with one --source-samples each"
    )


def _extract_date(path: Path) -> str:
    match = re.search(_DATE, path.name)
    return match[0] if match else ""


def _shorten_name(part: str) -> str:
    """Remove the common parts from a log's name."""
    match = _LOG_NAME.fullmatch(part)
    return f"{match['task']} {match['date']}" if match else part


@lru_cache(maxsize=4)
def _read_facts(path: Path, _: int) -> dict[str, Any]:
    """Read one results file, which all logs of an evaluation share.

    A task's configuration gives the directions that ``higher_is_better`` lacks.
    """
    content = parse_object(read_text(path), str(path))
    facts: dict[str, Any] = {
        key: value for key in _RESULTS_KEYS if isinstance(value := content.get(key), dict)
    }
    facts["lm_eval_version"] = content.get("lm_eval_version")
    configs = content.get("configs")
    for task, config in configs.items() if isinstance(configs, dict) else ():
        directions = facts.setdefault("higher_is_better", {}).setdefault(task, {})
        metrics = config.get("metric_list") if isinstance(config, dict) else None
        for entry in metrics if isinstance(metrics, list) else ():
            if isinstance(entry, dict) and isinstance(directions, dict):
                directions.setdefault(str(entry.get("metric")), entry.get("higher_is_better"))
    return facts
