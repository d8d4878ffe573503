"""Sample logs judged again: read as a stream and judged in batches."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from gapft_harness.compare.findings import CompareFindings, Numbers, find
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.hooks.protocols import Progress
from gapft_harness.rejudge.choice import RejudgeChoice
from gapft_harness.rejudge.flips import Flip, Flips, shown
from gapft_harness.rejudge.judge import AT_ONCE, Judge, ahead, judging
from gapft_harness.verdicts.places import Log, runs_of
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, SampleLog
from gapft_harness.verdicts.scales import check_mean
from gapft_harness.verification.judging import VerdictAndAnswer
from gapft_harness.verification.reasons import Reasons

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
        criterion: what says whether a response was right; None: that is not asked, or the log has
            graded nothing.
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
        _ = first.texts
        criterion = None
        if choice.was is None and (first.is_graded or choice.metric is not None):
            criterion = Criterion.of(first, choice.metric, _REMEDY)
        return cls(source, criterion, golds_of(first, choice.gold, judge), first.named)

    def check_reported(self, before: Sequence[float]) -> None:
        """Check what was read of a log against the number that it reports itself.

        Args:
            before: of each document, the share of its responses that was right.

        Raises:
            UserError: they differ.
        """
        if self.criterion is not None:
            first = self.source.first
            check_mean(first.log, self.criterion.metric_of(first), first.filter, before)

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


#: A hash of a document as two numbers, which sort.
_HASH = np.dtype([("first", "<u8"), ("rest", "<u8")])


@dataclass(slots=True)
class LogsJudged:
    """Logs that were judged again.

    Attributes:
        readings: how each was read; all logs say what was right, or none does.
        flips: the responses whose verdict flipped.
        responses: how many were judged.
        before: of each document, the share of its responses that was right; 0 where nobody says.
        after: the share that is right now.
        log: of each document, the number of its log.
        contents: of each document, the hash of its content.
        reasons: the new verdicts, counted.
        was_reasons: those of the rule that they are held against, if one was named.
    """

    choice: RejudgeChoice
    logs: list[Log]
    flips: Flips
    readings: list[Reading] = field(default_factory=list)
    responses: int = 0
    before: array[float] = field(default_factory=lambda: array("d"))
    after: array[float] = field(default_factory=lambda: array("d"))
    log: array[int] = field(default_factory=lambda: array("l"))
    contents: bytearray = field(default_factory=bytearray)
    reasons: Reasons = field(default_factory=Reasons)
    was_reasons: Reasons = field(default_factory=Reasons)

    @property
    def is_graded(self) -> bool:
        """Whether an earlier rule says what was right, so that verdicts can flip."""
        return self.choice.was is not None or self.readings[0].criterion is not None

    def name(self, number: int) -> str:
        """What a log is called: its task, or where several have one, its path."""
        tasks = [log.task for log in self.logs]
        task = tasks[number]
        return task if task and tasks.count(task) == 1 else str(self.logs[number].path)

    def found(self) -> CompareFindings:
        """Both accuracies and their difference, over all documents and log by log.

        A document that several rows have, as the logs of several models do, is drawn as one.
        """
        before, after = np.frombuffer(self.before), np.frombuffer(self.after)
        groups, logs = None, np.frombuffer(self.log, dtype=np.dtype("l"))
        if len(self.logs) > 1:
            groups = np.array([self.name(number) for number in range(len(self.logs))])[logs]
        documents, clusters = np.unique(
            np.frombuffer(bytes(self.contents), dtype=_HASH), return_inverse=True
        )
        table = Numbers(before, {str(self.choice.now): after[None, :]}, None, groups)
        if len(documents) == len(before):
            return find(table)
        found = find(replace(table, clusters=clusters))
        if len(np.unique(np.stack([logs, clusters]), axis=1).T) == len(before):
            # within each log all documents differ
            return replace(found, groups=find(table).groups)
        return found


def judge_logs(
    arguments: list[str], choice: RejudgeChoice, flips: Flips, progress: Progress = lambda *_: None
) -> LogsJudged:
    """Judges the responses of all logs that are named.

    Raises:
        UserError: what was named is not there, is damaged, or holds no responses.
    """
    named = (runs_of(one, choice.tasks, plugin_files=choice.plugin_files) for one in arguments)
    logs = [log for runs in named for run in runs for log in run.logs]
    paths = [log.path.resolve() for log in logs]
    for log, path in zip(logs, paths, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{log.path}: named twice, and would count twice")
    found = LogsJudged(choice, logs, flips)
    with ExitStack() as stack:
        now = stack.enter_context(judging(choice.now, choice.plugin_files))
        now.progress = progress
        was = None
        if choice.was is not None:
            was = stack.enter_context(judging(choice.was, choice.plugin_files))
        for number, log in enumerate(logs):
            reading = Reading.of(log, choice, now)
            found.readings.append(reading)
            if choice.was is None and (reading.criterion is not None) != found.is_graded:
                raise UserError(
                    f"{logs[0].path} and {log.path}: one says what was right and the other has "
                    "graded nothing; judge them apart, or give the earlier rule: --was VERIFIER"
                )
            start = len(found.before)
            batches = _batches(reading.rows(now))
            for batch in ahead(batches) if now.by_processes else batches:
                _judge(batch, number, found, now, was)
            reading.check_reported(found.before[start:])
    return found


def _judge(
    batch: list[RowToJudge], log: int, found: LogsJudged, now: Judge, was: Judge | None
) -> None:
    pairs = [(text, row.gold) for row in batch for text in row.texts]
    texts, golds = [text for text, _ in pairs], [gold for _, gold in pairs]
    after = iter(now.judge(texts, golds))
    earlier = was.judge(texts, golds) if was else None
    for verdict, _ in earlier or ():
        found.was_reasons.see(verdict)
    before = iter(earlier) if earlier is not None else None
    for row in batch:
        sums = [0, 0]
        for index, text in enumerate(row.texts):
            verdict, answer = next(after)
            found.reasons.see(verdict)
            sums[1] += verdict.passed
            if not found.is_graded:
                continue
            passed, read_as = _was(row, index, before)
            sums[0] += passed
            if passed != verdict.passed:
                found.flips.add(
                    Flip(
                        *(row.place, row.doc_id, index, verdict.passed, read_as, answer),
                        *(verdict.reason, shown(row.gold), text),
                    )
                )
        found.before.append(sums[0] / len(row.texts))
        found.after.append(sums[1] / len(row.texts))
        found.log.append(log)
        found.contents += row.identity
        found.responses += len(row.texts)


def _was(
    row: RowToJudge, index: int, before: Iterator[VerdictAndAnswer] | None
) -> tuple[bool, str | None]:
    """Whether a response was right, and what was read of it."""
    if before is None:
        return row.passed[index], row.answers[index]
    verdict, answer = next(before)
    return verdict.passed, answer


def _batches(rows: Iterator[RowToJudge]) -> Iterator[list[RowToJudge]]:
    """Rows until they have enough responses."""
    batch: list[RowToJudge] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.texts)
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
