"""Read the logs of lm_eval and other tools as typed rows. All commands read logs with this module.

- **Row.** One document under one filter, with all its responses. Several samples or epochs of a
  document are responses of one row in every kind of log.
- **Filter.** The user chooses a filter; default: the filter of the first row. Only its rows are
  used.
- **Metric.** The user chooses a metric. Default: ``pass@1`` if the first row of the filter has it
  and several responses; otherwise the first metric that this row names and that is not a
  corpus-level metric (whose entries are lists). Logs of lm_eval before November 2024 name no
  metrics: their first field that is not one of lm_eval's own is used.
- **No number.** If the metric is null or NaN, the document has no value. If the row does not name
  the metric, the document is not measured by it.
- **Which responses passed.** Without a chosen metric, ``verdicts`` decide for the whole log if the
  first row has them, one per response. A chosen metric is decided by its own verdicts if the reader
  gives verdicts by metric. In all other cases the number of the metric decides. One response passes
  at 1 and fails at 0. For K responses only ``pass@1`` can decide: at 0 or 1 it decides all K; any
  other value gives only the number that passed. This number suffices for states, but not if
  responses count individually. A metric that is better when lower, by lm_eval's results file, is
  refused.

Fields of a row are checked on access: logs of likelihoods have no texts, and a comparison needs
none.
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

from gapft_harness.core.errors import UserError, did_you_mean, quote_unprintable
from gapft_harness.core.json_values import parse_json, parse_object, require_object
from gapft_harness.core.records import FINISH_REASONS, STATUSES
from gapft_harness.core.text import READ_ERRORS, decode_lines, describe_read_error, open_unpacked
from gapft_harness.verdicts.log_files import Log

#: The metric over all responses of a row.
PASS_AT_1 = "pass@1"
#: Stored bytes of a hash: the probability that any two of ten billion hashes are equal is 1e-19.
DIGEST_BYTES = 16
#: The metric of ``lm_eval --predict_only``, which grades nothing.
UNGRADED = "bypass"
#: Fields of lm_eval's rows that are not metrics.
_LM_EVAL_FIELDS = frozenset(
    (
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
        "doc_hash", "prompt_hash", "target_hash", "verdicts",
    )
)  # fmt: skip
#: Texts that loggers write for a missing number.
_MISSING_NUMBER_TEXTS = frozenset(("", "nan", "null", "none", "n/a"))
#: Largest accepted number, so that sums are finite.
_MAX_NUMBER = 1e200
#: Largest difference between K times a logged pass@1 and an integer.
_COUNT_TOLERANCE = 1e-6

encode_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class LogRow:
    """One document under one filter, with the responses to it.

    Attributes:
        log: the log.
        line: line number from 1.
        offset: byte offset of its line; in a log of another tool, the row's number from 0.
        fields: the logged fields, by lm_eval's names.
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
        """Build a row of a log that is not lm_eval's.

        Args:
            log: the log, as the reader receives it.
            line: line number of the row, from 1.
            document: content that identifies the problem; rows are joined by it.
            responses: texts of all responses to the document.
            passed: whether each response passed; empty: the first metric decides. A mapping gives
                this for each metric: the share that passed becomes the metric's number, and the
                first metric decides if the user chooses none.
            metrics: the row's numbers by name, None if missing. A sequence in ``passed`` adds
                ``pass@1``.
            filter: the row's filter; rows of one document must have different filters.
            fields: other fields by lm_eval's names: ``target``, ``arguments``, ``doc_id``;
                ``error`` is the reason for missing responses; ``finish_reasons`` is a list with one
                of ``records.FINISH_REASONS`` for each response.
        """
        numbers = dict(metrics or {})
        if isinstance(passed, Mapping):
            numbers |= {name: sum(values) / len(values) for name, values in passed.items()}
            outcomes = zip(*passed.values(), strict=True)
            statuses = [
                dict(zip(passed, map(_name_status, values), strict=True)) for values in outcomes
            ]
            fields["verdicts"] = [
                {"status": next(iter(values.values())), "by": values} for values in statuses
            ]
        elif passed:
            numbers = {PASS_AT_1: sum(passed) / len(passed), **numbers}
            fields["verdicts"] = [{"status": _name_status(has_passed)} for has_passed in passed]
        texts = [list(responses)]
        row_fields = {
            "doc": dict(document),
            "resps": texts,
            "filter": filter,
            "metrics": [*numbers],
        }
        return cls(log, line, -1, {"doc_id": line - 1, **fields, **numbers, **row_fields})

    @property
    def place(self) -> str:
        """Log file and line, for messages."""
        return self.log.name_entry(self.line)

    @property
    def filter(self) -> str:
        """lm_eval's filter."""
        return str(self.fields.get("filter", "none"))

    @property
    def doc_id(self) -> Any:
        """lm_eval's number of the document; None if the log has none."""
        return self.fields.get("doc_id")

    @property
    def target(self) -> Any:
        """The gold answer as the task shows it; None if the log has none."""
        return self.fields.get("target")

    @property
    def document(self) -> dict[str, Any]:
        """The document.

        Raises:
            UserError: the row has no document.
        """
        if "doc" not in self.fields:
            raise UserError(
                f"{self.place}: has no doc; expected the document, by which rows are joined"
            )
        return require_object(self.fields["doc"], f"{self.place}: doc")

    @property
    def identity(self) -> bytes:
        """Hash of the document, equal in all logs; without a document, unique to the row."""
        return hash_value({"doc": self.fields.get("doc", self.place)})

    def hash_fields(self, names: Sequence[str], side: int = 0) -> bytes:
        """Hash fields of the document, to find equal documents.

        Args:
            names: the fields; empty: all. ``A=B`` is field A in the first log and B in the second.
            side: 0 for a row of the first log, 1 for a row of the second.

        Raises:
            UserError: a field is missing.
        """
        if not names:
            return hash_value(self.document)
        pairs = [(name.split("=", 1) * 2)[:2] for name in names]
        return hash_value({pair[0]: self.find_value(pair[side]) for pair in pairs})

    def find_value(self, name: str) -> Any:
        """Return a field of the document; dots select nested fields.

        Raises:
            UserError: the field is missing or null.
        """
        return find_field(self.document, name, self.place)

    def find_hash(self, name: str) -> str:
        """Return lm_eval's hash of the ``prompt`` or the ``target``; "" if it has none."""
        return str(self.fields.get(f"{name}_hash", ""))[:DIGEST_BYTES]

    @property
    def named_metrics(self) -> list[str]:
        """The row's metrics with a number per document; if there are none, all its metrics."""
        names = self.fields.get("metrics")
        if names is None and self.log.reader is None:
            names = [name for name in self.fields if name not in _LM_EVAL_FIELDS]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return []
        scalar_names = [
            name for name in names if not isinstance(self.fields.get(name), list | dict)
        ]
        return scalar_names or names

    @property
    def metrics(self) -> list[str]:
        """The metrics that the row names, at least one.

        Raises:
            UserError: it names no metric.
        """
        if not (names := self.named_metrics):
            expected = (
                "a log of lm_eval --log_samples, with doc, filter and metrics in each row"
                if self.log.reader is None
                else f"a log of {self.log.kind} whose responses were scored"
            )
            raise UserError(
                f"{self.place}: names no metrics; expected {expected} (gapft rejudge judges "
                "responses without metrics)"
            )
        return names

    @property
    def is_graded(self) -> bool:
        """Whether a metric or verdicts grade the responses."""
        return bool({*self.named_metrics} - {UNGRADED}) or self.statuses is not None

    def read_number(self, metric: str) -> float | None:
        """Return a metric as a number; None if it is null, NaN or missing.

        Raises:
            UserError: the value is not a number, or too large to be summed.
        """
        value = self.fields.get(metric)
        if value is None or value != value:
            return None
        if isinstance(value, str) and value.strip().lower() in _MISSING_NUMBER_TEXTS:
            return None
        if not isinstance(value, bool | int | float) or not abs(value) <= _MAX_NUMBER:
            raise self.number_error(
                metric,
                f"expected a number, up to {_MAX_NUMBER:g}, for each document (corpus-level "
                "metrics cannot be compared by document)",
            )
        return float(value)

    def require_number(self, metric: str) -> float:
        """Return a metric as a number.

        Raises:
            UserError: the metric is missing, not a number, or too large to be summed.
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
        """Build the error for a metric that is not a number."""
        text = json.dumps(self.fields.get(metric), default=str)[:60]
        return UserError(f"{self.place}: metric {metric!r} is {text}; {expected}")

    @property
    def texts(self) -> list[str]:
        """The texts of the responses.

        Raises:
            UserError: there are no texts; for example, a multiple-choice task scores options by
                likelihood.
        """
        responses = self.fields.get("resps")
        if (error := self.fields.get("error")) is not None and self.log.reader is not None:
            raise UserError(f"{self.place}: {error}")
        if not isinstance(responses, list) or not responses:
            raise UserError(
                f"{self.place}: has no resps (the model's responses); expected a log of "
                "lm_eval --log_samples"
            )
        texts = responses[0] if len(responses) == 1 else None
        if all(isinstance(text, str) for text in responses):
            texts = responses  # lmms-eval logs the texts of its only request directly
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return texts
        raise UserError(
            f"{self.place}: resps are not texts of one request, so there is no response to judge "
            "(multiple-choice and perplexity tasks score likelihoods); expected a generation task"
        )

    @property
    def count(self) -> int:
        """Number of responses; one if options were scored."""
        responses = self.fields.get("resps")
        if not isinstance(responses, list) or not responses:
            return 1
        if isinstance(responses[0], str):
            return len(responses)
        return max(1, len(responses[0])) if isinstance(responses[0], list) else 1

    @property
    def filtered_texts(self) -> Sequence[str | None]:
        """The filtered text of each response, or None for each if any is missing."""
        value = self.fields.get("filtered_resps")
        while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
            value = value[0]
        texts = value if isinstance(value, list) else [value]
        if len(texts) == self.count and all(isinstance(text, str) for text in texts):
            return texts
        return [None] * self.count

    @property
    def statuses(self) -> list[str] | None:
        """Status of the verdict on each response; None if the log has no verdicts."""
        return self.find_statuses(None)

    def find_statuses(self, metric: str | None) -> list[str] | None:
        """Return the status of the verdict on each response; None if the log has no verdicts.

        Args:
            metric: the metric whose verdicts to read; None: the row's own verdicts.

        Raises:
            UserError: the numbers of verdicts and responses differ.
        """
        verdicts = self.fields.get("verdicts")
        if not isinstance(verdicts, list) or not verdicts:
            return None
        entries = [entry if isinstance(entry, dict) else {} for entry in verdicts]
        if metric is not None:
            entries = [
                {"status": require_object(entry.get("by", {}), self.place).get(metric)}
                for entry in entries
            ]
        statuses = [str(entry.get("status")) for entry in entries]
        if not all(status in STATUSES for status in statuses):
            return None
        if len(statuses) != self.count:
            raise UserError(
                f"{self.place}: {len(statuses)} verdicts on {self.count} responses; expected one "
                "per response (a damaged log?)"
            )
        return statuses

    @property
    def ending(self) -> str:
        """How the row's only response ended, one of ``records.FINISH_REASONS``."""
        match self.fields.get("finish_reasons"):
            case [str(reason)] if reason in FINISH_REASONS:
                return reason
        return "unknown"

    @property
    def prompt(self) -> str:
        """The model's input: the text of the first request."""
        prompt = self._find_request(0).get("arg_0")
        if isinstance(prompt, str):
            return prompt
        return json.dumps(self.fields["doc"], ensure_ascii=False)

    @property
    def response(self) -> str:
        """The model's answer: the first text, or the most likely option."""
        scores = self._scores
        if scores and (option := self._name_option(int(np.argmax(scores)))) is not None:
            return option
        responses = self.fields.get("resps")
        while isinstance(responses, list) and responses:
            responses = responses[0]
        return str(responses)

    @property
    def gold(self) -> str:
        """The right answer in the log; an option is named as in ``response``."""
        text = str(self.fields.get("target", ""))
        # lm_eval counts options from 0
        if text.isdecimal() and int(text) < len(self._scores):
            return self._name_option(int(text)) or text
        return text

    @property
    def _scores(self) -> list[float]:
        """Log-likelihoods of the options; empty if the row has texts, or only one option."""
        options = self.fields.get("filtered_resps")
        scores = [_parse_score(option) for option in options] if isinstance(options, list) else []
        valid_scores = [score for score in scores if score is not None]
        return valid_scores if len(valid_scores) == len(scores) > 1 else []

    def _name_option(self, number: int) -> str | None:
        """Name an option, given its number from 0 (the name counts from 1); None if not logged."""
        request = self._find_request(number)
        return f"option {number + 1}: {str(request.get('arg_1')).strip()}" if request else None

    def _find_request(self, number: int) -> dict[str, Any]:
        arguments = self.fields.get("arguments")
        if isinstance(arguments, list):  # before November 2024: a list for each request
            request = arguments[number] if number < len(arguments) else None
            if isinstance(request, list):
                return {f"arg_{position}": value for position, value in enumerate(request)}
        request = arguments.get(f"gen_args_{number}") if isinstance(arguments, dict) else None
        return request if isinstance(request, dict) else {}


@dataclass(slots=True)
class SampleLog:
    """The rows of a log under one filter. Each iteration reads the file again, line by line.

    Attributes:
        log: the log.
        filter: filter of the rows; None: the filter of the first row, set when it is read.
        filters: all filters read so far.
    """

    log: Log
    filter: str | None = None
    filters: dict[str, None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[LogRow]:
        """Yield the rows.

        Raises:
            UserError: a line is not a JSON object, or there is no row under the filter.
        """
        has_rows = False
        for row in read_rows(self.log):
            self.filters[row.filter] = None
            self.filter = row.filter if self.filter is None else self.filter
            if row.filter == self.filter:
                has_rows = True
                yield row
        if self.filter is None:
            raise UserError(f"{self.log.path}: is empty; expected one JSON object per line")
        if not has_rows:
            raise UserError(
                f"{self.log.path}: no row under filter {self.filter!r}; "
                f"{did_you_mean(self.filter, self.filters)}"
            )

    @property
    def first(self) -> LogRow:
        """The first row.

        Raises:
            UserError: see ``__iter__``.
        """
        return next(iter(self))


@dataclass(frozen=True, slots=True)
class Criterion:
    """How a log shows which responses passed; see the module's docstring.

    Attributes:
        metric: the metric that decides rows with one response.
        uses_verdicts: whether verdicts decide instead of the metric.
        is_chosen: whether the user chose the metric; it then also decides rows with several
            responses.
        remedy: advice at the end of error messages.
        verdict_metric: the metric whose verdicts are used; None: the row's own verdicts.
    """

    metric: str
    uses_verdicts: bool
    is_chosen: bool
    remedy: str
    verdict_metric: str | None = None

    @classmethod
    def of(
        cls, first: LogRow, chosen: str | None, remedy: str, default_metric: str | None = None
    ) -> Criterion:
        """Build the criterion from a log's first row.

        Args:
            first: the first row.
            chosen: the metric that the user chose, if any.
            remedy: advice at the end of error messages.
            default_metric: the metric if the user chose none; None: the row's first metric.

        Raises:
            UserError: the row names no metrics, or the metric is better when lower.
        """
        metric_name = chosen or default_metric
        if metric_name is not None and first.find_statuses(metric_name) is not None:
            return cls(metric_name, True, chosen is not None, remedy, metric_name)
        if chosen is None and first.statuses is not None:
            return cls(default_metric or PASS_AT_1, True, False, remedy)
        row_metric = PASS_AT_1 if first.count > 1 and PASS_AT_1 in first.fields else None
        metric = chosen or row_metric or default_metric or first.metrics[0]
        if metric == UNGRADED:
            raise ungraded_error(first.log, remedy)
        if first.log.higher_is_better(metric) is False:
            raise UserError(
                f"{first.log.path}: {quote_unprintable(metric)} is better when lower (lm_eval's "
                "results file), so it cannot show what passed; choose another metric: --metric"
            )
        return cls(metric, False, chosen is not None, remedy)

    def find_metric(self, row: LogRow) -> str:
        """Return the metric that decides which responses of a row passed."""
        return self.metric if row.count == 1 or self.is_chosen else PASS_AT_1

    def count_passing(self, row: LogRow) -> tuple[int, int]:
        """Return the number of responses of a row that passed, and the number of all.

        Raises:
            UserError: the row does not show how many passed.
        """
        samples = row.count
        if self.uses_verdicts:
            if (statuses := row.find_statuses(self.verdict_metric)) is None:
                raise UserError(
                    f"{row.place}: lacks a verdict on each response, unlike the log's first row; "
                    f"{self.remedy}"
                )
            return statuses.count("pass"), samples
        metric = self.find_metric(row)
        if samples > 1 and (metric != PASS_AT_1 or metric not in row.fields):
            raise UserError(self._format_several(row, f"{self.metric} does not say how many"))
        value = row.require_number(metric)
        if samples == 1:
            if value not in (0, 1):
                raise UserError(
                    f"{row.place}: {quote_unprintable(metric)} is {value:g}, expected 0 or 1; "
                    f"{self.remedy}"
                )
            return int(value), 1
        passing = round(value * samples)
        if abs(value * samples - passing) > _COUNT_TOLERANCE or not 0 <= passing <= samples:
            raise UserError(
                f"{row.place}: {PASS_AT_1} is {row.fields[PASS_AT_1]} over {samples} responses, "
                "which is not an integer number of them; expected the unbiased pass@1 over all "
                "samples"
            )
        return passing, samples

    def find_passed(self, row: LogRow) -> list[bool]:
        """Return for each response of a row whether it passed.

        Raises:
            UserError: the row does not show which responses passed.
        """
        passing, samples = self.count_passing(row)
        if self.uses_verdicts:
            return [status == "pass" for status in row.find_statuses(self.verdict_metric) or ()]
        if 0 < passing < samples:
            rate = f"{PASS_AT_1} of {row.require_number(PASS_AT_1):.3g} does not say which"
            raise UserError(self._format_several(row, rate))
        return [passing == samples] * samples

    def _format_several(self, row: LogRow, problem: str) -> str:
        return (
            f"{row.place}: {row.count} responses, and {quote_unprintable(problem)} of them passed; "
            f"{self.remedy}"
        )


def ungraded_error(log: Log, remedy: str) -> UserError:
    """Build the error for a log of ``lm_eval --predict_only``."""
    return UserError(
        f"{log.path}: nothing was graded (metric {UNGRADED!r}: a log of lm_eval --predict_only); "
        f"{remedy}"
    )


def read_lm_eval_rows(log: Log) -> Iterator[LogRow]:
    """Yield all rows of a log of lm_eval, under all filters.

    Raises:
        UserError: the file cannot be read, a line is not a JSON object, or the first line does not
            belong to a known kind of log.
    """
    for line, start, fields, place in read_records(log.path):
        if start == 0 and not fields.keys() & {"doc", "resps", "metrics", "filter"}:
            raise unknown_log_error(place, fields)
        yield LogRow(log, line, start, fields)


def unknown_log_error(place: str, record: Mapping[str, Any]) -> UserError:
    """Build the error for a log that no reader recognises."""
    return UserError(
        f"{place}: unknown kind of log (its keys: "
        f"{', '.join(map(quote_unprintable, record)) or 'none'}). Recognised by a key of the first "
        "line: lm_eval's samples (resps), plain JSON lines (text), Every Eval Ever's instance "
        "records (evaluation_id); by name: Inspect's logs "
        "(FILE.eval, FILE.json); by the columns doc, metric and model_response: lighteval's "
        "details (FILE.parquet). Add a reader of another kind with --plugin FILE"
    )


def read_rows(log: Log) -> Iterator[LogRow]:
    """Yield all rows of a log, as its reader returns them.

    Raises:
        UserError: the log cannot be read.
        PluginError: its reader failed, or yielded another type.
    """
    if log.reader is None:
        yield from read_lm_eval_rows(log)
        return
    with log.reader.wrap_errors():
        for number, row in enumerate(log.reader.value(log)):
            if not isinstance(row, LogRow):
                raise log.reader.contract_error(f"yielded {short(row)}; expected api.LogRow")
            yield replace(row, offset=number)


@contextmanager
def open_row_access(log: Log) -> Iterator[Callable[[int, int], LogRow]]:
    """Open a log for access to single rows.

    A compressed log, or a log of another tool, is copied once to a temporary file.

    Yields:
        A function that returns a row, given ``LogRow.line`` and ``LogRow.offset``.
    """
    with ExitStack() as stack:
        starts: array[int] | None = None
        if log.reader is not None:
            file: Any = stack.enter_context(tempfile.TemporaryFile())
            starts = array("q")
            for row in read_rows(log):
                starts.append(file.tell())
                file.write(json.dumps(dict(row.fields), default=str).encode() + b"\n")
        else:
            file = stack.enter_context(_open_seekable(log.path))

        def row_at(line: int, offset: int) -> LogRow:
            file.seek(offset if starts is None else starts[offset])
            place = f"{log.path}, line {line}"
            text = file.readline().decode("utf-8-sig", "replace")
            return LogRow(log, line, offset, require_object(parse_json(text, place), place))

        yield row_at


@contextmanager
def _open_seekable(path: Path) -> Iterator[Any]:
    """Open a file for seeking; decompress a gzip file to a temporary copy."""
    with open_unpacked(path) as source, tempfile.TemporaryFile() as copy:
        if isinstance(source, gzip.GzipFile):
            shutil.copyfileobj(source, copy)
        yield copy if isinstance(source, gzip.GzipFile) else source


def group_records(
    path: Path, key: Callable[[dict[str, Any], str], Hashable]
) -> Iterator[list[tuple[int, dict[str, Any], str]]]:
    """Yield groups of (line, object, place) of JSON lines with the same key, by their first line.

    Args:
        path: the file.
        key: a function that returns the key, given an object and its place.

    Raises:
        UserError: see ``read_records``.
    """
    lines: dict[Hashable, array[int]] = {}
    for line, start, record, place in read_records(path):
        lines.setdefault(key(record, place), array("q")).extend((line, start))
    with _open_seekable(path) as file:

        def record_at(line: int, start: int) -> tuple[int, dict[str, Any], str]:
            file.seek(start)
            place = f"{path}, line {line}"
            return line, parse_object(file.readline().decode("utf-8-sig"), place), place

        for positions in lines.values():
            yield [
                record_at(*positions[position : position + 2])
                for position in range(0, len(positions), 2)
            ]


def read_records(path: Path) -> Iterator[tuple[int, int, dict[str, Any], str]]:
    """Yield (line from 1, byte offset of its start, object, place) of JSON lines.

    Raises:
        UserError: the file cannot be read, or a line is not a JSON object.
    """
    starts = [0]

    def count_bytes(file: Iterable[bytes]) -> Iterator[bytes]:
        for line in file:
            starts[0] += len(line)
            yield line

    try:
        with open_unpacked(path) as file:
            start = 0
            for number, text in decode_lines(count_bytes(file), str(path)):
                if text.strip():
                    place = f"{path}, line {number}"
                    yield number, start, parse_object(text, place), place
                start = starts[0]
    except READ_ERRORS as error:
        raise UserError(describe_read_error(path, error)) from error


def find_field(document: Mapping[str, Any], name: str, place: str) -> Any:
    """Return a field of a document; dots select nested fields.

    Args:
        document: the document.
        name: the field, such as ``question`` or ``meta.id``.
        place: where the document is, for the message.

    Raises:
        UserError: the field is missing or null.
    """
    value: Any = document.get(name)
    if value is None and "." in name:
        value = document
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise UserError(
            f"{place}: doc has no field {name!r}, or it is null; {did_you_mean(name, document)}"
        )
    return value


def _name_status(passed: bool) -> str:
    return "pass" if passed else "fail"


def hash_value(value: Any) -> bytes:
    """Hash a JSON value, independent of the order of keys."""
    return hashlib.sha256(encode_canonical(value).encode()).digest()[:DIGEST_BYTES]


def _parse_score(option: Any) -> float | None:
    """Parse the log-likelihood of an option as lm_eval logs it: ``["-1.25", "False"]``."""
    try:
        return float(option[0]) if isinstance(option, list) and len(option) == 2 else None
    except (TypeError, ValueError, OverflowError):
        return None
