"""Read lighteval's details, ``details_TASK_DATE.parquet``: a row per document with all samples.

Field names are those of lighteval 0.13.0. A metric is one number per document: for several samples,
only a mean over all of them shows how many passed, and nothing shows which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.verdicts.log_files import Log
from gapft_harness.verdicts.sample_logs import PASS_AT_1, LogRow

#: The columns of every such file.
COLUMNS = ("doc", "metric", "model_response")
#: Fields that identify a document; other fields of ``doc`` describe the prompt.
_DOCUMENT = ("query", "choices", "gold_index", "specific")
#: Metrics that are the mean over all n samples.
_MEAN = re.compile(r"(pass@k:k=1&|avg@n:)n=(?P<samples>\d+)")
_BATCH_ROWS = 1_000


def is_lighteval_file(path: Path) -> bool:
    """Return whether a file is Parquet with the columns of lighteval's details."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        return {*COLUMNS} <= {*pq.read_schema(path).names}
    except (ArrowException, OSError):
        return path.name.startswith("details_")  # the reader reports the fault


def read_lighteval_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each document; scored options have the form of lm_eval's logs.

    Raises:
        UserError: the file is damaged, empty, or not in lighteval's format.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    line = 0
    try:
        with pq.ParquetFile(log.path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[*COLUMNS]):
                for record in batch.to_pylist():
                    line += 1
                    yield _build_row(log, line, record)
    except (ArrowException, OSError) as error:
        raise UserError(
            f"{log.path}: cannot be read as lighteval's details: {' '.join(str(error).split())}"
        ) from error
    if not line:
        raise UserError(f"{log.path}: has no rows; expected one for each document")


def _build_row(log: Log, line: int, record: dict[str, Any]) -> LogRow:
    doc, response = record["doc"], record["model_response"]
    texts = [replace_text_surrogates(text) for text in response["text"] or ()]
    metrics = {name: value for name, value in record["metric"].items() if value is not None}
    for name, value in [*metrics.items()]:
        match = _MEAN.fullmatch(name)
        if match and int(match["samples"]) == len(texts) > 1:
            metrics[PASS_AT_1] = value
    fields: dict[str, Any] = {}
    options, scores = doc["choices"] or [], response.get("logprobs") or []
    if not texts and len(options) == len(scores):
        fields["filtered_resps"] = [[str(score), ""] for score in scores]
    requests = [{"arg_0": doc["query"], "arg_1": option} for option in options or [None]]
    golds = doc["gold_index"] if isinstance(doc["gold_index"], list) else [doc["gold_index"]]
    correct_options = [
        options[gold] for gold in golds if gold is not None and 0 <= gold < len(options)
    ]
    return LogRow.of(
        *(log, line, {name: doc.get(name) for name in _DOCUMENT}, texts),
        metrics=metrics,
        doc_id=doc.get("id"),
        target=correct_options[0] if len(correct_options) == 1 else correct_options,
        arguments={f"gen_args_{number}": request for number, request in enumerate(requests)},
        **fields,
    )
