"""GSM8K: the pool is its training split (7,473), the audit its test split (1,319)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.benchmarks.splits import Source, Splits
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    check_fields,
    number_records,
)

SOURCE = Source(
    benchmark="GSM8K",
    folder="gsm8k",
    origin="the hub's dataset openai/gsm8k",
    variable="GAPFT_REVISION_GSM8K",
)

#: The benchmark's own names of the splits.
_PARTS = {"pool": "train", "audit": "test"}

#: The final answer of a solution, on its last line.
_FINAL = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")
#: Calculator annotations: ``2*3=<<2*3=6>>6``.
_NOTE = re.compile(r"<<[^<>\n]*>>")


def load(revision: str) -> Splits:
    """Read the splits ``pool`` and ``audit``.

    Args:
        revision: commit of the hub's dataset, used if ``GAPFT_DATA_DIR`` has no folder
            ``gsm8k``.

    Returns:
        Splits of records with question, solution (without calculator annotations), and answer (a
        number without thousands separators).
    """
    return Splits({split: partial(_read_split, part, revision) for split, part in _PARTS.items()})


def _read_split(part: str, pinned: str) -> Documents:
    fetch = partial(_download_split, part)
    documents = SOURCE.read(f"{part}.jsonl", f"the {part} split", pinned, fetch)
    check_fields(documents, {"question": str, "answer": str})
    records = [_parse_record(row, documents.describe_place(n)) for n, row in enumerate(documents)]
    return Documents(records, [documents.describe_place(n) for n in range(len(records))])


def _parse_record(row: Mapping[str, Any], place: str) -> Document:
    final = _FINAL.search(row["answer"])
    if final is None:
        raise UserError(
            f"{place}: 'answer' is {row['answer'][-60:]!r}; expected a solution that ends with "
            "'#### NUMBER'"
        )
    return {
        "question": row["question"],
        "solution": _NOTE.sub("", row["answer"][: final.start()]).strip(),
        "answer": final[1].replace(",", ""),
    }


def _download_split(part: str, revision: str) -> Documents:
    from datasets import load_dataset

    rows = load_dataset("openai/gsm8k", "main", split=part, revision=revision)
    return number_records(rows, f"{SOURCE.origin}, {part}")
