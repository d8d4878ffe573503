"""Read lighteval's details, ``details_TASK_DATE.parquet``: a row per document with all responses.

Field names are those of lighteval 0.13.0. A metric is one number per document: for several
responses, only a mean over all of them shows how many passed, and nothing shows which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.samples import NO_FILTER, PASS_AT_1, Sample, spread_scores

#: The columns of every such file.
_COLUMNS = ("doc", "metric", "model_response")
#: Fields that identify a document; other fields of ``doc`` describe the prompt.
_DOCUMENT = ("query", "choices", "gold_index", "specific")
#: Metrics that are the mean over all n responses.
_MEAN = re.compile(r"(pass@k:k=1&|avg@n:)n=(?P<samples>\d+)")
_BATCH_ROWS = 1_000


def is_lighteval_file(path: Path) -> bool:
    """Return whether a file is Parquet with the columns of lighteval's details."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        return {*_COLUMNS} <= {*pq.read_schema(path).names}
    except (ArrowException, OSError):
        return path.name.startswith("details_")  # the reader reports the fault


def read_lighteval(path: Path) -> Iterator[Sample]:
    """Yield the responses of each row, or its likeliest option.

    Raises:
        UserError: the file is damaged, empty, or not in lighteval's format.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    line = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[*_COLUMNS]):
                for record in batch.to_pylist():
                    line += 1
                    yield from _read_row(record, line)
    except (ArrowException, OSError) as error:
        raise UserError(
            f"{path}: cannot be read as lighteval's details: {' '.join(str(error).split())}"
        ) from error
    if not line:
        raise UserError(f"{path}: has no rows; expected one for each document")


def _read_row(record: Mapping[str, Any], line: int) -> Iterator[Sample]:
    doc = record["doc"]
    response = record["model_response"]
    texts = [replace_text_surrogates(text) for text in response["text"] or ()]
    numbers = {name: value for name, value in record["metric"].items() if value is not None}
    for name, value in [*numbers.items()]:
        match = _MEAN.fullmatch(name)
        if match and int(match["samples"]) == len(texts) > 1:
            numbers[PASS_AT_1] = value
    options = doc["choices"] or []
    likelihoods = response.get("logprobs") or []
    golds = doc["gold_index"] if isinstance(doc["gold_index"], list) else [doc["gold_index"]]
    right = [options[gold] for gold in golds if gold is not None and 0 <= gold < len(options)]
    option = None
    if not texts and options and len(options) == len(likelihoods):
        best = likelihoods.index(max(likelihoods))
        option = f"option {best + 1}: {str(options[best]).strip()}"
    for number, scores in enumerate(spread_scores(numbers, NO_FILTER, len(texts) or 1)):
        yield Sample(
            problem={name: doc.get(name) for name in _DOCUMENT},
            index=number if len(texts) > 1 else GREEDY,
            scores=scores,
            text=texts[number] if texts else None,
            gold=right[0] if len(right) == 1 else right,
            prompt=doc["query"] or "",
            answer=option,
            line=line,
            number=doc.get("id"),
        )
