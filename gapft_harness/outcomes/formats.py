"""The formats of logs; the first record of JSON lines identifies theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import RegisterLogReader
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.outcomes.every_eval_ever import find_every_eval_ever_task, read_every_eval_ever
from gapft_harness.outcomes.inspect_logs import find_inspect_task, is_inspect_log, read_inspect
from gapft_harness.outcomes.json_lines import read_json_lines
from gapft_harness.outcomes.lighteval import is_lighteval_file, read_lighteval
from gapft_harness.outcomes.lm_eval_logs import read_lm_eval_log
from gapft_harness.outcomes.samples import LogFormat, read_records

#: The name of lm_eval's format.
LM_EVAL = "lm-eval"
#: Keys that identify a format of JSON lines; the first key that a record has counts.
_KEYS = {"resps": LM_EVAL, "text": "jsonl", "evaluation_id": "every-eval-ever"}


def _recognise_by_key(name: str) -> Callable[[Path], bool]:
    """Build a function that recognises a format by the keys of a file's first record."""

    def is_of_format(path: Path) -> bool:
        if not path.is_file() or path.suffix in (".eval", ".json", ".parquet"):
            return False
        try:
            _, first, _ = next(read_records(path))
        except UserError:
            return False  # lm_eval's reader reports the fault
        return next((format for key, format in _KEYS.items() if key in first), None) == name

    return is_of_format


FORMATS = (
    LogFormat(LM_EVAL, _recognise_by_key(LM_EVAL), read_lm_eval_log),
    LogFormat("jsonl", _recognise_by_key("jsonl"), read_json_lines),
    LogFormat("inspect", is_inspect_log, read_inspect, find_inspect_task),
    LogFormat("lighteval", is_lighteval_file, read_lighteval),
    LogFormat(
        "every-eval-ever",
        _recognise_by_key("every-eval-ever"),
        read_every_eval_ever,
        find_every_eval_ever_task,
    ),
)


@hookimpl
def register_log_readers(register: RegisterLogReader) -> None:
    """Register the bundled formats."""
    for log_format in FORMATS:
        register(
            log_format.name,
            log_format.read,
            recognises=log_format.recognises,
            task=log_format.find_task,
        )
