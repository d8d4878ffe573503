"""How many of several samples a document passed, from logs of the model before."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.joining import Item
from gapft_harness.compare.reading import Figure
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.verdicts.places import Evaluation, Log, runs_of
from gapft_harness.verdicts.sample_logs import Criterion, log_rows
from gapft_harness.verdicts.table import Verdicts

_REMEDY = (
    "samples need verdicts (gapft gap logs them), an unbiased pass@1 over several responses, or "
    "several logs, one for each; gapft import --judge has the task judge each response and "
    "finds the states"
)


@dataclass(frozen=True, slots=True)
class _Count:
    """Samples of a document that passed, all of them, and a line that told so."""

    passing: int
    samples: int
    place: str


#: A document: its hash, and its number where the hash alone does not tell.
_Key = tuple[bytes, str]


def source_samples(
    choice: CompareChoice,
    items: Sequence[Item],
    figure: Figure,
    source: Evaluation,
    greedy: NDArray[np.bool_],
) -> Verdicts:
    """Counts each document's passing samples, over all logs named; each run is further samples.

    What passed is told as in every command (``verdicts/sample_logs.py``). The compared metric
    counts for rows of one sample, and where it was chosen for all rows that name it.

    Args:
        choice: the logs, and how documents are joined.
        items: the documents; rows of others are left out.
        figure: the metric and filter for rows of one sample.
        source: BEFORE, whose own decode is no sample.
        greedy: shape (P,), whether that passed.

    Raises:
        UserError: a document has none, or not as many as another, a row does not tell, or a log
            is there twice.
    """
    arguments = choice.source_samples
    keys = [(digest, doc_id) for _, digest, doc_id in items]
    if len(set(keys)) < len(keys):
        raise UserError(
            "--source-samples: two of the compared tasks have a document in common, so that "
            "samples of it cannot be told apart; take one task: --task NAME"
        )
    how: Any = {"latest": choice.latest, "plugin_files": choice.plugin_files}
    runs = [run for argument in arguments for run in runs_of(argument, **how)]
    found: dict[_Key, _Count] = {}
    for run in runs:
        for key, count in _of_run(run, set(keys), figure, choice, source).items():
            sums = found.get(key, _Count(0, 0, ""))
            passing, samples = sums.passing + count.passing, sums.samples + count.samples
            found[key] = _Count(passing, samples, count.place)
    logs = [log.path for run in runs for log in run.logs]
    for one, other in combinations(logs, 2):
        _refuse_same(one, other)
    lacking = [key for key in keys if key not in found]
    if lacking:
        raise UserError(
            f"--source-samples {arguments[0]}: holds no sample of {len(lacking)} of {len(keys)} "
            "compared documents; sample all of them"
        )
    sizes = sorted({found[key].samples for key in keys})
    if len(sizes) > 1:
        few = next(key for key in keys if found[key].samples == sizes[0])
        raise UserError(
            f"{found[few].place}: {sizes[0]} samples of this document where another has "
            f"{sizes[-1]}; expected as many of each"
        )
    counts = np.array([found[key].passing for key in keys], dtype=np.int64)
    return Verdicts(greedy, counts, sizes[0])


def _refuse_same(one: Path, other: Path) -> None:
    """Refuses two logs of the same bytes: samples drawn apart are never the same throughout."""
    if filecmp.cmp(one, other, shallow=False):
        raise UserError(
            f"--source-samples: {one} and {other} are the same, and would count one sample twice; "
            "name every log once, and draw each with a seed of its own (lm_eval --seed)"
        )


def _of_run(
    run: Evaluation, wanted: set[_Key], figure: Figure, choice: CompareChoice, source: Evaluation
) -> dict[_Key, _Count]:
    counted: dict[_Key, _Count] = {}
    alone: set[Path] = set()
    for log in run.logs:
        for key, count in _of_log(log, wanted, figure, choice).items():
            if key in counted:
                raise UserError(
                    f"{counted[key].place} and {count.place}: the same document in logs of two "
                    "tasks; name the one that holds the samples: --source-samples FILE"
                )
            if count.samples == 1:
                alone.add(log.path)
            counted[key] = count
    for path in alone:  # several samples a row may be BEFORE's own: it has another metric of them
        for own in source.logs:
            _refuse_same(own.path, path)
    return counted


def _of_log(
    log: Log, wanted: set[_Key], figure: Figure, choice: CompareChoice
) -> dict[_Key, _Count]:
    """Counts of the wanted documents, from the rows of one filter."""
    repeated = {digest for digest, doc_id in wanted if doc_id}
    by_filter: dict[str, dict[_Key, _Count]] = {}
    faults: dict[str, UserError] = {}
    criteria: dict[str, Criterion] = {}
    for row in log_rows(log):
        digest = row.content(choice.on)
        key = digest, str(row.doc_id) if digest in repeated else ""
        if key not in wanted:
            continue
        counts = by_filter.setdefault(row.filter, {})
        if key in counts:
            raise UserError(
                f"{counts[key].place} and {row.place}: the same document twice; is a log of "
                "samples written to twice?"
            )
        told = 0, 0
        try:
            if row.filter not in criteria:
                chosen = choice.metric if choice.metric in row.fields else None
                criteria[row.filter] = Criterion.of(row, chosen, _REMEDY, figure.metric)
            told = criteria[row.filter].passing(row)
        except UserError as error:  # another filter's may be right
            faults.setdefault(row.filter, error)
        counts[key] = _Count(*told, row.place)
    if not by_filter:
        return {}
    taken = figure.filter if figure.filter in by_filter else next(iter(by_filter))
    if taken in faults:
        raise faults[taken]
    single = any(count.samples == 1 for count in by_filter[taken].values())
    if taken != figure.filter and (single or len(by_filter) > 1):
        raise UserError(
            f"{log.path}: holds no row of these documents under filter {figure.filter!r}; "
            f"{did_you_mean(figure.filter, by_filter)}"
        )
    return by_filter[taken]
