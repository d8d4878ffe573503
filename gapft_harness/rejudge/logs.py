"""Judge sample logs again: read them as a stream, and judge in batches."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from gapft_harness.compare.findings import CompareFindings, Numbers, compare_numbers
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.hooks.protocols import Progress
from gapft_harness.rejudge.choice import RejudgeChoice
from gapft_harness.rejudge.flips import Flip, Flips, format_gold
from gapft_harness.rejudge.judge import CHUNK_SIZE, RuleJudge, open_judge, prefetch
from gapft_harness.verdicts.log_files import Log, find_runs
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, SampleLog
from gapft_harness.verdicts.scales import check_mean
from gapft_harness.verification.judging import VerdictAndAnswer
from gapft_harness.verification.reasons import Reasons

_REMEDY = (
    "choose another metric (--metric), or give the earlier rule to compare with (--was VERIFIER)"
)
#: Names of document fields that usually contain the gold answer.
_GOLD_FIELDS = ("gold", "answer", "solution", "label")
_LETTER = re.compile(r"\s*\(?([A-Z])[.)]?\s*")


@dataclass(frozen=True, slots=True)
class RowToJudge:
    """The parts of a row that are needed to judge it.

    Attributes:
        place: file and line.
        doc_id: lm_eval's number of the document.
        identity: hash of the document, equal in all logs.
        texts: the responses.
        gold: the gold answer.
        passed: for each response, whether it is right according to the log; empty if that is not
            needed.
        answers: for each response, the answer read by the log's filter; None if not logged.
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
    """How a log is read, determined from its first row.

    Attributes:
        source: the log's rows under one filter.
        criterion: decides whether a response was right; None: not needed, or the log has no
            verdicts.
        golds: how the gold answers are found.
        metrics: the metrics in the first row.
    """

    source: SampleLog
    criterion: Criterion | None
    golds: Golds
    metrics: Sequence[str]

    @classmethod
    def from_log(cls, log: Log, choice: RejudgeChoice, judge: RuleJudge) -> Reading:
        """Read the first row.

        Raises:
            UserError: the log is empty, or the row has no responses in lm_eval's format.
        """
        source = SampleLog(log, choice.filter)
        first = source.first
        _ = first.texts
        criterion = None
        if choice.was is None and (first.is_graded or choice.metric is not None):
            criterion = Criterion.of(first, choice.metric, _REMEDY)
        return cls(source, criterion, find_golds(first, choice.gold, judge), first.named_metrics)

    def check_reported(self, before: Sequence[float]) -> None:
        """Check the verdicts read from a log against the number that it reports.

        Args:
            before: for each document, the share of right responses.

        Raises:
            UserError: they differ.
        """
        if self.criterion is not None:
            first = self.source.first
            check_mean(first.log, self.criterion.find_metric(first), first.filter, before)

    def read_rows(self, judge: RuleJudge) -> Iterator[RowToJudge]:
        """Yield the rows, one line in memory at a time.

        Raises:
            UserError: a row lacks a needed value; the message names file and line.
        """
        for row in self.source:
            yield RowToJudge(
                *(row.place, str(row.doc_id), row.identity, row.texts),
                self.golds.read_gold(row, judge),
                self.criterion.find_passed(row) if self.criterion else (),
                row.filtered_texts,
            )


@dataclass(frozen=True, slots=True)
class Golds:
    """How the gold answer of a row is found.

    Attributes:
        where: the place in words.
        read: returns the gold answer of a row.
        chosen: whether it was chosen automatically, not by the user.
    """

    where: str
    read: Callable[[LogRow], Gold]
    chosen: bool = False

    def read_gold(self, row: LogRow, judge: RuleJudge) -> Gold:
        """Read a row's gold answer and check it.

        Raises:
            UserError: it is missing, or the verifier refuses it; the message names file and line.
        """
        gold = self.read(row)
        judge.check_golds(
            [(gold, row.place)],
            f"(gold: {self.where}, for verifier {judge.rule}); --gold FIELD uses another field of "
            "the document, --gold doc the complete document",
        )
        return gold


def find_golds(row: LogRow, field: str | None, judge: RuleJudge) -> Golds:
    """Find the gold answers of a log from its first row.

    Args:
        row: the first row.
        field: the user's choice; None: the first that the verifier accepts among lm_eval's
            ``target``, the letter in it, the fields gold, answer, solution and label, and the
            complete document.
        judge: checks whether the verifier accepts it.

    Raises:
        UserError: the verifier accepts none of these.
    """
    document = row.document
    if field is not None:
        if field == "doc" and "doc" not in document:
            return Golds("the whole document", _read_document)
        if field == "target" and "target" not in document:
            return Golds("target", _read_target)
        row.find_value(field)
        return Golds(f"doc.{field}", _field_reader(field))
    candidates = [Golds("target", _read_target, True)] if row.target is not None else []
    if isinstance(row.target, str) and _LETTER.fullmatch(row.target):
        candidates.append(Golds("the letter in target", _read_letter, True))
    candidates += [
        Golds(f"doc.{name}", _field_reader(name), True)
        for name in _GOLD_FIELDS
        if document.get(name)
    ]
    candidates.append(Golds("the whole document", _read_document, True))
    first: UserError | None = None
    for golds in candidates:
        try:
            golds.read_gold(row, judge)
        except UserError as error:
            if type(error) is not UserError:
                raise
            first = first or error
        else:
            return golds
    assert first is not None
    raise first


def _read_document(row: LogRow) -> Gold:
    return row.document


def _read_target(row: LogRow) -> Gold:
    if row.target is None:
        raise UserError(f"{row.place}: target is missing or null; expected the gold answer")
    return row.target


def _read_letter(row: LogRow) -> Gold:
    match = _LETTER.fullmatch(str(_read_target(row)))
    return match[1] if match else row.target


def _field_reader(name: str) -> Callable[[LogRow], Gold]:
    return lambda row: row.find_value(name)


#: A document's hash as two numbers, for sorting.
_HASH = np.dtype([("first", "<u8"), ("rest", "<u8")])


@dataclass(slots=True)
class LogsJudged:
    """The results of judging logs again.

    Attributes:
        choice: the user's options.
        logs: the logs.
        flips: the responses whose verdict flipped.
        readings: how each log was read; either all logs have verdicts, or none has.
        responses: number of judged responses.
        before: for each document, the share of responses that were right; 0 if unknown.
        after: for each document, the share that is right under the new rule.
        log: for each document, the index of its log.
        contents: the documents' content hashes, concatenated.
        reasons: counts of the new verdicts.
        was_reasons: counts of the earlier rule's verdicts, if one was given.
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
        """Whether there are earlier verdicts, so that verdicts can flip."""
        return self.choice.was is not None or self.readings[0].criterion is not None

    def name(self, number: int) -> str:
        """Return a log's name: its task, or its path if several logs have this task."""
        tasks = [log.task for log in self.logs]
        task = tasks[number]
        return task if task and tasks.count(task) == 1 else str(self.logs[number].path)

    def compute_findings(self) -> CompareFindings:
        """Compute both accuracies and their difference, over all documents and for each log.

        Rows of the same document, as in logs of several models, form a cluster.
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
            return compare_numbers(table)
        findings = compare_numbers(replace(table, clusters=clusters))
        if len(np.unique(np.stack([logs, clusters]), axis=1).T) == len(before):
            # within each log all documents differ
            return replace(findings, groups=compare_numbers(table).groups)
        return findings


def judge_logs(
    arguments: list[str], choice: RejudgeChoice, flips: Flips, progress: Progress = lambda *_: None
) -> LogsJudged:
    """Judge the responses of all given logs.

    Raises:
        UserError: a log is missing, damaged, or without responses.
    """
    runs_by_argument = (
        find_runs(argument, choice.tasks, plugin_files=choice.plugin_files)
        for argument in arguments
    )
    logs = [log for runs in runs_by_argument for run in runs for log in run.logs]
    paths = [log.path.resolve() for log in logs]
    for log, path in zip(logs, paths, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{log.path}: duplicate log; give every log once")
    judged = LogsJudged(choice, logs, flips)
    with ExitStack() as stack:
        new_judge = stack.enter_context(open_judge(choice.now, choice.plugin_files))
        new_judge.progress = progress
        old_judge = None
        if choice.was is not None:
            old_judge = stack.enter_context(open_judge(choice.was, choice.plugin_files))
        for number, log in enumerate(logs):
            reading = Reading.from_log(log, choice, new_judge)
            judged.readings.append(reading)
            if choice.was is None and (reading.criterion is not None) != judged.is_graded:
                raise UserError(
                    f"{logs[0].path} and {log.path}: only one of them has verdicts; judge them in "
                    "separate commands, or give the earlier rule: --was VERIFIER"
                )
            start = len(judged.before)
            batches = _batch_rows(reading.read_rows(new_judge))
            for batch in prefetch(batches) if new_judge.uses_processes else batches:
                _judge_batch(batch, number, judged, new_judge, old_judge)
            reading.check_reported(judged.before[start:])
    return judged


def _judge_batch(
    batch: list[RowToJudge],
    log: int,
    judged: LogsJudged,
    new_judge: RuleJudge,
    old_judge: RuleJudge | None,
) -> None:
    pairs = [(text, row.gold) for row in batch for text in row.texts]
    texts, golds = [text for text, _ in pairs], [gold for _, gold in pairs]
    after = iter(new_judge.judge(texts, golds))
    old_verdicts = old_judge.judge(texts, golds) if old_judge else None
    for verdict, _ in old_verdicts or ():
        judged.was_reasons.add(verdict)
    before = iter(old_verdicts) if old_verdicts is not None else None
    for row in batch:
        sums = [0, 0]
        for index, text in enumerate(row.texts):
            verdict, answer = next(after)
            judged.reasons.add(verdict)
            sums[1] += verdict.passed
            if not judged.is_graded:
                continue
            passed, read_as = _find_earlier_verdict(row, index, before)
            sums[0] += passed
            if passed != verdict.passed:
                judged.flips.add(
                    Flip(
                        *(row.place, row.doc_id, index, verdict.passed, read_as, answer),
                        *(verdict.reason, format_gold(row.gold), text),
                    )
                )
        judged.before.append(sums[0] / len(row.texts))
        judged.after.append(sums[1] / len(row.texts))
        judged.log.append(log)
        judged.contents += row.identity
        judged.responses += len(row.texts)


def _find_earlier_verdict(
    row: RowToJudge, index: int, before: Iterator[VerdictAndAnswer] | None
) -> tuple[bool, str | None]:
    """Return whether a response was right, and the answer that was read in it."""
    if before is None:
        return row.passed[index], row.answers[index]
    verdict, answer = next(before)
    return verdict.passed, answer


def _batch_rows(rows: Iterator[RowToJudge]) -> Iterator[list[RowToJudge]]:
    """Yield rows in batches with enough responses."""
    batch: list[RowToJudge] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.texts)
        if size >= CHUNK_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
