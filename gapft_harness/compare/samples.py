"""Count how many of several samples of each document pass, from sample logs."""

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
from gapft_harness.compare.reading import ComparedMetric
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.verdicts.copies import CopyDetector
from gapft_harness.verdicts.log_files import Evaluation, Log, find_runs
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, hash_value, read_rows

_REMEDY = (
    "samples need verdicts (as in logs of gapft gap), an unbiased pass@1 over several responses, "
    "or one log for each sample; gapft import --judge lets the task judge each response and finds "
    "the states"
)


@dataclass(frozen=True, slots=True)
class _DocumentCount:
    """How many samples of a document passed.

    Attributes:
        passing: number of samples that passed.
        samples: number of samples.
        place: file and line of a row with these numbers.
        texts: hashes of the samples' texts; empty if the log has no texts.
        passed: whether each sample passed; empty if only their number is known.
    """

    passing: int
    samples: int
    place: str
    texts: tuple[bytes, ...] = ()
    passed: tuple[bool, ...] = ()

    def __add__(self, further: _DocumentCount) -> _DocumentCount:
        return _DocumentCount(
            self.passing + further.passing,
            self.samples + further.samples,
            further.place,
            self.texts + further.texts,
            self.passed + further.passed,
        )


#: A document: its hash, and its number if the hash is not unique.
_Key = tuple[bytes, str]


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


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Counts each document's passing samples; every further run adds samples.

    A sample passes by the same rules as in every command (``verdicts/sample_logs.py``). The
    compared metric decides for rows of one sample; if the user chose it, for all rows that name it.

    Attributes:
        choice: the user's options.
        items: the documents; rows of other documents are skipped.
        figure: metric and filter for rows of one sample.
        source: BEFORE, whose own decode is not a sample.
    """

    choice: CompareChoice
    items: Sequence[Item]
    figure: ComparedMetric
    source: Evaluation

    def read(self) -> SampleCounts:
        """Read the samples in the logs of ``--source-samples``.

        Raises:
            UserError: a document has no samples or a different number of them, a row has no
                outcome, or a duplicate log.
        """
        arguments = self.choice.source_samples
        title = f"--source-samples {arguments[0]}"
        options: Any = {"latest": self.choice.latest, "plugin_files": self.choice.plugin_files}
        runs = [run for argument in arguments for run in find_runs(argument, **options)]
        keys = [(digest, doc_id) for _, digest, doc_id in self.items]
        if len(set(keys)) < len(keys):
            raise UserError(
                f"{title}: two of the compared tasks share a document, so its samples are "
                "ambiguous; choose one task: --task NAME"
            )
        counts: dict[_Key, _DocumentCount] = {}
        for run in runs:
            for key, count in self._count_run(run, set(keys)).items():
                counts[key] = counts[key] + count if key in counts else count
        paths = [log.path for run in runs for log in run.logs]
        for path, other_path in combinations(paths, 2):
            _refuse_same_log(path, other_path)
        missing = [key for key in keys if key not in counts]
        if missing:
            raise UserError(
                f"{title}: no samples of {len(missing)} of {len(keys)} compared documents; "
                "expected samples of all"
            )
        sizes = sorted({counts[key].samples for key in keys})
        if len(sizes) > 1:
            fewest_key = next(key for key in keys if counts[key].samples == sizes[0])
            raise UserError(
                f"{counts[fewest_key].place}: found {sizes[0]} samples of this document and "
                f"{sizes[-1]} of another; expected the same number for each"
            )
        return self._build_counts([counts[key] for key in keys], title)

    def _build_counts(self, counts: Sequence[_DocumentCount], title: str) -> SampleCounts:
        """Build the arrays of counts, with a warning about copies, or without the copies."""
        watch, k = CopyDetector(), counts[0].samples
        for count in counts:
            if len(count.texts) == k > 1:
                watch.add(count.texts)
        warning = watch.format_warning()
        alike = sum(len(count.texts) == k > 1 == len({*count.texts}) for count in counts)
        copies = watch.copies if self.choice.drop_copies else []
        if not copies:
            warning_text = f"{title}: {warning}" if warning else ""
            passing = np.array([c.passing for c in counts], dtype=np.int64)
            return SampleCounts(passing, k, warning_text, alike)
        kept_numbers = [number for number in range(k) if number not in copies]
        passing = np.array([sum(c.passed[n] for n in kept_numbers) for c in counts], dtype=np.int64)
        warning_text = (
            f"{title}: {warning}; {len(copies)} of {k} are dropped, {len(kept_numbers)} kept"
        )
        return SampleCounts(passing, len(kept_numbers), warning_text, alike)

    def _count_run(self, run: Evaluation, keys: set[_Key]) -> dict[_Key, _DocumentCount]:
        counts: dict[_Key, _DocumentCount] = {}
        single_paths: set[Path] = set()
        for log in run.logs:
            for key, count in _count_log(log, keys, self.figure, self.choice).items():
                if key in counts:
                    raise UserError(
                        f"{counts[key].place} and {count.place}: the same document in logs of two "
                        "tasks; give only the log with the samples"
                    )
                if count.samples == 1:
                    single_paths.add(log.path)
                counts[key] = count
        for (
            path
        ) in single_paths:  # rows of several samples may be BEFORE's, with a different metric
            for log_before in self.source.logs:
                _refuse_same_log(log_before.path, path)
        return counts


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


def _count_log(
    log: Log, keys: set[_Key], figure: ComparedMetric, choice: CompareChoice
) -> dict[_Key, _DocumentCount]:
    """Count the samples of the documents in ``keys``, from the rows of one filter."""
    repeated = {digest for digest, doc_id in keys if doc_id}
    by_filter: dict[str, dict[_Key, _DocumentCount]] = {}
    faults: dict[str, UserError] = {}
    criteria: dict[str, Criterion] = {}
    for row in read_rows(log):
        content = row.hash_fields(choice.on)
        key = content, str(row.doc_id) if content in repeated else ""
        if key not in keys:
            continue
        counts = by_filter.setdefault(row.filter, {})
        if key in counts:
            raise UserError(
                f"{counts[key].place} and {row.place}: duplicate document; check whether the log "
                "was written twice"
            )
        numbers: tuple[int, int] = 0, 0
        passed: tuple[bool, ...] = ()
        try:
            if row.filter not in criteria:
                chosen = choice.metric if choice.metric in row.fields else None
                criteria[row.filter] = Criterion.of(row, chosen, _REMEDY, figure.metric)
            numbers = criteria[row.filter].count_passing(row)
            if choice.drop_copies:
                passed = tuple(criteria[row.filter].find_passed(row))
        except UserError as error:  # the rows of another filter may be valid
            faults.setdefault(row.filter, error)
        counts[key] = _DocumentCount(*numbers, row.place, _hash_texts(row), passed)
    if not by_filter:
        return {}
    chosen_filter = figure.filter if figure.filter in by_filter else next(iter(by_filter))
    if chosen_filter in faults:
        raise faults[chosen_filter]
    has_single = any(count.samples == 1 for count in by_filter[chosen_filter].values())
    if chosen_filter != figure.filter and (has_single or len(by_filter) > 1):
        raise UserError(
            f"{log.path}: no row of these documents under filter {figure.filter!r}; "
            f"{did_you_mean(figure.filter, by_filter)}"
        )
    return by_filter[chosen_filter]


def _hash_texts(row: LogRow) -> tuple[bytes, ...]:
    """Hash a row's responses; empty if the log has none."""
    try:
        return tuple(map(hash_value, row.texts))
    except UserError:
        return ()
