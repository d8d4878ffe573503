"""The formats of files with responses; the first record identifies the format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import RegisterLogReader
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.importing.every_eval_ever import every_eval_ever_rows, every_eval_ever_task
from gapft_harness.importing.inspect_logs import inspect_rows, inspect_task, read_inspect
from gapft_harness.importing.lighteval import lighteval_rows, of_lighteval
from gapft_harness.importing.nemo_skills import ON, nemo_skills_rows, read_nemo_skills
from gapft_harness.importing.plain import plain_rows, read_plain
from gapft_harness.importing.rows import Format, ImportChoice, ImportedResponse, taken
from gapft_harness.verdicts.places import LM_EVAL, log_at
from gapft_harness.verdicts.sample_logs import (
    Criterion,
    LogRow,
    SampleLog,
    lm_eval_rows,
    records,
    unknown_kind,
)

#: Formats for which an import reads more than a log's row: how a response ended, and its number.
_FORMATS = (
    Format("jsonl", read_plain, numbered=True),
    Format("nemo-skills", read_nemo_skills, on=ON),
    Format("inspect", read_inspect),
)
_REMEDY = (
    "name another metric (--metric), one log for each sample, or have the task's verifier judge "
    "(--judge)"
)
#: Keys that identify a format; the first key that a record has counts.
_MARKS = {
    "resps": LM_EVAL,
    "generation": "nemo-skills",
    "text": "jsonl",
    "evaluation_id": "every-eval-ever",
}


def _marked(name: str) -> Callable[[Path], bool]:
    """Build a function that recognizes a format by the keys of a file's first record."""

    def recognises(path: Path) -> bool:
        if not path.is_file() or path.suffix in (".eval", ".json", ".parquet"):
            return False
        try:
            first = next((record for _, _, record, _ in records(path)), {})
        except UserError:
            return False  # lm_eval's reader reports the fault
        return next((of for mark, of in _MARKS.items() if mark in first), None) == name

    return recognises


#: The beginning of an Inspect log in JSON; a folder may contain other JSON files.
_INSPECT = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,.{0,200}?"eval"\s*:\s*\{', re.DOTALL)
_HEAD = 400


def _of_inspect(path: Path) -> bool:
    if path.suffix == ".json" and path.is_file():
        try:
            with path.open("rb") as file:
                return _INSPECT.match(file.read(_HEAD)) is not None
        except OSError:
            return False  # the reader reports why it cannot be read
    return path.suffix == ".eval" and path.is_file()


@hookimpl
def register_log_readers(register: RegisterLogReader) -> None:
    """Register the bundled readers."""
    register(LM_EVAL, lm_eval_rows, recognises=_marked(LM_EVAL))
    register("nemo-skills", nemo_skills_rows, recognises=_marked("nemo-skills"))
    register("jsonl", plain_rows, recognises=_marked("jsonl"))
    register("inspect", inspect_rows, recognises=_of_inspect, task=inspect_task)
    register("lighteval", lighteval_rows, recognises=of_lighteval)
    register(
        *("every-eval-ever", every_eval_ever_rows),
        recognises=_marked("every-eval-ever"),
        task=every_eval_ever_task,
    )


def format_of(path: Path, plugin_files: Sequence[str] = ()) -> Format:
    """Find the format of a file by the log reader that recognizes it.

    Raises:
        UserError: the file is empty, or its format is unknown.
    """
    reader = load_plugins(plugin_files).log_reader(path)
    if reader is not None:
        known = {form.name: form for form in _FORMATS if not reader.code}
        read = partial(read_log, plugin_files=plugin_files)
        return known.get(reader.name) or Format(reader.name, read, filters=True)
    for _, _, record, place in records(path):
        raise unknown_kind(place, record)
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
    for row in SampleLog(log_at(path, plugin_files), choice.filter):
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
    """Return the source of a row's verdicts, and the rule that must be equal in all rows."""
    if criterion is None:
        return "", {}
    if criterion.by_verdicts:
        return "its verdicts", {}
    metric = criterion.metric_of(row)
    alone = {"metric": metric} if row.count == 1 else {}
    return f"{metric} under filter {row.filter}", {"filter": row.filter, **alone}
