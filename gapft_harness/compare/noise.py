"""Run-to-run noise: measure it from two logs of one model, and compare changes with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.noise import RunNoise
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.number_format import choose_format
from gapft_harness.compare.reading import RunRows
from gapft_harness.core.errors import UserError, describe_error, did_you_mean, quote_unprintable
from gapft_harness.core.files import write_json
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import read_text
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Block, Section, Text
from gapft_harness.report.rendering.wording import format_count, percent_interval

#: The name of the file that ``gapft compare --again`` writes.
NOISE_FILE = "noise.json"
_SCHEMA = 1
#: The level of the test whether two runs have equal means.
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class TaskNoise:
    """The noise of one task.

    Attributes:
        task: the task.
        metric: the metric.
        filter: lm_eval's filter.
        noise: the differences of two runs of one model.
        is_share: whether all numbers are 0 or 1.
    """

    task: str
    metric: str
    filter: str
    noise: RunNoise
    is_share: bool


@dataclass(frozen=True, slots=True)
class NoiseCheck:
    """A model's change on one task, compared with the noise.

    Attributes:
        model: the model.
        task_noise: the noise of the task.
        changed: number of documents whose number differs, over seeds.
        items: number of documents, over seeds.
        difference: after minus before.
        limit: the largest difference that noise alone explains.
    """

    model: str
    task_noise: TaskNoise
    changed: int
    items: int
    difference: float
    limit: float

    @property
    def exceeds(self) -> bool:
        """Whether noise alone does not explain the difference."""
        return abs(self.difference) > self.limit


def refuse_other_models(comparison: Comparison) -> None:
    """Check that the logs before and after are two runs of one model, as far as they show it.

    Raises:
        UserError: there are several models after, a log is compared with itself, or lm_eval's
            results files show different models or settings.
    """
    runs = _list_runs(comparison)
    if len(runs) != 1:
        raise UserError(f"--again: found {1 + len(runs)} logs, expected two runs of one model")
    for before, after in itertools.product(comparison.before.logs, runs[0].logs):
        if before.path.resolve() == after.path.resolve():
            raise UserError(
                f"--again: {before.path} is given twice; expected two runs of one model"
            )
        for fact, value in before.model_facts.items():
            other = after.model_facts.get(fact, value)
            if value != other:
                raise UserError(
                    f"--again: expected two runs of one model, but the {fact} differs: {value} for "
                    f"{before.path}, {other} for {after.path}; evaluate one model twice"
                )


def measure_noise(comparison: Comparison) -> list[TaskNoise]:
    """Measure the noise of each task from two runs of one model."""
    ((model, after),) = comparison.numbers.after.items()
    return [
        TaskNoise(
            task,
            comparison.metrics[task].name,
            comparison.metrics[task].filter,
            _summarise(after[0, members] - comparison.numbers.before[members]),
            comparison.numbers.select(members).is_binary(model),
        )
        for task, members in _iterate_tasks(comparison)
    ]


def check_noise(comparison: Comparison, path: Path) -> list[NoiseCheck]:
    """Compare each model's change on each task with the noise in a file.

    Raises:
        UserError: the file is not a noise file, or lacks a compared task or metric.
    """
    noise_by_task = {entry.task: entry for entry in _read_noise(path)[0]}
    checks = []
    for task, members in _iterate_tasks(comparison):
        if task not in noise_by_task:
            raise UserError(
                f"--noise {path}: no noise of task {task!r}; {did_you_mean(task, noise_by_task)}; "
                "measure it with --again, or choose tasks with --task"
            )
        entry, metric = noise_by_task[task], comparison.metrics[task]
        if (entry.metric, entry.filter) != (metric.name, metric.filter):
            raise UserError(
                f"--noise {path}: task {task}: the noise is of {entry.metric}, filter "
                f"{entry.filter}, but {metric.name}, filter {metric.filter}, is compared; choose "
                "with --metric and --filter"
            )
        for model, after in comparison.numbers.after.items():
            differences = after[:, members] - comparison.numbers.before[members]
            summary = _summarise(differences)
            limit = entry.noise.compute_limit(
                differences.shape[1], seeds=len(differences), mean_square=summary.mean_square
            )
            difference = float(differences.mean())
            checks.append(
                NoiseCheck(model, entry, summary.changed, differences.size, difference, limit)
            )
    return checks


def _list_runs(comparison: Comparison) -> list[RunRows]:
    return [rows for model_runs in comparison.after.values() for rows, _ in model_runs]


def _iterate_tasks(comparison: Comparison) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each task and whether an item belongs to it."""
    rows = comparison.rows_before.tolist()
    tasks = np.array([comparison.before.find_task(row) for row in rows])
    for task in comparison.metrics:
        if (members := tasks == task).any():
            yield task, members


def _summarise(differences: NDArray[np.float64]) -> RunNoise:
    changes = differences[differences != 0]
    mean_square = float(np.square(changes).mean()) if len(changes) else None
    return RunNoise(differences.size, len(changes), mean_square)


def write_noise(comparison: Comparison, path: Path) -> None:
    """Write the noise of each task as JSON.

    Raises:
        GapftError: the file cannot be written.
    """
    write_json(
        path,
        {
            "schema": _SCHEMA,
            "logs": [
                [str(log.path) for log in rows.logs]
                for rows in (comparison.before, *_list_runs(comparison))
            ],
            "model": comparison.before.logs[0].model_facts,
            "noise": Frame(NOISE, measure_noise(comparison)).entries(),
        },
    )


def _read_noise(path: Path) -> tuple[list[TaskNoise], dict[str, object]]:
    """Read a noise file: the noise of each task, and what is known of its model."""
    content = parse_object(read_text(path), f"--noise {path}")
    if content.get("schema") != _SCHEMA or not isinstance(content.get("noise"), list):
        raise UserError(
            f"--noise {path}: found keys {', '.join(map(quote_unprintable, content)) or '(none)'}; "
            f"expected the {NOISE_FILE} that gapft compare --again writes"
        )
    try:
        entries = [
            TaskNoise(
                entry["task"],
                entry["metric"],
                entry["filter"],
                RunNoise(entry["n"], entry["changed"], entry["mean_square"]),
                entry["is_share"],
            )
            for entry in content["noise"]
        ]
        for entry in entries:
            entry.noise.compute_limit(1)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"--noise {path}: found a damaged entry ({describe_error(error)}); write it again "
            "with gapft compare --again"
        ) from error
    model = content.get("model")
    return entries, model if isinstance(model, dict) else {}


def _format_limit(limit: float, is_share: bool) -> str:
    return "±" + choose_format(is_share).change(limit).removeprefix("+")


#: The noise of two runs of one model.
NOISE: tuple[Column[TaskNoise], ...] = (
    Column("task", "", lambda entry: entry.task, "task"),
    Column("metric", "", lambda entry: entry.metric),
    Column("filter", "", lambda entry: entry.filter),
    Column("n", "how many", lambda entry: entry.noise.items, "documents", format_count),
    Column(
        "changed",
        "documents whose number differs",
        lambda entry: entry.noise.changed,
        "changed",
        format_count,
    ),
    Column(
        "share_ci95",
        "of the share of changed documents",
        lambda entry: entry.noise.share_interval,
        "95% interval",
        percent_interval,
    ),
    Column("mean_square", "", lambda entry: entry.noise.mean_square),
    Column("is_share", "", lambda entry: entry.is_share),
    Column("limit", "", lambda entry: entry.noise.compute_limit(entry.noise.items)),
    Column(
        "",
        "the largest difference that two runs of one model explain (level 5%)",
        lambda entry: _format_limit(entry.noise.compute_limit(entry.noise.items), entry.is_share),
        "noise",
    ),
)

#: Changes compared with the noise.
NOISE_CHECK: tuple[Column[NoiseCheck], ...] = (
    Column("model", "AFTER's name", lambda check: check.model, "model"),
    Column("task", "", lambda check: check.task_noise.task, "task"),
    Column("changed", "", lambda check: check.changed),
    Column(
        "",
        "documents whose number differs",
        lambda check: f"{format_count(check.changed)} of {format_count(check.items)}",
        "changed",
    ),
    Column(
        "",
        "documents whose number differs between two runs of one model",
        lambda check: (
            f"{format_count(check.task_noise.noise.changed)} of "
            f"{format_count(check.task_noise.noise.items)}"
        ),
        "changed by noise",
    ),
    Column("difference", "", lambda check: check.difference),
    Column("limit", "", lambda check: check.limit),
    Column(
        "",
        "after minus before, and its interval",
        lambda check: choose_format(check.task_noise.is_share).change(check.difference),
        "difference",
    ),
    Column(
        "",
        "the largest difference that two runs of one model explain (level 5%)",
        lambda check: _format_limit(check.limit, check.task_noise.is_share),
        "noise",
    ),
    Column("exceeds", "", lambda check: check.exceeds),
    Column(
        "",
        "whether the difference exceeds the noise",
        lambda check: "yes" if check.exceeds else "no",
        "exceeds",
    ),
)


def build_noise_section(comparison: Comparison) -> Section:
    """Build the section of two runs of one model."""
    entries = measure_noise(comparison)
    note = (
        "changed: documents whose number differs between the runs; its interval is exact. noise: "
        "the largest difference of two runs that this explains (level 5%)."
    )
    blocks: list[Block] = [Frame(NOISE, entries).table(note)]
    if not any(log.model_facts for log in comparison.before.logs):
        blocks.insert(0, Text("The logs do not show whether they are of one model."))
    tables = comparison.findings.groups or {"": comparison.findings.models}
    p_values = [
        pair.p_value if pair.p_holm is None else pair.p_holm
        for by_model in tables.values()
        for pair in by_model.values()
    ]
    if min(p_values) < SIGNIFICANT:
        sentence = "The means of the two runs differ by more than noise; compare their settings."
        blocks.insert(0, Text(sentence, "warning"))
    return Section("Noise of two runs", blocks)


def build_noise_check_section(comparison: Comparison, path: Path) -> Section:
    """Build the section that compares changes with the noise in a file."""
    checks = check_noise(comparison, path)
    count = sum(check.exceeds for check in checks)
    if len(checks) == 1:
        verb = "exceeds" if count else "does not exceed"
        sentence = f"{checks[0].model}: the difference {verb} the noise of two runs of one model."
    else:
        sentence = (
            f"{format_count(count)} of {format_count(len(checks))} differences exceed the noise of "
            "two runs of one model."
        )
    left_out = {"task"} if len({check.task_noise.task for check in checks}) == 1 else set()
    columns = [column for column in NOISE_CHECK if column.title not in left_out]
    note = "noise: the largest difference that two runs of one model explain (level 5%)."
    table = Frame(columns, checks).table(note, words=1 + (not left_out))
    blocks: list[Block] = [Text(sentence), table]
    _, model = _read_noise(path)
    runs = [comparison.before, *_list_runs(comparison)]
    facts = [log.model_facts for rows in runs for log in rows.logs if log.model_facts]
    if model and facts and model not in facts:
        remark = "The noise is of a different model, or of different settings, than all these logs."
        blocks.insert(0, Text(remark, "warning"))
    return Section("Against the noise", blocks)
