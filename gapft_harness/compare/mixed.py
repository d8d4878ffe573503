"""Join logs of different kinds, one before and another after, and choose their metrics.

Each tool logs a different document for the same problem, so the hashes differ. If no document
joins by content, a row before and a row after match if

- the prompt of one is the prompt of the other, or a text field of its document, and
- their gold answers are equal, if both have one.

Texts are compared in Unicode's form NFC, with every run of white space as one blank and none at
either end; the case of letters counts. A row with several matches is not joined.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.reading import ComparedMetric, RunRows
from gapft_harness.core.errors import UserError
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.log_files import Evaluation, Log
from gapft_harness.verdicts.sample_logs import (
    LogRow,
    SampleLog,
    hash_value,
    open_row_access,
    read_rows,
)

#: Number of unmatched documents of each side in a message.
_MAX_SHOWN = 3
#: Maximum characters of a prompt or a gold answer in that message.
_MAX_LETTERS = 60


def normalise(text: str) -> str:
    r"""Normalise a text for the comparison across kinds of logs.

    >>> normalised(" What is\n 2+2? ")
    'What is 2+2?'
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def choose_run_metrics(
    run: Evaluation,
    figures: Mapping[str, ComparedMetric],
    source: Evaluation,
    choice: CompareChoice,
) -> dict[str, ComparedMetric]:
    """Choose a run's metric for each task: BEFORE's, or the log's first if its kind lacks that.

    Raises:
        UserError: a log is empty, or its first row has no metric.
    """
    metrics = {}
    for log in run.logs:
        metric = figures.get(log.task) or next(iter(figures.values()))
        is_same_kind = log.kind == source.logs[0].kind
        metrics[log.task] = metric if is_same_kind else _choose_nearest(log, metric, choice.filter)
    return metrics


def _choose_nearest(log: Log, metric: ComparedMetric, chosen: str | None) -> ComparedMetric:
    rows = (row for row in read_rows(log) if row.filter == chosen)
    row = (next(rows, None) if chosen is not None else None) or SampleLog(log).first
    metrics = row.metrics
    return ComparedMetric(metric.metric if metric.metric in metrics else metrics[0], row.filter)


def join_kinds(
    model: str, before: RunRows, after: RunRows, figures_before: Mapping[str, ComparedMetric],
    figures_after: Mapping[str, ComparedMetric], choice: CompareChoice,
) -> Iterator[Text]:  # fmt: skip
    """Set the contents of rows after to those of their matches before, and yield notes on it.

    Raises:
        UserError: no document matched, or not all without ``--common``; the message shows the
            first three unmatched ones of each side.
    """
    kinds = [", ".join(sorted({log.kind for log in rows.logs})) for rows in (before, after)]
    if kinds[0] == kinds[1]:
        return
    figures = [
        ", ".join(sorted({*map(str, items.values())})) for items in (figures_before, figures_after)
    ]
    if figures[0] != figures[1]:
        yield Text(f"{model}: {figures[1]} of its {kinds[1]} logs is compared with {figures[0]}")
    if choice.on or not {*before.contents}.isdisjoint(after.contents):
        return
    pairs = _match_rows(_hash_rows(before, figures_before), _hash_rows(after, figures_after))
    for row, other in pairs.items():
        after.contents[row], after.doc_ids[row] = before.contents[other], before.doc_ids[other]
    count_before, count_after = len(before.lines), len(after.lines)
    summary = f"{len(pairs):,} of {count_before:,} documents before and {count_after:,} after"
    joined = {*pairs.values()}
    unmatched = [
        [row for row in range(count_before) if row not in joined],
        [row for row in range(count_after) if row not in pairs],
    ]
    if not pairs or (not choice.common and any(unmatched)):
        examples = [
            _format_unmatched(rows, items)
            for rows, items in zip((before, after), unmatched, strict=True)
        ]
        lines = [f"  {a or '(none)'} | {b or '(none)'}" for a, b in zip_longest(*examples)]
        raise UserError(
            f"{before.logs[0].path} ({kinds[0]}) and {after.logs[0].path} ({kinds[1]}): {summary} "
            "matched by prompt and gold answer; --on FIELD=FIELD joins by a field of each"
            + (", --common compares the matched ones" if pairs else "")
            + "; the first unmatched ones, before and after:\n"
            + "\n".join(lines)
        )
    yield Text(
        f"{model}: matched by prompt and gold answer, since documents of {kinds[0]} and of "
        f"{kinds[1]} differ: {summary}"
    )


@dataclass(frozen=True, slots=True)
class _RowHashes:
    """Hashes of a row's prompt, of all its texts, and of its gold answer (None without one)."""

    prompt: bytes
    texts: frozenset[bytes]
    gold: bytes | None


def _hash_rows(rows: RunRows, figures: Mapping[str, ComparedMetric]) -> list[_RowHashes]:
    hashes = []
    for log in rows.logs:
        figure = figures.get(log.task) or next(iter(figures.values()))
        for row in SampleLog(log, figure.filter):
            prompt = _hash_text(row.prompt)
            texts = {_hash_text(text) for text in row.document.values() if isinstance(text, str)}
            gold = _read_gold(row)
            hashed = None if gold is None else _hash_text(gold)
            hashes.append(_RowHashes(prompt, frozenset({prompt, *texts}), hashed))
    return hashes


def _match_rows(before: list[_RowHashes], after: list[_RowHashes]) -> dict[int, int]:
    """Match each row after to a row before, if the match is unique in both directions."""
    by_text: dict[bytes, set[int]] = defaultdict(set)
    by_prompt: dict[bytes, set[int]] = defaultdict(set)
    for row, hashes in enumerate(before):
        by_prompt[hashes.prompt].add(row)
        for text in hashes.texts:
            by_text[text].add(row)
    matches: dict[int, int] = {}
    of_before: dict[int, list[int]] = defaultdict(list)
    for row, hashes in enumerate(after):
        others = by_text.get(hashes.prompt, set()).union(
            *(by_prompt.get(text, set()) for text in hashes.texts)
        )
        candidates = [
            o for o in others if None in (hashes.gold, g := before[o].gold) or g == hashes.gold
        ]
        for other in candidates:
            of_before[other].append(row)
        if len(candidates) == 1:
            matches[row] = candidates[0]
    return {row: other for row, other in matches.items() if len(of_before[other]) == 1}


def _read_gold(row: LogRow) -> str | None:
    target: Any = row.target
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    return None if target is None or target == [] else str(target)


def _hash_text(text: str) -> bytes:
    return hash_value(normalise(text))


def _format_unmatched(rows: RunRows, alone: list[int]) -> list[str]:
    """Format the first unmatched rows for a message."""
    lines = []
    with ExitStack() as stack:
        readers: dict[Path, Any] = {}
        for row in alone[:_MAX_SHOWN]:
            log = rows.logs[rows.log[row]]
            if log.path not in readers:
                readers[log.path] = stack.enter_context(open_row_access(log))
            entry = readers[log.path](rows.lines[row], rows.offsets[row])
            prompt, gold = normalise(entry.prompt), normalise(_read_gold(entry) or "none")
            lines.append(
                f"line {entry.line}: {prompt[:_MAX_LETTERS]!r}, gold answer {gold[:_MAX_LETTERS]!r}"
            )
    return lines
