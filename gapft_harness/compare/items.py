"""Items with the texts before and after, read from the logs again."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.reading import Rows, record_at
from gapft_harness.core.text import opened
from gapft_harness.report.explorer.explored import Entry


@dataclass(frozen=True, slots=True)
class Changed:
    """One item under one seed of a model.

    Attributes:
        model: its name.
        seed: number of the run, from 1.
        position: the item's, in the comparison's arrays.
        gained: whether its number rose.
        before: the row of the log before.
        after: the row after.
    """

    model: str
    seed: int
    position: int
    gained: bool
    before: dict[str, Any]
    after: dict[str, Any]


def changed(of: Comparison, most: int | None = None) -> Iterator[Changed]:
    """Yields gained and lost items: by model, by seed, in the order of the log before.

    Args:
        of: the comparison.
        most: of each model no more gained and no more lost ones than these.
    """
    with _reading() as record:
        for model, runs in of.after.items():
            left = {True: most, False: most}
            values = of.table.after[model]
            for seed, (rows, by_item) in enumerate(runs, start=1):
                differs = np.flatnonzero(values[seed - 1] != of.table.before)
                for position in differs[np.argsort(of.rows_before[differs])].tolist():
                    gained = bool(values[seed - 1, position] > of.table.before[position])
                    if left[gained] == 0:
                        continue
                    if (many := left[gained]) is not None:
                        left[gained] = many - 1
                    yield Changed(
                        *(model, seed, position, gained),
                        record(of.before, int(of.rows_before[position])),
                        record(rows, int(by_item[position])),
                    )


def entries(of: Comparison, positions: Sequence[int]) -> Iterator[Entry]:
    """Yields the texts of some items, by their places in the comparison's arrays."""
    with _reading() as record:
        for position in positions:
            before = record(of.before, int(of.rows_before[position]))
            after = (
                record(rows, int(by_item[position]))
                for runs in of.after.values()
                for rows, by_item in runs
            )
            yield Entry(
                prompt=prompt(before),
                gold=gold(before),
                responses=[response(before), *map(response, after)],
                document=before["doc"],
            )


@contextmanager
def _reading() -> Iterator[Callable[[Rows, int], dict[str, Any]]]:
    """Reads rows by their numbers; each log is opened once."""
    with ExitStack() as stack:
        files: dict[Path, IO[bytes]] = {}

        def record(rows: Rows, row: int) -> dict[str, Any]:
            path = rows.logs[rows.log[row]].path
            if path not in files:
                files[path] = stack.enter_context(_seekable(path))
            return record_at(files[path], rows.offsets[row], rows.place(row))

        yield record


def _seekable(path: Path) -> IO[bytes]:
    """A log in which any row can be read; one that is packed is unpacked once."""
    file = opened(path)
    if not isinstance(file, gzip.GzipFile):
        return file
    whole = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    with file:
        shutil.copyfileobj(file, whole)
    return whole


def response(record: dict[str, Any]) -> str:
    """What the model answered: the text, or of several options the likeliest."""
    options = record.get("filtered_resps")
    scores = [_score(option) for option in options] if isinstance(options, list) else []
    known = [score for score in scores if score is not None]
    if len(scores) > 1 and len(known) == len(scores):
        named = _option(record, int(np.argmax(known)))
        if named is not None:
            return named
    responses = record.get("resps")
    while isinstance(responses, list) and responses:
        responses = responses[0]
    return str(responses)


def gold(record: dict[str, Any]) -> str:
    """The right answer as the log has it; of several options named as a response is."""
    target = record.get("target", "")
    scored = record.get("filtered_resps")
    if isinstance(scored, list) and len(scored) > 1 and all(_score(o) is not None for o in scored):
        # lm_eval counts options from 0
        text = str(target)
        if text.isdecimal() and int(text) < len(scored):
            return _option(record, int(text)) or text
    return str(target)


def _option(record: dict[str, Any], number: int) -> str | None:
    """An option by its number from 0, as people count them from 1; None: the log lacks it."""
    arguments = record.get("arguments")
    asked = arguments.get(f"gen_args_{number}") if isinstance(arguments, dict) else None
    if not isinstance(asked, dict):
        return None
    return f"option {number + 1}: {str(asked.get('arg_1')).strip()}"


def prompt(record: dict[str, Any]) -> str:
    """What the model was asked: the first request's text."""
    arguments = record.get("arguments")
    first = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    asked = first.get("arg_0") if isinstance(first, dict) else None
    return asked if isinstance(asked, str) else json.dumps(record["doc"], ensure_ascii=False)


def _score(option: Any) -> float | None:
    """The log-likelihood of an option, as lm_eval logs it: ``["-1.25", "False"]``."""
    try:
        return float(option[0]) if isinstance(option, list) and len(option) == 2 else None
    except (TypeError, ValueError, OverflowError):
        return None
