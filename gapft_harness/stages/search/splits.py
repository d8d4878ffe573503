"""The problems of each split of a run: limits, repeats, and calibration problems.

No problem is in two splits (``stages/search/disjoint.py``), and no prompt contains a few-shot
example that is an audit or calibration problem. All splits are checked for this before anything is
generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import is_repeat
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import derive_key
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import CALIBRATION, Split, list_splits
from gapft_harness.stages.search.disjoint import (
    DuplicateIndex,
    KeyedText,
    require_disjoint,
)

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """The problems of one split.

    Attributes:
        problems: at least one.
        dropped: sentences with counts of dropped problems.
        gold_split: the task's split that contains the gold answers.
        warnings: sentences on counts that differ from the paper's, on problems that are shared with
            the audit, and on a pool that calibration halves.
    """

    problems: list[Problem]
    dropped: tuple[str, ...]
    gold_split: Split
    warnings: tuple[str, ...]


def read_splits(
    task: LoadedTask, recipe: Recipe, only: Sequence[Split] | None = None
) -> dict[Split, ReadSplit]:
    """Read all or some splits of a run's own task, and check that they are disjoint.

    Raises:
        UserError: missing or malformed data, an empty split, a problem in two splits, or few-shot
            examples that are audit or calibration problems.
    """
    run_splits = [split for split in list_splits(recipe) if only is None or split in only]
    splits = {split: read_split(task, recipe, split) for split in run_splits}
    questions: dict[str, list[KeyedText]] = {
        split: [(problem.id, task.find_question(problem)) for problem in read.problems]
        for split, read in splits.items()
    }
    keep_shared = recipe.data.keep_shared
    if note := require_disjoint(questions, task.name, keep_shared=keep_shared):
        splits["pool"] = replace(splits["pool"], warnings=(*splits["pool"].warnings, note))
    for split in ("audit", CALIBRATION):
        if split in splits:
            _require_other_examples(task, recipe, split, questions[split])
    return splits


def _require_other_examples(
    task: LoadedTask, recipe: Recipe, split: Split, problems: Sequence[KeyedText]
) -> None:
    """Require that no few-shot example of a task can be a problem of a split."""
    examples = task.list_examples()
    shared = DuplicateIndex(problems).list_shared(examples)
    if not shared:
        return
    remedy = ""
    if split == CALIBRATION:
        alternative = "problems of its training split (calibration: a number)"
        if isinstance(recipe.calibration, int):
            alternative = "its validation split (calibration: validation)"
        remedy = f", or calibrate on {alternative}"
    raise UserError(
        f"task {task.name}: num_fewshot is {task.num_fewshot}, and {len(shared)} of the "
        f"{len(examples)} records that examples are drawn from are {split} problems, first: "
        f"{shared[0][0]} (id in the {split} split: {shared[0][1]}), so prompts would show {split} "
        "problems with their answers. Name another split in the task's fewshot_split, remove the "
        f"problems from its data, set num_fewshot to 0{remedy}"
    )


def read_split(task: LoadedTask, recipe: Recipe, split: Split) -> ReadSplit:
    """Read one split of a run, with the recipe's limits applied.

    Raises:
        UserError: missing or malformed data, or an empty split.
    """
    needs_audit = recipe.data.drop_shared or recipe.calibration is not None
    if split == "audit" or not needs_audit:
        return _read_limited(task, recipe, split)
    return _read_limited(task, recipe, split, _read_limited(task, recipe, "audit").problems)


def _read_limited(
    task: LoadedTask, recipe: Recipe, split: Split, audit: Sequence[Problem] = ()
) -> ReadSplit:
    """Read one split; calibration problems are never problems of ``audit``."""
    calibration = recipe.calibration
    source: Split = "pool" if split == CALIBRATION and isinstance(calibration, int) else split
    dropped_count = len(task.dropped)
    warning_count = len(task.warnings)
    problems = task.read(source)
    halving_note = ""
    dropped = task.dropped[dropped_count:]
    if recipe.data.deduplicate:
        remaining = [problem for problem in problems if not is_repeat(problem.id)]
        if len(remaining) < len(problems):
            dropped.append(
                f"{source}: {len(problems) - len(remaining)} repeated problems dropped "
                "(deduplicate)"
            )
        problems = remaining
    # Leave out what the audit has
    if source == "pool" and recipe.data.drop_shared:
        audit_index = DuplicateIndex((problem.id, task.find_question(problem)) for problem in audit)
        remaining = [
            p for p in problems if audit_index.find_same((p.id, task.find_question(p))) is None
        ]
        if shared_count := len(problems) - len(remaining):
            dropped.append(
                f"pool: {shared_count} of {len(problems)} problems dropped because they are also "
                "in the audit (drop_shared)"
            )
        problems = remaining
    # Take the calibration's problems from the pool
    if source == "pool" and isinstance(calibration, int) and problems:
        pool, moved = divide_pool(problems, calibration, audit, task.find_question)
        if split == CALIBRATION:
            problems = moved
            dropped = []
        else:
            halving_note = _warn_of_halved_pool(calibration, len(problems), len(pool))
            dropped.append(
                f"pool: {calibration} problems moved to the calibration split "
                "(experiments.scaling.calibration)"
            )
            if repeats := len(problems) - len(moved) - len(pool):
                dropped.append(
                    f"pool: {repeats} problem{'s' * (repeats > 1)} dropped with the content of a "
                    "calibration problem"
                )
            problems = pool
    # Limit the number of problems
    limits = {"pool": recipe.data.pool_limit, "audit": recipe.data.audit_limit}
    limit = limits.get(split)
    if limit is not None and limit < len(problems):
        takes_first = recipe.data.limit_takes == "first"
        problems = (problems if takes_first else sort_by_hash(problems))[:limit]
    if not problems:
        reason = f" ({'; '.join(dropped)})" if dropped else ""
        raise UserError(f"task {task.name}: its {split} split has no problems{reason}")
    warnings = (*task.warnings[warning_count:], *filter(None, [halving_note]))
    return ReadSplit(problems, tuple(dropped), source, warnings)


def _warn_of_halved_pool(calibration_count: int, total: int, pool_count: int) -> str:
    """Warn if calibration uses at least half of the training split; else return an empty text."""
    if 2 * pool_count > total:
        return ""
    return (
        f"experiments.scaling.calibration: {calibration_count:,} leaves {pool_count:,} of "
        f"{total:,} training problems in the pool, so every condition can learn from half as many "
        "or fewer; use fewer, or calibrate on a validation split (experiments.scaling.calibration: "
        "validation)"
    )


def sort_by_hash(problems: Sequence[Problem]) -> list[Problem]:
    """Sort problems by the frozen hash of their ids: limits use the first, calibration the last."""
    return sorted(problems, key=lambda problem: derive_key("limit", problem.id))


def divide_pool(
    problems: Sequence[Problem],
    count: int,
    audit: Sequence[Problem] = (),
    find_question: Callable[[Problem], str] = lambda problem: problem.prompt,
) -> tuple[list[Problem], list[Problem]]:
    """Move the last ``count`` problems in hash order from a training split to calibration.

    A limited pool uses the first problems of that order, so calibration does not change it while
    there are enough problems for both. Problems with the same content as a calibration problem
    leave the pool too. Problems that are also in the audit (by the rule of
    ``stages/search/disjoint.py``) are not moved: they stay in the pool.

    Returns:
        The pool, in the order of the split, and the calibration problems.

    Raises:
        UserError: there are too few problems, or none would be left for the pool.
    """
    audit_index = DuplicateIndex((p.id, find_question(p)) for p in audit)
    candidates = [p for p in problems if audit_index.find_same((p.id, find_question(p))) is None]
    shared = len(problems) - len(candidates)
    if shared and count > len(candidates):
        raise UserError(
            f"key 'experiments.scaling.calibration': asks for {count} of the {len(problems)} "
            f"problems of the training split, but {shared} of these are also in the audit; "
            f"expected at most {len(candidates)}"
        )
    calibration = sort_by_hash(candidates)[-count:]
    ids = {problem.id for problem in calibration}
    remaining = [problem for problem in problems if problem.id not in ids]
    calibration_index = DuplicateIndex((p.id, find_question(p)) for p in calibration)
    pool = [p for p in remaining if calibration_index.find_same((p.id, find_question(p))) is None]
    if not pool:
        raise UserError(
            f"key 'experiments.scaling.calibration': asks for {count} of the {len(problems)} "
            "problems of the training split, which leaves none for the pool; expected fewer"
        )
    return pool, calibration
