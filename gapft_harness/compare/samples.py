"""Count how many of several samples of each document pass, from sample logs."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
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


@dataclass(slots=True)
class _DocumentSamples:
    """The samples of a document.

    Attributes:
        scores: the score of each sample: 0 or 1, or one rate for all.
        texts: hashes of the samples' texts; 0 if the log has no texts.
        place: file and line of one of them.
    """

    scores: list[float] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    place: str = ""

    @property
    def has_texts(self) -> bool:
        """Whether there are several samples with texts."""
        return len(self.texts) > 1 and 0 not in self.texts


@dataclass(frozen=True, slots=True)
class SourceSamples:
    """Samples of P documents by the model before.

    Attributes:
        verdicts: on BEFORE and on the samples.
        warning: signs that the samples are not independent; empty: there are none.
        alike: number of documents with identical texts in all samples, usual for short answers.
    """

    verdicts: Verdicts
    warning: str
    alike: int


def read_source_samples(
    choice: CompareChoice, before: Outcomes, documents: NDArray[np.int64], metric: Metric
) -> SourceSamples:
    """Read the samples in the logs of ``--source-samples``; every further run adds samples.

    Args:
        choice: the user's options.
        before: the outcomes of BEFORE, whose own decode is not a sample.
        documents: shape (P,), the compared documents of ``before``; others are skipped.
        metric: metric and filter for logs of one sample.

    Raises:
        UserError: a document has no samples or a different number of them, a row has no outcome,
            or a duplicate log.
    """
    samples = {document: _DocumentSamples() for document in documents.tolist()}
    paths: list[Path] = []
    for argument in choice.source_samples:
        for run in find_runs(argument, latest=choice.latest, plugin_files=choice.plugin_files):
            seen: dict[int, str] = {}
            for log in run.logs:
                paths.append(log.path)
                _add_log(log, before, samples, seen, metric, choice)
    for path, other_path in combinations(paths, 2):
        _refuse_same_log(path, other_path)
    title = f"--source-samples {choice.source_samples[0]}"
    missing = sum(not own.scores for own in samples.values())
    if missing:
        raise UserError(
            f"{title}: no samples of {missing} of {len(samples)} compared documents; expected "
            "samples of all"
        )
    sizes = {len(own.scores): own.place for own in samples.values()}
    if len(sizes) > 1:
        raise UserError(
            f"{sizes[min(sizes)]}: found {min(sizes)} samples of this document and {max(sizes)} of "
            "another; expected the same number for each"
        )
    return _count_samples([*samples.values()], before.values[documents] == 1, choice)


def _count_samples(
    samples: Sequence[_DocumentSamples], deployed: NDArray[np.bool_], choice: CompareChoice
) -> SourceSamples:
    """Count the samples that passed, with a warning about copies, or without the copies."""
    watch, k = CopyDetector(), len(samples[0].scores)
    for own in samples:
        if own.has_texts:
            watch.add(own.texts)
    warning = watch.format_warning()
    copies = watch.copies if choice.drop_copies else []
    kept = [number for number in range(k) if number not in copies]
    if copies:
        warning += f"; {len(copies)} of {k} are dropped, {len(kept)} kept"
    for own in samples if copies else ():
        if not {*own.scores} <= {0, 1}:
            raise UserError(
                f"{own.place}: a rate of {own.scores[0]:.3g} does not say which samples passed; "
                f"{_REMEDY}"
            )
    passing = [round(sum(own.scores[number] for number in kept)) for own in samples]
    return SourceSamples(
        Verdicts(deployed, np.array(passing, dtype=np.int64), len(kept)),
        f"--source-samples {choice.source_samples[0]}: {warning}" if warning else "",
        sum(own.has_texts and len({*own.texts}) == 1 for own in samples),
    )


def _add_log(
    log: Log,
    before: Outcomes,
    samples: dict[int, _DocumentSamples],
    seen: dict[int, str],
    metric: Metric,
    choice: CompareChoice,
) -> None:
    """Add the samples of the compared documents in a log.

    Args:
        log: the log.
        before: the outcomes of BEFORE.
        samples: by document of BEFORE, its samples.
        seen: by document, its place in another log of the run.
        metric: see ``read_source_samples``.
        choice: the user's options.
    """
    contents = {before.contents[document] for document in samples}
    if not any(hash_problem(row, log, choice.on) in contents for row in log.read_samples()):
        return
    outcomes, verdict = _read_log(log, metric, choice)
    joined = join(before, [outcomes], common=True)
    rows = {
        document: row
        for document, row in zip(joined.before.tolist(), joined.after[0].tolist(), strict=True)
        if document in samples
    }
    texts: dict[int, list[int]] = {row: [] for row in rows.values()}
    for owner, text in zip(outcomes.owners, outcomes.texts, strict=True):
        if owner in texts:
            texts[owner].append(text)
    scores = count_passing(outcomes, [*rows.values()], verdict, _REMEDY)
    for (document, row), own_scores in zip(rows.items(), scores, strict=True):
        place = outcomes.describe_place(row)
        if document in seen:
            raise UserError(
                f"{seen[document]} and {place}: the same document in logs of two tasks; give only "
                "the log with the samples"
            )
        seen[document] = samples[document].place = place
        samples[document].scores += own_scores
        samples[document].texts += texts[row]
    if any(len(own_scores) == 1 for own_scores in scores):
        # rows of several samples may be BEFORE's, with a different metric
        for log_before in before.logs:
            _refuse_same_log(log_before.path, log.path)


def _read_log(log: Log, metric: Metric, choice: CompareChoice) -> tuple[Outcomes, Metric]:
    """Read a log of samples under the compared filter, or the only one of several samples."""
    filter_name = metric.filter
    try:
        first = find_first(log, filter_name)
    except UnknownFilter as error:
        if len(error.filters) != 1 or find_first(log, error.filters[0]).index < 0:
            raise
        (filter_name,) = error.filters
        first = find_first(log, filter_name)
    chosen = choice.metric if choice.metric in list_metrics(first, filter_name) else None
    verdict = choose_verdict_metric(log, chosen, filter_name, metric.metric, _REMEDY)
    run = Evaluation((log,))
    return read_outcomes(run, {log.task: verdict}, on=choice.on, common=True), verdict


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
