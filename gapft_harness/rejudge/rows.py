"""Rows of sample logs as what is judged: responses, their gold, and what the log says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.rejudge.choice import RejudgeChoice
from gapft_harness.rejudge.judge import Judge
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, SampleLog

_REMEDY = (
    "name another metric (--metric), or the rule that the new one is held against (--was VERIFIER)"
)
#: Fields of documents that hold the gold answer, by their names.
_FIELDS = ("gold", "answer", "solution", "label")
_LETTER = re.compile(r"\s*\(?([A-Z])[.)]?\s*")


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


@dataclass(frozen=True, slots=True)
class Golds:
    """Where the gold answer of a row is.

    Attributes:
        where: in words.
        read: from a row to the gold answer.
        chosen: whether it was found by trying, not named by the user.
    """

    where: str
    read: Callable[[LogRow], Gold]
    chosen: bool = False

    def of(self, row: LogRow, judge: Judge) -> Gold:
        """A row's gold answer.

        Raises:
            UserError: it has none, or the verifier does not take it; file and line are named.
        """
        gold = self.read(row)
        judge.check(
            [(gold, row.place)],
            f"(gold: {self.where}, for verifier {judge.rule}); --gold FIELD takes another field of "
            "the document, --gold doc the whole document",
        )
        return gold


def golds_of(row: LogRow, field: str | None, judge: Judge) -> Golds:
    """Where the gold answers of a log are, from its first row.

    Args:
        row: the first row.
        field: as the user named it; None: the first that the verifier takes, of lm_eval's
            ``target``, the letter in it, the fields named gold, answer, solution or label, and the
            whole document.
        judge: who takes it.

    Raises:
        UserError: the verifier takes none of these.
    """
    document = row.document
    if field is not None:
        if field == "doc" and "doc" not in document:
            return Golds("the whole document", _document)
        if field == "target" and "target" not in document:
            return Golds("target", _target)
        row.value_at(field)
        return Golds(f"doc.{field}", _field(field))
    tried = [Golds("target", _target, True)] if row.target is not None else []
    if isinstance(row.target, str) and _LETTER.fullmatch(row.target):
        tried.append(Golds("the letter in target", _letter, True))
    tried += [Golds(f"doc.{of}", _field(of), True) for of in _FIELDS if document.get(of)]
    tried.append(Golds("the whole document", _document, True))
    first: UserError | None = None
    for golds in tried:
        try:
            golds.of(row, judge)
        except UserError as error:
            if type(error) is not UserError:
                raise
            first = first or error
        else:
            return golds
    assert first is not None
    raise first


def _document(row: LogRow) -> Gold:
    return row.document


def _target(row: LogRow) -> Gold:
    if row.target is None:
        raise UserError(
            f"{row.place}: has no target, or it is null; expected the gold answer there"
        )
    return row.target


def _letter(row: LogRow) -> Gold:
    found = _LETTER.fullmatch(str(_target(row)))
    return found[1] if found else row.target


def _field(name: str) -> Callable[[LogRow], Gold]:
    return lambda row: row.value_at(name)
