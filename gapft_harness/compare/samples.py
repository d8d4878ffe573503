"""How many of several samples a document passed, from logs of a model before or after."""

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
    "samples need verdicts (gapft gap logs them), an unbiased pass@1 over several responses, or "
    "several logs, one for each; gapft import --judge has the task judge each response and "
    "finds the states"
)


@dataclass(frozen=True, slots=True)
class _Count:
    """Samples of a document that passed, all of them, and a line that told so.

    Attributes:
        texts: hashes of the samples; empty where the log does not have them.
        passed: of each sample; empty where only their number is known.
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


#: A document: its hash, and its number where the hash alone does not tell.
_Key = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of P documents by one model.

    Attributes:
        passing: shape (P,), how many passed.
        k: samples of each document.
        paths: the logs.
        warning: what suggests that they are no independent samples; empty: nothing does.
        alike: how many documents have one text in all their samples, as short answers often do.
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
        choice: how documents are joined.
        items: the documents; rows of others are left out.
        figure: the metric and filter for rows of one sample.
        source: BEFORE, whose own decode is no sample.
    """

    choice: CompareChoice
    items: Sequence[Item]
    figure: Figure
    source: Evaluation

    def named(self, arguments: Sequence[str], option: str) -> Sampled:
        """The samples in the logs that an option names.

        Raises:
            UserError: as ``read``.
        """
        how: Any = {"latest": self.choice.latest, "plugin_files": self.choice.plugin_files}
        runs = [run for argument in arguments for run in runs_of(argument, **how)]
        return self.read(runs, f"{option} {arguments[0]}")

    def read(self, runs: Sequence[Evaluation], what: str, *, own: bool = False) -> Sampled:
        """The samples in some logs.

        Args:
            runs: further samples each.
            what: begins messages.
            own: whether they may be BEFORE itself, which has several samples a row.

        Raises:
            UserError: a document has none, or not as many as another, a row does not tell, or a
                log is there twice.
        """
        keys = [(digest, doc_id) for _, digest, doc_id in self.items]
        if len(set(keys)) < len(keys):
            raise UserError(
                f"{what}: two of the compared tasks have a document in common, so that samples of "
                "it cannot be told apart; take one task: --task NAME"
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
                f"{what}: holds no sample of {len(lacking)} of {len(keys)} compared documents; "
                "sample all of them"
            )
        sizes = sorted({counts[key].samples for key in keys})
        if len(sizes) > 1:
            few = next(key for key in keys if counts[key].samples == sizes[0])
            raise UserError(
                f"{counts[few].place}: {sizes[0]} samples of this document where another has "
                f"{sizes[-1]}; expected as many of each"
            )
        return self._sampled([counts[key] for key in keys], paths, what)

    def _sampled(self, counts: Sequence[_Count], paths: tuple[Path, ...], what: str) -> Sampled:
        """Counts as arrays; with what suggests copies, or without these where it was asked."""
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
        told = f"{what}: {warning}; {len(copies)} of {k} are left out, {len(kept)} kept"
        return Sampled(passing, len(kept), paths, told, alike)

    def _of_run(self, run: Evaluation, wanted: set[_Key], *, own: bool) -> dict[_Key, _Count]:
        counted: dict[_Key, _Count] = {}
        alone: set[Path] = set()
        for log in run.logs:
            for key, count in _of_log(log, wanted, self.figure, self.choice).items():
                if key in counted:
                    raise UserError(
                        f"{counted[key].place} and {count.place}: the same document in logs of two "
                        "tasks; name the one that holds the samples"
                    )
                if count.samples == 1:
                    alone.add(log.path)
                counted[key] = count
        if own:
            return counted
        for path in alone:  # several a row may be BEFORE's own: it has another metric of them
            for mine in self.source.logs:
                refuse_same(mine.path, path)
        return counted


def refuse_same(one: Path, other: Path) -> None:
    """Refuses two logs of the same bytes: samples drawn apart are never the same throughout.

    Raises:
        UserError: they are the same.
    """
    if filecmp.cmp(one, other, shallow=False):
        raise UserError(
            f"{one} and {other} are the same, and would count one sample twice; "
            "name every log once, and draw each with a seed of its own (lm_eval --seed)"
        )


def _of_log(
    log: Log, wanted: set[_Key], figure: Figure, choice: CompareChoice
) -> dict[_Key, _Count]:
    """Counts of the wanted documents, from the rows of one filter."""
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
                f"{counts[key].place} and {row.place}: the same document twice; is a log of "
                "samples written to twice?"
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
        except UserError as error:  # another filter's may be right
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
            f"{log.path}: holds no row of these documents under filter {figure.filter!r}; "
            f"{did_you_mean(figure.filter, by_filter)}"
        )
    return by_filter[taken]


def _texts(row: LogRow) -> tuple[bytes, ...]:
    """Hashes of a row's responses, where the log has them."""
    try:
        return tuple(map(digest, row.texts))
    except UserError:
        return ()
