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
from gapft_harness.compare.reading import Figure
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.verdicts.copies import AlikeWatch
from gapft_harness.verdicts.places import Evaluation, Log, runs_of
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, digest, log_rows

_REMEDY = (
    "samples need verdicts (as in logs of gapft gap), an unbiased pass@1 over several responses, "
    "or one log for each sample; gapft import --judge lets the task judge each response and finds "
    "the states"
)


@dataclass(frozen=True, slots=True)
class _Count:
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

    def __add__(self, further: _Count) -> _Count:
        return _Count(
            self.passing + further.passing,
            self.samples + further.samples,
            further.place,
            self.texts + further.texts,
            self.passed + further.passed,
        )


#: A document: its hash, and its number if the hash is not unique.
_Key = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of P documents by one model.

    Attributes:
        passing: shape (P,), number of samples that passed.
        k: number of samples of each document.
        paths: the logs.
        warning: signs that the samples are not independent; empty: none.
        alike: number of documents with identical texts in all samples, usual for short answers.
    """

    passing: NDArray[np.int64]
    k: int
    paths: tuple[Path, ...]
    warning: str = ""
    alike: int = 0


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Counts each document's passing samples; each run that it is given is further samples.

    What passed is told as in every command (``verdicts/sample_logs.py``). The compared metric
    counts for rows of one sample, and where it was chosen for all rows that name it.

    Attributes:
        choice: the user's options.
        items: the documents; rows of other documents are skipped.
        figure: metric and filter for rows of one sample.
        source: BEFORE, whose own decode is not a sample.
    """

    choice: CompareChoice
    items: Sequence[Item]
    figure: Figure
    source: Evaluation

    def named(self, arguments: Sequence[str], option: str) -> Sampled:
        """Read the samples in the logs of an option.

        Raises:
            UserError: as in ``read``.
        """
        how: Any = {"latest": self.choice.latest, "plugin_files": self.choice.plugin_files}
        runs = [run for argument in arguments for run in runs_of(argument, **how)]
        return self.read(runs, f"{option} {arguments[0]}")

    def read(self, runs: Sequence[Evaluation], what: str, *, own: bool = False) -> Sampled:
        """Read the samples in some logs.

        Args:
            runs: the runs; each adds samples.
            title: the beginning of messages.
            may_be_before: whether a run may be BEFORE itself, with several samples per row.

        Raises:
            UserError: a document has no samples or a different number of them, a row has no
                outcome, or a duplicate log.
        """
        keys = [(digest, doc_id) for _, digest, doc_id in self.items]
        if len(set(keys)) < len(keys):
            raise UserError(
                f"{what}: two of the compared tasks share a document, so its samples are "
                "ambiguous; choose one task: --task NAME"
            )
        counts: dict[_Key, _Count] = {}
        for run in runs:
            for key, count in self._of_run(run, set(keys), own=own).items():
                counts[key] = counts[key] + count if key in counts else count
        paths = tuple(log.path for run in runs for log in run.logs)
        for one, other in combinations(paths, 2):
            refuse_same(one, other)
        lacking = [key for key in keys if key not in counts]
        if lacking:
            raise UserError(
                f"{what}: no samples of {len(lacking)} of {len(keys)} compared documents; expected "
                "samples of all"
            )
        sizes = sorted({counts[key].samples for key in keys})
        if len(sizes) > 1:
            few = next(key for key in keys if counts[key].samples == sizes[0])
            raise UserError(
                f"{counts[few].place}: found {sizes[0]} samples of this document and {sizes[-1]} "
                "of another; expected the same number for each"
            )
        return self._sampled([counts[key] for key in keys], paths, what)

    def _sampled(self, counts: Sequence[_Count], paths: tuple[Path, ...], what: str) -> Sampled:
        """Build the arrays of counts, with a warning about copies, or without the copies."""
        watch, k = AlikeWatch(), counts[0].samples
        for count in counts:
            if len(count.texts) == k > 1:
                watch.see(count.texts)
        warning = watch.warning()
        alike = sum(len(count.texts) == k > 1 == len({*count.texts}) for count in counts)
        copies = watch.copies if self.choice.drop_copies else []
        if not copies:
            told = f"{what}: {warning}" if warning else ""
            passing = np.array([c.passing for c in counts], dtype=np.int64)
            return Sampled(passing, k, paths, told, alike)
        kept = [number for number in range(k) if number not in copies]
        passing = np.array([sum(c.passed[n] for n in kept) for c in counts], dtype=np.int64)
        told = f"{what}: {warning}; {len(copies)} of {k} are dropped, {len(kept)} kept"
        return Sampled(passing, len(kept), paths, told, alike)

    def _of_run(self, run: Evaluation, wanted: set[_Key], *, own: bool) -> dict[_Key, _Count]:
        counted: dict[_Key, _Count] = {}
        alone: set[Path] = set()
        for log in run.logs:
            for key, count in _of_log(log, wanted, self.figure, self.choice).items():
                if key in counted:
                    raise UserError(
                        f"{counted[key].place} and {count.place}: the same document in logs of two "
                        "tasks; give only the log with the samples"
                    )
                if count.samples == 1:
                    alone.add(log.path)
                counted[key] = count
        if own:
            return counted
        for path in alone:  # rows of several samples may be BEFORE's, with a different metric
            for mine in self.source.logs:
                refuse_same(mine.path, path)
        return counted


def refuse_same(one: Path, other: Path) -> None:
    """Refuse two identical logs, since independent samples are never all equal.

    Raises:
        UserError: the files are identical.
    """
    if filecmp.cmp(one, other, shallow=False):
        raise UserError(
            f"{one} and {other}: identical logs, which would count samples twice; "
            "give every log once, and draw each with a different seed (lm_eval --seed)"
        )


def _of_log(
    log: Log, wanted: set[_Key], figure: Figure, choice: CompareChoice
) -> dict[_Key, _Count]:
    """Count the samples of the documents in ``keys``, from the rows of one filter."""
    repeated = {digest for digest, doc_id in wanted if doc_id}
    by_filter: dict[str, dict[_Key, _Count]] = {}
    faults: dict[str, UserError] = {}
    criteria: dict[str, Criterion] = {}
    for row in log_rows(log):
        content = row.content(choice.on)
        key = content, str(row.doc_id) if content in repeated else ""
        if key not in wanted:
            continue
        counts = by_filter.setdefault(row.filter, {})
        if key in counts:
            raise UserError(
                f"{counts[key].place} and {row.place}: duplicate document; check whether the log "
                "was written twice"
            )
        told: tuple[int, int] = 0, 0
        passed: tuple[bool, ...] = ()
        try:
            if row.filter not in criteria:
                chosen = choice.metric if choice.metric in row.fields else None
                criteria[row.filter] = Criterion.of(row, chosen, _REMEDY, figure.metric)
            told = criteria[row.filter].passing(row)
            if choice.drop_copies:
                passed = tuple(criteria[row.filter].passed(row))
        except UserError as error:  # the rows of another filter may be valid
            faults.setdefault(row.filter, error)
        counts[key] = _Count(*told, row.place, _texts(row), passed)
    if not by_filter:
        return {}
    taken = figure.filter if figure.filter in by_filter else next(iter(by_filter))
    if taken in faults:
        raise faults[taken]
    single = any(count.samples == 1 for count in by_filter[taken].values())
    if taken != figure.filter and (single or len(by_filter) > 1):
        raise UserError(
            f"{log.path}: no row of these documents under filter {figure.filter!r}; "
            f"{did_you_mean(figure.filter, by_filter)}"
        )
    return by_filter[taken]


def _texts(row: LogRow) -> tuple[bytes, ...]:
    """Hash a row's responses; empty if the log has none."""
    try:
        return tuple(map(digest, row.texts))
    except UserError:
        return ()
