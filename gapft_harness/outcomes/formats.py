"""The formats of logs; the first record of JSON lines identifies theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import read_objects
from gapft_harness.hooks.specs import Register, hookimpl
from gapft_harness.outcomes.every_eval_ever import find_every_eval_ever_task, read_every_eval_ever
from gapft_harness.outcomes.inspect_logs import find_inspect_task, is_inspect_log, read_inspect
from gapft_harness.outcomes.json_lines import read_json_lines
from gapft_harness.outcomes.lighteval import is_lighteval_file, read_lighteval
from gapft_harness.outcomes.lm_eval_logs import read_lm_eval_log

#: The name of lm_eval's format.
LM_EVAL = "lm-eval"
#: Keys that identify a format of JSON lines; the first key that a record has counts.
_KEYS = ("resps", "text", "evaluation_id")


@hookimpl
def register_log_readers(register: Register) -> None:
    """Register the bundled formats."""
    register(LM_EVAL, read_lm_eval_log, recognises=partial(_has_key, "resps"))
    register("jsonl", read_json_lines, recognises=partial(_has_key, "text"))
    register("inspect", read_inspect, recognises=is_inspect_log, task=find_inspect_task)
    register("lighteval", read_lighteval, recognises=is_lighteval_file)
    register(
        "every-eval-ever",
        read_every_eval_ever,
        recognises=partial(_has_key, "evaluation_id"),
        task=find_every_eval_ever_task,
    )


def _has_key(key: str, path: Path) -> bool:
    """Return whether a file's first record identifies its format by this key."""
    if not path.is_file() or path.suffix in (".eval", ".json", ".parquet"):
        return False
    try:
        _, first, _ = next(read_objects(path))
    except UserError:
        return False  # lm_eval's reader reports the fault
    return next((name for name in _KEYS if name in first), None) == key
