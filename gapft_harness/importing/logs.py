"""Sample logs of lm_eval: a row for each document and filter, with one response or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, taken
from gapft_harness.verdicts.places import log_at
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, SampleLog

_REMEDY = (
    "name another metric (--metric), one log for each sample, or have the task's verifier judge "
    "(--judge)"
)


def read_log(
    path: Path, choice: ImportChoice, greedy: bool, plugin_files: Sequence[str] = ()
) -> Iterator[ImportedResponse]:
    """Yields the responses of a log of lm_eval or of a plugin's reader, under one filter.

    Raises:
        UserError: a row is damaged, or does not tell which of its responses passed; it names file
            and line.
    """
    criterion: Criterion | None = None
    for row in SampleLog(log_at(path, plugin_files), choice.filter):
        texts = row.texts
        if greedy and len(texts) > 1:
            raise UserError(
                f"{row.place}: {len(texts)} responses to one document; expected a log of the "
                "greedy decode, with one"
            )
        key = "doc", row.document
        if criterion is None and not choice.judge:
            criterion = Criterion.of(row, choice.metric, _REMEDY)
        verdicts: list[Verdict] | list[None] = [None] * len(texts)
        if criterion is not None:
            verdicts = [taken(passed) for passed in criterion.passed(row)]
        by, rule = _told_by(row, criterion)
        for number, text in enumerate(texts):
            yield ImportedResponse(
                *(row.line, row.place, key, GREEDY if greedy else number, whole_text(text)),
                verdicts[number],
                by,
                rule=rule,
            )


def _told_by(row: LogRow, criterion: Criterion | None) -> tuple[str, dict[str, str]]:
    """What tells the verdicts of a row, and what must be alike in all rows of all files."""
    if criterion is None:
        return "", {}
    if criterion.by_verdicts:
        return "its verdicts", {}
    metric = criterion.metric_of(row)
    alone = {"metric": metric} if row.count == 1 else {}
    return f"{metric} under filter {row.filter}", {"filter": row.filter, **alone}
