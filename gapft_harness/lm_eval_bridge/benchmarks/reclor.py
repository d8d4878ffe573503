"""ReClor: the pool is its training split (4,638), the audit its validation split (500).

The test split has no labels. The license allows research use only.
"""

from __future__ import annotations

from functools import partial

from gapft_harness.lm_eval_bridge.benchmarks.splits import (
    Source,
    Splits,
    describe_unpublished,
    fetch_hub_file,
)
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Documents,
    check_choice,
    check_fields,
)

SOURCE = Source(
    benchmark="ReClor",
    folder="reclor",
    origin="the hub's dataset tasksource/reclor",
    variable="GAPFT_REVISION_RECLOR",
)

#: Count of the real validation split (Section 4.1).
PAPER_COUNTS = {"audit": 500}


def load(revision: str) -> Splits:
    """Load the splits ``pool`` (train.json) and ``audit`` (val.json).

    Args:
        revision: commit of the hub's dataset, used if ``GAPFT_DATA_DIR`` has no folder
            ``reclor``.

    Returns:
        Splits of records with the files' fields: context, question, answers, label, id_string.
    """
    return Splits(
        {
            "pool": partial(_read_split, "train.json", "the pool", revision),
            "audit": partial(_read_audit, revision),
        }
    )


def _read_audit(revision: str) -> Documents:
    documents = _read_split("val.json", "the audit", revision)
    difference = describe_unpublished("audit", len(documents), PAPER_COUNTS["audit"])
    return documents.with_notes((), difference)


def _read_split(name: str, needed_for: str, pinned: str) -> Documents:
    fetch = partial(fetch_hub_file, "tasksource/reclor", name)
    documents = SOURCE.read(name, needed_for, pinned, fetch)
    check_fields(documents, {"context": str, "question": str, "id_string": str})
    check_choice(documents, "label", "answers")
    return documents
