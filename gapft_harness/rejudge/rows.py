"""Rows of sample logs as what is judged: responses, their gold, and what the log says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapft_harness.core.records import Gold
from gapft_harness.rejudge.choice import RejudgeChoice
from gapft_harness.rejudge.golds import Golds, golds_of
from gapft_harness.rejudge.judge import Judge
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import Criterion, SampleLog

_REMEDY = (
    "name another metric (--metric), or the rule that the new one is held against (--was VERIFIER)"
)


@dataclass(frozen=True, slots=True)
class RowToJudge:
    """What is kept of a row until it is judged.

    Attributes:
        place: file and line.
        doc_id: lm_eval's number of the document.
        identity: what a row of the same document has in another log.
        texts: its responses.
        gold: the gold answer.
        passed: of each response, whether the log says that it is right; empty where it is not
            asked.
        answers: what the log's filter read of each response, where it keeps that.
    """

    place: str
    doc_id: str
    identity: bytes
    texts: Sequence[str]
    gold: Gold
    passed: Sequence[bool]
    answers: Sequence[str | None]


@dataclass(slots=True)
class Reading:
    """How a log is read, by its first row.

    Attributes:
        source: its rows under one filter.
        criterion: what says whether a response was right; None: that is not asked.
        golds: where the gold answers are.
        metrics: those that the first row names.
    """

    source: SampleLog
    criterion: Criterion | None
    golds: Golds
    metrics: Sequence[str]

    @classmethod
    def of(cls, log: Log, choice: RejudgeChoice, judge: Judge) -> Reading:
        """Reads the first row.

        Raises:
            UserError: the log is empty, or the row is no response of lm_eval's.
        """
        source = SampleLog(log, choice.filter)
        first = source.first
        metrics = first.metrics
        _ = first.texts
        criterion = None if choice.was else Criterion.of(first, choice.metric, _REMEDY)
        return cls(source, criterion, golds_of(first, choice.gold, judge), metrics)

    def rows(self, judge: Judge) -> Iterator[RowToJudge]:
        """Yields the rows, one line in memory at a time.

        Raises:
            UserError: a row does not tell what is asked; it names file and line.
        """
        for row in self.source:
            yield RowToJudge(
                *(row.place, str(row.doc_id), row.identity, row.texts),
                self.golds.of(row, judge),
                self.criterion.passed(row) if self.criterion else (),
                row.filtered,
            )
