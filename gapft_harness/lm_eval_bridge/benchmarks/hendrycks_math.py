r"""MATH: an audit of 600 problems chosen by a frozen rule, and the rest of training as the pool.

The rule: of the problems with a gold answer, the 600 with the smallest SHA-256 of
``gapft-math-audit-v1`` and the problem's text, out of the test split where there is one, else out
of the training split. The pool is every training problem whose text is not in the audit. To
calibrate on there are the 600 that follow by the same rule, of the test split's problems that are
not in training. The choice depends on the texts alone, not on a file's order or on where the files
came from.

The paper used 600 "disjoint MATH problems" and does not say which; this is our own choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.benchmarks.splits import Source, SplitData, Splits
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    check_fields,
    read_documents,
)
from gapft_harness.verification.boxes import last_box

SOURCE = Source(
    benchmark="MATH",
    folder="MATH",
    origin="the hub's dataset EleutherAI/hendrycks_math",
    variable="GAPFT_REVISION_MATH",
)

AUDIT_SIZE = 600
_SALT = "gapft-math-audit-v1"

#: The configurations of the hub's dataset.
SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)


def load(revision: str, audit_size: int = AUDIT_SIZE, **_: Any) -> Splits:
    """The splits ``pool``, ``audit`` and ``calibration``.

    Args:
        revision: commit of the hub's dataset, used where ``GAPFT_DATA_DIR`` has no folder
            ``MATH``.
        audit_size: problems of the audit, and to calibrate on; every number's audit contains the
            smaller ones'.

    Returns:
        Splits of records with problem, level, subject, solution, answer.
    """

    @cache
    def read(part: str) -> SplitData:
        return _with_gold(_records(part, revision), part)

    @cache
    def audit() -> SplitData:
        part = _audit_part()
        source = read(part)
        chosen = set(sorted({_key(d) for d in source.documents})[:audit_size])
        if len(chosen) < audit_size:
            raise UserError(
                f"{SOURCE.benchmark}: the audit needs {audit_size} different problems, but "
                f"{part} has {len(chosen)}"
            )
        documents = source.documents.where(_once(chosen))
        rest = len(source.documents) - len(documents)
        sentence = (
            f"MATH audit: {rest} of {len(source.documents)} problems of {part} dropped, the frozen "
            f"rule does not choose them; {len(documents)} kept"
        )
        return SplitData(documents, (*source.dropped, sentence))

    def pool() -> SplitData:
        source = read("train")
        taken = {_key(document) for document in audit().documents}
        rest = source.documents.where(lambda document: _key(document) not in taken)
        if not len(rest):
            raise UserError(f"{SOURCE.benchmark}: the audit takes all of train; the pool is empty")
        number = len(source.documents) - len(rest)
        return SplitData(
            rest,
            (
                *source.dropped,
                f"MATH pool: {number} of {len(source.documents)} problems of train dropped, they "
                f"are in the audit; {len(rest)} kept",
            ),
        )

    def calibration() -> SplitData:
        if _audit_part() != "test":
            raise UserError(
                f"{SOURCE.benchmark}: without test.jsonl the audit is of train, and no problem is "
                "left to calibrate on; give experiments.scaling.calibration a number of problems "
                "to take out of the pool (in a new run), or add the file"
            )
        source, known = read("test"), {_key(d) for d in read("train").documents}
        known |= {_key(d) for d in audit().documents}
        chosen = set(sorted({_key(d) for d in source.documents} - known)[:audit_size])
        if not chosen:
            raise UserError(
                f"{SOURCE.benchmark}: the audit takes all of test; none to calibrate on"
            )
        documents = source.documents.where(_once(chosen))
        sentence = (
            f"MATH calibration: {len(source.documents) - len(documents)} of "
            f"{len(source.documents)} problems of test dropped, the frozen rule does not choose "
            f"them, or they are in the audit or in train; {len(documents)} kept"
        )
        return SplitData(documents, (*source.dropped, sentence))

    return Splits(
        {"pool": pool, "audit": audit, "calibration": calibration}, unpublished=("calibration",)
    )


def _once(keys: set[str]) -> Callable[[Document], bool]:
    """Accepts one document of each key: of problems with one text, the audit holds one."""
    left = set(keys)

    def accept(document: Document) -> bool:
        key = _key(document)
        taken = key in left
        left.discard(key)
        return taken

    return accept


def _key(document: Document) -> str:
    return hashlib.sha256(f"{_SALT}\n{document['problem'].strip()}".encode()).hexdigest()


def _with_gold(documents: Documents, part: str) -> SplitData:
    """The records whose gold answer is not empty."""
    rest = documents.where(lambda document: bool(document["answer"].strip()))
    if not (dropped := len(documents) - len(rest)):
        return SplitData(rest)
    sentence = (
        f"MATH {part}: {dropped} of {len(documents)} problems dropped, their gold answer is empty; "
        f"{len(rest)} kept"
    )
    return SplitData(rest, (sentence,))


def _audit_part() -> str:
    folder = SOURCE.local()
    return "train" if folder is not None and not (folder / "test.jsonl").is_file() else "test"


def _records(part: str, pinned: str) -> Documents:
    folder = SOURCE.local()
    if folder is None:
        documents = _download(part, SOURCE.revision(pinned))
    else:
        path: Path = SOURCE.file(folder, f"{part}.jsonl", f"the {part} split")
        documents = read_documents(path)
    texts = ("problem", "level", "subject", "solution", "answer")
    check_fields(documents, dict.fromkeys(texts, str))
    return documents


def _download(part: str, revision: str) -> Documents:
    def fetch() -> Documents:
        from datasets import load_dataset

        records, places = [], []
        for subject in SUBJECTS:
            rows = load_dataset("EleutherAI/hendrycks_math", subject, split=part, revision=revision)
            for number, row in enumerate(rows, start=1):
                records.append(_as_local(row))
                places.append(f"{SOURCE.origin}, {subject}, {part}, record {number}")
        return Documents(records, places)

    return SOURCE.download(part, revision, fetch)


def _as_local(row: Document) -> Document:
    """The hub's record in the local files' form: its ``type`` is our subject."""
    return {
        "problem": row["problem"],
        "level": row["level"],
        "subject": row["type"],
        "solution": row["solution"],
        "answer": last_box(row["solution"]) or "",
    }
