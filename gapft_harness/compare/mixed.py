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
from gapft_harness.compare.reading import Figure, Rows
from gapft_harness.core.errors import UserError
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.places import Evaluation, Log
from gapft_harness.verdicts.sample_logs import LogRow, SampleLog, digest, log_rows, seekable

#: Number of unmatched documents of each side in a message.
_SHOWN = 3
#: Maximum characters of a prompt or a gold answer in that message.
_LETTERS = 60


def normalised(text: str) -> str:
    r"""Normalise a text for the comparison across kinds of logs.

    >>> normalised(" What is\n 2+2? ")
    'What is 2+2?'
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def figures_in(
    run: Evaluation, figures: Mapping[str, Figure], source: Evaluation, choice: CompareChoice
) -> dict[str, Figure]:
    """Choose a run's metric for each task: BEFORE's, or the log's first if its kind lacks that.

    Raises:
        UserError: a log is empty, or its first row has no metric.
    """
    found = {}
    for log in run.logs:
        wanted = figures.get(log.task) or next(iter(figures.values()))
        same = log.kind == source.logs[0].kind
        found[log.task] = wanted if same else _nearest(log, wanted, choice.filter)
    return found


def _nearest(log: Log, wanted: Figure, chosen: str | None) -> Figure:
    asked = (row for row in log_rows(log) if row.filter == chosen)
    row = (next(asked, None) if chosen is not None else None) or SampleLog(log).first
    metrics = row.metrics
    return Figure(wanted.metric if wanted.metric in metrics else metrics[0], row.filter)


def join_kinds(
    model: str, before: Rows, after: Rows, mine: Mapping[str, Figure], theirs: Mapping[str, Figure],
    choice: CompareChoice,
) -> Iterator[Text]:  # fmt: skip
    """Set the contents of rows after to those of their matches before, and yield notes on it.

    Raises:
        UserError: no document matched, or not all without ``--common``; the message shows the
            first three unmatched ones of each side.
    """
    kinds = [", ".join(sorted({log.kind for log in rows.logs})) for rows in (before, after)]
    if kinds[0] == kinds[1]:
        return
    figures = [", ".join(sorted({*map(str, of.values())})) for of in (mine, theirs)]
    if figures[0] != figures[1]:
        yield Text(f"{model}: {figures[1]} of its {kinds[1]} logs is compared with {figures[0]}")
    if choice.on or not {*before.contents}.isdisjoint(after.contents):
        return
    pairs = _pairs(_asked(before, mine), _asked(after, theirs))
    for row, other in pairs.items():
        after.contents[row], after.doc_ids[row] = before.contents[other], before.doc_ids[other]
    many, others = len(before.lines), len(after.lines)
    said = f"{len(pairs):,} of {many:,} documents before and {others:,} after"
    joined = {*pairs.values()}
    alone = [
        [row for row in range(many) if row not in joined],
        [row for row in range(others) if row not in pairs],
    ]
    if not pairs or (not choice.common and any(alone)):
        shown = [_shown(rows, of) for rows, of in zip((before, after), alone, strict=True)]
        lines = [f"  {a or '(none)'} | {b or '(none)'}" for a, b in zip_longest(*shown)]
        raise UserError(
            f"{before.logs[0].path} ({kinds[0]}) and {after.logs[0].path} ({kinds[1]}): {said} "
            "matched by prompt and gold answer; --on FIELD=FIELD joins by a field of each"
            + (", --common compares the matched ones" if pairs else "")
            + "; the first unmatched ones, before and after:\n"
            + "\n".join(lines)
        )
    yield Text(
        f"{model}: matched by prompt and gold answer, since documents of {kinds[0]} and of "
        f"{kinds[1]} differ: {said}"
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Hashes of a row's prompt, of all its texts, and of its gold answer (None without one)."""

    prompt: bytes
    texts: frozenset[bytes]
    gold: bytes | None


def _asked(rows: Rows, figures: Mapping[str, Figure]) -> list[_Asked]:
    found = []
    for log in rows.logs:
        figure = figures.get(log.task) or next(iter(figures.values()))
        for row in SampleLog(log, figure.filter):
            prompt = _hash(row.prompt)
            texts = {_hash(text) for text in row.document.values() if isinstance(text, str)}
            gold = _gold(row)
            hashed = None if gold is None else _hash(gold)
            found.append(_Asked(prompt, frozenset({prompt, *texts}), hashed))
    return found


def _pairs(before: list[_Asked], after: list[_Asked]) -> dict[int, int]:
    """Match each row after to a row before, if the match is unique in both directions."""
    by_text: dict[bytes, set[int]] = defaultdict(set)
    by_prompt: dict[bytes, set[int]] = defaultdict(set)
    for row, asked in enumerate(before):
        by_prompt[asked.prompt].add(row)
        for text in asked.texts:
            by_text[text].add(row)
    found: dict[int, int] = {}
    of_before: dict[int, list[int]] = defaultdict(list)
    for row, asked in enumerate(after):
        others = by_text.get(asked.prompt, set()).union(
            *(by_prompt.get(text, set()) for text in asked.texts)
        )
        same = [o for o in others if None in (asked.gold, g := before[o].gold) or g == asked.gold]
        for other in same:
            of_before[other].append(row)
        if len(same) == 1:
            found[row] = same[0]
    return {row: other for row, other in found.items() if len(of_before[other]) == 1}


def _gold(row: LogRow) -> str | None:
    target: Any = row.target
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    return None if target is None or target == [] else str(target)


def _hash(text: str) -> bytes:
    return digest(normalised(text))


def _shown(rows: Rows, alone: list[int]) -> list[str]:
    """Format the first unmatched rows for a message."""
    told = []
    with ExitStack() as stack:
        readers: dict[Path, Any] = {}
        for row in alone[:_SHOWN]:
            log = rows.logs[rows.log[row]]
            if log.path not in readers:
                readers[log.path] = stack.enter_context(seekable(log))
            found = readers[log.path](rows.lines[row], rows.offsets[row])
            prompt, gold = normalised(found.prompt), normalised(_gold(found) or "none")
            told.append(
                f"line {found.line}: {prompt[:_LETTERS]!r}, gold answer {gold[:_LETTERS]!r}"
            )
    return told
