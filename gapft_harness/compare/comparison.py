"""One complete comparison: find the logs, read them, join them, compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.power import times_as_many
from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.curves import Curves, curves, tuned_models
from gapft_harness.compare.findings import Aggregate, CompareFindings, Numbers, Paired, find
from gapft_harness.compare.groups import aggregates
from gapft_harness.compare.joining import Item, Joined, join, refuse_other_tasks
from gapft_harness.compare.mixed import figures_in, join_kinds
from gapft_harness.compare.notes import notes
from gapft_harness.compare.reading import Figure, Rows, figures_of, read
from gapft_harness.compare.samples import Sampled, SampleReader
from gapft_harness.core.errors import UserError, plain
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.places import Evaluation, Log, Model, models, single
from gapft_harness.verdicts.sample_logs import OF_ALL, SampleLog
from gapft_harness.verdicts.table import Verdicts

#: Maximum number of groups.
_MOST_GROUPS = 1_000

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The compared logs and the findings.

    Attributes:
        choice: the user's options.
        figures: by task, the metric and the filter.
        directions: by task, whether higher is better for its metric, from the user or lm_eval's
            results files; None: unknown.
        aggregates: lm_eval's groups of tasks.
        before_name: the user's name for the run before.
        before: rows of the run before.
        rows_before: shape (P,), indices of the compared rows.
        after: by model, for each seed its rows and the indices of the compared ones.
        seeds: by model, the names of its seeds.
        items: the P compared items.
        table: their numbers.
        findings: differences, intervals, tests.
        samples: the source's samples, if given.
        curves: by model, Pass@k before and after, if both have several samples.
        notes: automatic choices, and warnings.
    """

    choice: CompareChoice
    figures: dict[str, Figure]
    directions: dict[str, bool | None]
    aggregates: tuple[Aggregate, ...]
    before_name: str
    before: Rows
    rows_before: NDArray[np.int64]
    after: dict[str, list[tuple[Rows, NDArray[np.int64]]]]
    seeds: dict[str, list[str]]
    items: tuple[Item, ...]
    table: Numbers
    found: CompareFindings
    samples: Verdicts | None
    curves: dict[str, Curves]
    notes: tuple[Text, ...]

    @property
    def figure(self) -> Figure | None:
        """The metric and the filter if they are the same for all tasks; else None."""
        return _same(self.figures.values())

    @property
    def higher_is_better(self) -> bool | None:
        """The metric's direction if it is the same for all tasks; None: differs or unknown."""
        return _same(self.directions.values())

    def judged(self, *models: str) -> bool:
        """Return whether the numbers mean right or wrong, for these models or for all.

        This holds if the metric is 0 or 1, and not known to be better when lower.
        """
        return False not in self.directions.values() and self.table.binary(*models)

    def gate(self, margin: float | None = None) -> list[Held]:
        """Check for each model whether it is worse by more than a margin.

        If the tasks' metrics have no common mean, each task is checked separately.

        Args:
            margin: the margin; None: the user's; without one, the result is empty.

        Raises:
            UserError: there is no interval, or the direction is unknown.
        """
        margin = self.choice.margin if margin is None else margin
        if margin is None:
            return []
        if self.found.models:
            # of one metric, or of several that are all 0 or 1 and better when higher
            return self._held(self.found.models, margin, *self.directions)
        return [
            replace(held, name=f"{held.name} on {task}")
            for task, by_model in self.found.groups.items()
            for held in self._held(by_model, margin, task)
        ]

    def _held(self, found: dict[str, Paired], margin: float, *tasks: str) -> list[Held]:
        higher = _same(self.directions[task] for task in tasks)
        metrics = {plain(self.figures[task].name) for task in tasks}
        binary = all(of.binary for of in found.values())
        if higher is None and not binary:
            raise UserError(
                f"--fail-if-worse: unknown direction of {', '.join(metrics)}: lm_eval's results "
                "file is missing beside the logs, or has no direction; add --higher-is-better or "
                "--lower-is-better"
            )
        if binary and margin >= 1:
            raise UserError(
                f"--fail-if-worse {margin:g}: {', '.join(metrics)} is a share; expected a margin "
                "below 1 (one point is 0.01)"
            )
        return [_held(name, of, margin, higher) for name, of in found.items()]


@dataclass(frozen=True, slots=True)
class Held:
    """The result of comparing a model's change with a margin.

    Attributes:
        name: the model.
        verdict: ``worse`` if the complete interval is below minus the margin, ``not worse`` if no
            part of it is, else ``undecided``.
        units: number of documents or clusters per seed.
        seeds: number of training seeds.
        times: if undecided, the factor by which units and seeds must grow for a decision with
            power 80%, at this difference and spread; None: no number would suffice.
    """

    name: str
    verdict: Literal["worse", "not worse", "undecided"]
    units: int
    seeds: int
    times: float | None = None


def _held(name: str, paired: Paired, margin: float, higher: bool | None) -> Held:
    if paired.interval is None:
        raise UserError(
            "--fail-if-worse: found one document, expected several: one document has no interval; "
            "evaluate more documents"
        )
    sign = -1 if higher is False else 1
    low, high = sorted(sign * end for end in (paired.interval.low, paired.interval.high))
    if high < -margin:
        return Held(name, "worse", paired.units, paired.seeds)
    if low >= -margin:
        return Held(name, "not worse", paired.units, paired.seeds)
    times = times_as_many(sign * paired.difference + margin, high - low)
    return Held(name, "undecided", paired.units, paired.seeds, times)


def compare(before: str, after: Sequence[str], choice: CompareChoice) -> Comparison:
    """Compare sample logs of one model before with those of one or more models after.

    Args:
        before: path of the log or folder before.
        after: paths after, each with an optional name (``NAME=PATH``).
        choice: the user's options.

    Raises:
        UserError: a log is missing or damaged, or the logs cannot be compared.
    """
    how: Any = {"latest": choice.latest, "plugin_files": choice.plugin_files}
    source = single(before, choice.tasks, "BEFORE", **how)
    others = models(after, choice.tasks, seeds=choice.seeds, **how)
    for model in others:
        for run in model.runs:
            refuse_other_tasks(source, run)
    everything = [source, *(run for model in others for run in model.runs)]
    figures = figures_of(source, choice)
    if any("" in run.tasks for run in everything):  # a renamed file: its task is unknown
        figures = dict.fromkeys(figures, next(iter(figures.values())))
    first = read(source, figures, choice)
    runs: list[tuple[Model, Rows]] = []
    of_kinds: list[Text] = []
    for model in others:
        for run in model.runs:
            own = figures_in(run, figures, source, choice)
            kept = choice
            if run.logs[0].kind != source.logs[0].kind:  # its documents have different fields
                kept = replace(choice, cluster=None, by=None)
            rows = read(run, own, kept, side=1)
            told = join_kinds(model.name, first, rows, figures, own, choice)
            of_kinds += [note for note in told if note not in of_kinds]
            runs.append((model, rows))
    figures = _put_on_scale(first, [rows for _, rows in runs], figures)
    joined = join(first, [rows for _, rows in runs], common=choice.common)
    by_model: dict[str, list[tuple[Rows, NDArray[np.int64]]]] = {m.name: [] for m in others}
    for (model, rows), by_item in zip(runs, joined.after, strict=True):
        by_model[model.name].append((rows, by_item))
    table = Numbers(
        _values(first, joined.before),
        {name: np.stack([_values(*run) for run in of]) for name, of in by_model.items()},
        _clusters(first, joined, choice),
        _groups(first, joined, choice),
    )
    directions = _directions(everything, figures, choice)
    # numbers of several metrics have a common mean if each means right or wrong
    right = table.binary() and False not in directions.values()
    whole = right or (len({*figures.values()}) == len({*directions.values()}) == 1)
    if not whole and choice.by is not None:
        raise UserError(
            f"--by {choice.by}: found several metrics "
            f"({', '.join(sorted({plain(f.metric) for f in figures.values()}))}), which have no "
            "common mean; choose one task: --task NAME"
        )
    samples, drawn, by_curve = None, None, {}
    figure = _same(figures.values())
    kind = source.logs[0].kind
    several = not choice.source_samples and all(_several(run, kind) for run in everything)
    if choice.tuned_samples and not choice.source_samples:
        raise UserError(
            "--tuned-samples: needs the samples of the model before; add --source-samples"
        )
    if figure is None and choice.source_samples:
        raise UserError(
            "--source-samples: found several metrics or filters; choose one task: --task NAME"
        )
    if figure is not None:
        reader = SampleReader(choice, joined.items, figure, source)
        if choice.source_samples and not right:
            known = dict.fromkeys(name for names in first.metrics.values() for name in names)
            raise UserError(
                f"--source-samples: found the metric {plain(figure.metric)}; expected one of 0 or "
                f"1 that is better when higher; metrics of the log: {', '.join(map(plain, known))}"
            )
        if choice.source_samples:
            drawn = reader.named(choice.source_samples, "--source-samples")
            samples = Verdicts(table.before == 1, drawn.passing, drawn.k)
        elif several:
            drawn = reader.read([source], before, own=True)
        if choice.tuned_samples or several:
            assert drawn is not None
            tuned = others if several else tuned_models(choice.tuned_samples, [*by_model])
            states = None if samples is None else samples.states
            by_curve = curves(reader, drawn, tuned, states, table.clusters)
    together, left_out = aggregates(everything, figures) if len(figures) > 1 else ([], [])
    tasks = np.array([first.task(row) for row in joined.before.tolist()])
    return Comparison(
        choice=choice,
        figures=figures,
        directions=directions,
        aggregates=tuple(together),
        before_name=before,
        before=first,
        rows_before=joined.before,
        after=by_model,
        seeds={model.name: model.seeds for model in others},
        items=joined.items,
        table=table,
        found=find(table, samples, tasks=tasks, aggregates=together, whole=whole),
        samples=samples,
        curves=by_curve,
        notes=(
            *notes(choice, figures, directions, joined, first, by_model, table),
            *of_kinds,
            *_copies(drawn, by_curve),
            *map(Text, left_out),
        ),
    )


def _put_on_scale(
    before: Rows, after: Sequence[Rows], figures: Mapping[str, Figure]
) -> dict[str, Figure]:
    """Return the metrics with the scale of the rows of all runs.

    Raises:
        UserError: a run's rows have a different scale than those before.
    """
    found = {}
    for task, figure in figures.items():
        of_log = before.scales[task]
        for rows in after:
            other = rows.scales.get(task) or next(iter(rows.scales.values()))
            if other.negative_log != of_log.negative_log:
                raise UserError(
                    f"{plain(figure.metric)}: only one of {before.logs[0].path} and "
                    f"{rows.logs[0].path} has log-likelihoods; choose another metric: --metric"
                )
        found[task] = replace(figure, negative_log=of_log.negative_log)
    return found


def _several(run: Evaluation, kind: str) -> bool:
    """Return whether all logs have BEFORE's kind and several responses with their outcomes."""
    firsts = [SampleLog(log).first for log in run.logs if log.kind == kind]
    tells = [row.statuses is not None or OF_ALL in row.fields for row in firsts if row.count > 1]
    return len(tells) == len(run.logs) and all(tells)


def _copies(before: Sampled | None, after: Mapping[str, Curves]) -> Iterator[Text]:
    """Yield notes on samples that may not be independent, and on identical ones."""
    if before is None:
        return
    told = [before.warning, *(warning for one in after.values() for warning in one.warnings)]
    yield from (Text(one, "warning") for one in told if one)
    alike = {"before": (before.alike,), **{name: one.alike for name, one in after.items()}}
    if any(map(any, alike.values())):
        counts = (f"{name} {', '.join(map(str, one))}" for name, one in alike.items())
        yield Text(
            f"documents with identical texts in all samples: {'; '.join(counts)} of "
            f"{len(before.passing):,}; with long answers, many such documents suggest a cache or "
            "one seed"
        )


def _same(values: Iterable[Value]) -> Value | None:
    """Return the common value, or None if the values differ."""
    found = {*values}
    return found.pop() if len(found) == 1 else None


def _values(rows: Rows, by_item: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.frombuffer(rows.values, dtype=np.float64)[by_item]


def _clusters(rows: Rows, joined: Joined, choice: CompareChoice) -> NDArray[np.int64] | None:
    """Number clusters in the order of their hashes, independently of the order of rows."""
    if not rows.clusters:
        return None
    named = [rows.clusters[row] for row in joined.before.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(named)))}
    if len(numbers) == 1:
        raise UserError(
            f"--cluster {choice.cluster}: all {len(named):,} documents are in one cluster; choose "
            "a field with more values"
        )
    return np.array([numbers[name] for name in named], dtype=np.int64)


def _groups(rows: Rows, joined: Joined, choice: CompareChoice) -> NDArray[np.str_] | None:
    """Return groups by the chosen field, else by task if there are several; None without both."""
    order = joined.before.tolist()
    if rows.groups:
        groups = [rows.groups[row] for row in order]
    elif len(rows.logs) > 1:
        groups = [rows.task(row) for row in order]
    else:
        return None
    if len(set(groups)) > _MOST_GROUPS:
        raise UserError(
            f"--by {choice.by}: found {len(set(groups)):,} groups of {len(groups):,} documents, "
            f"expected at most {_MOST_GROUPS:,}; choose a field with fewer values"
        )
    return np.array(groups)


def _directions(
    runs: Sequence[Evaluation], figures: Mapping[str, Figure], choice: CompareChoice
) -> dict[str, bool | None]:
    """Find for each task whether higher is better for its metric.

    Raises:
        UserError: the logs disagree with each other or with the user.
    """
    chosen = choice.higher_is_better
    told: dict[str, dict[bool, Log]] = {task: {} for task in figures}
    for log in (log for run in runs for log in run.logs):
        task = log.task if log.task in figures else next(iter(figures))
        direction = log.higher_is_better(figures[task].metric)
        if figures[task].negative_log:
            direction = False
        if direction is not None:
            told[task].setdefault(direction, log)
    for task, by_log in told.items():
        metric = plain(figures[task].metric)
        if len(by_log) > 1:
            raise UserError(
                f"{metric}: the results files of lm_eval disagree: higher is better in "
                f"{by_log[True].path}, lower in {by_log[False].path}; compare tasks with one "
                "direction: --task NAME"
            )
        if chosen is not None and (not chosen) in by_log:
            raise UserError(
                f"--{'higher' if chosen else 'lower'}-is-better: for {metric}, "
                f"{'lower' if chosen else 'higher'} is better according to lm_eval's results file "
                f"of {by_log[not chosen].path}"
            )
    return {task: next(iter(by_log), chosen) for task, by_log in told.items()}
