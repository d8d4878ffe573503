"""Compare sample logs: find, read and join them, then contrast models on their documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.findings import (
    ModelPair,
    Numbers,
    Paired,
    adjust_together,
    contrast_models,
    contrast_pairs,
    select_tasks,
)
from gapft_harness.compare.groups import Aggregate, find_aggregates
from gapft_harness.compare.judging import JudgedLog, judge_evaluations
from gapft_harness.compare.options import CompareOptions
from gapft_harness.compare.samples import read_source_samples
from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.core.text import natural_sort_key
from gapft_harness.outcomes.joining import Joined, join, refuse_other_tasks
from gapft_harness.outcomes.logs import Evaluation, Log, ModelRuns, find_models, find_single_run
from gapft_harness.outcomes.samples import NO_FILTER, list_filters, list_metrics
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

#: Maximum number of groups of ``--by``.
_MAX_GROUPS = 1_000
_REMEDY = "choose another metric: --metric"

Value = TypeVar("Value")
#: The outcomes of an evaluation, and its compared documents, shape (P,).
Selected = tuple[Outcomes, NDArray[np.int64]]


@dataclass(frozen=True)
class Comparison:
    """The compared logs, and what they show, which is computed when it is asked for.

    Attributes:
        before_name: BEFORE, for people.
        arguments: BEFORE and AFTER as the user gave them.
        options: the user's options.
        metrics: by task, the metric and the filter.
        directions: by task, whether higher is better for its metric, from the user or lm_eval's
            results files; None: unknown.
        aggregates: lm_eval's groups of tasks.
        before: outcomes of BEFORE.
        after: by model, for each seed its outcomes and the compared documents.
        seeds: by model, the names of its seeds.
        joined: the P compared documents.
        tasks: P names of tasks.
        groups: P names of the groups of ``--by``, or of tasks if there are several; else empty.
        numbers: the numbers of the documents.
        has_common_mean: whether a mean over all documents is meaningful.
        samples: verdicts on BEFORE and on samples of its model; None without
            ``--source-samples``.
        copies: signs that these samples are not independent; empty: there are none.
        remarks: automatic choices of metrics and groups.
    """

    before_name: str
    arguments: tuple[str, Sequence[str]]
    options: CompareOptions
    metrics: dict[str, Metric]
    directions: dict[str, bool | None]
    aggregates: Sequence[Aggregate]
    before: Outcomes
    after: dict[str, list[Selected]]
    seeds: dict[str, list[str]]
    joined: Joined
    tasks: Sequence[str]
    groups: Sequence[str]
    numbers: Numbers
    has_common_mean: bool
    samples: Verdicts | None = None
    copies: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def metric(self) -> Metric | None:
        """The metric and the filter if they are the same for all tasks; else None."""
        return find_common(self.metrics.values())

    @property
    def higher_is_better(self) -> bool | None:
        """The metric's direction if it is the same for all tasks; None: differs or unknown."""
        return find_common(self.directions.values())

    @property
    def units(self) -> int:
        """How many documents or clusters the intervals resample."""
        clusters = self.numbers.clusters
        return len(self.joined.items) if clusters is None else int(clusters.max()) + 1

    @property
    def unit(self) -> str:
        """What the intervals resample: ``document`` or ``cluster``."""
        return "document" if self.numbers.clusters is None else "cluster"

    @property
    def is_judged(self) -> bool:
        """Whether the numbers mean right (1) or wrong (0)."""
        return _are_verdicts(self.numbers, self.directions)

    @cached_property
    def models(self) -> dict[str, Paired]:
        """The contrasts of all documents by model; empty if they have no common mean."""
        contrasts = contrast_models(self.numbers, "all") if self.has_common_mean else {}
        return adjust_together({"": contrasts})[""]

    @cached_property
    def pairs(self) -> dict[ModelPair, Paired]:
        """The contrasts of every pair of models on all documents; empty with one model after.

        ``before`` is the first model of a pair, and ``p_holm`` is adjusted for all pairs.
        """
        return contrast_pairs(self.numbers, self.models) if len(self.models) > 1 else {}

    @cached_property
    def by_group(self) -> dict[str, dict[str, Paired]]:
        """The contrasts by group of documents, then by model."""
        names = np.array(self.groups)
        return adjust_together(
            {
                name: contrast_models(self.numbers.select(names == name), f"group/{name}")
                for name in sorted({*self.groups}, key=natural_sort_key)
            }
        )

    @cached_property
    def by_aggregate(self) -> dict[str, dict[str, Paired]]:
        """The contrasts by lm_eval's group of tasks, then by model."""
        tasks = np.array(self.tasks)
        selected = {item.name: select_tasks(self.numbers, tasks, item) for item in self.aggregates}
        return adjust_together(
            {
                name: contrast_models(numbers, f"aggregate/{name}")
                for name, numbers in selected.items()
            }
        )


def compare(before: str, after: Sequence[str], options: CompareOptions) -> Comparison:
    """Compare sample logs of one model before with those of one or more models after.

    Args:
        before: BEFORE, the path of a log or folder.
        after: each AFTER: a path or glob, optionally with a name (``NAME=PATH``). Empty with a
            verifier: BEFORE's own verdicts are compared with the verifier's.
        options: the user's options.

    Raises:
        UserError: a log is missing or damaged, or the logs cannot be compared.
    """
    if options.source_samples and options.verifier is not None and after:
        raise UserError(
            "--source-samples: samples keep the verdicts of their logs, but --verifier judges the "
            "other responses again; leave one of both options out"
        )
    # Find the logs, and judge their responses again if a verifier is chosen
    finding: Any = {"latest": options.latest, "plugin_files": options.plugin_files}
    source = find_single_run(before, options.tasks, "BEFORE", **finding)
    models = find_models(after, options.tasks, seeds=options.seeds, **finding)
    if options.verifier is not None:
        source, models = _judge_again(source, models, options)
        options = replace(options, metric=None) if after else options
    # Choose the metrics, and read what each document scored
    runs = [run for model in models for run in model.runs]
    for run in runs:
        refuse_other_tasks(source, run)
    metrics = _choose_source_metrics(source, runs, options, judges_itself=not after)
    own_metrics = [_choose_run_metrics(run, metrics, source, options) for run in runs]
    remarks = _describe_metrics(models, metrics, own_metrics)
    reading: Any = {"on": options.on, "common": options.common}
    outcomes = read_outcomes(source, metrics, cluster=options.cluster, by=options.by, **reading)
    outcomes_after = [
        read_outcomes(run, own, side=1, **reading)
        for run, own in zip(runs, own_metrics, strict=True)
    ]
    metrics = _put_on_scale(outcomes, outcomes_after, metrics)
    # Join documents; the result has shape (seeds, documents) for each model
    joined = join(outcomes, outcomes_after, common=options.common)
    selected = iter(zip(outcomes_after, joined.after, strict=True))
    by_model = {model.name: [next(selected) for _ in model.runs] for model in models}
    numbers = Numbers(
        outcomes.values[joined.before],
        {
            name: np.stack([rows.values[documents] for rows, documents in model_runs])
            for name, model_runs in by_model.items()
        },
        _number_clusters(outcomes, joined, options),
    )
    # Find out what has a common mean
    directions = _find_directions([source, *runs], metrics, options)
    has_common_mean = (
        _are_verdicts(numbers, directions)
        or len({*metrics.values()}) == len({*directions.values()}) == 1
    )
    if not has_common_mean and options.by is not None:
        raise UserError(
            f"--by {options.by}: found several metrics "
            f"({', '.join(sorted({quote_unprintable(f.metric) for f in metrics.values()}))}), "
            "which have no common mean; choose one task: --task NAME"
        )
    # Read the source model's samples, for Pass@k and states
    samples, copies = None, ""
    if options.source_samples:
        metric = find_common(metrics.values())
        if metric is None or not _are_verdicts(numbers, directions):
            names = dict.fromkeys(name for own in outcomes.metrics.values() for name in own)
            raise UserError(
                f"--source-samples: found {', '.join(map(str, metrics.values()))}; expected one "
                "metric of 0 and 1 that is better when higher; choose one task (--task) or another "
                f"metric (--metric): {', '.join(map(quote_unprintable, names))}"
            )
        samples, copies = read_source_samples(options, outcomes, joined.before, metric)
    # Find groups of documents and lm_eval's groups of tasks
    aggregates, left_out = (
        find_aggregates([source, *runs], metrics) if len(metrics) > 1 else ([], [])
    )
    tasks = [outcomes.find_task(row) for row in joined.before.tolist()]
    return Comparison(
        before_name=before,
        arguments=(before, after),
        options=options,
        metrics=metrics,
        directions=directions,
        aggregates=aggregates,
        before=outcomes,
        after=by_model,
        seeds={model.name: model.seeds for model in models},
        joined=joined,
        tasks=tasks,
        groups=_select_groups(outcomes, joined, options, tasks),
        numbers=numbers,
        has_common_mean=has_common_mean,
        samples=samples,
        copies=copies,
        remarks=(*remarks, *left_out),
    )


def find_common(values: Iterable[Value]) -> Value | None:
    """Return the common value, or None if the values differ."""
    distinct = {*values}
    return distinct.pop() if len(distinct) == 1 else None


def _are_verdicts(numbers: Numbers, directions: Mapping[str, bool | None]) -> bool:
    """Return whether numbers mean right or wrong: 0 or 1, and no task's are better when lower."""
    return False not in directions.values() and numbers.is_binary


def _judge_again(
    source: Evaluation, models: Sequence[ModelRuns], options: CompareOptions
) -> tuple[Evaluation, list[ModelRuns]]:
    """Judge the responses of all logs; without a model after, only those of a copy of BEFORE."""
    judged = iter(judge_evaluations([source, *(r for m in models for r in m.runs)], options))
    judged_source = next(judged)
    if not models:
        return source, [ModelRuns(str(options.verifier), (judged_source,))]
    return judged_source, [
        ModelRuns(model.name, tuple(next(judged) for _ in model.runs)) for model in models
    ]


def _choose_source_metrics(
    source: Evaluation, runs: Sequence[Evaluation], options: CompareOptions, *, judges_itself: bool
) -> dict[str, Metric]:
    """Choose BEFORE's metric for each task: the user's or the first; alone, that of verdicts."""
    if judges_itself:
        metrics = {
            log.task: choose_verdict_metric(log, options.metric, options.filter, None, _REMEDY)
            for log in source.logs
        }
    else:
        metrics = choose_metrics(source, options.metric, options.filter)
    if any("" in run.tasks for run in (source, *runs)):  # a renamed file does not name its task
        metrics = dict.fromkeys(metrics, next(iter(metrics.values())))
    return metrics


def _choose_run_metrics(
    run: Evaluation, metrics: Mapping[str, Metric], source: Evaluation, options: CompareOptions
) -> dict[str, Metric]:
    """Choose a run's metric for each task: BEFORE's, or the log's first if its kind lacks that."""
    chosen = {}
    for log in run.logs:
        metric = metrics.get(log.task) or next(iter(metrics.values()))
        if log.kind != source.logs[0].kind or isinstance(log, JudgedLog):
            metric = _choose_nearest(log, metric, options)
        chosen[log.task] = metric
    return chosen


def _choose_nearest(log: Log, metric: Metric, options: CompareOptions) -> Metric:
    try:
        first = find_first(log, options.filter)
    except UnknownFilter:
        first = find_first(log, None)
    filters = list_filters(first)
    filter_name = options.filter if options.filter in filters else next(iter(filters), NO_FILTER)
    has_metric = metric.metric in list_metrics(first, filter_name)
    own_metric = metric.metric if has_metric else None
    return choose_metrics(Evaluation((log,)), own_metric, filter_name)[log.task]


def _describe_metrics(
    models: Sequence[ModelRuns],
    metrics: Mapping[str, Metric],
    own_metrics: Sequence[Mapping[str, Metric]],
) -> list[str]:
    """Describe the metrics of runs after that are not those before."""

    def join_names(chosen: Mapping[str, Metric]) -> str:
        return ", ".join(sorted({*map(str, chosen.values())}))

    own = iter(own_metrics)
    remarks = [
        f"{model.name}: {join_names(chosen)} of its {run.logs[0].kind} logs is compared with "
        f"{join_names(metrics)}"
        for model in models
        for run in model.runs
        if join_names(chosen := next(own)) != join_names(metrics)
    ]
    return list(dict.fromkeys(remarks))


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
                    f"{rows.logs[0].path} has log-likelihoods; {_REMEDY}"
                )
        scaled[task] = replace(metric, negative_log=scale.negative_log)
    return scaled


def _number_clusters(
    rows: Outcomes, joined: Joined, options: CompareOptions
) -> NDArray[np.int64] | None:
    """Number clusters in the order of their hashes, independently of the order of rows."""
    if not rows.clusters:
        return None
    hashes = [rows.clusters[row] for row in joined.before.tolist()]
    numbers = {digest: number for number, digest in enumerate(sorted(set(hashes)))}
    if len(numbers) == 1:
        raise UserError(
            f"--cluster {options.cluster}: all {len(hashes):,} documents are in one cluster; "
            "choose a field with more values"
        )
    return np.array([numbers[digest] for digest in hashes], dtype=np.int64)


def _select_groups(
    rows: Outcomes, joined: Joined, options: CompareOptions, tasks: Sequence[str]
) -> Sequence[str]:
    """Return groups by the chosen field, else by task if there are several; else none."""
    if not rows.groups:
        return tasks if len({log.task for log in rows.logs}) > 1 else ()
    groups = [rows.groups[row] for row in joined.before.tolist()]
    if len(set(groups)) > _MAX_GROUPS:
        raise UserError(
            f"--by {options.by}: found {len(set(groups)):,} groups of {len(groups):,} documents, "
            f"expected at most {_MAX_GROUPS:,}; choose a field with fewer values"
        )
    return groups


def _find_directions(
    runs: Sequence[Evaluation], metrics: Mapping[str, Metric], options: CompareOptions
) -> dict[str, bool | None]:
    """Find for each task whether higher is better for its metric.

    Raises:
        UserError: the logs disagree with each other or with the user.
    """
    chosen = options.higher_is_better
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
