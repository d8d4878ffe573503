"""Logged responses as typed rows, of lm_eval or another reader: all commands read them here.

- **Row.** One document under one filter, with all its responses: several samples, or epochs, are
  several responses of one row, whatever wrote the log.
- **Filter.** The rows of one filter are taken: the one that was chosen, or else the first row's.
- **Metric.** The one that was chosen, or else the first that the first of these rows names, but for
  those of a whole corpus, whose entries are lists; where that row has several responses and a
  ``pass@1``, this one. Logs of lm_eval before November 2024 name none: there it is the first field
  that is none of lm_eval's own.
- **No number.** A document whose metric is null or NaN has none. One whose row does not name the
  metric is not measured by it.
- **Which responses passed.** If no metric was chosen and the first row has ``verdicts``, one for
  each response, they say it throughout the log; those of a reader that has them by metric say it
  of a chosen metric too. Else the metric does: of one response by 0 or 1,
  of K responses by ``pass@1`` alone. A ``pass@1`` of 0 or 1 says it of each of the K, another one
  says only how many they are: enough for states, not where every response counts by itself. A
  metric that is better when lower, by lm_eval's results file, says nothing of what passed.

A part of a row is checked when it is asked for: logs of likelihoods have no texts, and a
comparison needs none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from gapft_harness.core.errors import UserError, did_you_mean, plain
from gapft_harness.core.json_values import as_object, parse, parse_object
from gapft_harness.core.records import STATUSES
from gapft_harness.core.text import UNREADABLE, decoded, opened, unreadable
from gapft_harness.verdicts.places import Log

#: The metric that speaks of all responses of a row.
OF_ALL = "pass@1"
#: Bytes of a hash that are kept: a chance of 1e-19 that two of ten billion are the same.
KEPT = 16
#: The metric of ``lm_eval --predict_only``, which grades nothing.
UNGRADED = "bypass"
#: The fields of lm_eval's rows that are no metrics.
_OWN = frozenset(
    (
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
        "doc_hash", "prompt_hash", "target_hash", "verdicts",
    )
)  # fmt: skip
#: Texts that loggers write for a number that is not there.
_NO_NUMBER = frozenset(("", "nan", "null", "none", "n/a"))
#: Larger numbers may have no finite sum.
_LARGEST = 1e200
#: How far K times a logged pass@1 may be from a whole number.
_ROUNDING = 1e-6

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class LogRow:
    """One document under one filter, with the responses to it.

    Attributes:
        log: the log.
        line: from 1.
        offset: the byte where its line begins; in a log of another reader, its number from 0.
        fields: as they are logged.
    """

    log: Log
    line: int
    offset: int
    fields: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        log: Log,
        line: int,
        document: Mapping[str, Any],
        responses: Sequence[str],
        *,
        passed: Sequence[bool] | Mapping[str, Sequence[bool]] = (),
        metrics: Mapping[str, Any] | None = None,
        filter: str = "none",
        **fields: Any,
    ) -> LogRow:
        """A row of another log than lm_eval's.

        Args:
            log: as the reader gets it.
            line: where the row is, from 1.
            document: what rows of one problem have in common; they are joined by it.
            responses: the texts.
            passed: of each response whether it passed; none: the first metric says it. By metric,
                the first counts where none is chosen, and the share is the metric's number.
            metrics: by name, the row's numbers, None where it has none; with ``passed``,
                ``pass@1`` is added.
            filter: several rows of one document are of different filters; several samples of it
                are no rows, but responses of one.
            fields: others by lm_eval's names: ``target``, ``arguments``, ``doc_id``; ``error``:
                why there are no responses.
        """
        told = dict(metrics or {})
        if isinstance(passed, Mapping):
            told |= {name: sum(of) / len(of) for name, of in passed.items()}
            each = zip(*passed.values(), strict=True)
            by = [dict(zip(passed, map(_status, of), strict=True)) for of in each]
            fields["verdicts"] = [{"status": next(iter(of.values())), "by": of} for of in by]
        elif passed:
            told = {OF_ALL: sum(passed) / len(passed), **told}
            fields["verdicts"] = [{"status": _status(one)} for one in passed]
        texts = [list(responses)]
        own = {"doc": dict(document), "resps": texts, "filter": filter, "metrics": [*told]}
        return cls(log, line, -1, {"doc_id": line - 1, **fields, **told, **own})

    @property
    def place(self) -> str:
        """File and line, for a message."""
        return self.log.name_entry(self.line)

    @property
    def filter(self) -> str:
        """lm_eval's filter."""
        return str(self.fields.get("filter", "none"))

    @property
    def doc_id(self) -> Any:
        """lm_eval's number of the document; None: the log has none."""
        return self.fields.get("doc_id")

    @property
    def target(self) -> Any:
        """The gold answer as the task shows it; None: the log has none."""
        return self.fields.get("target")

    @property
    def document(self) -> dict[str, Any]:
        """The document.

        Raises:
            UserError: there is none.
        """
        if "doc" not in self.fields:
            raise UserError(f"{self.place}: has no doc, by which rows are joined")
        return as_object(self.fields["doc"], f"{self.place}: doc")

    @property
    def identity(self) -> bytes:
        """What a row of the same document has in another log; without a document, its own."""
        return digest({"doc": self.fields.get("doc", self.place)})

    def content(self, on: Sequence[str], side: int = 0) -> bytes:
        """What makes two documents the same: a hash of all fields, or of some.

        Args:
            on: the fields; ``A=B``: A where ``side`` is 0, B where it is 1.
            side: which.

        Raises:
            UserError: a field is missing.
        """
        if not on:
            return digest(self.document)
        pairs = [(name.split("=", 1) * 2)[:2] for name in on]
        return digest({pair[0]: self.value_at(pair[side]) for pair in pairs})

    def value_at(self, name: str) -> Any:
        """A field of the document; with dots, one inside another.

        Raises:
            UserError: it is missing or null.
        """
        return value_at(self.document, name, self.place)

    def hash_of(self, name: str) -> str:
        """lm_eval's hash of the ``prompt`` or the ``target``; "" where it gives none."""
        return str(self.fields.get(f"{name}_hash", ""))[:KEPT]

    @property
    def named(self) -> list[str]:
        """The metrics that the row names; those that are numbers of one document, if any is."""
        names = self.fields.get("metrics")
        if names is None and self.log.reader is None:
            names = [name for name in self.fields if name not in _OWN]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return []
        alone = [name for name in names if not isinstance(self.fields.get(name), list | dict)]
        return alone or names

    @property
    def metrics(self) -> list[str]:
        """The metrics that the row names, at least one.

        Raises:
            UserError: it names none.
        """
        if not (names := self.named):
            expected = (
                "a log of lm_eval --log_samples, with doc, filter and metrics in each row"
                if self.log.reader is None
                else f"a log of {self.log.kind} whose responses were scored"
            )
            raise UserError(
                f"{self.place}: names no metrics; expected {expected} (gapft rejudge judges "
                "responses without any)"
            )
        return names

    @property
    def is_graded(self) -> bool:
        """Whether anything says how good the responses are: a metric, or verdicts."""
        return bool({*self.named} - {UNGRADED}) or self.statuses is not None

    def read_number(self, metric: str) -> float | None:
        """Return a metric as a number; None if the document has none: null, NaN, or not measured.

        Raises:
            UserError: it is something else, or nothing that can be summed.
        """
        value = self.fields.get(metric)
        if value is None or value != value:
            return None
        if isinstance(value, str) and value.strip().lower() in _NO_NUMBER:
            return None
        if not isinstance(value, bool | int | float) or not abs(value) <= _LARGEST:
            raise self.number_error(
                metric,
                f"expected a number, up to {_LARGEST:g}, for each document (metrics of a whole "
                "corpus cannot be compared item by item)",
            )
        return float(value)

    def value(self, metric: str) -> float:
        """Return a metric as a number.

        Raises:
            UserError: there is no such metric, or it is no number, or none that can be summed.
        """
        if metric not in self.fields:
            raise UserError(
                f"{self.place}: no metric {metric!r}; {did_you_mean(metric, self.metrics)}"
            )
        value = self.read_number(metric)
        if value is None:
            raise self.number_error(metric, "expected a number for each document")
        return value

    def number_error(self, metric: str, expected: str) -> UserError:
        """Build the error for a metric that is no number."""
        shown = json.dumps(self.fields.get(metric), default=str)[:60]
        return UserError(f"{self.place}: metric {metric!r} is {shown}, {expected}")

    @property
    def texts(self) -> list[str]:
        """The responses.

        Raises:
            UserError: there are none; the log of a multiple-choice task scores options by
                likelihood.
        """
        responses = self.fields.get("resps")
        if (ended := self.fields.get("error")) is not None and self.log.reader is not None:
            raise UserError(f"{self.place}: {ended}")
        if not isinstance(responses, list) or not responses:
            raise UserError(
                f"{self.place}: has no resps, the responses that the model gave; expected a log of "
                "lm_eval --log_samples"
            )
        texts = responses[0] if len(responses) == 1 else None
        if all(isinstance(text, str) for text in responses):
            texts = responses  # lmms-eval's logs hold the texts of the one request
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return texts
        raise UserError(
            f"{self.place}: its resps are no texts of one request, so there is no response to "
            "judge: a task of multiple choice or perplexity scores likelihoods; expected a "
            "generation task"
        )

    @property
    def count(self) -> int:
        """How many responses there are; one, if its options were scored."""
        responses = self.fields.get("resps")
        if not isinstance(responses, list) or not responses:
            return 1
        if isinstance(responses[0], str):
            return len(responses)
        return max(1, len(responses[0])) if isinstance(responses[0], list) else 1

    @property
    def filtered(self) -> Sequence[str | None]:
        """What lm_eval's filter made of each response, where the log keeps one text for each."""
        found = self.fields.get("filtered_resps")
        while isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
            found = found[0]
        texts = found if isinstance(found, list) else [found]
        if len(texts) == self.count and all(isinstance(text, str) for text in texts):
            return texts
        return [None] * self.count

    @property
    def statuses(self) -> list[str] | None:
        """The status of the verdict on each response; None: the log has no verdicts."""
        return self.statuses_by(None)

    def statuses_by(self, metric: str | None) -> list[str] | None:
        """The same by a metric; None: by the first, or whatever judged.

        Raises:
            UserError: there are more or fewer than responses.
        """
        verdicts = self.fields.get("verdicts")
        if not isinstance(verdicts, list) or not verdicts:
            return None
        each = [of if isinstance(of, dict) else {} for of in verdicts]
        if metric is not None:
            each = [{"status": as_object(of.get("by", {}), self.place).get(metric)} for of in each]
        told = [str(of.get("status")) for of in each]
        if not all(status in STATUSES for status in told):
            return None
        if len(told) != self.count:
            raise UserError(
                f"{self.place}: {len(told)} verdicts on {self.count} responses; expected one on "
                "each (a damaged log?)"
            )
        return told

    @property
    def prompt(self) -> str:
        """What the model was asked: the first request's text."""
        asked = self._request(0).get("arg_0")
        if isinstance(asked, str):
            return asked
        return json.dumps(self.fields["doc"], ensure_ascii=False)

    @property
    def response(self) -> str:
        """What the model answered: the first text, or of several options the likeliest."""
        scores = self._scores
        if scores and (named := self._option(int(np.argmax(scores)))) is not None:
            return named
        responses = self.fields.get("resps")
        while isinstance(responses, list) and responses:
            responses = responses[0]
        return str(responses)

    @property
    def gold(self) -> str:
        """The right answer as the log has it; of several options named as a response is."""
        text = str(self.fields.get("target", ""))
        # lm_eval counts options from 0
        if text.isdecimal() and int(text) < len(self._scores):
            return self._option(int(text)) or text
        return text

    @property
    def _scores(self) -> list[float]:
        """The log-likelihoods of several options; none: it has responses."""
        options = self.fields.get("filtered_resps")
        scores = [_score(option) for option in options] if isinstance(options, list) else []
        known = [score for score in scores if score is not None]
        return known if len(known) == len(scores) > 1 else []

    def _option(self, number: int) -> str | None:
        """An option by its number from 0, as people count them from 1; None: the log lacks it."""
        request = self._request(number)
        return f"option {number + 1}: {str(request.get('arg_1')).strip()}" if request else None

    def _request(self, number: int) -> dict[str, Any]:
        arguments = self.fields.get("arguments")
        if isinstance(arguments, list):  # before November 2024: a list for each request
            asked = arguments[number] if number < len(arguments) else None
            if isinstance(asked, list):
                return {f"arg_{position}": value for position, value in enumerate(asked)}
        asked = arguments.get(f"gen_args_{number}") if isinstance(arguments, dict) else None
        return asked if isinstance(asked, dict) else {}


@dataclass(slots=True)
class SampleLog:
    """The rows of a log under one filter; it is read anew each time, one line in memory.

    Attributes:
        log: the log.
        filter: whose rows are taken; None: until a row was read, then that row's.
        filters: all that were met.
    """

    log: Log
    filter: str | None = None
    filters: dict[str, None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[LogRow]:
        """Yields the rows.

        Raises:
            UserError: a line is no JSON object, or there is no row under the filter.
        """
        found = False
        for row in log_rows(self.log):
            self.filters[row.filter] = None
            self.filter = row.filter if self.filter is None else self.filter
            if row.filter == self.filter:
                found = True
                yield row
        if self.filter is None:
            raise UserError(f"{self.log.path}: is empty; expected a JSON object a line")
        if not found:
            raise UserError(
                f"{self.log.path}: holds no row under filter {self.filter!r}; "
                f"{did_you_mean(self.filter, self.filters)}"
            )

    @property
    def first(self) -> LogRow:
        """The first row.

        Raises:
            UserError: as rows.
        """
        return next(iter(self))


@dataclass(frozen=True, slots=True)
class Criterion:
    """What says throughout a log which responses passed, as the head of this file has it.

    Attributes:
        metric: of rows of one response.
        by_verdicts: the verdicts say it instead.
        chosen: the metric was chosen, so that it speaks of several responses too.
        remedy: what to do where a row does not say it; ends the message.
        by: the metric whose verdicts count; None: a row has one on each response.
    """

    metric: str
    by_verdicts: bool
    chosen: bool
    remedy: str
    by: str | None = None

    @classmethod
    def of(
        cls, first: LogRow, chosen: str | None, remedy: str, leading: str | None = None
    ) -> Criterion:
        """By a log's first row.

        Args:
            first: the row.
            chosen: the metric that the user chose.
            remedy: ends messages.
            leading: the metric that speaks where none was chosen; None: the row's.

        Raises:
            UserError: the row names no metrics, or the metric is better when lower.
        """
        named = chosen or leading
        if named is not None and first.statuses_by(named) is not None:
            return cls(named, True, chosen is not None, remedy, named)
        if chosen is None and first.statuses is not None:
            return cls(leading or OF_ALL, True, False, remedy)
        own = OF_ALL if first.count > 1 and OF_ALL in first.fields else None
        metric = chosen or own or leading or first.metrics[0]
        if metric == UNGRADED:
            raise ungraded_error(first.log, remedy)
        if first.log.higher_is_better(metric) is False:
            raise UserError(
                f"{first.log.path}: by lm_eval's results file beside it {plain(metric)} is better "
                "when lower, so that 1 is not right; name another: --metric"
            )
        return cls(metric, False, chosen is not None, remedy)

    def metric_of(self, row: LogRow) -> str:
        """The metric that speaks of a row."""
        return self.metric if row.count == 1 or self.chosen else OF_ALL

    def passing(self, row: LogRow) -> tuple[int, int]:
        """How many responses of a row passed, and how many there are.

        Raises:
            UserError: the row does not tell.
        """
        samples = row.count
        if self.by_verdicts:
            if (statuses := row.statuses_by(self.by)) is None:
                raise UserError(
                    f"{row.place}: has no verdict on each response, as the log's first row has; "
                    f"{self.remedy}"
                )
            return statuses.count("pass"), samples
        metric = self.metric_of(row)
        if samples > 1 and (metric != OF_ALL or metric not in row.fields):
            raise UserError(self._of_several(row, f"{self.metric} does not say how many"))
        value = row.value(metric)
        if samples == 1:
            if value not in (0, 1):
                raise UserError(
                    f"{row.place}: {plain(metric)} is {value:g}, expected 0 or 1; {self.remedy}"
                )
            return int(value), 1
        passing = round(value * samples)
        if abs(value * samples - passing) > _ROUNDING or not 0 <= passing <= samples:
            raise UserError(
                f"{row.place}: {OF_ALL} is {row.fields[OF_ALL]} over {samples} responses, which is "
                "no whole number of them; expected the unbiased pass@1 over all samples"
            )
        return passing, samples

    def passed(self, row: LogRow) -> list[bool]:
        """Of each response of a row, whether it passed.

        Raises:
            UserError: the row does not tell.
        """
        passing, samples = self.passing(row)
        if self.by_verdicts:
            return [status == "pass" for status in row.statuses_by(self.by) or ()]
        if 0 < passing < samples:
            rate = f"{OF_ALL} of {row.value(OF_ALL):.3g} does not say which"
            raise UserError(self._of_several(row, rate))
        return [passing == samples] * samples

    def _of_several(self, row: LogRow, told: str) -> str:
        return (
            f"{row.place}: {row.count} responses, and {plain(told)} of them passed; {self.remedy}"
        )


def ungraded_error(log: Log, remedy: str) -> UserError:
    """Build the error for a log of ``lm_eval --predict_only``."""
    return UserError(
        f"{log.path}: nothing was graded (metric {UNGRADED!r}: a log of lm_eval --predict_only); "
        f"{remedy}"
    )


def lm_eval_rows(log: Log) -> Iterator[LogRow]:
    """Yields all rows of a log of lm_eval, under whatever filter.

    Raises:
        UserError: the file cannot be read, a line is no JSON object, or the first is of no log.
    """
    for line, start, fields, place in records(log.path):
        if start == 0 and not fields.keys() & {"doc", "resps", "metrics", "filter"}:
            raise unknown_kind(place, fields)
        yield LogRow(log, line, start, fields)


def unknown_kind(place: str, record: Mapping[str, Any]) -> UserError:
    """What is said of a log that no reader recognises."""
    return UserError(
        f"{place}: of no known kind (its keys: {', '.join(map(plain, record)) or 'none'}); known "
        "by a key of their first line are lm_eval's samples (resps), NeMo-Skills' output "
        "(generation), plain JSON lines (text) and Every Eval Ever's instance records "
        "(evaluation_id), by their names Inspect's logs (FILE.eval, FILE.json), and by the columns "
        "doc, metric and model_response lighteval's details (FILE.parquet); --plugin FILE brings "
        "a reader of another"
    )


def log_rows(log: Log) -> Iterator[LogRow]:
    """Yields all rows of a log, as its reader gives them.

    Raises:
        UserError: the log cannot be read.
        PluginError: its reader failed, or gave something else.
    """
    if log.reader is None:
        yield from lm_eval_rows(log)
        return
    with log.reader.blamed():
        for number, row in enumerate(log.reader.value(log)):
            if not isinstance(row, LogRow):
                raise log.reader.broke(f"gave {short(row)}; expected api.LogRow")
            yield replace(row, offset=number)


@contextmanager
def seekable(log: Log) -> Iterator[Callable[[int, int], LogRow]]:
    """Gives any row by line and offset; a log that is packed, or not lm_eval's, is copied once."""
    with ExitStack() as stack:
        starts: array[int] | None = None
        if log.reader is not None:
            file: Any = stack.enter_context(tempfile.TemporaryFile())
            starts = array("q")
            for row in log_rows(log):
                starts.append(file.tell())
                file.write(json.dumps(dict(row.fields), default=str).encode() + b"\n")
        else:
            file = stack.enter_context(_unpacked(log.path))

        def row_at(line: int, offset: int) -> LogRow:
            file.seek(offset if starts is None else starts[offset])
            place = f"{log.path}, line {line}"
            text = file.readline().decode("utf-8-sig", "replace")
            return LogRow(log, line, offset, as_object(parse(text, place), place))

        yield row_at


@contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    """A file in which lines can be sought."""
    with opened(path) as source, tempfile.TemporaryFile() as copy:
        if isinstance(source, gzip.GzipFile):
            shutil.copyfileobj(source, copy)
        yield copy if isinstance(source, gzip.GzipFile) else source


def grouped(
    path: Path, key: Callable[[dict[str, Any], str], Hashable]
) -> Iterator[list[tuple[int, dict[str, Any], str]]]:
    """Yields (line, object, file and line) of JSON lines, those of one key together, by the first.

    Raises:
        UserError: as ``records``.
    """
    lines: dict[Hashable, array[int]] = {}
    for line, start, record, place in records(path):
        lines.setdefault(key(record, place), array("q")).extend((line, start))
    with _unpacked(path) as file:

        def record_at(line: int, start: int) -> tuple[int, dict[str, Any], str]:
            file.seek(start)
            place = f"{path}, line {line}"
            return line, parse_object(file.readline().decode("utf-8-sig"), place), place

        for of in lines.values():
            yield [record_at(*of[at : at + 2]) for at in range(0, len(of), 2)]


def records(path: Path) -> Iterator[tuple[int, int, dict[str, Any], str]]:
    """Yields (line from 1, the byte where it begins, object, file and line) of JSON lines.

    Raises:
        UserError: the file cannot be read, or a line is no JSON object.
    """
    starts = [0]

    def counted(file: Iterable[bytes]) -> Iterator[bytes]:
        for line in file:
            starts[0] += len(line)
            yield line

    try:
        with opened(path) as file:
            start = 0
            for number, text in decoded(counted(file), str(path)):
                if text.strip():
                    place = f"{path}, line {number}"
                    yield number, start, parse_object(text, place), place
                start = starts[0]
    except UNREADABLE as error:
        raise UserError(unreadable(path, error)) from error


def value_at(document: Mapping[str, Any], name: str, place: str) -> Any:
    """A field of a document; with dots, one inside another.

    Raises:
        UserError: it is missing or null.
    """
    found: Any = document.get(name)
    if found is None and "." in name:
        found = document
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise UserError(
            f"{place}: doc has no field {name!r}, or it is null; {did_you_mean(name, document)}"
        )
    return found


def _status(passed: bool) -> str:
    return "pass" if passed else "fail"


def digest(value: Any) -> bytes:
    """A hash of what JSON has, whatever the order of keys."""
    return hashlib.sha256(canonical(value).encode()).digest()[:KEPT]


def _score(option: Any) -> float | None:
    """The log-likelihood of an option, as lm_eval logs it: ``["-1.25", "False"]``."""
    try:
        return float(option[0]) if isinstance(option, list) and len(option) == 2 else None
    except (TypeError, ValueError, OverflowError):
        return None
