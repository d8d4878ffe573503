"""The formats of files with responses; the first record identifies the format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.specs import Register, hookimpl
from gapft_harness.importing.every_eval_ever import (
    read_every_eval_ever_rows,
    read_every_eval_ever_task,
)
from gapft_harness.importing.inspect_logs import read_inspect, read_inspect_rows, read_inspect_task
from gapft_harness.importing.lighteval import is_lighteval_file, read_lighteval_rows
from gapft_harness.importing.plain import read_plain, read_plain_rows
from gapft_harness.importing.rows import (
    ImportChoice,
    ImportedResponse,
    ImportFormat,
    create_verdict,
)
from gapft_harness.verdicts.log_files import LM_EVAL, open_log
from gapft_harness.verdicts.sample_logs import (
    Criterion,
    LogRow,
    SampleLog,
    read_lm_eval_rows,
    read_records,
    unknown_log_error,
)

#: Formats for which an import reads more than a log's row: how a response ended, and its number.
_FORMATS = (
    ImportFormat("jsonl", read_plain, is_numbered=True),
    ImportFormat("inspect", read_inspect),
)
_REMEDY = (
    "name another metric (--metric), one log for each sample, or have the task's verifier judge "
    "(--judge)"
)
#: Keys that identify a format; the first key that a record has counts.
_FORMAT_KEYS = {
    "resps": LM_EVAL,
    "text": "jsonl",
    "evaluation_id": "every-eval-ever",
}


def _build_recognizer(name: str) -> Callable[[Path], bool]:
    """Build a function that recognizes a format by the keys of a file's first record."""

    def is_of_format(path: Path) -> bool:
        if not path.is_file() or path.suffix in (".eval", ".json", ".parquet"):
            return False
        try:
            first = next((record for _, _, record, _ in read_records(path)), {})
        except UserError:
            return False  # lm_eval's reader reports the fault
        return (
            next((format_name for mark, format_name in _FORMAT_KEYS.items() if mark in first), None)
            == name
        )

    return is_of_format


#: The beginning of an Inspect log in JSON; a folder may contain other JSON files.
_INSPECT = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,.{0,200}?"eval"\s*:\s*\{', re.DOTALL)
_HEAD_BYTES = 400


def _is_inspect_log(path: Path) -> bool:
    if path.suffix == ".json" and path.is_file():
        try:
            with path.open("rb") as file:
                return _INSPECT.match(file.read(_HEAD_BYTES)) is not None
        except OSError:
            return False  # the reader reports why it cannot be read
    return path.suffix == ".eval" and path.is_file()


@hookimpl
def register_log_readers(register: Register) -> None:
    """Register the bundled readers."""
    register(LM_EVAL, read_lm_eval_rows, recognises=_build_recognizer(LM_EVAL))
    register("jsonl", read_plain_rows, recognises=_build_recognizer("jsonl"))
    register("inspect", read_inspect_rows, recognises=_is_inspect_log, task=read_inspect_task)
    register("lighteval", read_lighteval_rows, recognises=is_lighteval_file)
    register(
        *("every-eval-ever", read_every_eval_ever_rows),
        recognises=_build_recognizer("every-eval-ever"),
        task=read_every_eval_ever_task,
    )


def find_format(path: Path, plugin_files: Sequence[str] = ()) -> ImportFormat:
    """Find the format of a file by the log reader that recognizes it.

    Raises:
        UserError: the file is empty, or its format is unknown.
    """
    reader = load_plugins(plugin_files).find_log_reader(path)
    if reader is not None:
        formats_by_name = {form.name: form for form in _FORMATS if not reader.code_hash}
        read = partial(read_log, plugin_files=plugin_files)
        return formats_by_name.get(reader.name) or ImportFormat(reader.name, read, has_filters=True)
    for _, _, record, place in read_records(path):
        raise unknown_log_error(place, record)
    raise UserError(f"{path}: is empty; expected one JSON object per line")


def read_log(
    path: Path, choice: ImportChoice, greedy: bool, plugin_files: Sequence[str] = ()
) -> Iterator[ImportedResponse]:
    """Yield the responses of a log of lm_eval or of a plugin's reader, under one filter.

    Raises:
        UserError: a row is damaged, or does not show which of its responses passed; the message has
            file and line.
    """
    criterion: Criterion | None = None
    for row in SampleLog(open_log(path, plugin_files), choice.filter):
        texts = row.texts
        if greedy and len(texts) > 1:
            raise UserError(
                f"{row.place}: found {len(texts)} responses to one document; expected one in a log "
                "of greedy decodes"
            )
        key = "doc", row.document
        if criterion is None and not choice.judge:
            criterion = Criterion.of(row, choice.metric, _REMEDY)
        verdicts: list[Verdict] | list[None] = [None] * len(texts)
        if criterion is not None:
            verdicts = [create_verdict(passed) for passed in criterion.find_passed(row)]
        verdict_source, rule = _describe_verdicts(row, criterion)
        for number, text in enumerate(texts):
            yield ImportedResponse(
                *(
                    row.line,
                    row.place,
                    key,
                    GREEDY if greedy else number,
                    replace_text_surrogates(text),
                ),
                verdicts[number],
                verdict_source,
                rule=rule,
            )


def _describe_verdicts(row: LogRow, criterion: Criterion | None) -> tuple[str, dict[str, str]]:
    """Return the source of a row's verdicts, and the rule that must be equal in all rows."""
    if criterion is None:
        return "", {}
    if criterion.uses_verdicts:
        return "its verdicts", {}
    metric = criterion.find_metric(row)
    metric_rule = {"metric": metric} if row.count == 1 else {}
    return f"{metric} under filter {row.filter}", {"filter": row.filter, **metric_rule}
