"""Compare sample logs: find, read and join them, then compute the findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.findings import (
    Aggregate,
    CompareFindings,
    Numbers,
    Paired,
    compare_numbers,
)
from gapft_harness.compare.groups import find_aggregates
from gapft_harness.compare.judging import JudgedLog, judge_evaluations
from gapft_harness.compare.notes import list_notes
from gapft_harness.compare.policy import Decision, GateRule, decide
from gapft_harness.compare.samples import SampleCounts, read_source_samples
from gapft_harness.core.errors import UserError, did_you_mean, quote_unprintable
from gapft_harness.outcomes.joining import Item, Joined, join, refuse_other_tasks
from gapft_harness.outcomes.logs import Evaluation, Log, ModelRuns, find_models, find_single_run
from gapft_harness.outcomes.samples import list_filters, list_metrics
from gapft_harness.outcomes.table import (
    Metric,
    Outcomes,
    UnknownFilter,
    choose_metrics,
    choose_verdict_metric,
    find_first,
    read_outcomes,
)
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.report.rendering.blocks import Text

#: Maximum number of groups of ``--by``.
_MAX_GROUPS = 1_000

Value = TypeVar("Value")

_REMEDY = "choose another metric: --metric"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The compared logs and the findings.

    Attributes:
        choice: the user's options.
        metrics: by task, the metric and the filter.
        directions: by task, whether higher is better for its metric, from the user or lm_eval's
            results files; None: unknown.
        aggregates: lm_eval's groups of tasks.
        before_name: BEFORE as the user named it.
        before: outcomes of BEFORE.
        rows_before: shape (P,), the compared documents of ``before``.
        after: by model, for each seed its outcomes and the compared documents.
        seeds: by model, the names of its seeds.
        items: the P compared items.
        numbers: the numbers of the items.
        findings: differences, intervals, tests.
        samples: verdicts and samples of the model before; None without ``--source-samples``.
        notes: automatic choices, and warnings.
        checks: the rules of the policy, applied to each model.
    """

    choice: CompareChoice
    metrics: dict[str, Metric]
    directions: dict[str, bool | None]
    aggregates: tuple[Aggregate, ...]
    before_name: str
    before: Outcomes
    rows_before: NDArray[np.int64]
    after: dict[str, list[tuple[Outcomes, NDArray[np.int64]]]]
    seeds: dict[str, list[str]]
    items: tuple[Item, ...]
    numbers: Numbers
    findings: CompareFindings
    samples: Verdicts | None
    notes: tuple[Text, ...]
    checks: tuple[GateCheck, ...] = ()

    @property
    def metric(self) -> Metric | None:
        """The metric and the filter if they are the same for all tasks; else None."""
        return _find_common(self.metrics.values())

    @property
    def higher_is_better(self) -> bool | None:
        """The metric's direction if it is the same for all tasks; None: differs or unknown."""
        return _find_common(self.directions.values())

    @property
    def unchecked_tasks(self) -> list[str]:
        """The tasks that no rule of the policy checks."""
        names = {rule.task for rule in self.choice.policy}
        if not names or "" in names:
            return []
        names.update(*(group.tasks for group in self.aggregates if group.name in names))
        return [task for task in self.metrics if task not in names]

    @property
    def unit(self) -> str:
        """What the intervals resample: ``document`` or ``cluster``."""
        return "document" if self.numbers.clusters is None else "cluster"

    def is_judged(self, *models: str) -> bool:
        """Return whether the numbers mean right (1) or wrong (0).

        They do if all are 0 or 1, and no metric is known to be better when lower.

        Args:
            models: the models to look at; without any, all.
        """
        return False not in self.directions.values() and self.numbers.is_binary(*models)


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A rule applied to a model.

    Attributes:
        rule: the rule.
        model: the model.
        task: the task or group of tasks; "": all documents.
        metric: the metric; None: several.
        pair: the model's change on these documents.
        sign: −1 if lower is better, else 1.
        decision: what the interval decides.
    """

    rule: GateRule
    model: str
    task: str
    metric: Metric | None
    pair: Paired
    sign: int
    decision: Decision

    @property
    def more_units(self) -> int | None:
        """How many more documents (or clusters) would decide; None if decided or unknown."""
        if self.decision.factor is None or self.pair.seeds > 1:
            return None
        return math.ceil((self.decision.factor - 1) * self.pair.units) or 1


def compare(before: str, after: Sequence[str], choice: CompareChoice) -> Comparison:
    """Compare sample logs of one model before with those of one or more models after.

    The rules of a policy are checked. One on a metric that is not compared is checked in a
    comparison of its own.

    Args:
        before: BEFORE, the path of a log or folder.
        after: each AFTER: a path or glob, optionally with a name (``NAME=PATH``).
        choice: the user's options.

    Raises:
        UserError: a log is missing or damaged, the logs cannot be compared, or a rule of the
            policy cannot be checked.
    """
    comparison = _compare_logs(before, after, choice)
    checks: list[GateCheck] = []
    for rule in choice.policy:
        part = comparison
        try:
            if not _has_metric(comparison, rule):
                part = _compare_logs(
                    before,
                    after,
                    replace(
                        choice,
                        tasks=_list_tasks(comparison, rule.task),
                        metric=rule.metric,
                        filter=choice.filter if rule.filter is None else rule.filter,
                        by=None,
                        source_samples=(),
                    ),
                )
            checks += _check_rule(part, rule)
        except UserError as error:
            raise error.with_place(rule.place) from error
    return replace(comparison, checks=tuple(checks))


def _compare_logs(before: str, after: Sequence[str], choice: CompareChoice) -> Comparison:
    """Compare sample logs; see ``compare`` for the arguments."""
    options: Any = {"latest": choice.latest, "plugin_files": choice.plugin_files}
    source = find_single_run(before, choice.tasks, "BEFORE", **options)
    after_models = find_models(after, choice.tasks, seeds=choice.seeds, **options)
    if choice.verifier is not None:
        source, after_models, choice = _judge_again(source, after_models, choice)
    for model in after_models:
        for run in model.runs:
            refuse_other_tasks(source, run)
    all_runs = [source, *(run for model in after_models for run in model.runs)]
    metrics = (
        choose_metrics(source, choice.metric, choice.filter)
        if after
        else {
            log.task: choose_verdict_metric(log, choice.metric, choice.filter, None, _REMEDY)
            for log in source.logs
        }
    )
    if any("" in run.tasks for run in all_runs):  # a renamed file does not name its task
        metrics = dict.fromkeys(metrics, next(iter(metrics.values())))
    reading: Any = {"on": choice.on, "common": choice.common}
    before_rows = read_outcomes(source, metrics, cluster=choice.cluster, by=choice.by, **reading)
    runs: list[tuple[ModelRuns, Outcomes]] = []
    metric_notes: list[Text] = []
    for model in after_models:
        for run in model.runs:
            run_metrics = _choose_run_metrics(run, metrics, source, choice)
            new_notes = _note_metrics(model.name, run, metrics, run_metrics)
            metric_notes += [note for note in new_notes if note not in metric_notes]
            runs.append((model, read_outcomes(run, run_metrics, side=1, **reading)))
    metrics = _put_on_scale(before_rows, [rows for _, rows in runs], metrics)
    joined = join(before_rows, [rows for _, rows in runs], common=choice.common)
    by_model: dict[str, list[tuple[Outcomes, NDArray[np.int64]]]] = {
        m.name: [] for m in after_models
    }
    for (model, rows), by_item in zip(runs, joined.after, strict=True):
        by_model[model.name].append((rows, by_item))
    numbers = Numbers(
        _select_values(before_rows, joined.before),
        {
            name: np.stack([_select_values(*run) for run in model_runs])
            for name, model_runs in by_model.items()
        },
        _number_clusters(before_rows, joined, choice),
        _select_groups(before_rows, joined, choice),
    )
    directions = _find_directions(all_runs, metrics, choice)
    # several metrics have a common mean only if each number means right or wrong
    is_right_or_wrong = numbers.is_binary() and False not in directions.values()
    has_common_mean = is_right_or_wrong or (
        len({*metrics.values()}) == len({*directions.values()}) == 1
    )
    if not has_common_mean and choice.by is not None:
        raise UserError(
            f"--by {choice.by}: found several metrics "
            f"({', '.join(sorted({quote_unprintable(f.metric) for f in metrics.values()}))}), "
            "which have no common mean; choose one task: --task NAME"
        )
    samples, source_counts = None, None
    if choice.source_samples:
        metric = _find_common(metrics.values())
        if metric is None:
            raise UserError(
                "--source-samples: found several metrics or filters; choose one task: --task NAME"
            )
        if not is_right_or_wrong:
            metric_names = dict.fromkeys(
                name for names in before_rows.metrics.values() for name in names
            )
            raise UserError(
                f"--source-samples: found the metric {quote_unprintable(metric.metric)}; expected "
                "one of 0 or 1 that is better when higher; metrics of the log: "
                f"{', '.join(map(quote_unprintable, metric_names))}"
            )
        source_counts = read_source_samples(choice, joined.items, metric, source)
        samples = Verdicts(numbers.before == 1, source_counts.passing, source_counts.k)
    aggregates, excluded_notes = (
        find_aggregates(all_runs, metrics) if len(metrics) > 1 else ([], [])
    )
    tasks = np.array([before_rows.find_task(row) for row in joined.before.tolist()])
    return Comparison(
        choice=choice,
        metrics=metrics,
        directions=directions,
        aggregates=tuple(aggregates),
        before_name=before,
        before=before_rows,
        rows_before=joined.before,
        after=by_model,
        seeds={model.name: model.seeds for model in after_models},
        items=joined.items,
        numbers=numbers,
        findings=compare_numbers(
            numbers, samples, tasks=tasks, aggregates=aggregates, has_common_mean=has_common_mean
        ),
        samples=samples,
        notes=(
            *list_notes(choice, metrics, directions, joined, before_rows, by_model, numbers),
            *metric_notes,
            *_note_copies(source_counts),
            *map(Text, excluded_notes),
        ),
    )


def _judge_again(
    source: Evaluation, models: Sequence[ModelRuns], choice: CompareChoice
) -> tuple[Evaluation, list[ModelRuns], CompareChoice]:
    """Judge the responses of all logs; without a model after, only those of a copy of BEFORE.

    Raises:
        UserError: see ``judging.judge_evaluations``.
    """
    assert choice.verifier is not None
    runs = [run for model in models for run in model.runs]
    judged = iter(
        judge_evaluations(
            [source, *runs],
            choice.verifier,
            gold=choice.gold,
            filter=choice.filter,
            plugin_files=choice.plugin_files,
        )
    )
    judged_source = next(judged)
    if not models:
        return source, [ModelRuns(str(choice.verifier), (judged_source,))], choice
    judged_models = [
        ModelRuns(model.name, tuple(next(judged) for _ in model.runs)) for model in models
    ]
    return judged_source, judged_models, replace(choice, metric=None)


def _list_tasks(comparison: Comparison, name: str) -> tuple[str, ...]:
    """List the tasks of a task's or group's name.

    Raises:
        UserError: no compared task or group has the name.
    """
    by_name: dict[str, tuple[str, ...]] = {task: (task,) for task in comparison.metrics}
    by_name |= {aggregate.name: aggregate.tasks for aggregate in comparison.aggregates}
    if name not in by_name:
        raise UserError(f"unknown task {name!r}; {did_you_mean(name, filter(None, by_name))}")
    return by_name[name]


def _has_metric(comparison: Comparison, rule: GateRule) -> bool:
    """Return whether a comparison has a row for the task and the metric of a rule."""
    if not rule.task:
        return True
    metrics = [comparison.metrics[task] for task in _list_tasks(comparison, rule.task)]
    has_row = comparison.choice.by is None or len(comparison.metrics) == 1
    return has_row and all(
        metric.metric == rule.metric and rule.filter in (None, metric.filter) for metric in metrics
    )


def _check_rule(comparison: Comparison, rule: GateRule) -> Iterator[GateCheck]:
    """Check a rule for each model; without a common mean, all documents are checked by task.

    Raises:
        UserError: there is no interval, or the direction is unknown.
    """
    findings = comparison.findings
    if rule.task:
        by_name = findings.groups | findings.aggregates
        rows = findings.models if len(comparison.metrics) == 1 else by_name.get(rule.task)
        if rows is None:
            raise UserError(
                f"lm_eval's results file has no mean of {rule.metric} for the group; give a margin "
                f"to its tasks: {', '.join(_list_tasks(comparison, rule.task))}"
            )
        tables = {rule.task: rows}
    else:
        tables = {"": findings.models} if findings.models else findings.groups
    for name, by_model in tables.items():
        tasks = _list_tasks(comparison, name) if name else tuple(comparison.metrics)
        metric = _find_common(comparison.metrics[task] for task in tasks)
        higher_is_better = _find_common(comparison.directions[task] for task in tasks)
        is_share = all(pair.is_binary for pair in by_model.values())
        metric_names = ", ".join(
            {quote_unprintable(comparison.metrics[task].name) for task in tasks}
        )
        if higher_is_better is None and not is_share:
            raise UserError(
                f"unknown direction of {metric_names}: lm_eval's results file is missing beside "
                "the logs, or has no direction; add --higher-is-better or --lower-is-better"
            )
        if is_share and max(rule.margins) >= 1:
            raise UserError(
                f"{metric_names} is a share; expected a margin below 1 (one point is 0.01)"
            )
        sign = -1 if higher_is_better is False else 1
        for model, pair in by_model.items():
            if not pair.estimate.has_interval:
                raise UserError(
                    "found one document, expected several: one document has no interval; "
                    "evaluate more documents"
                )
            low, high = sorted((sign * pair.estimate.low, sign * pair.estimate.high))
            decision = decide(rule, sign * pair.estimate.value, low, high)
            yield GateCheck(rule, model, name, metric, pair, sign, decision)


def _put_on_scale(
    before: Outcomes, after: Sequence[Outcomes], metrics: Mapping[str, Metric]
) -> dict[str, Metric]:
    """Return the metrics with the scale that the rows of all runs have.

    Raises:
        UserError: the rows of a run have a different scale from those of BEFORE.
    """
    scaled = {}
    for task, metric in metrics.items():
        scale = before.scales[task]
        for rows in after:
            after_scale = rows.scales.get(task) or next(iter(rows.scales.values()))
            if after_scale.negative_log != scale.negative_log:
                raise UserError(
                    f"{quote_unprintable(metric.metric)}: only one of {before.logs[0].path} and "
                    f"{rows.logs[0].path} has log-likelihoods; choose another metric: --metric"
                )
        scaled[task] = replace(metric, negative_log=scale.negative_log)
    return scaled


def _choose_run_metrics(
    run: Evaluation, metrics: Mapping[str, Metric], source: Evaluation, choice: CompareChoice
) -> dict[str, Metric]:
    """Choose a run's metric for each task: BEFORE's, or the log's first if its kind lacks that.

    Raises:
        UserError: a log is empty, or its first row has no metric.
    """
    chosen = {}
    for log in run.logs:
        metric = metrics.get(log.task) or next(iter(metrics.values()))
        if log.kind != source.logs[0].kind or isinstance(log, JudgedLog):
            metric = _choose_nearest(log, metric, choice)
        chosen[log.task] = metric
    return chosen


def _choose_nearest(log: Log, metric: Metric, choice: CompareChoice) -> Metric:
    try:
        first = find_first(log, choice.filter)
    except UnknownFilter:
        first = find_first(log, None)
    filters = list_filters(first)
    filter_name = choice.filter if choice.filter in filters else next(iter(filters), "none")
    has_metric = metric.metric in list_metrics(first, filter_name)
    (nearest,) = choose_metrics(
        Evaluation((log,)), metric.metric if has_metric else None, filter_name
    ).values()
    return nearest


def _note_metrics(
    model: str, run: Evaluation, metrics: Mapping[str, Metric], run_metrics: Mapping[str, Metric]
) -> Iterator[Text]:
    """Yield a note if the metrics of a run after are not those before."""
    before, after = (
        ", ".join(sorted({*map(str, items.values())})) for items in (metrics, run_metrics)
    )
    if before != after:
        yield Text(f"{model}: {after} of its {run.logs[0].kind} logs is compared with {before}")


def _note_copies(samples: SampleCounts | None) -> Iterator[Text]:
    """Yield notes on samples that may not be independent, and on identical ones."""
    if samples is None:
        return
    if samples.warning:
        yield Text(samples.warning, "warning")
    if samples.alike:
        yield Text(
            f"documents with identical texts in all samples: {samples.alike:,} of "
            f"{len(samples.passing):,}; with long answers, many such documents suggest a cache or "
            "one seed"
        )


def _find_common(values: Iterable[Value]) -> Value | None:
    """Return the common value, or None if the values differ."""
    distinct = {*values}
    return distinct.pop() if len(distinct) == 1 else None


def _select_values(rows: Outcomes, by_item: NDArray[np.int64]) -> NDArray[np.float64]:
    return rows.values[by_item]


def _number_clusters(
    rows: Outcomes, joined: Joined, choice: CompareChoice
) -> NDArray[np.int64] | None:
    """Number clusters in the order of their hashes, independently of the order of rows."""
    if not rows.clusters:
        return None
    names = [rows.clusters[row] for row in joined.before.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    if len(numbers) == 1:
        raise UserError(
            f"--cluster {choice.cluster}: all {len(names):,} documents are in one cluster; choose "
            "a field with more values"
        )
    return np.array([numbers[name] for name in names], dtype=np.int64)


def _select_groups(
    rows: Outcomes, joined: Joined, choice: CompareChoice
) -> NDArray[np.str_] | None:
    """Return groups by the chosen field, else by task if there are several; None without both."""
    order = joined.before.tolist()
    if rows.groups:
        groups = [rows.groups[row] for row in order]
    elif len(rows.logs) > 1:
        groups = [rows.find_task(row) for row in order]
    else:
        return None
    if len(set(groups)) > _MAX_GROUPS:
        raise UserError(
            f"--by {choice.by}: found {len(set(groups)):,} groups of {len(groups):,} documents, "
            f"expected at most {_MAX_GROUPS:,}; choose a field with fewer values"
        )
    return np.array(groups)


def _find_directions(
    runs: Sequence[Evaluation], metrics: Mapping[str, Metric], choice: CompareChoice
) -> dict[str, bool | None]:
    """Find for each task whether higher is better for its metric.

    Raises:
        UserError: the logs disagree with each other or with the user.
    """
    chosen = choice.higher_is_better
    logs_by_direction: dict[str, dict[bool, Log]] = {task: {} for task in metrics}
    for log in (log for run in runs for log in run.logs):
        task = log.task if log.task in metrics else next(iter(metrics))
        direction = log.higher_is_better(metrics[task].metric)
        if metrics[task].negative_log:
            direction = False
        if direction is not None:
            logs_by_direction[task].setdefault(direction, log)
    for task, by_log in logs_by_direction.items():
        metric_name = quote_unprintable(metrics[task].metric)
        if len(by_log) > 1:
            raise UserError(
                f"{metric_name}: the results files of lm_eval disagree: higher is better in "
                f"{by_log[True].path}, lower in {by_log[False].path}; compare tasks with one "
                "direction: --task NAME"
            )
        if chosen is not None and (not chosen) in by_log:
            raise UserError(
                f"--{'higher' if chosen else 'lower'}-is-better: for {metric_name}, "
                f"{'lower' if chosen else 'higher'} is better according to lm_eval's results file "
                f"of {by_log[not chosen].path}"
            )
    return {task: next(iter(by_log), chosen) for task, by_log in logs_by_direction.items()}
