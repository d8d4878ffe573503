"""Cut responses before and after, where the logs say how each response ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.truncation import Decodes
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.reading import RunRows
from gapft_harness.report.sections.truncation import ModelEndings, list_model_endings

#: The name of the model before in tables and in results.json.
BEFORE = "before"


def list_endings(comparison: Comparison) -> Iterator[ModelEndings]:
    """Yield the endings of the model before and of each model after, on all documents and by state.

    Yields nothing if the numbers do not mean right or wrong, or if a log does not say how its
    responses ended. A document with several responses has an unknown ending.
    """
    if not comparison.is_judged():
        return
    before = _select_decodes(comparison.before, comparison.rows_before)
    after = {
        name: [_select_decodes(*run) for run in runs] for name, runs in comparison.after.items()
    }
    if any((item.endings == "unknown").all() for item in (before, *chain(*after.values()))):
        return
    labels = {name: name for name in (BEFORE, *after)}
    yield from list_model_endings((BEFORE, before), after, labels, comparison.findings.states)


def _select_decodes(rows: RunRows, by_item: NDArray[np.int64]) -> Decodes:
    """Select the responses of the compared items, in their order."""
    passed = np.frombuffer(rows.values, dtype=np.float64)[by_item] == 1
    endings = np.array(rows.endings, dtype=np.str_)[by_item]
    tokens = np.frombuffer(rows.tokens, dtype=np.int64)[by_item]
    return Decodes(passed, endings, None if (tokens < 0).any() else tokens)
