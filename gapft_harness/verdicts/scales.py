"""Checks a log's rows against the number that the log itself reports for them.

lm_eval aggregates rows by each metric's own function and writes the result to ``results_*.json``
beside the samples. A comparison of documents is right for that number only if it is the rows' mean.

- **Marks.** RULER's rows hold −1 where a metric does not apply to a document, and its aggregation
  leaves them out. Such a mark is recognised by the reported number: it is the mean of the others.
- **Perplexity.** Its rows hold log-likelihoods, and exp(−mean) is reported. The negative
  log-likelihoods are compared: their mean is the logarithm of the perplexity, and lower is better.
- **All else** that is not the mean is refused: a metric of a whole corpus, a median, a weighted
  mean, or rows and results of two evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.errors import UserError, plain
from gapft_harness.verdicts.places import Log

#: How far a mean may be from the number that is reported, by its rounding in floating point.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
#: Decimals from which on a reported number may have been rounded.
_ROUNDED = 4
#: The metric of lm_eval's that is reported as exp(-mean) of its rows.
_PERPLEXITY = "perplexity"


@dataclass(frozen=True, slots=True)
class Scale:
    """How a metric's rows make its number.

    Attributes:
        mark: the number that stands for "not measured"; None: none does.
        negative_log: whether the rows are log-likelihoods behind a perplexity.
    """

    mark: float | None = None
    negative_log: bool = False

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers that are compared; NaN where a document has none."""
        kept = values if self.mark is None else np.where(values == self.mark, math.nan, values)
        return -kept if self.negative_log else kept


def find_scale(log: Log, metric: str, filter: str, values: NDArray[np.float64]) -> Scale:
    """Find how rows make the number that the log reports for them.

    Args:
        log: the log.
        metric: its name.
        filter: lm_eval's filter, whose rows these are.
        values: shape (N,), the rows' numbers, NaN where a row has none.

    Raises:
        UserError: the reported number is no mean of the rows; or a single negative value may be a
            mark, of all documents, or of some where no number is reported.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return Scale()
    reported = log.find_reported(metric, filter)
    low, high = float(known.min()), float(known.max())
    if low == high < 0 and reported in (None, low) and metric != _PERPLEXITY:
        raise UserError(
            f"{log.path}: {plain(metric)} is {low:g} for all {len(known):,} documents, the mark of "
            "documents that it does not apply to; take another metric: --metric"
        )
    if reported is None:
        if metric == _PERPLEXITY and low < 1:  # no perplexity is less than 1
            return Scale(negative_log=True)
        others = known[known != low]
        if low < 0 and others.size and others.min() >= 0 and others.max() <= 1:
            count = int((known == low).sum())
            raise UserError(
                f"{log.path}: {plain(metric)} is {low:g} for {count:,} of {len(known):,} documents "
                "and 0 to 1 for the others. That may mark documents that are not measured: only "
                "lm_eval's results file tells, and it is not beside the log, or lacks the metric; "
                "put it there (results_DATE.json), or take another metric (--metric)"
            )
        return Scale()
    mean = float(known.mean())
    if is_close(mean, reported) or is_close(100 * mean, reported):
        return Scale()
    for mark in (low, high):
        others = known[known != mark]
        if not 0 <= mark <= 1 and others.size and is_close(float(others.mean()), reported):
            return Scale(mark=mark)
    if -mean < math.log(1e300) and is_close(math.exp(-mean), reported):
        return Scale(negative_log=True)
    raise contradiction_error(log, metric, filter, mean, reported, len(known))


def contradiction_error(
    log: Log, metric: str, filter: str, mean: float, reported: float, count: int
) -> UserError:
    """Build the error for rows that do not make the reported number."""
    under = "" if filter == "none" else f" under filter {plain(filter)}"
    return UserError(
        f"{log.path}: the mean of {plain(metric)} over {count:,} rows{under} is {mean:.6g}, but "
        f"{log.results} reports {reported:.6g}. Either the metric is no mean over documents "
        "(a corpus-level score, a median, a weighted mean): take another with --metric; or the "
        "files are of two evaluations, or rows are missing: evaluate again, or move the results "
        "file away to compare the rows as they are"
    )


def check_mean(log: Log, metric: str, filter: str, values: Sequence[float]) -> None:
    """Check that the rows' numbers have the mean that the log reports.

    Raises:
        UserError: they have another.
    """
    reported = log.find_reported(metric, filter)
    if reported is None or not values:
        return
    mean = math.fsum(values) / len(values)
    if not (is_close(mean, reported) or is_close(100 * mean, reported)):
        raise contradiction_error(log, metric, filter, mean, reported, len(values))


def is_close(mean: float, reported: float) -> bool:
    """Whether a mean is the reported number but for rounding."""
    if math.isclose(mean, reported, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
        return True
    digits = len(repr(reported).partition(".")[2])
    return digits >= _ROUNDED and "e" not in repr(reported) and round(mean, digits) == reported
