"""Which problems each split of a run has: limits, repeats, and what calibration takes out.

The calibration problems are in neither pool nor audit, by id and by content, and no prompt takes
few-shot examples from the split they come from. That is checked whenever a split is read, so before
anything is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gapft_harness.errors import UserError
from gapft_harness.identities import content_digest, is_repeat
from gapft_harness.recipe import Recipe
from gapft_harness.records import Problem
from gapft_harness.run_directory import CALIBRATION, SPLITS, Split
from gapft_harness.streams import derive

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """The problems of one split.

    Attributes:
        problems: at least one.
        dropped: sentences with counts on what was dropped or taken out.
        golds: the split of the task that the gold answers stand in.
    """

    problems: list[Problem]
    dropped: tuple[str, ...]
    golds: Split


def read_split(task: LoadedTask, recipe: Recipe, split: Split) -> ReadSplit:
    """Reads one split of a run, with the recipe's limits applied.

    Raises:
        UserError: data that are missing or malformed, an empty split, calibration problems that
            are also in the pool or the audit, or few-shot examples of the calibration's split.
    """
    if recipe.scaling is None:
        return _read(task, recipe, split)
    _require_other_examples(task, recipe.scaling.calibration)
    audit = _read(task, recipe, "audit")
    read = {
        "pool": _read(task, recipe, "pool", audit.problems),
        "audit": audit,
        CALIBRATION: _read(task, recipe, CALIBRATION, audit.problems),
    }
    for other in SPLITS:
        require_disjoint(read[CALIBRATION].problems, read[other].problems, other, task.name)
    return read[split]


def _require_other_examples(task: LoadedTask, calibration: str | int) -> None:
    """Stops if few-shot examples come from the split that calibration problems come from."""
    source: Literal["pool", "calibration"]
    if isinstance(calibration, int):
        source, where = "pool", "training split"
        instead = "calibrate on its validation split (calibration: validation)"
    else:
        source, where = "calibration", "validation split"
        instead = "calibrate on problems of its training split (calibration: a number)"
    if shots := task.shots_from(source):
        raise UserError(
            f"task {task.name}: its num_fewshot is {shots}, and the examples come from its "
            f"{where}, as the calibration problems do (key 'scaling.calibration'), so prompts "
            "would show calibration problems with their answers; expected another split: name "
            f"one in the task's fewshot_split, set its num_fewshot to 0, or {instead}"
        )


def _read(
    task: LoadedTask, recipe: Recipe, split: Split, audit: Sequence[Problem] = ()
) -> ReadSplit:
    """One split by itself; what is taken out of the training split is none of ``audit``."""
    taken = None if recipe.scaling is None else recipe.scaling.calibration
    source: Split = "pool" if split == CALIBRATION and isinstance(taken, int) else split
    read: dict[Split, Callable[[], list[Problem]]] = {
        "pool": task.pool,
        "audit": task.audit,
        "calibration": task.validation,
    }
    before = len(task.dropped)
    problems = read[source]()
    dropped = task.dropped[before:]
    if recipe.data.deduplicate:
        kept = [problem for problem in problems if not is_repeat(problem.id)]
        if len(kept) < len(problems):
            dropped.append(
                f"{source}: {len(problems) - len(kept)} repeated problems dropped (deduplicate)"
            )
        problems = kept
    if source == "pool" and isinstance(taken, int):
        division = divide(problems, taken, audit)
        if split == CALIBRATION:
            problems, dropped = division.calibration, []
        else:
            problems = division.pool
            dropped.append(
                f"pool: {taken} problems taken out to calibrate on (scaling.calibration)"
            )
            dropped += [division.dropped] if division.dropped else []
    limits = {"pool": recipe.data.pool_limit, "audit": recipe.data.audit_limit}
    limit = limits.get(split)
    if limit is not None and limit < len(problems):
        problems = hash_order(problems)[:limit]
    if not problems:
        raise UserError(f"task {task.name}: its {split} split has no problems")
    return ReadSplit(problems, tuple(dropped), source)


@dataclass(frozen=True, slots=True)
class Division:
    """A training split divided into pool and calibration.

    Attributes:
        pool: what search looks through; the order of the split is kept.
        calibration: what was taken out.
        dropped: a sentence on pool problems that were dropped because their content was taken
            out; empty if there are none.
    """

    pool: list[Problem]
    calibration: list[Problem]
    dropped: str


def hash_order(problems: Sequence[Problem]) -> list[Problem]:
    """Problems by the frozen hash of their ids: limits take the first, calibration the last."""
    return sorted(problems, key=lambda problem: derive("limit", problem.id))


def divide(problems: Sequence[Problem], count: int, audit: Sequence[Problem] = ()) -> Division:
    """Takes the last ``count`` problems of the hash's order out of a training split.

    A limited pool is the first ones of that order, so it stays as it is without calibration
    wherever there are problems enough for both. Problems that repeat the content of one that was
    taken out leave the pool too. Those that are in the audit as well (``require_disjoint``'s
    rule) are not taken: they stay in the pool.

    Args:
        problems: the training split.
        count: how many to take out.
        audit: the audit's problems.

    Raises:
        UserError: there are too few to take, or nothing would be left for the pool.
    """
    audited = {problem.id for problem in audit}
    audited_contents = {digest for problem in audit for digest in _contents(problem)}
    candidates = [
        problem
        for problem in problems
        if problem.id not in audited and audited_contents.isdisjoint(_contents(problem))
    ]
    shared = len(problems) - len(candidates)
    if shared and count > len(candidates):
        raise UserError(
            f"key 'scaling.calibration': takes {count} problems out of a training split that has "
            f"{len(problems)}, but {shared} of these are also in the audit; expected at most "
            f"{len(candidates)}"
        )
    taken = hash_order(candidates)[-count:]
    ids = {problem.id for problem in taken}
    contents = {digest for problem in taken for digest in _contents(problem)}
    rest = [problem for problem in problems if problem.id not in ids]
    pool = [problem for problem in rest if contents.isdisjoint(_contents(problem))]
    if not pool:
        raise UserError(
            f"key 'scaling.calibration': takes {count} problems out of a training split that has "
            f"{len(problems)}, which leaves none for the pool; expected fewer"
        )
    repeats = len(rest) - len(pool)
    plural = "s" * (repeats > 1)
    dropped = f"pool: {repeats} problem{plural} dropped that repeat the content of one taken out"
    return Division(pool, taken, dropped if repeats else "")


def require_disjoint(
    calibration: Sequence[Problem], others: Sequence[Problem], split: str, task: str
) -> None:
    """Stops if a calibration problem is also in another split, by its id or by its content.

    Two problems are of one content if their ids have the same content hash, or their prompts are
    the same.

    Args:
        calibration: the calibration problems.
        others: those of the pool or the audit.
        split: that split's name, for the message.
        task: the task's name, for the message.

    Raises:
        UserError: one is; the message counts them and names the first pair.
    """
    by_content = {digest: problem for problem in others for digest in _contents(problem)}
    by_id = {problem.id: problem for problem in others}
    shared: list[tuple[Problem, Problem]] = []
    for problem in sorted(calibration, key=lambda p: p.id):
        found = [by_id[problem.id]] if problem.id in by_id else []
        found += [by_content[digest] for digest in _contents(problem) if digest in by_content]
        shared += [(problem, other) for other in found[:1]]
    if shared:
        problem, other = shared[0]
        raise UserError(
            f"task {task}: {len(shared)} of {len(calibration)} calibration problems are also in "
            f"the {split}, first: {problem.id} (there {other.id}); expected none: take them out "
            "of the data, or name other calibration problems (key 'scaling.calibration')"
        )


def _contents(problem: Problem) -> tuple[str, ...]:
    """What makes two problems the same: the content hash of the id, and the prompt."""
    digest = content_digest(problem.id)
    return (f"prompt {problem.prompt}", *([f"hash {digest}"] if digest else []))
