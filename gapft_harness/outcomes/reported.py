"""Check a log's rows against the aggregate that the log itself reports for them.

lm_eval aggregates rows with each metric's own function and writes the result to ``results_*.json``
beside the samples. A comparison by document is valid for that number only if it is the rows' mean.

- **Marks.** RULER's rows have −1 if a metric does not apply to a document, and its aggregation
  excludes them. Such a mark is recognised by the reported number, which is the mean of the
  others.
- **Perplexity.** Its rows have log-likelihoods, and exp(−mean) is reported. The negative
  log-likelihoods are compared: their mean is the logarithm of the perplexity, and lower is
  better.
- **Any other aggregate** is an error: a corpus-level metric, a median, a weighted mean, or rows and
  results of two evaluations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.outcomes.logs import Log
from gapft_harness.outcomes.samples import NO_FILTER

#: Tolerance between a mean and the reported number, for floating-point rounding.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
#: Minimum number of decimals of a reported number that may be rounded.
_MIN_ROUNDED_DIGITS = 4
#: The metric that lm_eval reports as exp(-mean) of its rows.
_PERPLEXITY = "perplexity"


@dataclass(frozen=True, slots=True)
class Scale:
    """How the rows of a metric make its aggregate.

    Attributes:
        mark: the value that means "not measured"; None: no such value.
        negative_log: whether the rows are the log-likelihoods of a perplexity.
    """

    mark: float | None = None
    negative_log: bool = False

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values to compare; NaN if a document has none."""
        measured = values if self.mark is None else np.where(values == self.mark, math.nan, values)
        return -measured if self.negative_log else measured


def find_scale(log: Log, metric: str, filter: str, values: NDArray[np.float64]) -> Scale:
    """Find how rows make the aggregate that the log reports for them.

    Args:
        log: the log.
        metric: name of the metric.
        filter: lm_eval's filter of these rows.
        values: shape (N,), the rows' values, NaN if a row has none.

    Raises:
        UserError: the reported number is not the mean of the rows; or a single negative value may
            be a mark, of all documents, or of some if no number is reported.
    """
    measured = values[~np.isnan(values)]
    if not measured.size:
        return Scale()
    reported = log.find_reported(metric, filter)
    low = float(measured.min())
    high = float(measured.max())
    if low == high < 0 and reported in (None, low) and metric != _PERPLEXITY:
        raise UserError(
            f"{log.path}: {quote_unprintable(metric)} is {low:g} for all {len(measured):,} "
            "documents, which marks documents that it does not apply to; choose another metric: "
            "--metric"
        )
    # Without a reported mean, refuse values that may be marks
    if reported is None:
        if metric == _PERPLEXITY and low < 1:  # a perplexity is at least 1
            return Scale(negative_log=True)
        others = measured[measured != low]
        if low < 0 and others.size and others.min() >= 0 and others.max() <= 1:
            count = int((measured == low).sum())
            raise UserError(
                f"{log.path}: {quote_unprintable(metric)} is {low:g} for {count:,} of "
                f"{len(measured):,} documents and 0 to 1 for the others. This may mark documents "
                "that are not measured, but lm_eval's results file, which decides it, is missing "
                "beside the log or lacks the metric; add it (results_DATE.json), or choose another "
                "metric (--metric)"
            )
        return Scale()
    # The reported mean decides: of all values, of those without a mark, or of a perplexity
    mean = float(measured.mean())
    if _is_close(mean, reported) or _is_close(100 * mean, reported):
        return Scale()
    for mark in (low, high):
        others = measured[measured != mark]
        if not 0 <= mark <= 1 and others.size and _is_close(float(others.mean()), reported):
            return Scale(mark=mark)
    if -mean < math.log(1e300) and _is_close(math.exp(-mean), reported):
        return Scale(negative_log=True)
    filter_text = "" if filter == NO_FILTER else f" under filter {quote_unprintable(filter)}"
    raise UserError(
        f"{log.path}: the mean of {quote_unprintable(metric)} over {len(measured):,} "
        f"rows{filter_text} is {mean:.6g}, but {log.results} reports {reported:.6g}. Either the "
        "metric is not a mean over documents (a corpus-level score, a median, a weighted mean): "
        "choose another with --metric; or the files belong to two evaluations, or rows are "
        "missing: evaluate again, or move the results file away to compare the rows without it"
    )


def _is_close(mean: float, reported: float) -> bool:
    """Return whether a mean equals the reported value, except for rounding."""
    if math.isclose(mean, reported, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
        return True
    digits = len(repr(reported).partition(".")[2])
    return (
        digits >= _MIN_ROUNDED_DIGITS
        and "e" not in repr(reported)
        and round(mean, digits) == reported
    )
