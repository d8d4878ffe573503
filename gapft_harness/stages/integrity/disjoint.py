"""Check that splits are disjoint: by id, by content, and by prompt.

The audit measures what was learned only if none of its problems was trained on (Section 4.1: "an
audit set disjoint from the pool"). Two problems are the same if their ids are equal, if the content
hashes in their ids are, or if their prompts are, except for white space at the ends. Prompts that
differ in case or in inner white space are different problems; such pairs are counted in a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import content_digest
from gapft_harness.core.records import Problem
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.tables import read_prompts

#: A problem's id and the text it is compared by: its prompt without few-shot examples.
Keyed = tuple[str, str]

#: The remedy for a problem that is in a further audit.
ADVICE_FURTHER = (
    "remove them from the data of either task, or use another task for the audit "
    "(data.drop_shared applies only to the run's own audit)"
)

#: The remedy for a problem in two splits, by the split that should lose it.
ADVICE = {
    "pool": "remove them from the data, or from the pool (data.drop_shared=true)",
    "calibration": (
        "remove them from the data, or choose other calibration problems (key "
        "'experiments.scaling.calibration')"
    ),
}


def keyed(problems: Iterable[Problem]) -> list[Keyed]:
    """Return problems with their prompts as text."""
    return [(problem.id, problem.prompt) for problem in problems]


class Known:
    """Index of the problems of a split, to find them in another split."""

    def __init__(self, problems: Iterable[Keyed]) -> None:
        """Build the index; of problems that repeat each other the first is named."""
        self._by_mark: dict[str, str] = {}
        for problem in problems:
            for mark in _marks(problem):
                self._by_mark.setdefault(mark, problem[0])

    def find(self, problem: Keyed) -> str | None:
        """Return the id of the indexed problem that is the same; None if there is none."""
        found = (self._by_mark.get(mark) for mark in _marks(problem))
        return next((name for name in found if name is not None), None)

    def shared(self, problems: Iterable[Keyed]) -> list[Keyed]:
        """List the ids of problems that are also indexed, each with its id in the index."""
        pairs = ((problem[0], self.find(problem)) for problem in sorted(problems))
        return [(name, here) for name, here in pairs if here is not None]


def require_disjoint(
    problems: Iterable[Keyed], others: Iterable[Keyed], split: str, other: str, task: str
) -> None:
    """Require that no problem of one split is in another.

    Args:
        problems: the problems of the split.
        others: the problems of the other split.
        split: the split's name, ``pool`` or ``calibration``.
        other: the other split's name.
        task: the task's name.

    Raises:
        UserError: a problem is in both; the message has the count and the first pair.
    """
    problems = list(problems)
    if shared := Known(others).shared(problems):
        further = other not in ADVICE and other != "audit"
        advice = ADVICE_FURTHER if further else ADVICE[split]
        raise UserError(
            f"task {task}: {len(shared)} of {len(problems)} {split} problems are also in the "
            f"{other}, first: {shared[0][0]} (there {shared[0][1]}); expected none: {advice}"
        )


def require_apart(run: RunDirectory, splits: Iterable[str]) -> list[str]:
    """Require that the sealed splits of a run are disjoint.

    Returns:
        Warnings with counts: of pool problems that nearly equal an audit problem, and of those
        that equal one and are kept (``data.keep_shared``).

    Raises:
        UserError: a problem of one split is also in another.
    """
    there = {split: list(read_prompts(run.path / layout.problems(split))) for split in splits}
    data = run.recipe.data
    audits = [split for split in there if split not in ("pool", CALIBRATION)]
    pairs = [(split, audit) for split in (CALIBRATION, "pool") for audit in audits]
    for split, other in ((CALIBRATION, "pool"), *pairs):
        ours = data.keep_shared and (split, other) == ("pool", "audit")
        if split in there and other in there and not ours:
            require_disjoint(there[split], there[other], split, other, data.task)
    pool, kept = there.get("pool", []), ""
    if data.keep_shared:
        audit = there.get("audit", [])
        kept, known = overlap(pool, audit), Known(audit)
        pool = [problem for problem in pool if known.find(problem) is None]
    near = nearly(pool, chain(*(there[audit] for audit in audits)))
    return [said for said in (kept, near) if said]


def overlap(pool: Sequence[Keyed], audit: Sequence[Keyed]) -> str:
    """Warn of problems that are in both pool and audit and are kept; empty if there are none."""
    of_pool, of_audit = len(Known(audit).shared(pool)), len(Known(pool).shared(audit))
    if not of_pool:
        return ""
    return (
        f"{of_pool} of {len(pool)} pool problems are also in the audit, where they are {of_audit} "
        f"of {len(audit)} problems; they are kept (data.keep_shared), so conditions may be audited "
        "on problems that they were trained on"
    )


def nearly(pool: Iterable[Keyed], audit: Iterable[Keyed]) -> str:
    """Warn of pool problems that differ from an audit problem only in case or white space."""
    known = {_plain(text): name for name, text in audit}
    pairs = [(name, known[_plain(text)]) for name, text in sorted(pool) if _plain(text) in known]
    if not pairs:
        return ""
    some = "1 pool problem differs" if len(pairs) == 1 else f"{len(pairs)} pool problems differ"
    return (
        f"{some} from an audit problem only in case or white space, first: {pairs[0][0]} (there "
        f"{pairs[0][1]}); kept as separate problems"
    )


def _marks(problem: Keyed) -> tuple[str, ...]:
    """Return the marks that identify a problem: its id, the content hash in it, its prompt."""
    name, text = problem
    digest = content_digest(name)
    return (f"id {name}", f"prompt {text.strip()}", *([f"hash {digest}"] if digest else []))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
