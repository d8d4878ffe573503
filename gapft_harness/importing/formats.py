"""The formats of files with responses, told apart by their first record or the file's name."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.errors import UserError, plain
from gapft_harness.importing.inspect_logs import read_inspect
from gapft_harness.importing.logs import read_log
from gapft_harness.importing.nemo_skills import ON, read_nemo_skills
from gapft_harness.importing.plain import read_plain
from gapft_harness.importing.rows import Format
from gapft_harness.verdicts.sample_logs import records

PLAIN = Format("jsonl", read_plain, numbered=True)
LM_EVAL = Format("lm-eval", read_log)
NEMO_SKILLS = Format("nemo-skills", read_nemo_skills, on=ON)
INSPECT = Format("inspect", read_inspect)

#: A key that only its format has.
_MARKS = {"resps": LM_EVAL, "generation": NEMO_SKILLS, "text": PLAIN}


def format_of(path: Path) -> Format:
    """The format of a file.

    Raises:
        UserError: it is empty, or of no known format.
    """
    if path.suffix in (".eval", ".json"):
        return INSPECT
    for _, _, record, place in records(path):
        for mark, of in _MARKS.items():
            if mark in record:
                return of
        raise UserError(
            f"{place}: of no known format (its keys: {', '.join(map(plain, record))}); expected a "
            "sample log of lm_eval (resps), output of NeMo-Skills (generation), or plain JSON "
            "lines (text), or a log of Inspect (FILE.eval or FILE.json)"
        )
    raise UserError(f"{path}: is empty; expected a JSON object a line")
