"""Check that splits are disjoint: by id, by content, and by prompt.

The audit measures what was learned only if none of its problems was trained on (Section 3.1: it is
disjoint from the candidate pool). Two problems are the same if their ids are equal, if the content
hashes in their ids are, or if their prompts are, except for white space at the ends. Prompts that
differ in case or in inner white space are different problems; such pairs are counted in a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import extract_content_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.parquet import read_rows

#: A problem's id and the text it is compared by: its prompt; while data are read, without few-shot
#: examples.
KeyedText = tuple[str, str]

#: The remedy for a problem in two splits, by the split that should lose it.
REMEDIES = {
    "pool": "remove them from the data, or from the pool (data.drop_shared=true)",
    "calibration": (
        "remove them from the data, or choose other calibration problems (key "
        "'experiments.scaling.calibration')"
    ),
}


class DuplicateIndex:
    """Index of the problems of a split, to find them in another split."""

    def __init__(self, problems: Iterable[KeyedText]) -> None:
        """Build the index; of problems that repeat each other the first is named."""
        self._by_mark: dict[str, str] = {}
        for problem in problems:
            for mark in _list_marks(problem):
                self._by_mark.setdefault(mark, problem[0])

    def find_same(self, problem: KeyedText) -> str | None:
        """Return the id of the indexed problem that is the same; None if there is none."""
        problem_ids = (self._by_mark.get(mark) for mark in _list_marks(problem))
        return next((name for name in problem_ids if name is not None), None)

    def list_shared(self, problems: Iterable[KeyedText]) -> list[KeyedText]:
        """List the ids of problems that are also indexed, each with its id in the index."""
        pairs = ((problem[0], self.find_same(problem)) for problem in sorted(problems))
        return [(name, indexed_id) for name, indexed_id in pairs if indexed_id is not None]


def require_disjoint(
    prompts: Mapping[str, Sequence[KeyedText]], task: str, *, keep_shared: bool
) -> str:
    """Require that no problem is in two splits.

    Args:
        prompts: the problems of some splits, by split.
        task: the task's name.
        keep_shared: whether pool and audit may share problems (``data.keep_shared``).

    Returns:
        A warning with the number of problems that pool and audit share; empty if there are none.

    Raises:
        UserError: a problem is in two splits; the message has the count and the first pair.
    """
    for split, other in (("pool", "audit"), (CALIBRATION, "pool"), (CALIBRATION, "audit")):
        is_kept = keep_shared and split == "pool"
        if split in prompts and other in prompts and not is_kept:
            shared = DuplicateIndex(prompts[other]).list_shared(prompts[split])
            if shared:
                raise UserError(
                    f"task {task}: {len(shared)} of {len(prompts[split])} {split} problems are "
                    f"also in the {other}, first: {shared[0][0]} (there {shared[0][1]}); expected "
                    f"none: {REMEDIES[split]}"
                )
    if not keep_shared:
        return ""
    return warn_of_overlap(prompts.get("pool", ()), prompts.get("audit", ()))


def check_searched_splits(run: RunDirectory, splits: Iterable[str]) -> list[str]:
    """Require that the finished splits of a run are disjoint.

    Returns:
        Warnings with counts: of pool problems that nearly equal an audit problem, and of those
        that equal one and are kept (``data.keep_shared``).

    Raises:
        UserError: a problem of one split is also in another, or a table is damaged.
    """
    prompts = {split: _read_prompts(run.path / layout.problems_path(split)) for split in splits}
    data = run.recipe.data
    overlap_warning = require_disjoint(prompts, data.task, keep_shared=data.keep_shared)
    pool = prompts.get("pool", [])
    audit = prompts.get("audit", [])
    if overlap_warning:
        audit_index = DuplicateIndex(audit)
        pool = [problem for problem in pool if audit_index.find_same(problem) is None]
    near_warning = warn_of_near_duplicates(pool, audit)
    return [warning for warning in (overlap_warning, near_warning) if warning]


def _read_prompts(path: Path) -> list[KeyedText]:
    try:
        rows = read_rows(path, ["problem_id", "prompt"])  # without golds and documents
        return [(row["problem_id"], row["prompt"]) for row in rows]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it") from error


def warn_of_overlap(pool: Sequence[KeyedText], audit: Sequence[KeyedText]) -> str:
    """Warn of problems that are in both pool and audit and are kept; empty if there are none."""
    pool_count = len(DuplicateIndex(audit).list_shared(pool))
    audit_count = len(DuplicateIndex(pool).list_shared(audit))
    if not pool_count:
        return ""
    return (
        f"{pool_count} of {len(pool)} pool problems are also in the audit, where they are "
        f"{audit_count} of {len(audit)} problems; they are kept (data.keep_shared), so conditions "
        "may be audited on problems that they were trained on"
    )


def warn_of_near_duplicates(pool: Iterable[KeyedText], audit: Iterable[KeyedText]) -> str:
    """Warn of pool problems that differ from an audit problem only in case or white space."""
    audit_ids_by_text = {_normalize(text): name for name, text in audit}
    pairs = [
        (name, audit_ids_by_text[_normalize(text)])
        for name, text in sorted(pool)
        if _normalize(text) in audit_ids_by_text
    ]
    if not pairs:
        return ""
    subject = "1 pool problem differs" if len(pairs) == 1 else f"{len(pairs)} pool problems differ"
    return (
        f"{subject} from an audit problem only in case or white space, first: {pairs[0][0]} (there "
        f"{pairs[0][1]}); kept as separate problems"
    )


def _list_marks(problem: KeyedText) -> tuple[str, ...]:
    """Return the marks that identify a problem: its id, the content hash in it, its prompt."""
    name, text = problem
    digest = extract_content_hash(name)
    return (f"id {name}", f"prompt {text.strip()}", *([f"hash {digest}"] if digest else []))


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()
