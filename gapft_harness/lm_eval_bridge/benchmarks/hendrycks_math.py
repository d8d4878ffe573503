r"""MATH: an audit of 600 problems chosen by a frozen rule, and the rest of training as the pool.

The audit: among the problems with a gold answer, the 600 with the smallest SHA-256 of
``gapft-math-audit-v1`` and the problem's text, from the test split if it exists, else from the
training split. The pool: all training problems whose text is not in the audit. The calibration
split: the next 600 by the same rule, among the test problems that are not in training. The choice
depends only on the texts, not on the order or the source of the files.

The paper used 600 "disjoint MATH problems" and does not list them; this is our own choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.benchmarks.splits import Source, Splits
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    check_fields,
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


def load(revision: str) -> Splits:
    """Load the splits ``pool``, ``audit`` and ``calibration``.

    Args:
        revision: commit of the hub's dataset, used if ``GAPFT_DATA_DIR`` has no folder
            ``MATH``.

    Returns:
        Splits of records with problem, level, subject, solution, answer.
    """

    @cache
    def read(part: str) -> Documents:
        return _drop_empty_golds(_read_records(part, revision), part)

    @cache
    def read_audit() -> Documents:
        part = _choose_audit_part()
        source = read(part)
        chosen = set(sorted({_compute_key(document) for document in source})[:AUDIT_SIZE])
        if len(chosen) < AUDIT_SIZE:
            raise UserError(
                f"{SOURCE.benchmark}: {part} has {len(chosen)} different problems; expected at "
                f"least {AUDIT_SIZE} for the audit"
            )
        reason = "not chosen by the frozen rule"
        return source.keep(_accept_once(chosen), "MATH audit", f"problems of {part}", reason)

    def read_pool() -> Documents:
        audit_keys = {_compute_key(document) for document in read_audit()}
        rest = read("train").keep(
            lambda document: _compute_key(document) not in audit_keys,
            "MATH pool",
            "problems of train",
            "also in the audit",
        )
        if not len(rest):
            raise UserError(
                f"{SOURCE.benchmark}: the pool is empty: all problems of train are in the audit"
            )
        return rest

    def read_calibration() -> Documents:
        if _choose_audit_part() != "test":
            raise UserError(
                f"{SOURCE.benchmark}: no problems to calibrate on: without test.jsonl, the audit "
                "is taken from train; add the file, or set experiments.scaling.calibration to a "
                "number of problems to take from the pool (in a new run)"
            )
        source = read("test")
        excluded_keys = {_compute_key(d) for d in read("train")}
        excluded_keys |= {_compute_key(d) for d in read_audit()}
        chosen = set(sorted({_compute_key(d) for d in source} - excluded_keys)[:AUDIT_SIZE])
        if not chosen:
            raise UserError(
                f"{SOURCE.benchmark}: no problems to calibrate on: all of test is in the audit"
            )
        return source.keep(
            _accept_once(chosen),
            "MATH calibration",
            "problems of test",
            "not chosen by the frozen rule, or also in the audit or in train",
        )

    return Splits({"pool": read_pool, "audit": read_audit, "calibration": read_calibration})


def _accept_once(keys: set[str]) -> Callable[[Document], bool]:
    """Return a filter that accepts one document for each key, since texts may repeat."""
    left = set(keys)

    def accept(document: Document) -> bool:
        key = _compute_key(document)
        is_accepted = key in left
        left.discard(key)
        return is_accepted

    return accept


def _compute_key(document: Document) -> str:
    return hashlib.sha256(f"{_SALT}\n{document['problem'].strip()}".encode()).hexdigest()


def _drop_empty_golds(documents: Documents, part: str) -> Documents:
    """Drop records with an empty gold answer."""

    def has_gold(document: Document) -> bool:
        return bool(document["answer"].strip())

    if all(map(has_gold, documents)):
        return documents
    return documents.keep(has_gold, f"MATH {part}", "problems", "empty gold answer")


def _choose_audit_part() -> str:
    folder = SOURCE.find_folder()
    return "train" if folder is not None and not (folder / "test.jsonl").is_file() else "test"


def _read_records(part: str, pinned: str) -> Documents:
    fetch = partial(_download_records, part)
    documents = SOURCE.read(f"{part}.jsonl", f"the {part} split", pinned, fetch)
    texts = ("problem", "level", "subject", "solution", "answer")
    check_fields(documents, dict.fromkeys(texts, str))
    return documents


def _download_records(part: str, revision: str) -> Documents:
    from datasets import load_dataset

    records = []
    places = []
    for subject in SUBJECTS:
        rows = load_dataset("EleutherAI/hendrycks_math", subject, split=part, revision=revision)
        for number, row in enumerate(rows, start=1):
            records.append(_convert_record(row))
            places.append(f"{SOURCE.origin}, {subject}, {part}, record {number}")
    return Documents(records, places)


def _convert_record(row: Document) -> Document:
    """Convert a record of the hub to the form of the local files."""
    return {
        "problem": row["problem"],
        "level": row["level"],
        "subject": row["type"],
        "solution": row["solution"],
        "answer": last_box(row["solution"]) or "",
    }
