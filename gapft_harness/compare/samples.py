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
from gapft_harness.outcomes.joining import Item
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

_REMEDY = (
    "samples need verdicts (as in logs of gapft gap), an unbiased pass@1 over several responses, "
    "or one log for each sample"
)

#: A document: its hash, and its number if the hash is not unique.
_Key = tuple[bytes, str]


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
class SampleCounts:
    """Samples of P documents by the model before.

    Attributes:
        passing: shape (P,), number of samples that passed.
        k: number of samples of each document.
        warning: signs that the samples are not independent; empty: there are none.
        alike: number of documents with identical texts in all samples, usual for short answers.
    """

    passing: NDArray[np.int64]
    k: int
    warning: str
    alike: int


def read_source_samples(
    choice: CompareChoice, items: Sequence[Item], metric: Metric, source: Evaluation
) -> SampleCounts:
    """Read the samples in the logs of ``--source-samples``; every further run adds samples.

    Args:
        choice: the user's options.
        items: the documents; others are skipped.
        metric: metric and filter for logs of one sample.
        source: BEFORE, whose own decode is not a sample.

    Raises:
        UserError: a document has no samples or a different number of them, a row has no outcome,
            or a duplicate log.
    """
    arguments = choice.source_samples
    title = f"--source-samples {arguments[0]}"
    keys = [(digest, number) for _, digest, number in items]
    if len(set(keys)) < len(keys):
        raise UserError(
            f"{title}: two of the compared tasks share a document, so its samples are ambiguous; "
            "choose one task: --task NAME"
        )
    documents = {key: _DocumentSamples() for key in keys}
    paths: list[Path] = []
    for argument in arguments:
        for run in find_runs(argument, latest=choice.latest, plugin_files=choice.plugin_files):
            seen: dict[_Key, str] = {}
            for log in run.logs:
                paths.append(log.path)
                _add_log(log, documents, seen, metric, choice, source)
    for path, other_path in combinations(paths, 2):
        _refuse_same_log(path, other_path)
    missing = sum(not samples.scores for samples in documents.values())
    if missing:
        raise UserError(
            f"{title}: no samples of {missing} of {len(keys)} compared documents; expected samples "
            "of all"
        )
    sizes = {len(samples.scores): samples.place for samples in documents.values()}
    if len(sizes) > 1:
        raise UserError(
            f"{sizes[min(sizes)]}: found {min(sizes)} samples of this document and {max(sizes)} of "
            "another; expected the same number for each"
        )
    return _build_counts([*documents.values()], title, drop_copies=choice.drop_copies)


def _build_counts(
    documents: Sequence[_DocumentSamples], title: str, *, drop_copies: bool
) -> SampleCounts:
    """Build the arrays of counts, with a warning about copies, or without the copies."""
    watch, k = CopyDetector(), len(documents[0].scores)
    for samples in documents:
        if samples.has_texts:
            watch.add(samples.texts)
    warning = f"{title}: {text}" if (text := watch.format_warning()) else ""
    alike = sum(samples.has_texts and len({*samples.texts}) == 1 for samples in documents)
    copies = watch.copies if drop_copies else []
    kept = [number for number in range(k) if number not in copies]
    if copies:
        warning += f"; {len(copies)} of {k} are dropped, {len(kept)} kept"
    passing = []
    for samples in documents:
        if copies and not {*samples.scores} <= {0, 1}:
            raise UserError(
                f"{samples.place}: a rate of {samples.scores[0]:.3g} does not say which samples "
                f"passed; {_REMEDY}"
            )
        passing.append(round(sum(samples.scores[number] for number in kept)))
    return SampleCounts(np.array(passing, dtype=np.int64), len(kept), warning, alike)


def _add_log(
    log: Log,
    documents: dict[_Key, _DocumentSamples],
    seen: dict[_Key, str],
    metric: Metric,
    choice: CompareChoice,
    source: Evaluation,
) -> None:
    """Add the samples of the compared documents in a log.

    Raises:
        UserError: see ``read_source_samples``; ``seen`` has documents of other logs of the run.
    """
    wanted = {digest for digest, _ in documents}
    if not any(hash_problem(sample, log, choice.on) in wanted for sample in log.read_samples()):
        return
    outcomes, verdict = _read_log(log, metric, choice)
    repeated = {digest for digest, number in documents if number}
    rows: dict[_Key, int] = {}
    for row, content in enumerate(outcomes.contents):
        number = str(outcomes.numbers[row]) if content in repeated else ""
        if (content, number) in documents:
            rows[content, number] = row
    texts: dict[int, list[int]] = {row: [] for row in rows.values()}
    for owner, text in zip(outcomes.owners, outcomes.texts, strict=True):
        if owner in texts:
            texts[owner].append(text)
    scores = count_passing(outcomes, [*rows.values()], verdict, _REMEDY)
    for (key, row), own_scores in zip(rows.items(), scores, strict=True):
        place = outcomes.describe_place(row)
        if key in seen:
            raise UserError(
                f"{seen[key]} and {place}: the same document in logs of two tasks; give only the "
                "log with the samples"
            )
        seen[key] = documents[key].place = place
        documents[key].scores += own_scores
        documents[key].texts += texts[row]
    if any(len(own_scores) == 1 for own_scores in scores):
        # rows of several samples may be BEFORE's, with a different metric
        for log_before in source.logs:
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
