"""Count how many of several samples of each document pass, from sample logs."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.options import CompareOptions
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.copies import CopyDetector
from gapft_harness.outcomes.joining import join
from gapft_harness.outcomes.logs import Evaluation, Log, find_runs
from gapft_harness.outcomes.samples import list_metrics
from gapft_harness.outcomes.table import (
    Metric,
    Outcomes,
    UnknownFilter,
    choose_verdict_metric,
    count_passing,
    find_first,
    hash_problem,
    read_outcomes,
)
from gapft_harness.outcomes.verdicts import Verdicts

_REMEDY = (
    "samples need verdicts (as in logs of gapft gap), an unbiased pass@1 over several responses, "
    "or one log for each sample"
)


def read_source_samples(
    options: CompareOptions, before: Outcomes, documents: NDArray[np.int64], metric: Metric
) -> tuple[Verdicts, str]:
    """Read the samples in the logs of ``--source-samples``; every further run adds samples.

    Args:
        options: the user's options.
        before: the outcomes of BEFORE, whose own decode is not a sample.
        documents: shape (P,), the compared documents of ``before``; others are skipped.
        metric: metric and filter for logs of one sample.

    Returns:
        The verdicts on BEFORE and on the samples; signs that samples are not independent, or "".

    Raises:
        UserError: a document has no samples or a different number of them, a row has no outcome,
            or a duplicate log.
    """
    # Read the samples of all logs
    samples = {document: _DocumentSamples() for document in documents.tolist()}
    paths: list[Path] = []
    for argument in options.source_samples:
        for run in find_runs(argument, latest=options.latest, plugin_files=options.plugin_files):
            seen: dict[int, Path] = {}
            for log in run.logs:
                paths.append(log.path)
                for document in _add_log(log, before, samples, metric, options):
                    if document in seen:
                        raise UserError(
                            f"{seen[document]} and {log.path}: the same document in logs of two "
                            "tasks; give only the log with the samples"
                        )
                    seen[document] = log.path
    for path, other_path in combinations(paths, 2):
        _refuse_same_log(path, other_path)
    # Every document needs the same number of samples
    title = f"--source-samples {options.source_samples[0]}"
    sizes = {len(own.scores): document for document, own in samples.items()}
    if 0 in sizes:
        missing = sum(not own.scores for own in samples.values())
        raise UserError(
            f"{title}: no samples of {missing} of {len(samples)} compared documents; expected "
            "samples of all"
        )
    if len(sizes) > 1:
        raise UserError(
            f"{title}: found {min(sizes)} samples of {before.describe_place(sizes[min(sizes)])} "
            f"and {max(sizes)} of another document; expected the same number for each"
        )
    # Find samples that are copies, and drop them if the user wants it
    watch, (k,) = CopyDetector(), sizes
    for own in samples.values():
        if k > 1 and 0 not in own.texts:
            watch.add(own.texts)
    warning = f"{title}: {text}" if (text := watch.format_warning()) else ""
    copies = watch.copies if options.drop_copies else []
    if copies:
        warning += f"; {len(copies)} of {k} are dropped"
        if any(score not in (0, 1) for own in samples.values() for score in own.scores):
            raise UserError(f"{title}: rates do not say which samples passed; {_REMEDY}")
    # Count the samples that passed
    kept = [number for number in range(k) if number not in copies]
    passing = [round(sum(own.scores[number] for number in kept)) for own in samples.values()]
    deployed = before.values[documents] == 1
    return Verdicts(deployed, np.array(passing, dtype=np.int64), len(kept)), warning


@dataclass(slots=True)
class _DocumentSamples:
    """The samples of a document.

    Attributes:
        scores: the score of each sample: 0 or 1, or one rate for all.
        texts: hashes of the samples' texts; 0 if the log has no texts.
    """

    scores: list[float] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)


def _add_log(
    log: Log,
    before: Outcomes,
    samples: dict[int, _DocumentSamples],
    metric: Metric,
    options: CompareOptions,
) -> list[int]:
    """Add the samples in a log to those of the documents; return the documents that it has."""
    contents = {before.contents[document] for document in samples}
    if not any(hash_problem(row, log, options.on) in contents for row in log.read_samples()):
        return []
    outcomes, verdict = _read_log(log, metric, options)
    joined = join(before, [outcomes], common=True)
    pairs = zip(joined.after[0].tolist(), joined.before.tolist(), strict=True)
    documents = {row: document for row, document in pairs if document in samples}
    for owner, text in zip(outcomes.owners, outcomes.texts, strict=True):
        if owner in documents:
            samples[documents[owner]].texts.append(text)
    scores = count_passing(outcomes, [*documents], verdict, _REMEDY)
    for document, own_scores in zip(documents.values(), scores, strict=True):
        samples[document].scores += own_scores
    if any(len(own_scores) == 1 for own_scores in scores):
        # rows of several samples may be BEFORE's, with a different metric
        for log_before in before.logs:
            _refuse_same_log(log_before.path, log.path)
    return [*documents.values()]


def _read_log(log: Log, metric: Metric, options: CompareOptions) -> tuple[Outcomes, Metric]:
    """Read a log of samples under the compared filter, or the only one of several samples."""
    filter_name = metric.filter
    try:
        first = find_first(log, filter_name)
    except UnknownFilter as error:
        if len(error.filters) != 1 or find_first(log, error.filters[0]).index < 0:
            raise
        (filter_name,) = error.filters
        first = find_first(log, filter_name)
    chosen = options.metric if options.metric in list_metrics(first, filter_name) else None
    verdict = choose_verdict_metric(log, chosen, filter_name, metric.metric, _REMEDY)
    run = Evaluation((log,))
    return read_outcomes(run, {log.task: verdict}, on=options.on, common=True), verdict


def _refuse_same_log(path: Path, other_path: Path) -> None:
    """Refuse two identical logs, since independent samples are never all equal.

    Raises:
        UserError: the files are identical.
    """
    if filecmp.cmp(path, other_path, shallow=False):
        raise UserError(
            f"{path} and {other_path}: identical logs, which would count samples twice; "
            "give every log once, and draw each with a different seed (lm_eval --seed)"
        )
