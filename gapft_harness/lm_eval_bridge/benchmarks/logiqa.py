"""LogiQA 2.0: the audit is its test split, the pool its training split, without shared prompts.

Section 4.1 of the paper: the audit has the 1,367 test problems whose prompt never appears in the
training split; the 211 training records whose prompt appears in the test split are dropped from the
pool. A prompt consists of text, question and options, without white space at their ends. The older
protocol uses the complete test split as audit and the complete training split as pool, including
shared prompts (derived in docs/paper.md). The calibration split is dev.txt without the records
whose prompt is in one of the other two.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.benchmarks.splits import (
    Source,
    Splits,
    describe_unpublished,
)
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    check_choice,
    check_fields,
)

SOURCE = Source(
    benchmark="LogiQA 2.0",
    folder="logiqa2",
    origin="github.com/csitfun/LogiQA2.0",
    variable="GAPFT_REVISION_LOGIQA2",
)

_WHOLE_TEST = "whole test split"

#: Counts of the real splits (Section 4.1; for the older protocol, its appendix).
PAPER_COUNTS = {"audit": 1_367, "dropped from the pool": 211, _WHOLE_TEST: 1_572}


def load(revision: str) -> Splits:
    """Load ``pool``, ``audit`` and ``calibration`` (disjoint), and complete ``train`` and ``test``.

    Args:
        revision: commit of the repository that the files are downloaded from if
            ``GAPFT_DATA_DIR`` has no folder ``logiqa2``.

    Returns:
        Splits of records with the files' fields: id, answer, text, question, options, type.
    """

    @cache
    def read(name: str) -> Documents:
        needed_for = "keeping the pool and the audit apart"
        documents = SOURCE.read(name, needed_for, revision, partial(_download_file, name))
        check_fields(documents, {"id": int | str, "text": str, "question": str})
        check_choice(documents, "answer", "options")
        return documents

    def read_split(label: str, part: str, *others: str) -> Documents:
        documents = read(part)
        other_names = " or ".join(others)
        elsewhere = {_normalize_prompt(document) for other in others for document in read(other)}
        rest = documents.keep(
            lambda document: _normalize_prompt(document) not in elsewhere,
            f"{SOURCE.benchmark} {label}",
            f"records of {part}",
            f"prompt is in {other_names}",
        )
        if not len(rest):
            raise UserError(f"{SOURCE.benchmark}: every prompt of {part} is also in {other_names}")
        dropped = len(documents) - len(rest)
        counted = {"pool": ("dropped from the pool", dropped), "audit": ("audit", len(rest))}
        return _compare_with_paper(rest, *counted[label]) if label in counted else rest

    def read_whole_test() -> Documents:
        documents = read("test.txt")
        return _compare_with_paper(documents, _WHOLE_TEST, len(documents))

    return Splits(
        {
            "pool": lambda: read_split("pool", "train.txt", "test.txt"),
            "audit": lambda: read_split("audit", "test.txt", "train.txt"),
            "calibration": lambda: read_split("calibration", "dev.txt", "train.txt", "test.txt"),
            "train": lambda: read("train.txt"),
            "test": read_whole_test,
        }
    )


def _compare_with_paper(documents: Documents, what: str, count: int) -> Documents:
    """Note a count that differs from the paper's."""
    difference = describe_unpublished(what, count, PAPER_COUNTS[what])
    return documents.with_notes(documents.dropped, difference)


def _normalize_prompt(document: Document) -> tuple[str, ...]:
    options = tuple(option.strip() for option in document["options"])
    return (document["text"].strip(), document["question"].strip(), *options)


def _download_file(name: str, revision: str) -> Path:
    from datasets import DownloadManager

    root = "https://raw.githubusercontent.com/csitfun/LogiQA2.0"
    url = f"{root}/{revision}/logiqa/DATA/LOGIQA/{name}"
    return Path(DownloadManager(dataset_name="logiqa2").download(url))
